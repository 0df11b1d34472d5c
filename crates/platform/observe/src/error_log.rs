//! The error log: levels, targets, lines (nginx: `ngx_log.c`). `error_log_value.rs` parses the directive.

use crate::clock;
use crate::detail::Detail;
use crate::json_line;
use crate::log_file::LogFile;
use crate::nginx_json;
use crate::ring::Ring;
use crate::syslog::SyslogTarget;
use crate::tail;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum length of a line, line break included (nginx: `NGX_MAX_ERROR_STR`).
pub const LINE_BYTES_MAX: usize = 2048;

/// Severity, most severe first (nginx: `NGX_LOG_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Severity {
    Stderr = 0,
    Emerg,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

impl Severity {
    pub const ALL: [Severity; 8] = [
        Severity::Emerg,
        Severity::Alert,
        Severity::Crit,
        Severity::Error,
        Severity::Warn,
        Severity::Notice,
        Severity::Info,
        Severity::Debug,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Severity::Stderr => "",
            Severity::Emerg => "emerg",
            Severity::Alert => "alert",
            Severity::Crit => "crit",
            Severity::Error => "error",
            Severity::Warn => "warn",
            Severity::Notice => "notice",
            Severity::Info => "info",
            Severity::Debug => "debug",
        }
    }
}

/// Level of all error logs of the process instead of their own; 0: their own.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// Sets the level of all error logs of the process, at once; `None`: each its own.
pub fn set_level(level: Option<u8>) {
    LEVEL.store(level.unwrap_or(0), Ordering::Relaxed);
}

/// Returns the level that all error logs have instead of their own.
pub fn level_of_all() -> Option<Severity> {
    let level = LEVEL.load(Ordering::Relaxed);
    Severity::ALL.into_iter().find(|one| *one as u8 == level)
}

#[derive(Clone, Debug)]
pub enum Sink {
    File(Arc<LogFile>),
    Stderr,
    Syslog(Arc<SyslogTarget>),
    Memory(Arc<Ring>),
}

/// Form of a target's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    #[default]
    Text,
    /// `format=json`
    Json,
    /// `json`: the members of nginx's commercial edition.
    NginxJson,
}

#[derive(Clone, Debug)]
pub struct LogTarget {
    pub level: Severity,
    pub sink: Sink,
    pub format: LineFormat,
}

#[derive(Clone, Debug, Default)]
pub struct ErrorLog {
    targets: Vec<LogTarget>,
    /// Lowest severity that any target records.
    most: Option<Severity>,
}

static PROCESS: Mutex<Option<Arc<ErrorLog>>> = Mutex::new(None);

/// Sets the log of the process: that of the main context, or of the command line until the configuration is known.
pub fn set_process_log(log: Arc<ErrorLog>) {
    *PROCESS.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
}

impl ErrorLog {
    pub fn new(targets: Vec<LogTarget>) -> ErrorLog {
        let most = targets.iter().map(|t| t.level).max();
        ErrorLog { targets, most }
    }

    pub fn targets(&self) -> &[LogTarget] {
        &self.targets
    }

    /// Tells whether any target records this level. Ask before building an expensive message.
    #[inline]
    pub fn wants(&self, level: Severity) -> bool {
        match LEVEL.load(Ordering::Relaxed) {
            0 => self.most.is_some_and(|most| level <= most),
            instead => level as u8 <= instead && self.most.is_some(),
        }
    }

    /// Writes one line; `connection` is printed as `*N` unless it is 0.
    pub fn log(&self, level: Severity, connection: u64, words: fmt::Arguments<'_>) {
        self.log_with(level, connection, words, &[]);
    }

    /// [`ErrorLog::log`] with details.
    pub fn log_with(&self, level: Severity, connection: u64, words: fmt::Arguments<'_>, details: &[Detail<'_>]) {
        if !self.wants(level) {
            return;
        }
        let mut text: Option<LogLine> = None;
        let (mut json, mut nginx_json): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
        if tail::is_wanted() {
            let line = text.get_or_insert_with(|| LogLine::new(level, connection, words, details));
            tail::keep(level, line.bytes());
        }
        for target in self.targets.iter().filter(|t| t.wants(level)) {
            let line = match target.format {
                LineFormat::Text => text.get_or_insert_with(|| LogLine::new(level, connection, words, details)).bytes(),
                LineFormat::Json => json.get_or_insert_with(|| json_line::line(level, connection, words, details)),
                LineFormat::NginxJson => {
                    nginx_json.get_or_insert_with(|| nginx_json::line(level.name(), connection, words, details))
                }
            };
            if let Err((e, syslog)) = target.write(level, line) {
                self.syslog_failed(&e, syslog);
            }
        }
    }

    /// Reports an unreachable syslog server to the other targets, or to the log of the process if there are none.
    pub fn syslog_failed(&self, e: &io::Error, target: &SyslogTarget) {
        let is_other = |target: &LogTarget| !matches!(target.sink, Sink::Syslog(_));
        let process = match self.targets.iter().any(is_other) {
            true => None,
            false => PROCESS.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let targets = process.as_ref().map_or(&self.targets, |log| &log.targets);
        let level = match e.kind() {
            io::ErrorKind::WouldBlock => Severity::Warn,
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected => Severity::Error,
            _ => Severity::Alert,
        };
        let words = format_args!("send() failed {} while logging to syslog, server: {}", os_error(e), target.server());
        let text = LogLine::new(level, 0, words, &[]);
        for target in targets.iter().filter(|t| t.wants(level) && is_other(t)) {
            let _ = match target.format {
                LineFormat::Text => target.write(level, text.bytes()),
                LineFormat::Json => target.write(level, &json_line::line(level, 0, words, &[])),
                LineFormat::NginxJson => target.write(level, &nginx_json::line(level.name(), 0, words, &[])),
            };
        }
    }
}

impl LogTarget {
    fn wants(&self, level: Severity) -> bool {
        match LEVEL.load(Ordering::Relaxed) {
            0 => level <= self.level,
            instead => level as u8 <= instead,
        }
    }
    /// Failures of files and terminals cannot be reported anywhere: only those of syslog are returned.
    fn write(&self, level: Severity, line: &[u8]) -> Result<(), (io::Error, &SyslogTarget)> {
        match &self.sink {
            Sink::File(file) => {
                let _ = file.append(line);
            }
            Sink::Stderr => {
                let _ = io::stderr().write_all(line);
            }
            Sink::Syslog(target) => {
                let message = line.strip_suffix(b"\n").unwrap_or(line);
                target.send((level as u8).saturating_sub(1), message).map_err(|e| (e, &**target))?;
            }
            Sink::Memory(ring) => ring.write(line),
        }
        Ok(())
    }
}

/// Formats an error of the operating system as nginx does: `(2: No such file or directory)`.
pub fn os_error(e: &io::Error) -> impl fmt::Display + '_ {
    struct Words<'a>(&'a io::Error);
    impl fmt::Display for Words<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0.raw_os_error() {
                Some(code) => {
                    let text = self.0.to_string();
                    write!(f, "({code}: {})", text.split(" (os error").next().unwrap_or_default())
                }
                None => {
                    // Errors of TLS have parentheses already.
                    let text = self.0.to_string();
                    if text.starts_with('(') { f.write_str(&text) } else { write!(f, "({text})") }
                }
            }
        }
    }
    Words(e)
}

/// Returns a line as the error log has it, with its line break.
pub fn format_line(level: Severity, words: fmt::Arguments<'_>) -> String {
    String::from_utf8_lossy(LogLine::new(level, 0, words, &[]).bytes()).into_owned()
}

/// In a fixed buffer: truncates, and escapes line breaks.
struct LogLine {
    buffer: [u8; LINE_BYTES_MAX],
    length: usize,
}

impl LogLine {
    fn new(level: Severity, connection: u64, words: fmt::Arguments<'_>, details: &[Detail<'_>]) -> LogLine {
        let mut line = LogLine { buffer: [0; LINE_BYTES_MAX], length: 0 };
        clock::with_cached(|strings| line.put(&strings.error_log));
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
        let _ = write!(line, " [{}] {pid}#{tid}: ", level.name());
        if connection != 0 {
            let _ = write!(line, "*{connection} ");
        }
        let _ = line.write_fmt(words);
        for detail in details {
            let _ = detail.write(&mut line);
        }
        line.buffer[line.length] = b'\n';
        line.length += 1;
        line
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Appends bytes that fit; the last byte is reserved for the line break.
    fn put(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - 1 - self.length;
        let bytes = &bytes[..bytes.len().min(room)];
        self.buffer[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl fmt::Write for LogLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_control = |c: &u8| (*c < 0x20 && *c != b'\t') || *c == 0x7f;
        let mut rest = text.as_bytes();
        while let Some(at) = rest.iter().position(is_control) {
            self.put(&rest[..at]);
            let hex = b"0123456789ABCDEF";
            let c = rest[at];
            self.put(&[b'\\', b'x', hex[usize::from(c >> 4)], hex[usize::from(c & 15)]]);
            rest = &rest[at + 1..];
        }
        self.put(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(level: Severity) -> (ErrorLog, Arc<Ring>) {
        let ring = Arc::new(Ring::new(8192));
        (ErrorLog::new(vec![LogTarget { level, sink: Sink::Memory(ring.clone()), format: LineFormat::Text }]), ring)
    }

    #[test]
    fn a_line_as_nginx_writes_it() {
        let (log, ring) = ring(Severity::Warn);
        assert!(log.wants(Severity::Error) && log.wants(Severity::Warn) && !log.wants(Severity::Notice));
        log.log(Severity::Error, 7, format_args!("open() \"{}\" failed", "/x\r\n[alert] forged"));
        log.log(Severity::Notice, 7, format_args!("not wanted"));
        let text = String::from_utf8(ring.contents()).expect("text");
        let (time, rest) = text.split_at(19);
        assert_eq!(time.len(), 19);
        let pid = std::process::id();
        let head = format!(" [error] {pid}#");
        assert!(rest.starts_with(&head), "{rest}");
        assert!(rest.ends_with(": *7 open() \"/x\\x0D\\x0A[alert] forged\" failed\n"), "{rest}");
    }

    #[test]
    fn a_long_line_is_cut() {
        let (log, ring) = ring(Severity::Info);
        log.log(Severity::Info, 0, format_args!("{}", "x".repeat(5000)));
        let text = ring.contents();
        assert_eq!(text.len(), LINE_BYTES_MAX);
        assert!(text.ends_with(b"x\n"));
    }

    #[test]
    fn without_targets_nothing_is_wanted() {
        assert!(!ErrorLog::default().wants(Severity::Emerg));
    }

    #[test]
    fn system_errors_have_number_and_words() {
        assert_eq!(os_error(&io::Error::from_raw_os_error(98)).to_string(), "(98: Address already in use)");
    }
}
