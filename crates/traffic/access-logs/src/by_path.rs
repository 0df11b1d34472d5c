//! Logs whose paths contain variables: opened per line, or cached.

use conf_schema::value::{parse_decimal, parse_sec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use observe::{Severity, os_error};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use variables::{AreaTypes, Session, Template};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConf {
    /// Id of the cache; blocks that inherit share one.
    id: usize,
    /// 0: none.
    max: usize,
    inactive: i64,
    min_uses: u32,
    valid: i64,
}

static IDS: AtomicUsize = AtomicUsize::new(1);

impl ValueKind for CacheConf {
    const SYNTAX: &'static str = "max=N [inactive=time] [min_uses=N] [valid=time] | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut conf =
            CacheConf { id: IDS.fetch_add(1, Ordering::Relaxed), max: 0, inactive: 10, min_uses: 1, valid: 60 };
        let mut off = false;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid =
                || Problem::says(format!("invalid \"open_log_file_cache\" parameter \"{}\"", word.text())).at(index);
            if let Some(value) = text.strip_prefix("max=") {
                conf.max = parse_decimal(value).ok_or_else(invalid)?;
            } else if let Some(value) = text.strip_prefix("inactive=") {
                conf.inactive = parse_sec(value.as_bytes()).ok_or_else(invalid)? as i64;
            } else if let Some(value) = text.strip_prefix("min_uses=") {
                conf.min_uses = parse_decimal(value).ok_or_else(invalid)?;
            } else if let Some(value) = text.strip_prefix("valid=") {
                conf.valid = parse_sec(value.as_bytes()).ok_or_else(invalid)? as i64;
            } else if text == "off" {
                off = true;
            } else {
                return Err(invalid());
            }
        }
        if off {
            conf.max = 0;
        } else if conf.max == 0 {
            return Err(Problem::says("\"open_log_file_cache\" must have \"max\" parameter"));
        }
        Ok(conf)
    }
}

struct Entry {
    fd: Option<OwnedFd>,
    /// Device and inode: a renamed file is reopened.
    identity: (u64, u64),
    checked: i64,
    used: i64,
    /// Number of its last use, for eviction.
    turn: u64,
    uses: u32,
}

thread_local! {
    static TURN: Cell<u64> = const { Cell::new(0) };
    static OPEN: RefCell<HashMap<(usize, Vec<u8>), Entry>> = RefCell::default();
}

pub fn close_thread() {
    OPEN.with_borrow_mut(HashMap::clear);
}

pub fn write_by_path<A: AreaTypes>(r: &mut A::Session, path: &Template<A>, cache: &CacheConf, line: &[u8]) {
    if !r.may_open_log() {
        return;
    }
    let path = path.eval(r);
    if path.contains(&0) {
        return;
    }
    let result = if cache.max == 0 { open(&path).and_then(|fd| append(&fd, line)) } else { cached(&path, cache, line) };
    if let Err(e) = result {
        let shown = String::from_utf8_lossy(&path);
        r.log(Severity::Crit, format_args!("open() \"{shown}\" failed {}", os_error(&e)));
    }
}

fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn open(path: &[u8]) -> std::io::Result<OwnedFd> {
    observe::log_file::open_log(bytes_path(path))
}

fn append(fd: &OwnedFd, line: &[u8]) -> std::io::Result<()> {
    let mut rest = line;
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn identity(path: &[u8]) -> (u64, u64) {
    std::fs::metadata(bytes_path(path)).map_or((0, 0), |meta| (meta.dev(), meta.ino()))
}

fn cached(path: &[u8], conf: &CacheConf, line: &[u8]) -> std::io::Result<()> {
    let now = base::clock::unix_seconds();
    let turn = TURN.get() + 1;
    TURN.set(turn);
    OPEN.with_borrow_mut(|open_files| {
        let key = (conf.id, path.to_vec());
        if let Some(entry) = open_files.get_mut(&key) {
            if now - entry.used > conf.inactive {
                (entry.uses, entry.fd) = (0, None);
            }
            (entry.used, entry.turn) = (now, turn);
            entry.uses = entry.uses.saturating_add(1);
            if now - entry.checked >= conf.valid {
                entry.checked = now;
                if identity(path) != entry.identity {
                    entry.fd = None;
                }
            }
            if let Some(fd) = &entry.fd {
                return append(fd, line);
            }
        }
        let fd = open(path)?;
        let result = append(&fd, line);
        if !open_files.contains_key(&key) {
            make_room(open_files, conf, now);
        }
        let blank = || Entry { fd: None, identity: (0, 0), checked: now, used: now, turn, uses: 1 };
        let entry = open_files.entry(key).or_insert_with(blank);
        if entry.uses >= conf.min_uses {
            (entry.identity, entry.checked, entry.fd) = (identity(path), now, Some(fd));
        }
        result
    })
}

/// Closes inactive files, and the least recently used one if the cache is full.
fn make_room(open_files: &mut HashMap<(usize, Vec<u8>), Entry>, conf: &CacheConf, now: i64) {
    open_files.retain(|(id, _), entry| *id != conf.id || now - entry.used <= conf.inactive);
    let own = open_files.iter().filter(|((id, _), _)| *id == conf.id);
    if own.clone().count() >= conf.max
        && let Some(oldest) = own.min_by_key(|(_, entry)| entry.turn).map(|(key, _)| key.clone())
    {
        open_files.remove(&oldest);
    }
}
