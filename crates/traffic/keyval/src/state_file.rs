//! The file that keeps a zone's pairs over restarts: a JSON object of keys and values. In a zone with a timeout a value
//! is an object `{"value": "...", "expire": N}`, N being milliseconds since 1970.

use crate::zone::KeyvalPair;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A file that is no state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedLine(pub String);

impl std::fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a state file. `timeout` in milliseconds applies to pairs without a time of expiry; without a timeout times of
/// expiry are ignored.
///
/// # Errors
/// The text is no such object.
pub fn parse_state(text: &[u8], timeout: Option<u64>, now: u64) -> Result<Vec<KeyvalPair>, MalformedLine> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let all = serde_json::from_slice::<Value>(text).map_err(|e| MalformedLine(e.to_string()))?;
    let Value::Object(all) = all else { return Err(MalformedLine("the outermost value is no object".into())) };
    let default = timeout.map(|timeout| now.saturating_add(timeout));
    all.into_iter()
        .map(|(key, value)| {
            let (value, expires) = match &value {
                Value::String(value) => (Some(value.as_str()), None),
                Value::Object(both) => (both.get("value").and_then(Value::as_str), both.get("expire")),
                _ => (None, None),
            };
            let value = value.ok_or_else(|| MalformedLine(format!("the value of \"{key}\" is not a string")))?;
            let wrong = || MalformedLine(format!("\"expire\" of \"{key}\" is no time"));
            let expires = expires.map(|at| at.as_u64().ok_or_else(wrong)).transpose()?;
            Ok(KeyvalPair::new(&key, value, default.map(|default| expires.unwrap_or(default))))
        })
        .collect()
}

/// Writes pairs as a state file's text, one a line.
pub fn format_state(pairs: &[KeyvalPair]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pairs.iter().map(|p| p.key.len() + p.value.len() + 16).sum::<usize>() + 4);
    out.push(b'{');
    for (index, pair) in pairs.iter().enumerate() {
        let (key, value) = (Value::from(&*pair.key), Value::from(&*pair.value));
        out.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        // Writing to memory does not fail.
        let _ = match pair.expires {
            None => write!(out, "{key}:{value}"),
            Some(at) => write!(out, "{key}:{{\"value\":{value},\"expire\":{at}}}"),
        };
    }
    out.extend_from_slice(b"\n}\n");
    out
}

/// Replaces the file: a reader, or a start after a crash, finds the old or the new text. Blocks until the disk has it.
///
/// # Errors
/// The failed call and its error; the old file is unchanged.
pub fn replace_file(path: &Path, text: &[u8]) -> Result<(), (&'static str, io::Error)> {
    // Another process may write the file during a binary upgrade, and another zone during a reload.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{}.tmp", std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
    let temporary = PathBuf::from(name);
    let written = write(&temporary, text).and_then(|()| fs::rename(&temporary, path).map_err(|e| ("rename", e)));
    if let Err(e) = written {
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if is_first(path) {
        remove_abandoned(path, folder);
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| ("fsync", e))
}

/// Age of a temporary file that no living process writes.
const ABANDONED: Duration = Duration::from_secs(60);

/// Tells whether this process has not replaced the file before.
fn is_first(path: &Path) -> bool {
    static REPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    REPLACED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_path_buf())
}

/// Removes temporary files of processes that were killed while they wrote.
fn remove_abandoned(path: &Path, folder: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let is_temporary = |file: &str| {
        let numbers =
            file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".tmp")?.split_once('.'));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        numbers.is_some_and(|(process, write)| is_number(process) && is_number(write))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || {
            entry
                .metadata()
                .and_then(|facts| facts.modified())
                .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        if entry.file_name().to_str().is_some_and(is_temporary) && is_old() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn write(temporary: &Path, text: &[u8]) -> Result<(), (&'static str, io::Error)> {
    match fs::remove_file(temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(("unlink", e)),
        _ => {}
    }
    // A new file: neither a symbolic link nor another process's file is written to.
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary).map_err(|e| ("open", e))?;
    file.write_all(text).map_err(|e| ("write", e))?;
    file.sync_all().map_err(|e| ("fsync", e))
}
