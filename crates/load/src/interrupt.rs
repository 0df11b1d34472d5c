//! Being told to stop: the first INT, TERM or HUP ends what runs in good order, so that what has been measured is reported; the second
//! ends the program at once. Either way nothing that was started here is left running.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// The signal that came first; 0 before.
static CAME: AtomicI32 = AtomicI32::new(0);
/// Process groups of what was started and still runs.
static CHILDREN: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn stop_flag() -> &'static Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(Arc::default)
}

/// Whether the program was told to stop; the flag for those who look often.
pub fn flag() -> Arc<AtomicBool> {
    stop_flag().clone()
}

/// Whether the program was told to stop.
pub fn told() -> bool {
    stop_flag().load(Ordering::Relaxed)
}

static REASON: OnceLock<String> = OnceLock::new();

/// Ends what runs for a reason of its own, as a signal would; the first reason is kept.
pub fn stop(why: &str) {
    let _ = REASON.set(why.into());
    stop_flag().store(true, Ordering::SeqCst);
}

/// Why it was ended, where that was no signal.
pub fn reason() -> Option<&'static str> {
    REASON.get().map(String::as_str)
}

/// The exit status of a program that was told to stop, as shells count it (130 for INT, 143 for TERM); `None` if it was not.
pub fn status() -> Option<i32> {
    Some(CAME.load(Ordering::Relaxed)).filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

/// From here on signals are taken as the module says. Threads that are there already are not affected: call it first. Where it cannot
/// be done the signals end the program as ever.
pub fn watch() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let numbers = SIGNALS.map(Signal::as_raw);
        let Ok(signals) = net::process::Signals::block(&numbers) else { return };
        // It ends with the program.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(move || {
            loop {
                let waits = poll(&mut [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)], None);
                if waits.is_err_and(|e| e != rustix::io::Errno::INTR) {
                    return;
                }
                while let Some(received) = signals.next() {
                    let first = CAME.compare_exchange(0, received.signal, Ordering::SeqCst, Ordering::SeqCst);
                    stop_flag().store(true, Ordering::SeqCst);
                    if first.is_err() {
                        end_children();
                        std::process::exit(128 + received.signal);
                    }
                    eprintln!("\nstopping, and reporting what there is; once more ends at once");
                }
            }
        });
    });
}

/// Something was started as a process group of its own.
pub fn started(group: u32) {
    if let Ok(mut children) = CHILDREN.lock() {
        children.push(group as i32);
    }
}

/// It has ended.
pub fn ended(group: u32) {
    if let Ok(mut children) = CHILDREN.lock() {
        children.retain(|child| *child != group as i32);
    }
}

fn end_children() {
    let Ok(children) = CHILDREN.lock() else { return };
    for pid in children.iter().filter_map(|group| Pid::from_raw(*group)) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
