//! Stop signals: the first INT, TERM or HUP ends a run in good order, with its report; the second ends the program at
//! once. Neither leaves started processes running.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

static CAME: AtomicI32 = AtomicI32::new(0);
/// Live process groups started by this program.
static CHILDREN: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn stop_flag() -> &'static Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(Arc::default)
}

pub fn flag() -> Arc<AtomicBool> {
    stop_flag().clone()
}

pub fn told() -> bool {
    stop_flag().load(Ordering::Relaxed)
}

static REASON: OnceLock<String> = OnceLock::new();

/// Stops a run for a reason, as a signal would; keeps the first reason.
pub fn stop(why: &str) {
    let _ = REASON.set(why.into());
    stop_flag().store(true, Ordering::SeqCst);
}

pub fn reason() -> Option<&'static str> {
    REASON.get().map(String::as_str)
}

/// Exit status after a signal, as in shells (130 for INT, 143 for TERM); `None` without one.
pub fn status() -> Option<i32> {
    Some(CAME.load(Ordering::Relaxed)).filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

/// Handles stop signals from here on; earlier threads are unaffected. On failure signals end the program.
pub fn watch() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let numbers = SIGNALS.map(Signal::as_raw);
        let Ok(signals) = net::process::Signals::block(&numbers) else { return };
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
                    eprintln!("\nstopping, then reporting the results so far; again: ends at once");
                }
            }
        });
    });
}

pub fn started(group: u32) {
    if let Ok(mut children) = CHILDREN.lock() {
        children.push(group as i32);
    }
}

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
