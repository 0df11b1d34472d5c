//! A request's body, read whole: in memory while it is small, in an unlinked file when it is not.

use bytes::Bytes;
use http_engine::{Request, RequestBody};
use observe::{Level, os};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes.
#[derive(Debug, Default)]
pub struct BodyStore {
    memory: Vec<u8>,
    file: Option<File>,
    length: u64,
}

impl BodyStore {
    pub fn len(&self) -> u64 {
        self.length
    }
    /// The bytes, when they are all in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        self.file.is_none().then_some(&self.memory)
    }
    /// Up to 32 KB from an offset.
    ///
    /// # Errors
    /// As the file system gives them.
    pub fn read_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        match &self.file {
            None => {
                let start = (offset as usize).min(self.memory.len());
                Ok(self.memory[start..].to_vec())
            }
            Some(file) => {
                let mut buf = vec![0; 32 * 1024];
                let n = file.read_at(&mut buf, offset)?;
                buf.truncate(n);
                Ok(buf)
            }
        }
    }
    fn push(&mut self, bytes: &Bytes, memory_max: u64, folder: &Path) -> io::Result<()> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.length <= memory_max {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut file = unlinked(folder)?;
                file.write_all(&self.memory)?;
                self.memory = Vec::new();
                self.file.insert(file)
            }
        };
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)
    }
}

/// A file without a name, which vanishes with its last descriptor.
///
/// # Errors
/// As the file system gives them.
pub fn unlinked(folder: &Path) -> io::Result<File> {
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

/// Reads the body of a request to its end.
///
/// # Errors
/// The status that the request ends with.
pub async fn read(r: &mut Request) -> Result<BodyStore, u16> {
    let mut store = BodyStore::default();
    let RequestBody::Unread(mut reader) = std::mem::replace(&mut r.body, RequestBody::Taken) else {
        return Ok(store);
    };
    let core = r.loc().core.clone();
    let limit = core.conf.client_max_body_size.0;
    loop {
        match std::future::poll_fn(|cx| reader.poll_read(cx)).await {
            None => return Ok(store),
            Some(Err(status)) => return Err(status),
            Some(Ok(bytes)) => {
                if limit != 0 && store.len() + bytes.len() as u64 > limit {
                    let length = store.len() + bytes.len() as u64;
                    r.log(Level::Error, format_args!("client intended to send too large chunked body: {length} bytes"));
                    return Err(413);
                }
                let folder = &core.conf.client_body_temp_path.path;
                if let Err(e) = store.push(&bytes, core.conf.client_body_buffer_size.0, folder) {
                    r.log(Level::Crit, format_args!("a temporary file in \"{}\" failed {}", folder.display(), os(&e)));
                    return Err(500);
                }
            }
        }
    }
}
