//! Entries as files: read with distrust, written under a temporary name and renamed when complete.

use crate::entry::{self, FIXED, Layout, LayoutError, Meta};
use crate::key::Hash;
use bytes::Bytes;
use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Heads are rarely longer.
const FIRST_READ: usize = 4096;
/// In bytes.
pub const HOT_BODY_MAX: u64 = 64 * 1024;

#[derive(Debug)]
pub enum Content {
    Memory(Bytes),
    /// In the file, from [`StoredEntry::body_start`].
    File(Arc<File>),
}

#[derive(Debug)]
pub struct StoredEntry {
    pub hash: Hash,
    pub key: Box<[u8]>,
    pub meta: Meta,
    pub head: Bytes,
    pub content: Content,
    pub body_start: u64,
    pub body_len: u64,
    pub inode: u64,
    pub disk_size: u64,
    /// Unix seconds of the last check that the path names this file; entries in memory check once a second.
    pub looked: AtomicI64,
    /// Purges of tags with which the entry was compared, see [`crate::purge::Purges::hit_by_tag`].
    pub compared_tags: AtomicU64,
    /// Data derived by readers, such as a parsed head.
    pub digest: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Besides its bytes.
const ENTRY_COST: u64 = 1024;

impl StoredEntry {
    pub fn cost(&self) -> u64 {
        let body = if let Content::Memory(b) = &self.content { b.len() as u64 } else { 0 };
        ENTRY_COST + body + 2 * self.head.len() as u64 + self.key.len() as u64 + self.meta.tags.size() as u64
    }
    /// Tells whether the file that was read is still at this path.
    pub fn still_there(&self, path: &Path) -> bool {
        let length = self.body_start + self.body_len;
        fs::symlink_metadata(path).is_ok_and(|m| m.ino() == self.inode && m.len() == length)
    }
}

#[derive(Debug)]
pub enum EntryError {
    /// No such file; not logged.
    Missing,
    /// Not an entry of this key.
    Wrong(&'static str),
    Io(io::Error),
}

impl From<io::Error> for EntryError {
    fn from(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOENT.raw_os_error() => EntryError::Missing,
            Some(code) if code == rustix::io::Errno::NOTDIR.raw_os_error() => EntryError::Missing,
            _ => EntryError::Io(e),
        }
    }
}

impl From<LayoutError> for EntryError {
    fn from(wrong: LayoutError) -> Self {
        EntryError::Wrong(match wrong {
            LayoutError::Small => "is too small",
            LayoutError::Version => "version mismatch",
            LayoutError::Damaged => "is damaged",
        })
    }
}

/// Reads an entry: its head, and a small body. `key`: the expected key, if known.
pub fn open_entry(path: &Path, hash: &Hash, key: Option<&[u8]>) -> Result<StoredEntry, EntryError> {
    use rustix::fs::OFlags;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(EntryError::Wrong("is not a file"));
    }
    let whole = facts.len();
    let mut bytes = Vec::with_capacity(FIRST_READ.min(whole as usize + 1));
    (&mut file).take(FIRST_READ as u64).read_to_end(&mut bytes)?;
    let layout = Layout::read(&bytes)?;
    if layout.body as u64 > whole {
        return Err(LayoutError::Small.into());
    }
    let small = layout.body_len <= HOT_BODY_MAX;
    let wanted = if small { whole } else { layout.body as u64 };
    if (bytes.len() as u64) < wanted {
        let more = wanted - bytes.len() as u64;
        // Exact, since the buffer may be kept.
        bytes.reserve_exact(more as usize + 1);
        (&mut file).take(more).read_to_end(&mut bytes)?;
    }
    let (meta, layout) = Meta::decode(&bytes)?;
    if (layout.body as u64).checked_add(layout.body_len) != Some(whole) {
        return Err(EntryError::Wrong("is truncated"));
    }
    let stored_key = bytes.get(layout.key..layout.etag - 1).unwrap_or_default();
    if key.is_some_and(|key| key != stored_key) {
        return Err(EntryError::Wrong("has md5 collision"));
    }
    let key = stored_key.into();
    let bytes = Bytes::from(bytes);
    let head = bytes.slice(layout.head..layout.body);
    let content = if small {
        let body = bytes.slice(layout.body..);
        if body.len() as u64 != layout.body_len {
            return Err(EntryError::Wrong("is truncated"));
        }
        Content::Memory(body)
    } else {
        Content::File(Arc::new(file))
    };
    Ok(StoredEntry {
        hash: *hash,
        key,
        meta,
        head,
        content,
        body_start: layout.body as u64,
        body_len: layout.body_len,
        inode: facts.ino(),
        disk_size: facts.blocks() * 512,
        looked: AtomicI64::new(0),
        compared_tags: AtomicU64::new(0),
        digest: OnceLock::new(),
    })
}

/// Reads the key and the facts of an entry.
///
/// # Errors
/// The file is missing, unreadable, or no entry.
pub fn key_and_meta(path: &Path) -> Result<(Vec<u8>, Meta), EntryError> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::with_capacity(FIRST_READ);
    (&mut file).take(FIRST_READ as u64).read_to_end(&mut bytes)?;
    let layout = Layout::read(&bytes)?;
    if bytes.len() < layout.body {
        let more = (layout.body - bytes.len()) as u64;
        (&mut file).take(more).read_to_end(&mut bytes)?;
    }
    let (meta, layout) = Meta::decode(&bytes)?;
    Ok((bytes.get(layout.key..layout.etag - 1).unwrap_or_default().to_vec(), meta))
}

/// Replaces the facts of an entry that is still the one read. `false`: the file has changed.
pub fn refresh_entry(path: &Path, stored: &StoredEntry, meta: &Meta) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    let facts = file.metadata()?;
    if facts.ino() != stored.inode || facts.len() != stored.body_start + stored.body_len {
        return Ok(false);
    }
    let bytes = meta.encode(&stored.key, &stored.head, stored.body_len);
    if bytes.len() as u64 != stored.body_start {
        return Ok(false);
    }
    // A single write of less than a page is atomic.
    file.write_all_at(&bytes[..FIXED], 0)?;
    Ok(true)
}

/// An entry being written; removed on drop unless placed.
#[derive(Debug)]
pub struct EntryDraft {
    file: File,
    temp: Option<PathBuf>,
    /// Bytes reserved for the head, which is written last.
    pub head_len: usize,
    written: u64,
    pending: Vec<u8>,
    write_size: usize,
}

impl Drop for EntryDraft {
    fn drop(&mut self) {
        if let Some(temp) = self.temp.take() {
            let _ = fs::remove_file(temp);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedEntry {
    pub inode: u64,
    pub disk_size: u64,
}

impl EntryDraft {
    /// `file` was created as `temp`; its first `head_len` bytes are reserved for the head.
    pub fn new(file: File, temp: PathBuf, head_len: usize, write_size: usize) -> EntryDraft {
        EntryDraft { file, temp: Some(temp), head_len, written: 0, pending: Vec::new(), write_size }
    }
    pub fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn flushed(&self) -> u64 {
        self.written
    }
    /// The growing file, for concurrent readers.
    pub fn reader(&self) -> &File {
        &self.file
    }
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= self.write_size { self.flush() } else { Ok(()) }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.pending, self.head_len as u64 + self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
    /// Writes the head and renames the file.
    pub fn place(mut self, head: &[u8], path: &Path) -> Result<PlacedEntry, NotPlaced> {
        let facts = self.complete(head).map_err(NotPlaced::Failed)?;
        match rename_within(self.temp.as_deref().unwrap_or(Path::new("")), path) {
            Ok(()) => {
                self.temp = None;
                Ok(PlacedEntry::of(&facts))
            }
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => Err(NotPlaced::Across(self)),
            Err(e) => Err(NotPlaced::Failed(e)),
        }
    }
    fn complete(&mut self, head: &[u8]) -> io::Result<fs::Metadata> {
        if head.len() != self.head_len {
            return Err(io::Error::other("the head does not fit its place"));
        }
        if self.written == 0 {
            let mut all = Vec::with_capacity(head.len() + self.pending.len());
            all.extend_from_slice(head);
            all.append(&mut self.pending);
            self.file.write_all_at(&all, 0)?;
        } else {
            self.flush()?;
            self.file.write_all_at(head, 0)?;
        }
        self.file.metadata()
    }
    /// Copies a complete file to another file system.
    pub fn copy_to(mut self, path: &Path) -> io::Result<PlacedEntry> {
        across(self.temp.as_deref().unwrap_or(Path::new("")), path)?;
        self.temp = None;
        fs::symlink_metadata(path).map(|facts| PlacedEntry::of(&facts))
    }
}

/// Why a draft has no name yet.
#[derive(Debug)]
pub enum NotPlaced {
    /// The path is on another file system; [`EntryDraft::copy_to`] may block for long.
    Across(EntryDraft),
    Failed(io::Error),
}

impl PlacedEntry {
    fn of(facts: &fs::Metadata) -> PlacedEntry {
        PlacedEntry { inode: facts.ino(), disk_size: facts.blocks() * 512 }
    }
}

/// Creates directories for the owner only.
pub fn make_folders(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

static NUMBER: AtomicU64 = AtomicU64::new(1);
const NAME_TRIES_MAX: u32 = 100;

/// Creates a file beside its final path: its name, a dot and ten digits.
pub fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut tries = 0;
    loop {
        // Another process (during an upgrade) may use the same directory.
        let salt = u64::from(std::process::id()) << 16;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(salt) % 10_000_000_000;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number:010}"));
        let temp = PathBuf::from(name);
        match File::options().read(true).write(true).create_new(true).mode(0o600).open(&temp) {
            Ok(file) => return Ok((file, temp)),
            Err(e) if e.kind() == io::ErrorKind::NotFound && tries < 3 => {
                if let Some(folder) = path.parent() {
                    make_folders(folder)?;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NAME_TRIES_MAX => {}
            Err(e) => return Err(e),
        }
        tries += 1;
    }
}

/// Renames a file, creating directories, across file systems if needed.
pub fn rename_file(from: &Path, to: &Path) -> io::Result<()> {
    match rename_within(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => across(from, to),
        done => done,
    }
}

fn rename_within(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = to.parent() {
                make_folders(folder)?;
            }
            fs::rename(from, to)
        }
        done => done,
    }
}

fn across(from: &Path, to: &Path) -> io::Result<()> {
    let (mut copy, temp) = create_beside(to)?;
    let copied = File::open(from).and_then(|mut file| {
        let times = fs::FileTimes::new().set_modified(file.metadata()?.modified()?);
        io::copy(&mut file, &mut copy)?;
        copy.flush()?;
        copy.set_permissions(file.metadata()?.permissions())?;
        copy.set_times(times)
    });
    if let Err(e) = copied.and_then(|()| fs::rename(&temp, to)) {
        let _ = fs::remove_file(&temp);
        return Err(e);
    }
    fs::remove_file(from)
}

/// Size in bytes from which removing may take a while.
const LONG: u64 = 1 << 20;

/// Unlinks a file, which frees its name at once. Dropping the returned remainder may block: do so outside of locks.
pub fn unlink_file(path: &Path, disk_size: u64) -> io::Result<Leftover> {
    if disk_size < LONG {
        return fs::remove_file(path).map(|()| Leftover(None));
    }
    let mut name = path.as_os_str().to_owned();
    // Named like an unfinished entry, which the loader removes.
    name.push(format!(".{:010}", NUMBER.fetch_add(1, Ordering::Relaxed) % 10_000_000_000));
    let aside = PathBuf::from(name);
    match fs::rename(path, &aside) {
        Ok(()) => Ok(Leftover(Some(aside))),
        Err(_) => fs::remove_file(path).map(|()| Leftover(None)),
    }
}

#[derive(Debug)]
pub struct Leftover(Option<PathBuf>);

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a complete entry with another head.
pub fn rewrite_entry(path: &Path, stored: &StoredEntry, meta: &Meta, head: &[u8]) -> io::Result<PlacedEntry> {
    if head.len() > entry::HEAD_MAX {
        return Err(io::Error::other("the head is too long"));
    }
    let (file, temp) = create_beside(path)?;
    let bytes = meta.encode(&stored.key, head, stored.body_len);
    let mut draft = EntryDraft::new(file, temp, bytes.len(), COPY_BYTES);
    match &stored.content {
        Content::Memory(body) => draft.write(body)?,
        Content::File(old) => {
            let mut buf = vec![0; COPY_BYTES];
            let (mut at, end) = (stored.body_start, stored.body_start + stored.body_len);
            while at < end {
                let n = old.read_at(&mut buf[..COPY_BYTES.min((end - at) as usize)], at)?;
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                draft.write(&buf[..n])?;
                at += n as u64;
            }
        }
    }
    match draft.place(&bytes, path) {
        Ok(placed) => Ok(placed),
        Err(NotPlaced::Failed(e)) => Err(e),
        Err(NotPlaced::Across(draft)) => draft.copy_to(path),
    }
}

const COPY_BYTES: usize = 64 * 1024;
