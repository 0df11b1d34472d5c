//! Complete request bodies, in memory or a temporary file; kept with the request for every responder (another server,
//! an error page's handler).

use bytes::Bytes;
use http_engine::core_table::TempPath;
use http_engine::values::BodyInFile;
use http_engine::{BodyReader, Request};
use http_types::BodyLength;
use observe::{Severity, os_error};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

#[derive(Debug)]
enum Memory {
    Whole(Bytes),
    Growing(Vec<u8>),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Whole(Bytes::new())
    }
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Whole(bytes) => bytes,
            Memory::Growing(bytes) => bytes,
        }
    }
    /// `expected`: total length.
    fn push(&mut self, more: Bytes, expected: usize) {
        match self {
            Memory::Whole(bytes) if bytes.is_empty() => *bytes = more,
            Memory::Whole(bytes) => {
                let mut all = Vec::with_capacity(expected.max(bytes.len() + more.len()));
                all.extend_from_slice(bytes);
                all.extend_from_slice(&more);
                *self = Memory::Growing(all);
            }
            Memory::Growing(bytes) => bytes.extend_from_slice(&more),
        }
    }
    fn settle(&mut self) -> Bytes {
        if let Memory::Growing(bytes) = self {
            *self = Memory::Whole(Bytes::from(std::mem::take(bytes)));
        }
        match self {
            Memory::Whole(bytes) => bytes.clone(),
            Memory::Growing(_) => Bytes::new(),
        }
    }
}

/// Minimum bytes of a `write` to a temporary file, except for the last one.
const WRITE_MIN: usize = 16 * 1024;

/// In memory or in a file.
#[derive(Debug, Default)]
pub struct BodyStore {
    memory: Memory,
    file: Option<File>,
    /// End of the body that `file` does not have yet: pieces of a datagram each would cost a `write` apiece.
    tail: Vec<u8>,
    length: u64,
    path: Option<PathBuf>,
    /// `client_body_in_file_only on`: the file remains after the request.
    permanent: bool,
}

impl Drop for BodyStore {
    fn drop(&mut self) {
        if let Some(path) = self.path.take().filter(|_| !self.permanent) {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl BodyStore {
    /// Returns the path of a file that has a name (`client_body_in_file_only`).
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }
    /// Tells whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the body, if all of it is in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        self.file.is_none().then(|| self.memory.bytes())
    }
    /// Returns the body, if all of it is in memory, as a shared buffer.
    pub fn shared(&self) -> Option<Bytes> {
        match &self.memory {
            Memory::Whole(bytes) if self.file.is_none() => Some(bytes.clone()),
            _ => self.in_memory().map(Bytes::copy_from_slice),
        }
    }
    /// Reads bytes from an offset on: the rest of a body in memory, up to 32 KB of a file; none at the end. Blocks for
    /// the disk.
    pub fn read_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        match &self.file {
            None => {
                let memory = self.memory.bytes();
                Ok(memory.get(offset as usize..).unwrap_or_default().to_vec())
            }
            Some(file) => {
                let mut buf = vec![0; 32 * 1024];
                let n = file.read_at(&mut buf, offset)?;
                buf.truncate(n);
                Ok(buf)
            }
        }
    }
    /// Returns another descriptor of the file that has the whole body, for a thread that may block; to be read with
    /// offsets. Fails for a body in memory, and if the process has no free descriptor.
    pub fn clone_file(&self) -> io::Result<File> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()
    }
    /// Appends bytes; `expected`: announced length of the body.
    fn push(&mut self, bytes: Bytes, memory_max: u64, expected: u64, folder: &TempPath) -> io::Result<()> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.length <= memory_max {
            self.memory.push(bytes, expected.min(memory_max) as usize);
            return Ok(());
        }
        if self.tail.len() + bytes.len() < WRITE_MIN {
            self.in_file(folder)?;
            self.tail.extend_from_slice(&bytes);
            return Ok(());
        }
        let before = std::mem::take(&mut self.tail);
        let file = self.in_file(folder)?;
        file.write_all(&before)?;
        file.write_all(&bytes)
    }
    /// Writes the bytes that `file` lacks. To be called when the body is complete.
    fn finish(&mut self) -> io::Result<()> {
        let tail = std::mem::take(&mut self.tail);
        match &mut self.file {
            Some(file) => file.write_all(&tail),
            None => Ok(()),
        }
    }
    fn in_file(&mut self, folder: &TempPath) -> io::Result<&mut File> {
        if self.file.is_none() {
            let (mut file, path) = named_file(folder)?;
            self.path = Some(path);
            file.write_all(self.memory.bytes())?;
            self.memory = Memory::default();
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Creates a temporary file without a name, and its folder if it is missing.
pub fn unlinked_file(folder: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    match rustix::fs::open(folder, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(File::from(fd)),
        Err(rustix::io::Errno::NOENT) => {
            std::fs::create_dir_all(folder)?;
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            Ok(File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?))
        }
        Err(e) => Err(e.into()),
    }
}

const NAME_TRIES_MAX: u32 = 100;

/// Creates a temporary file, and the directories of its levels.
pub fn named_file(temp: &TempPath) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let mut tries = 0;
    let create = |path: &Path| File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    loop {
        let number = format!("{:010}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut folder = temp.path.clone();
        let mut end = number.len();
        for width in &temp.levels {
            let start = end.saturating_sub(*width);
            folder.push(&number[start..end]);
            end = start;
        }
        let path = folder.join(&number);
        let created = match create(&path) {
            // The next number would belong into another directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&folder).and_then(|()| create(&path))
            }
            created => created,
        };
        match created {
            Ok(file) => return Ok((file, path)),
            // Another process uses the same folder, such as the old one during a reload.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NAME_TRIES_MAX => {
                NUMBER.fetch_add(u64::from(net::random::bytes16()[0]), Ordering::Relaxed);
            }
            Err(e) => return Err(e),
        }
        tries += 1;
    }
}

/// Returns the body that was read for this request; `None` before that, and for subrequests that ignore the body.
pub fn stored_body(r: &Request) -> Option<Rc<BodyStore>> {
    if r.ignores_body() {
        return None;
    }
    r.shared()
}

/// Returns the stored one, if any. Fails with the response's status.
pub async fn read_body(r: &mut Request) -> Result<Rc<BodyStore>, u16> {
    if let Some(store) = stored_body(r) {
        return Ok(store);
    }
    // A subrequest without a body must not store its empty one for the parent.
    if r.ignores_body() {
        return Ok(Rc::new(BodyStore::default()));
    }
    let mut store = read_now(r).await?;
    store.memory.settle();
    let store = Rc::new(store);
    r.incoming.set_body_bytes(store.shared());
    r.share(store.clone());
    Ok(store)
}

/// A body in a temporary file, which is deleted with this value unless moved.
#[derive(Debug)]
pub struct SpooledBody {
    /// The file, at its end.
    pub file: File,
    path: Option<PathBuf>,
}

impl SpooledBody {
    /// Returns the path of the file; `None` after [`SpooledBody::moved`].
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
    /// Keeps the file, which the caller has moved or takes over.
    pub fn moved(mut self) {
        self.path = None;
    }
}

impl Drop for SpooledBody {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes the body to a file below `client_body_temp_path`, whatever its size; copies a stored one. Fails with the
/// response's status.
pub async fn spool_body(r: &mut Request) -> Result<SpooledBody, u16> {
    let core = r.loc().core.clone();
    let folder = &core.conf.client_body_temp_path;
    let failed = |r: &Request, e: io::Error| {
        r.log(
            Severity::Crit,
            format_args!("a temporary file in \"{}\" failed {}", folder.path.display(), os_error(&e)),
        );
        500
    };
    let mut spooled = match named_file(folder) {
        Ok((file, path)) => SpooledBody { file, path: Some(path) },
        Err(e) => return Err(failed(r, e)),
    };
    if let Some(store) = stored_body(r) {
        let mut at = 0;
        while at < store.len() {
            let bytes = store.read_at(at).map_err(|e| failed(r, e))?;
            if bytes.is_empty() {
                return Err(failed(r, io::ErrorKind::UnexpectedEof.into()));
            }
            spooled.file.write_all(&bytes).map_err(|e| failed(r, e))?;
            at += bytes.len() as u64;
        }
        return Ok(spooled);
    }
    let Some(mut reader) = r.incoming.take_body() else {
        return Ok(spooled);
    };
    let limit = core.conf.client_max_body_size.0;
    let mut length = 0;
    set_length(r, 0);
    let mut file = BufWriter::with_capacity(WRITE_MIN, &spooled.file);
    while let Some(read) = std::future::poll_fn(|cx| reader.poll_read(cx)).await {
        let bytes = read?;
        if limit != 0 && length + bytes.len() as u64 > limit {
            log_too_large(r, length, bytes.len() as u64);
            return Err(413);
        }
        length += bytes.len() as u64;
        set_length(r, length);
        file.write_all(&bytes).map_err(|e| failed(r, e))?;
    }
    file.flush().map_err(|e| failed(r, e))?;
    drop(file);
    Ok(spooled)
}

/// Maximum bytes that [`read_if_here`] reads: a longer body hardly comes with its head.
const HERE_MAX: usize = 64 * 1024;

/// Body that has completely arrived, without waiting; otherwise the bytes stay. Fails with the response's status.
pub async fn read_if_here(r: &mut Request) -> Result<Option<Rc<BodyStore>>, u16> {
    if let Some(store) = stored_body(r) {
        return Ok(Some(store));
    }
    let Some(mut reader) = r.incoming.take_body() else {
        return Ok(None);
    };
    let limit = r.loc().core.conf.client_max_body_size.0;
    let mut here = Memory::default();
    let ended = std::future::poll_fn(|cx| {
        while here.bytes().len() < HERE_MAX {
            match reader.poll_read(cx) {
                Poll::Ready(Some(Ok(bytes))) => here.push(bytes, 0),
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
                Poll::Ready(None) => return Poll::Ready(Ok(true)),
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(false))
    })
    .await?;
    let here = here.settle();
    if limit != 0 && here.len() as u64 > limit {
        log_too_large(r, 0, here.len() as u64);
        return Err(413);
    }
    if !ended {
        r.incoming.set_body(Box::new(StartedReader { here, reader }));
        return Ok(None);
    }
    set_length(r, here.len() as u64);
    // `$request_body` is empty for a body larger than the buffer, as if it had been streamed.
    let asked_for = here.len() as u64 <= memory_max(r);
    let mut store = BodyStore::default();
    (store.length, store.memory) = (here.len() as u64, Memory::Whole(here));
    let store = Rc::new(store);
    r.incoming.set_body_bytes(store.shared().filter(|_| asked_for));
    r.share(store.clone());
    Ok(Some(store))
}

/// Reads a body of at most `client_body_buffer_size` bytes into memory. Fails with the response's status: 413 for a
/// longer one, of which no more is read.
pub async fn read_small(r: &mut Request) -> Result<Bytes, u16> {
    let most = r.loc().core.conf.client_body_buffer_size.0;
    read_up_to(r, most).await
}

/// Reads a body of at most `most` bytes into memory, or returns a stored one. Fails with the response's status: 413 for
/// a longer body.
pub async fn read_up_to(r: &mut Request, most: u64) -> Result<Bytes, u16> {
    let whole = |store: &BodyStore| store.shared().filter(|bytes| bytes.len() as u64 <= most).ok_or(413_u16);
    if let Some(store) = stored_body(r) {
        return whole(&store);
    }
    if matches!(r.incoming.body_length(), Some(BodyLength::Exact(length)) if length > most) {
        return Err(413);
    }
    let Some(mut reader) = r.incoming.take_body() else {
        return Ok(Bytes::new());
    };
    let mut all = Memory::default();
    set_length(r, 0);
    while let Some(read) = std::future::poll_fn(|cx| reader.poll_read(cx)).await {
        all.push(read?, 0);
        let length = all.bytes().len() as u64;
        set_length(r, length);
        if length > most {
            return Err(413);
        }
    }
    Ok(all.settle())
}

/// Sets `$content_length` of a body of unknown length.
pub fn set_length(r: &mut Request, length: u64) {
    if r.incoming.body_length() == Some(BodyLength::Chunked) {
        r.incoming.note_body_received(length);
    }
}

fn log_too_large(r: &Request, before: u64, more: u64) {
    r.log(Severity::Error, format_args!("{}", too_large(r, before, more)));
}

/// Returns nginx's message about a body of unknown length; over HTTP/1, the parser of chunks names both counts.
pub fn too_large(r: &Request, before: u64, more: u64) -> String {
    const WORDS: &str = "client intended to send too large";
    match r.target.version() {
        http_types::Version::Http20 => format!("{WORDS} chunked body: {} bytes", before + more),
        http_types::Version::Http30 => format!("{WORDS} body: {before}+{more} bytes"),
        _ => format!("{WORDS} chunked body: {before}+{more} bytes"),
    }
}

struct StartedReader {
    here: Bytes,
    reader: Box<dyn BodyReader>,
}

impl BodyReader for StartedReader {
    fn set_timeout(&mut self, timeout: Duration) {
        self.reader.set_timeout(timeout);
    }
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>> {
        if self.here.is_empty() {
            return self.reader.poll_read(cx);
        }
        Poll::Ready(Some(Ok(std::mem::take(&mut self.here))))
    }
}

/// Returns the maximum bytes of the request's body in memory (`ngx_http_read_client_request_body`). Over HTTP/1, an
/// announced body that exceeds `client_body_buffer_size` by less than a quarter gets a buffer of its own length, and one
/// that fits beside the head needs no other buffer.
fn memory_max(r: &Request) -> u64 {
    let conf = &r.loc().core.conf;
    let size = conf.client_body_buffer_size.0;
    if matches!(r.target.version(), http_types::Version::Http20 | http_types::Version::Http30) {
        return size;
    }
    match r.incoming.body_length() {
        Some(BodyLength::Exact(length)) if length > size && length < size.saturating_add(size / 4) => length,
        _ => size.max(conf.client_header_buffer_size.0.saturating_sub(r.incoming.length())),
    }
}

async fn read_now(r: &mut Request) -> Result<BodyStore, u16> {
    let mut store = BodyStore::default();
    let Some(mut reader) = r.incoming.take_body() else {
        return Ok(store);
    };
    let core = r.loc().core.clone();
    let limit = core.conf.client_max_body_size.0;
    let memory_max = memory_max(r);
    let in_file_only = core.conf.client_body_in_file_only;
    set_length(r, 0);
    loop {
        match std::future::poll_fn(|cx| reader.poll_read(cx)).await {
            // An empty body has a file, too.
            None if in_file_only != BodyInFile::Off && store.file.is_none() => {
                store.permanent = in_file_only == BodyInFile::On;
                let folder = &core.conf.client_body_temp_path;
                if let Err(e) = store.in_file(folder) {
                    let folder = folder.path.display();
                    r.log(Severity::Crit, format_args!("a temporary file in \"{folder}\" failed {}", os_error(&e)));
                    return Err(500);
                }
                return Ok(store);
            }
            None => {
                if let Err(e) = store.finish() {
                    let folder = core.conf.client_body_temp_path.path.display();
                    r.log(Severity::Crit, format_args!("a temporary file in \"{folder}\" failed {}", os_error(&e)));
                    return Err(500);
                }
                return Ok(store);
            }
            Some(Err(status)) => {
                if status == 499 {
                    r.incoming.set_body_bytes(store.shared());
                }
                return Err(status);
            }
            Some(Ok(bytes)) => {
                if limit != 0 && store.len() + bytes.len() as u64 > limit {
                    log_too_large(r, store.len(), bytes.len() as u64);
                    return Err(413);
                }
                set_length(r, store.len() + bytes.len() as u64);
                let folder = &core.conf.client_body_temp_path;
                let in_memory = match core.conf.client_body_in_file_only {
                    BodyInFile::Off => memory_max,
                    BodyInFile::On | BodyInFile::Clean => 0,
                };
                store.permanent = core.conf.client_body_in_file_only == BodyInFile::On;
                let before = store.file.is_none();
                let expected = match r.incoming.body_length() {
                    Some(BodyLength::Exact(n)) => n,
                    _ => 0,
                };
                let pushed = store.push(bytes, in_memory, expected, folder);
                if let Some(path) = store.path.as_ref().filter(|_| before && in_memory > 0) {
                    let path = path.display();
                    r.log(Severity::Warn, format_args!("a client request body is buffered to a temporary file {path}"));
                }
                if let Err(e) = pushed {
                    let folder = &folder.path;
                    r.log(
                        Severity::Crit,
                        format_args!("a temporary file in \"{}\" failed {}", folder.display(), os_error(&e)),
                    );
                    return Err(500);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_of_a_level_is_made_for_its_first_file() {
        let root = std::env::temp_dir().join(format!("body-store-levels-{}", std::process::id()));
        let temp = TempPath { path: root.clone(), levels: vec![1, 2] };
        for _ in 0..12 {
            let (_, path) = named_file(&temp).expect("a file");
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert_eq!(path, root.join(&name[9..]).join(&name[7..9]).join(&name));
        }
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn small_pieces_share_a_write() {
        let folder = std::env::temp_dir().join(format!("body-store-{}", std::process::id()));
        let temp = TempPath { path: folder.clone(), levels: Vec::new() };
        let mut store = BodyStore::default();
        let mut sent = Vec::new();
        let size = |store: &BodyStore| store.file.as_ref().map(|file| file.metadata().expect("metadata").len());
        for number in 0..40_u8 {
            let piece = vec![number; 1200];
            sent.extend_from_slice(&piece);
            store.push(piece.into(), 10_000, 0, &temp).expect("stored");
        }
        assert!(size(&store).is_some_and(|n| n < 48_000 && n >= 48_000 - WRITE_MIN as u64), "{:?}", size(&store));
        let large = vec![77; WRITE_MIN];
        sent.extend_from_slice(&large);
        store.push(large.into(), 10_000, 0, &temp).expect("stored");
        assert_eq!(size(&store), Some(sent.len() as u64), "a large piece takes the small ones with it");
        sent.push(1);
        store.push(Bytes::from_static(&[1]), 10_000, 0, &temp).expect("stored");
        store.finish().expect("written");
        let mut read = Vec::new();
        while (read.len() as u64) < store.len() {
            read.extend(store.read_at(read.len() as u64).expect("read"));
        }
        assert!(read == sent);
        drop(store);
        std::fs::remove_dir(&folder).expect("an empty folder: the file went with the body");
    }

    #[test]
    fn pieces_become_one() {
        let one = Bytes::from_static(b"abc");
        let mut memory = Memory::default();
        assert!(memory.bytes().is_empty() && memory.settle().is_empty());
        memory.push(one.clone(), 0);
        assert_eq!(memory.settle().as_ptr(), one.as_ptr(), "what came in one piece is not copied");
        for (piece, expected) in [("def", 0), ("", 100), ("gh", 2)] {
            memory.push(Bytes::from_static(piece.as_bytes()), expected);
        }
        assert_eq!(memory.bytes(), b"abcdefgh");
        let all = memory.settle();
        assert_eq!((&all[..], memory.settle().as_ptr()), (&b"abcdefgh"[..], all.as_ptr()));
    }
}
