//! Messages of the process: to the error log and, until it serves, to the terminal.

use arc_swap::ArcSwapOption;
use observe::{ErrorLog, Severity, Sink};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Exit code on which the master does not restart the worker (nginx: 2).
pub const FATAL: i32 = 2;

static LOG: ArcSwapOption<ErrorLog> = ArcSwapOption::const_empty();

/// Copies severe messages to the standard error stream (nginx: `ngx_use_stderr`).
static TERMINAL: AtomicBool = AtomicBool::new(true);

static AS_NGINX: AtomicBool = AtomicBool::new(false);

/// Records the program's name. As `nginx` it prints nginx's messages, for scripts.
pub fn started_as(program: &std::ffi::OsStr) {
    let is_nginx =
        std::path::Path::new(program).file_name().is_some_and(|name| name == "nginx" || name == "nginx-debug");
    AS_NGINX.store(is_nginx, Ordering::Relaxed);
}

pub fn is_nginx() -> bool {
    AS_NGINX.load(Ordering::Relaxed)
}

/// For terminal messages and process titles.
pub fn program_name() -> &'static str {
    if is_nginx() { "nginx" } else { "tidegate" }
}

pub fn set_log(log: Arc<ErrorLog>) {
    observe::set_process_log(log.clone());
    LOG.store(Some(log));
}

pub fn leave_terminal() {
    TERMINAL.store(false, Ordering::Relaxed);
}

/// A message without its time and process.
#[derive(Clone, Debug)]
pub struct Heard {
    pub level: Severity,
    pub words: String,
}

/// A call of [`collect_messages`] that has not returned.
struct MessageListener {
    level: Severity,
    messages: Vec<Heard>,
}

thread_local! {
    static LISTENING: RefCell<Vec<MessageListener>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and returns the messages of this level or a more severe one that it logged. Calls may be nested.
pub fn collect_messages<T>(level: Severity, work: impl FnOnce() -> T) -> (T, Vec<Heard>) {
    LISTENING.with_borrow_mut(|all| all.push(MessageListener { level, messages: Vec::new() }));
    let result = work();
    let ended = LISTENING.with_borrow_mut(Vec::pop);
    (result, ended.map(|ended| ended.messages).unwrap_or_default())
}

/// Logs a message of the process. Use [`log_message!`].
pub fn log_message(level: Severity, words: fmt::Arguments<'_>) {
    LISTENING.with_borrow_mut(|all| {
        for one in all.iter_mut().filter(|one| level <= one.level) {
            one.messages.push(Heard { level, words: words.to_string() });
        }
    });
    let log = LOG.load();
    if let Some(log) = log.as_ref() {
        log.log(level, 0, words);
    }
    let wrote = log.as_ref().is_some_and(|log| log.targets().iter().any(|t| matches!(t.sink, Sink::Stderr)));
    if TERMINAL.load(Ordering::Relaxed) && level <= Severity::Warn && !wrote {
        eprintln!("{}: [{}] {words}", program_name(), level.name());
    }
}

/// `say!(Notice, "start worker process {pid}")`.
#[macro_export]
macro_rules! say {
    ($level:ident, $($words:tt)*) => {
        $crate::messages::log_message(observe::Severity::$level, format_args!($($words)*))
    };
}

/// Action of `bug!` besides logging: 0 none, 1 stop, 2 abort.
static DEBUG_POINTS: AtomicU8 = AtomicU8::new(0);

/// Sets the action of `bug!` besides logging: 0 none, 1 stop, 2 abort.
pub fn set_debug_action(code: u8) {
    DEBUG_POINTS.store(code, Ordering::Relaxed);
}

fn debug_point() {
    match DEBUG_POINTS.load(Ordering::Relaxed) {
        1 => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        }
        2 => std::process::abort(),
        _ => {}
    }
}

/// Logs failed assertions (`bug!`) and panics as `[alert]`.
pub fn report_bugs() {
    base::on_bug(|what| {
        log_message(Severity::Alert, format_args!("bug: {what}"));
        debug_point();
    });
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload();
        let words = what.downcast_ref::<&str>().copied().or_else(|| what.downcast_ref::<String>().map(String::as_str));
        let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
        log_message(Severity::Alert, format_args!("panic: {}{place}", words.unwrap_or("no words")));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_heard_by_all_that_listen() {
        let ((inner, told), outer) = collect_messages(Severity::Warn, || {
            log_message(Severity::Warn, format_args!("before"));
            collect_messages(Severity::Emerg, || {
                log_message(Severity::Warn, format_args!("within"));
                log_message(Severity::Emerg, format_args!("severe"));
                1
            })
        });
        log_message(Severity::Emerg, format_args!("after"));
        let words = |all: &[Heard]| all.iter().map(|one| one.words.clone()).collect::<Vec<_>>();
        assert_eq!((inner, words(&told)), (1, vec!["severe".into()]));
        assert_eq!(words(&outer), ["before", "within", "severe"]);
    }
}
