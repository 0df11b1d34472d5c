//! Files of a configuration on the disk: regular files of a bounded size, so that no path can hold its reader.

use crate::load::{OPTIONS, TextSource};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that a pipe's writer may take: it holds its reader, as a start.
const PIPE_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a file that a configuration names, at most.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Device number of `/dev/null`, which stands for an empty file.
const NULL_DEVICE: u64 = 0x103;

/// Files of the disk.
pub struct Disk;

impl TextSource for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_regular(path)
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            glob::glob_with(pattern, OPTIONS).map(|paths| paths.filter_map(Result::ok).collect()).unwrap_or_default();
        found.sort();
        found
    }
}

/// Tells whether the path names a descriptor of this process, such as `/dev/stdin` and a shell's `<(...)`: its owner
/// has opened it for this process.
fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

fn is_null(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == NULL_DEVICE
}

/// Opens a regular file, or `/dev/null`, for reading. Never blocks.
///
/// # Errors
/// As the system; `IsADirectory` (21) for a directory, and an error with its own words for pipes, devices and sockets.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path).map(|(file, _)| file)
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // Without this flag, opening a pipe waits for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    match () {
        () if found.is_file() || is_null(&found) => Ok((file, found)),
        () if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Reads a regular file of at most [`FILE_BYTES_MAX`] bytes. `/dev/null` is empty. `/dev/stdin` and other descriptors of
/// this process are read to their end, whatever they are.
///
/// # Errors
/// As [`open_regular`]; `FileTooLarge` beyond the limit.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let (file, length) = match is_own_descriptor(path) {
        true => (File::open(path)?, 0),
        false => {
            let (file, found) = open(path)?;
            (file, found.len())
        }
    };
    if length > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
}

/// Reads as [`read_regular`], and from a named pipe what its writer sends until it closes. For files of certificates, keys and
/// passwords, which a secret store may hand over so.
///
/// # Errors
/// As [`read_regular`]; `TimedOut` if a pipe has no writer, or not its end, within five seconds.
pub fn read_regular_or_pipe(path: &Path) -> io::Result<Vec<u8>> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    if is_pipe && !is_own_descriptor(path) { read_pipe(path, PIPE_WAIT) } else { read_regular(path) }
}

fn read_pipe(path: &Path, wait: Duration) -> io::Result<Vec<u8>> {
    let mut pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let (end, mut bytes, mut piece) = (Instant::now() + wait, Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the pipe's writer does not come to an end")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        match pipe.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(n) if bytes.len() as u64 + n as u64 > FILE_BYTES_MAX => return Err(too_large()),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {} MB", FILE_BYTES_MAX >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_writer_s_end_or_given_up() {
        let pipe = std::env::temp_dir().join(format!("tidegate-pipe-{}", std::process::id()));
        let _ = std::fs::remove_file(&pipe);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        let alone = read_pipe(&pipe, Duration::from_millis(1));
        assert_eq!(alone.map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut), "no writer");
        let (path, text) = (pipe.clone(), vec![b'x'; 100_000]);
        let writer = std::thread::spawn(move || std::fs::write(path, vec![b'x'; 100_000]));
        assert_eq!(read_regular_or_pipe(&pipe).map_err(|e| e.kind()), Ok(text));
        writer.join().expect("no panic").expect("written");
        std::fs::remove_file(&pipe).expect("removed");
    }

    #[test]
    fn special_files_are_errors_and_the_null_device_is_empty() {
        let read = |path: &str| read_regular(Path::new(path)).map_err(|e| e.to_string());
        assert_eq!(read("/dev/null"), Ok(Vec::new()));
        assert_eq!(read("/dev/zero"), Err("it is not a regular file".into()));
        assert!(read("/").is_err_and(|why| why.contains("directory")));
        let dir = std::env::temp_dir().join(format!("tidegate-disk-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket");
        assert!(read_regular(&dir.join("socket")).is_err());
        drop(socket);
        let pipe = dir.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        assert_eq!(read_regular(&pipe).map_err(|e| e.to_string()), Err("it is not a regular file".into()));
        let large = File::create(dir.join("large")).expect("a file");
        large.set_len(FILE_BYTES_MAX + 1).expect("a length");
        assert_eq!(read_regular(&dir.join("large")).map_err(|e| e.kind()), Err(io::ErrorKind::FileTooLarge));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
