//! Sends files: sendfile, buffered or direct reads, optionally on threads (nginx: `sendfile`, `output_buffers`,
//! `directio`, `aio`).

use bytes::Bytes;
use http_engine::file_io::{self, Aio};
use http_engine::{FilePart, Request};
use net::pool::Pool;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{ReadWriteFlags, pread, preadv2};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::Rc;
use std::sync::Arc;

/// Reads of files for one response, as its location's directives say.
pub struct FileOut {
    sendfile: bool,
    /// Bytes per sendfile() call; 0: unlimited.
    chunk: u64,
    /// Bytes per read, and number of buffers filled before a write.
    buffer: usize,
    /// Number of buffers that are filled before a write.
    pub buffers: usize,
    /// Pool for reads before `sendfile` and into buffers, or for direct reads only.
    pool: Option<Arc<Pool>>,
    pool_for_all: bool,
    direct_from: Option<u64>,
    alignment: u64,
    read_ahead: u64,
    /// Last prepared file: its identity and descriptors for threads.
    open: Option<Open>,
    /// Message about a read that failed, for the error log.
    pub trouble: Option<String>,
}

struct Open {
    inode: u64,
    device: u64,
    direct: Option<Arc<File>>,
    shared: Option<Arc<File>>,
}

/// Window of which one byte tells whether the page cache has it (default read-ahead).
const WINDOW: u64 = 128 * 1024;
const PAGE: usize = 4096;

impl Default for FileOut {
    fn default() -> Self {
        FileOut {
            sendfile: true,
            chunk: 2 << 20,
            buffer: 32 << 10,
            buffers: 2,
            pool: None,
            pool_for_all: false,
            direct_from: None,
            alignment: 512,
            read_ahead: 0,
            open: None,
            trouble: None,
        }
    }
}

impl FileOut {
    /// Settings of the request's location. `by_kernel`: sendfile() is possible.
    pub fn of(r: &mut Request, by_kernel: bool) -> FileOut {
        let pool = file_io::file_pool(r);
        let conf = &r.loc().core.conf;
        FileOut {
            sendfile: conf.sendfile && by_kernel,
            chunk: conf.sendfile_max_chunk.0,
            buffer: (conf.output_buffers.size as usize).max(1),
            buffers: (conf.output_buffers.count as usize).max(1),
            pool,
            pool_for_all: matches!(conf.aio, Aio::Threads(_)),
            direct_from: conf.directio.0,
            alignment: conf.directio_alignment.0.max(1),
            read_ahead: conf.read_ahead.0,
            open: None,
            trouble: None,
        }
    }

    /// Tells whether sendfile() alone sends files: without reads in threads, direct reads and advice.
    pub fn kernel_alone(&self) -> bool {
        self.sendfile && self.pool.is_none() && self.direct_from.is_none() && self.read_ahead == 0
    }

    /// Bytes of a part for one sendfile() call.
    pub fn chunk(&self, part: &FilePart) -> usize {
        let bound = if self.chunk == 0 { u64::MAX } else { self.chunk };
        part.length.min(bound).min(i32::MAX as u64) as usize
    }

    /// Prepares a part. `None`: for sendfile(); otherwise its first bytes, empty for a truncated file. Fails as
    /// reading, or with a full pool.
    pub async fn prepare(&mut self, part: &FilePart) -> io::Result<Option<Bytes>> {
        let buffer = FilePart { length: self.buffer_for(part) as u64, ..part.clone() };
        if let Some(bytes) = buffer.cached() {
            return Ok(Some(bytes));
        }
        self.notice(part);
        let direct = self.open.as_ref().and_then(|open| open.direct.clone());
        if let Some(file) = direct {
            let (start, length, alignment) = (part.start, self.buffer_for(part), self.alignment);
            let read = move || read_aligned(&file, start, length, alignment);
            return match &self.pool {
                Some(pool) => on(pool, read).await.map(Some),
                None => read().map(Some),
            };
        }
        let pool = self.pool.as_ref().filter(|_| self.pool_for_all);
        if self.sendfile {
            if let Some(pool) = pool {
                let length = self.chunk(part) as u64;
                if !in_memory(&part.file.file, part.start, length) {
                    let (file, start) = (self.shared(part)?, part.start);
                    on(pool, move || bring_in(&file, start, length)).await?;
                }
            }
            return Ok(None);
        }
        let (start, length) = (part.start, self.buffer_for(part));
        match pool {
            Some(pool) if !in_memory(&part.file.file, start, length as u64) => {
                let file = self.shared(part)?;
                on(pool, move || read(&file, start, length)).await.map(Some)
            }
            _ => read(&part.file.file, start, length).map(Some),
        }
    }

    /// Ends buffers at the file's alignment, so that only the first read is unaligned.
    fn buffer_for(&self, part: &FilePart) -> usize {
        let buffer = self.buffer as u64;
        let odd = part.start % buffer;
        part.length.min(buffer - odd) as usize
    }

    /// The file's descriptor for another thread, open while a read runs.
    fn shared(&self, part: &FilePart) -> io::Result<Arc<File>> {
        match self.open.as_ref().and_then(|open| open.shared.clone()) {
            Some(file) => Ok(file),
            None => Ok(part.file.file.clone()),
        }
    }

    fn notice(&mut self, part: &FilePart) {
        let file = &part.file;
        if self.open.as_ref().is_some_and(|open| open.inode == file.inode && open.device == file.device) {
            return;
        }
        if self.read_ahead > 0 {
            // A hint, whose failure does not matter.
            let _ = fadvise(&file.file, 0, NonZeroU64::new(self.read_ahead), Advice::Sequential);
        }
        let mut open = Open { inode: file.inode, device: file.device, direct: None, shared: None };
        if self.direct_from.is_some_and(|from| file.size >= from) {
            match reopen_direct(file) {
                Ok(direct) => open.direct = Some(Arc::new(direct)),
                Err(e) => self.trouble = Some(format!("open(O_DIRECT) failed {}", observe::os_error(&e))),
            }
        }
        if open.direct.is_none() && self.pool_for_all && self.pool.is_some() {
            open.shared = Some(file.file.clone());
        }
        self.open = Some(open);
    }
}

/// Reopens a file for direct reads, by its descriptor in /proc while it is open.
fn reopen_direct(file: &Rc<http_engine::OpenFile>) -> io::Result<File> {
    let own = format!("/proc/self/fd/{}", file.file.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(own)
}

async fn on<T: Send + 'static>(
    pool: &Arc<Pool>,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let waiting = pool.run(job).map_err(|full| {
        io::Error::other(format!("thread pool \"{}\" queue overflow: {} tasks waiting", pool.spec().name, full.waiting))
    })?;
    waiting.await.map_err(|_| io::Error::other("the reading thread has ended"))?
}

/// Tells whether the page cache has the part, by one byte per window.
fn in_memory(file: &File, start: u64, length: u64) -> bool {
    let end = start + length;
    let mut at = start;
    let mut byte = [0; 1];
    let mut there = |at| preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT).is_ok();
    while at < end {
        if !there(at) {
            return false;
        }
        at = (at / WINDOW + 1) * WINDOW;
    }
    length == 0 || there(end - 1)
}

/// Reads a part into the page cache.
fn bring_in(file: &File, start: u64, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; WINDOW as usize];
    let mut done = 0;
    while done < length {
        let want = (length - done).min(WINDOW) as usize;
        match file.read_at(buffer.get_mut(..want).unwrap_or_default(), start + done)? {
            0 => return Ok(()),
            n => done += n as u64,
        }
    }
    Ok(())
}

/// Zeroing the buffer first took a tenth of an HTTP/3 download's CPU time (decision 0119).
fn read(file: &File, start: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(length);
    pread(file, spare_capacity(&mut buffer), start)?;
    Ok(Bytes::from(buffer))
}

/// Direct read: aligns offset, length and memory, and cuts the excess.
fn read_aligned(file: &File, start: u64, length: usize, alignment: u64) -> io::Result<Bytes> {
    let begin = start - start % alignment;
    let want = (start - begin) as usize + length;
    let padded = want.next_multiple_of(PAGE.max(alignment as usize));
    let mut memory = vec![0u8; padded + PAGE];
    let offset = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let n = file.read_at(memory.get_mut(offset..offset + padded).unwrap_or_default(), begin)?;
    let from = offset + (start - begin) as usize;
    let to = (offset + n).min(offset + want).max(from);
    Ok(Bytes::from(memory).slice(from..to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose bytes depend on their offset.
    fn sample(name: &str, length: usize) -> (File, Vec<u8>) {
        let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::write(&path, &bytes).expect("written");
        let file = File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("removed");
        (file, bytes)
    }

    #[test]
    fn unaligned_parts_come_out_of_aligned_reads() {
        let (file, bytes) = sample("aligned", 20_000);
        for (start, length) in
            [(0, 20_000), (1, 5), (511, 2), (4096, 4096), (19_999, 1), (12_345, 7_655), (19_000, 5_000)]
        {
            let got = read_aligned(&file, start as u64, length, 512).expect("read");
            let end = (start + length).min(bytes.len());
            assert_eq!(&got[..], &bytes[start..end], "{start}+{length}");
        }
        assert!(read_aligned(&file, 30_000, 10, 512).expect("read").is_empty(), "beyond the end");
    }

    #[test]
    fn written_files_are_in_memory() {
        let (file, _) = sample("memory", 300_000);
        bring_in(&file, 0, 300_000).expect("read");
        assert!(in_memory(&file, 0, 300_000) && in_memory(&file, 100, 0));
        bring_in(&file, 0, 1 << 40).expect("a file that became shorter ends the reading");
    }

    #[test]
    fn a_sendfile_call_has_a_bound() {
        let (file, _) = sample("chunk", 10);
        let file = Rc::new(http_engine::OpenFile {
            file: Arc::new(file),
            size: 10,
            modified: 0,
            inode: 1,
            device: 1,
            content: None,
        });
        let part = FilePart { file, start: 0, length: 9 << 30 };
        assert_eq!(FileOut::default().chunk(&part), 2 << 20);
        let unbounded = FileOut { chunk: 0, ..FileOut::default() };
        assert_eq!(unbounded.chunk(&part), i32::MAX as usize);
    }
}
