//! The process's command line in `ps` (nginx: `ngx_setproctitle`), written over arguments and environment, once the
//! latter is copied.

use std::ffi::OsString;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Memory of arguments and environment.
#[derive(Clone, Copy, Debug)]
struct Area {
    start: usize,
    end: usize,
}

static AREA: OnceLock<Option<Area>> = OnceLock::new();

/// Reserves room for titles; requires a single thread.
pub fn prepare() {
    if !crate::process::single_threaded() {
        return;
    }
    let _ = AREA.set(area());
    if matches!(AREA.get(), Some(Some(_))) {
        let all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        for (name, value) in all {
            // SAFETY: the process has one thread, so that no other thread reads the environment. Setting a variable
            // copies it.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// The kernel's positions (proc_pid_stat(5), fields 48 to 51).
fn area() -> Option<Area> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain anything.
    let rest: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| rest.get(number - 3)?.trim().parse::<usize>().ok();
    let (start, arg_end, env_start, env_end) = (field(48)?, field(49)?, field(50)?, field(51)?);
    // Uses the arguments alone if something lies between both.
    let end = if env_start == arg_end { env_end } else { arg_end };
    (start != 0 && end > start).then_some(Area { start, end })
}

/// Sets the title, cut to the room; no effect unless [`prepare`] found some. `std::env::args` would return the title
/// from then on: tidy forbids it outside of the program's first function.
pub fn set(title: &str) {
    static SETTING: Mutex<()> = Mutex::new(());
    let Some(Some(area)) = AREA.get().copied() else { return };
    let _alone = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
    let room = area.end - area.start;
    let length = title.len().min(room.saturating_sub(1));
    // SAFETY: the kernel says that this memory holds the arguments and the environment; it is mapped and writable for as long
    // as the process lives, and ends with a zero byte. Nothing else reads or writes it: `prepare` has moved the environment,
    // `std::env::args` is not called any more (tidy), and the lock keeps others from setting a title.
    unsafe {
        std::ptr::write_bytes(area.start as *mut u8, 0, room);
        std::ptr::copy_nonoverlapping(title.as_ptr(), area.start as *mut u8, length);
    }
}
