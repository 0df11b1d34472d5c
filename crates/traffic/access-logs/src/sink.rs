//! Log files with fixed names: buffers, timers, compression, and full disks.

use super::format::LineFormat;
use flate2::Compression;
use flate2::write::GzEncoder;
use observe::{ErrorLog, LogFile, Severity, os_error};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use variables::{AreaTypes, Session};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBuffer {
    pub size: usize,
    /// 0: unlimited.
    pub flush_ms: u64,
    pub gzip: Option<u32>,
}

pub struct FileSink {
    file: Arc<LogFile>,
    /// Set by the first line that requests it, while the configuration is read.
    buffering: OnceLock<LogBuffer>,
    health: Health,
}

#[derive(Default)]
struct Health {
    /// Second of the last error message, which is limited to one per second.
    complained: AtomicI64,
    /// Second in which the disk was full; no retry within it.
    full: AtomicI64,
    /// Rest of a truncated line, written first after recovery.
    cut: Mutex<Vec<u8>>,
    is_cut: AtomicBool,
}

struct Buffer {
    sink: Arc<FileSink>,
    error_log: Arc<ErrorLog>,
    lines: Vec<u8>,
    /// Number of flushes: timers of earlier lines are ignored.
    turn: u64,
}

/// Buffers of a thread, by the address of their sink, which they keep alive.
#[derive(Default)]
struct Buffers(HashMap<usize, Buffer>);

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for buffer in self.0.values_mut() {
            buffer.write_out();
        }
    }
}

pub fn flush_thread() {
    let buffers = BUFFERS.with_borrow_mut(|buffers| std::mem::take(&mut buffers.0));
    for mut buffer in buffers.into_values() {
        buffer.write_out();
    }
}

impl FileSink {
    pub fn path(&self) -> &Path {
        &self.file.path
    }
    pub fn new(file: Arc<LogFile>) -> FileSink {
        FileSink { file, buffering: OnceLock::new(), health: Health::default() }
    }
    /// Requests buffering; `false` if another line requested a different one.
    pub fn buffer(&self, wanted: LogBuffer) -> bool {
        *self.buffering.get_or_init(|| wanted) == wanted
    }
    pub fn line<A: AreaTypes>(self: &Arc<Self>, r: &mut A::Session, format: &LineFormat<A>, scratch: &mut Vec<u8>) {
        if self.health.full.load(Ordering::Relaxed) == base::clock::unix_seconds() {
            return;
        }
        let Some(buffering) = self.buffering.get() else {
            format.write(r, scratch);
            scratch.push(b'\n');
            let error_log = r.error_log();
            return self.append(scratch, error_log);
        };
        let key = Arc::as_ptr(self) as usize;
        // Takes the buffer out while variables are evaluated, so that re-entry finds no lock.
        let mut lines = BUFFERS.with_borrow_mut(|all| {
            let buffer = all.0.entry(key).or_insert_with(|| Buffer {
                sink: self.clone(),
                error_log: r.error_log().clone(),
                lines: Vec::with_capacity(buffering.size + 1024),
                turn: 0,
            });
            std::mem::take(&mut buffer.lines)
        });
        let start = lines.len();
        format.write(r, &mut lines);
        lines.push(b'\n');
        let mut emptied = false;
        if lines.len() > buffering.size {
            let error_log = r.error_log().clone();
            if start > 0 {
                self.write_out(lines.get(..start).unwrap_or_default(), &error_log);
                lines.drain(..start);
                emptied = true;
            }
            if lines.len() > buffering.size {
                self.write_out(&lines, &error_log);
                lines.clear();
            }
        }
        let begins = !lines.is_empty() && (start == 0 || emptied);
        let turn = BUFFERS.with_borrow_mut(|all| {
            let Some(buffer) = all.0.get_mut(&key) else { return 0 };
            buffer.lines = lines;
            buffer.turn += u64::from(emptied);
            buffer.turn
        });
        if begins && buffering.flush_ms > 0 {
            set_timer(key, turn, buffering.flush_ms);
        }
    }

    fn write_out(&self, lines: &[u8], error_log: &ErrorLog) {
        let Some(level) = self.buffering.get().and_then(|b| b.gzip) else { return self.append(lines, error_log) };
        let mut encoder = GzEncoder::new(Vec::with_capacity(lines.len() / 4 + 64), Compression::new(level));
        let packed = encoder.write_all(lines).and_then(|()| encoder.finish());
        match packed {
            Ok(packed) => self.append(&packed, error_log),
            Err(e) => error_log.log(Severity::Alert, 0, format_args!("compressing a log failed: {e}")),
        }
    }

    /// Writes once, and keeps the rest of a truncated line.
    fn append(&self, bytes: &[u8], error_log: &ErrorLog) {
        let Some(fd) = self.file.fd() else { return };
        let packed = self.buffering.get().is_some_and(|b| b.gzip.is_some());
        if !self.health.is_cut.load(Ordering::Acquire) {
            let Err((left, e)) = write_all(&fd, bytes) else { return };
            let end = if packed { begun(bytes, left) } else { line_end(bytes, left) };
            self.keep_cut(left.get(..end).unwrap_or(left));
            return self.complain(&e, error_log);
        }
        // After a full disk, the rest of the truncated line comes first.
        let rest = std::mem::take(&mut *self.health.cut.lock().unwrap_or_else(PoisonError::into_inner));
        self.health.is_cut.store(false, Ordering::Release);
        if let Err((left, e)) = write_all(&fd, &rest) {
            self.keep_cut(left);
            return self.complain(&e, error_log);
        }
        self.append(bytes, error_log);
    }

    fn keep_cut(&self, rest: &[u8]) {
        if !rest.is_empty() {
            self.health.cut.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(rest);
            self.health.is_cut.store(true, Ordering::Release);
        }
    }

    fn complain(&self, e: &io::Error, error_log: &ErrorLog) {
        let now = base::clock::unix_seconds();
        if e.raw_os_error() == Some(libc::ENOSPC) {
            self.health.full.store(now, Ordering::Relaxed);
        }
        if self.health.complained.swap(now, Ordering::Relaxed) != now {
            let path = self.file.path.display();
            error_log.log(Severity::Alert, 0, format_args!("write() to \"{path}\" failed {}", os_error(e)));
        }
    }
}

/// Returns the length of the unfinished line's rest; 0 if none of the line was written.
fn begun(all: &[u8], left: &[u8]) -> usize {
    if left.len() < all.len() { left.len() } else { 0 }
}

/// Returns the bytes of `left` that complete a started line; 0 if the write stopped between lines.
fn line_end(all: &[u8], left: &[u8]) -> usize {
    let written = all.len() - left.len();
    if written == 0 || all.get(written - 1) == Some(&b'\n') {
        return 0;
    }
    memchr::memchr(b'\n', left).map_or(left.len(), |at| at + 1)
}

/// Writes all bytes, or returns those that could not be written.
fn write_all<'a>(fd: &std::os::fd::OwnedFd, bytes: &'a [u8]) -> Result<(), (&'a [u8], io::Error)> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(0) => return Err((rest, io::ErrorKind::WriteZero.into())),
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err((rest, e.into())),
        }
    }
    Ok(())
}

impl Buffer {
    fn write_out(&mut self) {
        if !self.lines.is_empty() {
            self.sink.write_out(&self.lines, &self.error_log);
            self.lines.clear();
        }
    }
}

/// Flushes a buffer later, unless it was flushed in between.
fn set_timer(key: usize, turn: u64, after_ms: u64) {
    runtime::task::spawn_local(async move {
        runtime::time::sleep_for(Duration::from_millis(after_ms)).await;
        BUFFERS.with_borrow_mut(|all| {
            if let Some(buffer) = all.0.get_mut(&key)
                && buffer.turn == turn
            {
                buffer.write_out();
                buffer.turn += 1;
            }
        });
    });
}
