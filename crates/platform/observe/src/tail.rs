//! The newest lines of all error logs, kept in memory while a page shows them.

use crate::error_log::Severity;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Lines kept of the levels `warn` and worse.
pub const SEVERE_LINES_MAX: usize = 120;
/// Lines kept of other levels, which must not push the worse ones out.
pub const OTHER_LINES_MAX: usize = 60;
/// Maximum bytes of a kept line.
pub const LINE_BYTES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailLine {
    /// Number of the line since the process began to keep lines.
    pub number: u64,
    pub level: Severity,
    /// Without the line break; cut after [`LINE_BYTES_MAX`] bytes.
    pub text: Box<[u8]>,
}

/// Readers that want lines to be kept.
static READERS: AtomicUsize = AtomicUsize::new(0);
static LINES: Mutex<TailLines> = Mutex::new(TailLines { count: 0, severe: VecDeque::new(), other: VecDeque::new() });

struct TailLines {
    count: u64,
    severe: VecDeque<TailLine>,
    other: VecDeque<TailLine>,
}

/// Keeps lines until dropped.
#[derive(Debug)]
pub struct TailReader(());

impl TailReader {
    #[expect(clippy::new_without_default, reason = "a reader has an effect")]
    pub fn new() -> TailReader {
        READERS.fetch_add(1, Ordering::Relaxed);
        TailReader(())
    }
}

impl Drop for TailReader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn is_wanted() -> bool {
    READERS.load(Ordering::Relaxed) != 0
}

pub(crate) fn keep(level: Severity, line: &[u8]) {
    if !is_wanted() {
        return;
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text: Box<[u8]> = line.get(..LINE_BYTES_MAX).unwrap_or(line).into();
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.count += 1;
    let line = TailLine { number: lines.count, level, text };
    let (all, most) = match level <= Severity::Warn {
        true => (&mut lines.severe, SEVERE_LINES_MAX),
        false => (&mut lines.other, OTHER_LINES_MAX),
    };
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(line);
}

/// Oldest first.
pub fn tail_lines() -> Vec<TailLine> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<TailLine> = lines.severe.iter().chain(&lines.other).cloned().collect();
    all.sort_unstable_by_key(|line| line.number);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorLog, LineFormat, LogTarget, Sink, ring::Ring};
    use std::sync::Arc;

    #[test]
    fn the_newest_lines_are_kept_while_a_reader_wants_them() {
        let sink = Sink::Memory(Arc::new(Ring::new(4096)));
        let log = ErrorLog::new(vec![LogTarget { level: Severity::Info, sink, format: LineFormat::Text }]);
        log.log(Severity::Error, 0, format_args!("before"));
        let reader = TailReader::new();
        for n in 0..SEVERE_LINES_MAX + 5 {
            log.log(Severity::Error, 0, format_args!("error {n} {}", "x".repeat(2 * LINE_BYTES_MAX)));
            log.log(Severity::Info, 0, format_args!("remark {n}"));
        }
        for n in 0..OTHER_LINES_MAX + 5 {
            log.log(Severity::Info, 0, format_args!("later remark {n}"));
        }
        log.log(Severity::Debug, 0, format_args!("not recorded"));
        drop(reader);
        log.log(Severity::Error, 0, format_args!("after"));
        let all = tail_lines();
        let text = |line: Option<&TailLine>| line.map(|line| String::from_utf8_lossy(&line.text).into_owned());
        assert_eq!(all.len(), SEVERE_LINES_MAX + OTHER_LINES_MAX);
        assert!(text(all.first()).is_some_and(|text| text.contains("error 5 x")));
        assert!(text(all.last()).is_some_and(|text| text.contains("later remark 64")));
        assert!(all.is_sorted_by_key(|line| line.number));
        assert!(all.iter().all(|line| line.text.len() <= LINE_BYTES_MAX));
    }
}
