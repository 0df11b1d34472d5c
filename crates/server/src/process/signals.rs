//! Signals: their meaning and their log messages (nginx: `ngx_process.c`).

use crate::say;
use net::process::ReceivedSignal;

pub const HUP: i32 = libc::SIGHUP;
pub const INT: i32 = libc::SIGINT;
pub const QUIT: i32 = libc::SIGQUIT;
pub const TERM: i32 = libc::SIGTERM;
pub const USR1: i32 = libc::SIGUSR1;
pub const USR2: i32 = libc::SIGUSR2;
pub const WINCH: i32 = libc::SIGWINCH;
pub const CHLD: i32 = libc::SIGCHLD;
pub const ALRM: i32 = libc::SIGALRM;
pub const IO: i32 = libc::SIGIO;

/// ALRM and IO, which nginx uses itself, are noted and have no effect: their default action ends the process.
pub const MASTER: &[i32] = &[HUP, INT, QUIT, TERM, USR1, USR2, WINCH, CHLD, ALRM, IO];
pub const WORKER: &[i32] = &[HUP, INT, QUIT, TERM, USR1, USR2, WINCH, ALRM, IO];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Terminate,
    Quit,
    Reopen,
    Reload,
    Ignore,
}

/// Returns the log message and the action; `alone` with `master_process off`.
pub fn worker_action(signal: i32, alone: bool) -> (&'static str, Action) {
    match signal {
        TERM | INT => (", exiting", Action::Terminate),
        QUIT => (", shutting down", Action::Quit),
        USR1 => (", reopening logs", Action::Reopen),
        HUP if alone => (", reconfiguring", Action::Reload),
        // The master sends WINCH to workers through the channel; the signal itself comes from terminals.
        WINCH | ALRM | IO => ("", Action::Ignore),
        _ => (", ignoring", Action::Ignore),
    }
}

pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        HUP => "SIGHUP",
        INT => "SIGINT",
        QUIT => "SIGQUIT",
        TERM => "SIGTERM",
        USR1 => "SIGUSR1",
        USR2 => "SIGUSR2",
        WINCH => "SIGWINCH",
        CHLD => "SIGCHLD",
        ALRM => "SIGALRM",
        IO => "SIGIO",
        _ => "a signal",
    }
}

pub fn note_signal(received: ReceivedSignal, action: &str) {
    let ReceivedSignal { signal, sender } = received;
    if sender > 0 {
        say!(Notice, "signal {signal} ({}) received from {sender}{action}", signal_name(signal));
    } else {
        say!(Notice, "signal {signal} ({}) received{action}", signal_name(signal));
    }
}
