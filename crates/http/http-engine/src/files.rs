//! The thread's RAM cache of files: metadata of paths, contents of small files.
//! inotify watches every folder down to a file, and the loop reads events before requests. Without a watch (network
//! file systems, symbolic links, limits) each use costs a stat(), as in nginx without `open_file_cache`.
//! Writes through memory maps cause no events: entries are compared with their files after `recheck` milliseconds.

#[cfg(test)]
mod tests;

use crate::handler::ResponseBody;
use crate::path::bytes_path;
use crate::response::{FilePart, OpenFile};
use base::clock::{self, Instant};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use metrics::process;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Larger files are cached as open descriptors.
pub const OBJECT_BYTES_MAX: u64 = 256 * 1024;
/// In bytes, besides the content.
const ENTRY_BYTES: u64 = 512;
const OPEN_FILES_MAX: usize = 256;
/// Cached files from this size on also keep their descriptor, for the kernel to send: below, a copy from memory costs less
/// than the second system call (benches/runs/2026-11-28-2cpu-sizes).
pub const KERNEL_COPY_BYTES: u64 = 16 * 1024;
/// Descriptors kept beside contents, so that others remain for files that are not cached.
const COPIED_FILES_MAX: usize = OPEN_FILES_MAX / 2;
/// Maximum number of watches per thread; further entries are revalidated with stat().
const WATCHES_MAX: usize = 8192;
/// Folders without reports of changes (behind symbolic links, on network file systems) that are remembered, and for how
/// many milliseconds: a lookup in one resolves no links.
const UNREPORTED_MAX: usize = 256;
const UNREPORTED_MILLIS: u64 = 1000;
/// Cacheable errors. Others are transient; EACCES may change by policy without an event.
const ABOUT_THE_PATH: &[i32] = &[libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG];

/// Tells whether an error of a lookup means that the path names no file.
pub(crate) fn is_about_path(e: &io::Error) -> bool {
    e.raw_os_error().is_some_and(|code| ABOUT_THE_PATH.contains(&code))
}

/// Formats the validator of a response with a file's time (`ngx_http_set_etag`).
fn etag(modified: i64, length: u64) -> Arc<[u8]> {
    format!("\"{modified:x}-{length:x}\"").into_bytes().into()
}

impl FileEntry {
    /// Returns the whole file as a response's body; empty unless the entry is a file.
    pub fn body(&self) -> ResponseBody {
        match (&self.file, &self.content) {
            (Some(file), _) => ResponseBody::File(FilePart { file: file.clone(), start: 0, length: self.size }),
            (None, Some(content)) => ResponseBody::Bytes(content.clone()),
            (None, None) => ResponseBody::Empty,
        }
    }
    /// Validator of a response with another length than the file.
    pub fn etag_of_length(&self, length: u64) -> Arc<[u8]> {
        if length == self.size { self.etag.clone() } else { etag(self.modified, length) }
    }
}

/// A path that was looked up: its kind, times and size and, for a file, its content or descriptor.
#[derive(Debug)]
pub struct FileEntry {
    /// File, folder or other.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
    /// `"mtime-size"` in hexadecimal, with its quotes.
    pub etag: Arc<[u8]>,
    /// The whole content; `None` for files above [`OBJECT_BYTES_MAX`], for files that changed while they were read, and
    /// without the cache.
    pub content: Option<Bytes>,
    /// Open file, if the content is not cached or has at least [`KERNEL_COPY_BYTES`].
    pub file: Option<Rc<OpenFile>>,
    identity: FileIdentity,
    links: u64,
    /// Compressed representations of the content by encoding, kept by the compression filters.
    pub forms: RefCell<Vec<(&'static str, Bytes)>>,
}

/// Kind of a file, after symbolic links were followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A device, a socket or a FIFO.
    Other,
}

impl FileKind {
    fn of(meta: &Metadata) -> FileKind {
        match meta.is_dir() {
            true => FileKind::Folder,
            false if meta.is_file() => FileKind::File,
            false => FileKind::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    fn of(m: &Metadata) -> FileIdentity {
        FileIdentity {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        }
    }
}

struct Entry {
    found: Result<Rc<FileEntry>, i32>,
    /// The kernel reports changes; otherwise each use calls stat().
    watched: bool,
    used: Cell<bool>,
    seen: Instant,
}

struct Cache {
    /// Maximum bytes per thread; 0: caches nothing.
    bytes_max: u64,
    /// In milliseconds, for watched entries.
    recheck: u64,
    bytes: u64,
    open_files: usize,
    entries: HashMap<Box<[u8]>, Entry>,
    /// Order of arrival, for eviction: an entry used since then gets a second chance.
    order: std::collections::VecDeque<Box<[u8]>>,
    watches: Option<Watches>,
}

struct Watches {
    fd: OwnedFd,
    by_folder: HashMap<PathBuf, i32>,
    by_number: HashMap<i32, PathBuf>,
    /// Folders without symbolic links in their path, which are watched with all their ancestors.
    whole: HashSet<PathBuf>,
    /// Folders that cannot be watched, and when that was seen.
    unreported: HashMap<PathBuf, Instant>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::new(Cache {
        bytes_max: 0,
        recheck: u64::MAX,
        bytes: 0,
        open_files: 0,
        entries: HashMap::new(),
        order: std::collections::VecDeque::new(),
        watches: None,
    });
}

const EVENTS_MAX: usize = 1024;

/// Clears this thread's cache and sets its bytes (0 disables). The loop must watch the returned descriptor and call
/// [`drop_changed`] before serving requests.
pub fn enable_cache(bytes_max: u64) -> Option<OwnedFd> {
    CACHE.with_borrow_mut(|cache| {
        cache.bytes_max = bytes_max;
        cache.clear();
        if bytes_max == 0 {
            return None;
        }
        if cache.watches.is_none() {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
            cache.watches = Some(Watches {
                fd,
                by_folder: HashMap::new(),
                by_number: HashMap::new(),
                whole: HashSet::new(),
                unreported: HashMap::new(),
            });
        }
        let watches = cache.watches.as_ref()?;
        rustix::io::fcntl_dupfd_cloexec(watches.fd.as_fd(), 0).ok()
    })
}

/// Returns the bytes that this thread's cache occupies, and the number of its entries.
pub fn cache_usage() -> (u64, usize) {
    CACHE.with_borrow(|cache| (cache.bytes, cache.entries.len()))
}

/// Reads pending events and drops the entries of changed paths; all entries, with their watches, after [`EVENTS_MAX`]
/// events: a program that writes next to served files without pause must not hold up requests.
pub fn drop_changed() {
    CACHE.with_borrow_mut(Cache::changed);
}

/// Sets the milliseconds after which this thread compares even a watched entry with its file.
pub fn recheck_after(millis: u64) {
    CACHE.with_borrow_mut(|cache| cache.recheck = millis);
}

/// Entry of a path, cached if possible. Never waits for a FIFO or a device.
pub(crate) fn look(path: &[u8]) -> io::Result<Rc<FileEntry>> {
    CACHE.with_borrow_mut(|cache| cache.look(&plain(path)))
}

/// Tells whether this thread's cache can answer a lookup of the path without a system call.
pub fn knows_path(path: &[u8]) -> bool {
    CACHE.with_borrow(|cache| cache.entries.get(&*plain(path)).is_some_and(|entry| cache.holds(entry)))
}

/// Normalizes doubled slashes and `.` segments (from an `alias` with a slash), as events name files.
fn plain(path: &[u8]) -> Cow<'_, [u8]> {
    // Paths are short: memchr would cost four times as much.
    let mut before = 0;
    let suspicious = path.iter().any(|c| std::mem::replace(&mut before, *c) == b'/' && matches!(c, b'/' | b'.'));
    if !suspicious {
        return Cow::Borrowed(path);
    }
    let odd = |at: usize| matches!(path.get(at + 1..), Some([b'/', ..] | [b'.'] | [b'.', b'/', ..]));
    if !memchr::memchr_iter(b'/', path).any(odd) {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path.split(|c| *c == b'/').enumerate().peekable();
    while let Some((index, segment)) = segments.next() {
        let last = segments.peek().is_none();
        let nothing = segment.is_empty() || segment == b".";
        if nothing && index > 0 && !last {
            continue;
        }
        out.extend_from_slice(if nothing && last { b"" } else { segment });
        if !last {
            out.push(b'/');
        }
    }
    Cow::Owned(out)
}

/// Reads a file into the page cache, on any thread, for a later [`look`]. Ignores errors, which [`look`] reports.
pub fn bring_in(path: &[u8]) {
    let path = bytes_path(path);
    let Ok(metadata) = std::fs::metadata(path) else { return };
    if !metadata.is_file() {
        return;
    }
    if let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
        && metadata.len() <= OBJECT_BYTES_MAX
    {
        let _ = io::copy(&mut file.take(OBJECT_BYTES_MAX), &mut io::sink());
    }
}

/// Entry under `disable_symlinks`: opens folder by folder, so that no link slips in between check and use; skips the
/// first `checked_from` bytes. Never cached. Fails with ELOOP on a forbidden link.
pub fn look_without_links(path: &[u8], checked_from: usize, if_not_owner: bool) -> io::Result<Rc<FileEntry>> {
    use rustix::fs::{AtFlags, Mode, OFlags};
    let (start, rest) = match path.split_at_checked(checked_from) {
        Some(split) if checked_from > 0 => split,
        _ => (b"/".as_slice(), path),
    };
    let slashed = path.ends_with(b"/");
    let mut folder =
        rustix::fs::open(bytes_path(start), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = rest.split(|c| *c == b'/').filter(|n| !n.is_empty()).peekable();
    while let Some(name) = names.next() {
        let last = names.peek().is_none();
        let name = bytes_path(name);
        let flags = if last && slashed {
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
        } else if last {
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC
        } else {
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
        };
        let link = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_link = rustix::fs::FileType::from_raw_mode(link.st_mode) == rustix::fs::FileType::Symlink;
        let nofollow = if is_link && if_not_owner { OFlags::empty() } else { OFlags::NOFOLLOW };
        let next = rustix::fs::openat(&folder, name, flags | nofollow, Mode::empty())?;
        if is_link && rustix::fs::fstat(&next)?.st_uid != link.st_uid {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        if last {
            return found(File::from(next), false, false).map(Rc::new);
        }
        folder = next;
    }
    Err(io::Error::from_raw_os_error(libc::EISDIR))
}

impl Drop for Cache {
    fn drop(&mut self) {
        process::FILE_CACHE_FILES.change(-(self.entries.len() as i64));
    }
}

impl Cache {
    fn clear(&mut self) {
        process::FILE_CACHE_FILES.change(-(self.entries.len() as i64));
        self.entries.clear();
        self.order.clear();
        (self.bytes, self.open_files) = (0, 0);
        if let Some(watches) = &mut self.watches {
            for number in std::mem::take(&mut watches.by_number).into_keys() {
                let _ = inotify::remove_watch(&watches.fd, number);
            }
            watches.by_folder.clear();
            watches.whole.clear();
            watches.unreported.clear();
        }
    }

    fn look(&mut self, path: &[u8]) -> io::Result<Rc<FileEntry>> {
        if self.bytes_max == 0 {
            return open(path, false).map(Rc::new);
        }
        let mut stale = None;
        if let Some(entry) = self.entries.get(path) {
            entry.used.set(true);
            if self.holds(entry) {
                return match &entry.found {
                    Ok(found) => Ok(found.clone()),
                    Err(code) => Err(io::Error::from_raw_os_error(*code)),
                };
            }
            if let Ok(found) = &entry.found {
                if !entry.watched
                    && std::fs::metadata(bytes_path(path)).is_ok_and(|m| FileIdentity::of(&m) == found.identity)
                {
                    return Ok(found.clone());
                }
                stale = entry.watched.then(|| found.clone());
            }
            self.remove(path);
        }
        // Watches first, to lose no change before the lookup.
        let (watched, missing) = self.watch(path);
        let found =
            missing.map_or_else(|| open(path, self.open_files < COPIED_FILES_MAX), Err).map(|new| match stale {
                // Unchanged: keeps the entry with its compressed representations.
                Some(old) if old.identity == new.identity && old.content == new.content => old,
                _ => Rc::new(new),
            });
        // Hard links allow changes through an unwatched folder.
        let watched = watched && !found.as_ref().is_ok_and(|f| f.kind == FileKind::File && f.links > 1);
        let kept = match &found {
            Ok(found) => Ok(found.clone()),
            Err(e) => Err(e.raw_os_error().unwrap_or(libc::EIO)),
        };
        // Devices, FIFOs and sockets change without an event.
        let volatile = match &kept {
            Ok(found) => found.kind == FileKind::Other,
            Err(code) => !watched || !ABOUT_THE_PATH.contains(code),
        };
        if !volatile {
            self.insert(path, Entry { found: kept, watched, used: Cell::new(false), seen: clock::now() });
        }
        found
    }

    fn holds(&self, entry: &Entry) -> bool {
        entry.watched && clock::now().millis_since(entry.seen) < self.recheck
    }

    fn insert(&mut self, path: &[u8], entry: Entry) {
        let cost = cost(&entry);
        if cost > self.bytes_max {
            return;
        }
        self.bytes += cost;
        self.open_files += usize::from(holds_file(&entry));
        self.order.push_back(path.into());
        if self.entries.insert(path.into(), entry).is_none() {
            process::FILE_CACHE_FILES.up();
        }
        while self.bytes > self.bytes_max || self.open_files > OPEN_FILES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            match self.entries.get(&oldest) {
                Some(entry) if entry.used.replace(false) => self.order.push_back(oldest),
                Some(_) => self.remove(&oldest),
                None => {}
            }
        }
        // Dropped entries remain in `order`.
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let mut seen = hashbrown::HashSet::new();
            self.order.retain(|path| entries.contains_key(path) && seen.insert(path.clone()));
        }
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some(entry) = self.entries.remove(path) {
            process::FILE_CACHE_FILES.down();
            self.bytes -= cost(&entry).min(self.bytes);
            self.open_files -= usize::from(holds_file(&entry));
        }
    }

    /// Watches every folder of a path; `false` if the kernel would not report changes. Also returns the error of a path
    /// that does not exist, which saves the attempt to open it: clients choose such paths.
    fn watch(&mut self, path: &[u8]) -> (bool, Option<io::Error>) {
        let Some(watches) = &mut self.watches else { return (false, None) };
        let path = bytes_path(path);
        if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
            return (false, None);
        }
        let Some(folder) = path.parent() else { return (false, None) };
        if !watches.covers(folder) {
            if watches.is_unreported(folder) {
                return (false, None);
            }
            if let Err(e) = std::fs::metadata(folder) {
                return (false, Some(e));
            }
            if !watches.cover(folder) {
                return (false, None);
            }
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) => (!found.is_symlink(), None),
            Err(e) => (true, Some(e)),
        }
    }

    fn changed(&mut self) {
        let Some(watches) = &self.watches else { return };
        let mut buf = [MaybeUninit::uninit(); 4096];
        let mut gone: Vec<PathBuf> = Vec::new();
        let mut overflow = false;
        let mut reader = inotify::Reader::new(&watches.fd, &mut buf);
        let (mut lost, mut count) = (Vec::new(), 0);
        while let Ok(event) = reader.next() {
            let flags = event.events();
            count += 1;
            if count > EVENTS_MAX || flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                overflow = true;
                break;
            }
            let Some(folder) = watches.by_number.get(&event.wd()) else { continue };
            if flags.contains(ReadFlags::IGNORED) {
                lost.push(event.wd());
            }
            match event.file_name() {
                Some(name) => gone.push(folder.join(std::ffi::OsStr::from_bytes(name.to_bytes()))),
                None => gone.push(folder.clone()),
            }
        }
        if overflow {
            return self.clear();
        }
        gone.sort();
        gone.dedup();
        for path in gone {
            self.forget_path(&path);
        }
        // Last: `forget_path` recognizes folders by their watches.
        if let Some(watches) = &mut self.watches {
            for number in lost {
                if let Some(folder) = watches.by_number.remove(&number) {
                    watches.by_folder.remove(&folder);
                    watches.whole.retain(|whole| !whole.starts_with(&folder));
                }
            }
        }
    }

    /// Also drops all entries below a watched folder.
    fn forget_path(&mut self, path: &Path) {
        let bytes = path.as_os_str().as_bytes();
        self.remove(bytes);
        let is_folder = self.watches.as_ref().is_some_and(|w| w.by_folder.contains_key(path));
        let slashed = [bytes, b"/"].concat();
        self.remove(&slashed);
        if is_folder {
            let below: Vec<Box<[u8]>> =
                self.entries.keys().filter(|key| key.starts_with(&slashed) || bytes == b"/").cloned().collect();
            for key in below {
                self.remove(&key);
            }
            // The watch may belong to a folder that was moved: the next lookup sets it anew.
            if let Some(watches) = &mut self.watches {
                watches.drop_below(path);
            }
        }
    }
}

impl Watches {
    /// Tells whether changes in a folder are reported: its ancestors' watches report its replacement. The watch is set
    /// again, because a file system that was mounted there has a watch of another number.
    fn covers(&mut self, folder: &Path) -> bool {
        self.whole.contains(folder) && {
            let before = self.by_folder.get(folder).copied();
            let same = self.add(folder, true) && self.by_folder.get(folder).copied() == before;
            if !same {
                self.whole.remove(folder);
            }
            same
        }
    }
    fn is_unreported(&self, folder: &Path) -> bool {
        let seen = self.unreported.get(folder);
        seen.is_some_and(|seen| clock::now().millis_since(*seen) < UNREPORTED_MILLIS)
    }
    /// Watches a folder and all its ancestors; `false`, which is remembered, if the kernel would not report changes.
    fn cover(&mut self, folder: &Path) -> bool {
        #[cfg(test)]
        RESOLVED.set(RESOLVED.get() + 1);
        // With symbolic links, `..` or doubled slashes, the path does not name the folders that matter.
        let plain = std::fs::canonicalize(folder).is_ok_and(|real| real.as_os_str() == folder.as_os_str());
        let whole = plain && folder.ancestors().enumerate().all(|(above, folder)| self.add(folder, above == 0));
        if whole {
            self.whole.insert(folder.to_path_buf());
        } else {
            if self.unreported.len() >= UNREPORTED_MAX {
                self.unreported.clear();
            }
            self.unreported.insert(folder.to_path_buf(), clock::now());
        }
        whole
    }
    /// Watches a folder; `inner`: a file's own folder, where changes of contents count, too.
    fn add(&mut self, folder: &Path, inner: bool) -> bool {
        if !inner && self.by_folder.contains_key(folder) {
            return true;
        }
        if inner && self.by_folder.get(folder).is_some_and(|n| *n >= 0 && self.by_number.contains_key(n)) {
            // The folder may have an ancestor's flags only: adding flags is idempotent, and happens once per new file.
        } else if self.by_folder.len() >= WATCHES_MAX || (inner && !reports_changes(folder)) {
            return false;
        }
        let mut flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD;
        if inner {
            flags |= WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        }
        match inotify::add_watch(&self.fd, folder, flags) {
            Ok(number) => {
                self.by_folder.insert(folder.to_path_buf(), number);
                self.by_number.insert(number, folder.to_path_buf());
                true
            }
            Err(_) => false,
        }
    }
    fn drop_below(&mut self, folder: &Path) {
        let below: Vec<PathBuf> = self.by_folder.keys().filter(|f| f.starts_with(folder)).cloned().collect();
        for folder in below {
            if let Some(number) = self.by_folder.remove(&folder) {
                self.by_number.remove(&number);
                let _ = inotify::remove_watch(&self.fd, number);
            }
        }
        self.whole.retain(|whole| !whole.starts_with(folder));
    }
}

#[cfg(test)]
thread_local! {
    /// Number of folders whose links were resolved.
    static RESOLVED: Cell<usize> = const { Cell::new(0) };
}

fn reports_changes(folder: &Path) -> bool {
    const LOCAL: &[i64] = &[
        0xEF53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683E, // btrfs
        0x0102_1994, // tmpfs
        0x8584_58F6, // ramfs
        0x794C_7630, // overlayfs
        0xF2F5_2010, // f2fs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
    ];
    rustix::fs::statfs(folder).is_ok_and(|s| LOCAL.contains(&s.f_type))
}

fn holds_file(entry: &Entry) -> bool {
    matches!(&entry.found, Ok(found) if found.file.is_some())
}

fn cost(entry: &Entry) -> u64 {
    let content = match &entry.found {
        Ok(found) => found.content.as_ref().map_or(0, |c| c.len() as u64),
        Err(_) => 0,
    };
    ENTRY_BYTES + content
}

fn open(path: &[u8], keeps_open: bool) -> io::Result<FileEntry> {
    if path.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(bytes_path(path))?;
    found(file, CACHED.get(), keeps_open)
}

/// Kind and size of a file, which the process need not be able to read.
pub(crate) fn stat(path: &[u8]) -> io::Result<(FileKind, u64)> {
    std::fs::metadata(bytes_path(path)).map(|meta| (FileKind::of(&meta), meta.len()))
}

/// Returns the entry of an open file; reads the content of a small file if it will be cached. `keeps_open`: its descriptor is
/// kept beside a content of [`KERNEL_COPY_BYTES`] or more.
fn found(mut file: File, cached: bool, keeps_open: bool) -> io::Result<FileEntry> {
    let meta = file.metadata()?;
    let kind = FileKind::of(&meta);
    let mut found = FileEntry {
        kind,
        size: meta.len(),
        modified: meta.mtime(),
        etag: etag(meta.mtime(), meta.len()),
        content: None,
        file: None,
        identity: FileIdentity::of(&meta),
        links: meta.nlink(),
        forms: RefCell::new(Vec::new()),
    };
    if kind != FileKind::File {
        return Ok(found);
    }
    if cached && meta.len() <= OBJECT_BYTES_MAX {
        let mut content = Vec::with_capacity(meta.len() as usize + 1);
        (&mut file).take(meta.len() + 1).read_to_end(&mut content)?;
        // The file changed during the read: the bytes may mix two versions. Serves the current version from the file.
        let same = content.len() as u64 == meta.len() && FileIdentity::of(&file.metadata()?) == found.identity;
        found.content = same.then(|| Bytes::from(content));
        if same && !(keeps_open && meta.len() >= KERNEL_COPY_BYTES) {
            return Ok(found);
        }
    }
    found.file = Some(Rc::new(OpenFile {
        file: file.into(),
        size: meta.len(),
        modified: meta.mtime(),
        inode: meta.ino(),
        device: meta.dev(),
        content: found.content.clone(),
    }));
    Ok(found)
}

thread_local! {
    /// Set if contents are cached: otherwise reading them does not pay.
    static CACHED: Cell<bool> = const { Cell::new(false) };
}

/// Enables or disables the cache of contents. Must be called together with [`enable_cache`].
pub fn keep_contents(on: bool) {
    CACHED.set(on);
}
