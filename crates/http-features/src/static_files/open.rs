//! Opening a file for sending: never waits, not even for a FIFO.

use http_engine::OpenFile;
use http_engine::variables::bytes_path;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::rc::Rc;

/// What a path turned out to be.
pub enum Opened {
    File(Rc<OpenFile>),
    Folder,
    /// A device, a FIFO, a socket.
    Other,
}

/// # Errors
/// As the file system gives them.
pub fn open(path: &[u8]) -> io::Result<Opened> {
    if path.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(bytes_path(path))?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Ok(Opened::Folder);
    }
    if !meta.is_file() {
        return Ok(Opened::Other);
    }
    Ok(Opened::File(Rc::new(OpenFile {
        size: meta.len(),
        modified: meta.mtime(),
        inode: meta.ino(),
        device: meta.dev(),
        file,
    })))
}
