//! What `ps` shows as the process's command line (nginx: `ngx_setproctitle`).
//!
//! The kernel reads it from the memory in which the arguments, and behind them the environment, were handed over. The title is
//! written there, once the environment has been copied elsewhere.

use std::ffi::OsString;
use std::sync::OnceLock;

/// Where the arguments and the environment were handed over.
#[derive(Clone, Copy, Debug)]
struct Area {
    start: usize,
    end: usize,
}

static AREA: OnceLock<Option<Area>> = OnceLock::new();

/// Makes room for titles. To be called at the start of the program, while it has one thread.
pub fn prepare() {
    if !crate::process::single_threaded() {
        return;
    }
    let _ = AREA.set(area());
    if matches!(AREA.get(), Some(Some(_))) {
        let all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        for (name, value) in all {
            // SAFETY: there is one thread, so that nobody reads the environment meanwhile. Setting a variable copies it.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// The kernel's word on where they are (proc_pid_stat(5), fields 48 to 51).
fn area() -> Option<Area> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything.
    let rest: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| rest.get(number - 3)?.trim().parse::<usize>().ok();
    let (start, arg_end, env_start, env_end) = (field(48)?, field(49)?, field(50)?, field(51)?);
    // Where anything lies between the two, the arguments alone are ours.
    let end = if env_start == arg_end { env_end } else { arg_end };
    (start != 0 && end > start).then_some(Area { start, end })
}

/// Sets the title; it is cut off where the room ends. Nothing happens where [`prepare`] found none.
pub fn set(title: &str) {
    let Some(Some(area)) = AREA.get().copied() else { return };
    let room = area.end - area.start;
    let length = title.len().min(room.saturating_sub(1));
    // SAFETY: the kernel says that this memory holds the arguments and the environment; it is mapped and writable for as long
    // as the process lives. The program has copied both: `std::env::args` is not called after `prepare`, and `prepare` has
    // moved the environment. Only the main thread calls this.
    unsafe {
        std::ptr::write_bytes(area.start as *mut u8, 0, room);
        std::ptr::copy_nonoverlapping(title.as_ptr(), area.start as *mut u8, length);
    }
}
