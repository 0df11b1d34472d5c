//! Files of results, which keep their former content until the new one is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file by way of one beside it, so that a full disk or a reader at the same time never meets half of a
/// result. Symbolic links and permissions stay. Devices and pipes are written directly, as are files whose directory
/// cannot be written. Fails as the file system does; a regular file then has its former content.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(content))
}

fn replace_by(path: &Path, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directly = || write(&mut File::create(path)?);
    let before = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return directly(),
        Ok(metadata) => Some(metadata),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    // The file behind a symbolic link is replaced, not the link.
    let path = if before.is_some() { fs::canonicalize(path)? } else { path.to_path_buf() };
    let beside = beside(&path);
    let mut file = match File::create_new(&beside) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => return directly(),
        Err(e) => return Err(e),
    };
    let written = write(&mut file).and_then(|()| match &before {
        Some(metadata) => file.set_permissions(metadata.permissions()),
        None => Ok(()),
    });
    drop(file);
    let replaced = written.and_then(|()| fs::rename(&beside, &path));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    match replaced {
        // A file that is mounted by itself, as containers have it.
        Err(e) if e.kind() == ErrorKind::ResourceBusy => directly(),
        done => done,
    }
}

/// Hidden name in the same directory, of this process alone.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_failed_write_leaves_the_former_result() {
        let folder = std::env::temp_dir().join(format!("bench-outputs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("now.json"), folder.join("link.json"));
        replace_file(&file, b"good").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        let full = |file: &mut File| {
            file.write_all(b"hal")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        };
        for path in [&file, &link, &folder.join("new.json")] {
            assert_eq!(replace_by(path, full).unwrap_err().kind(), ErrorKind::StorageFull);
        }
        assert_eq!(fs::read(&file).unwrap(), b"good");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside");
        replace_file(&link, b"better").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&file).unwrap(), mode), (b"better".to_vec(), 0o640));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn devices_are_written_and_not_replaced() {
        replace_file(Path::new("/dev/null"), b"x").unwrap();
        assert!(replace_file(Path::new("/dev/full"), b"x").is_err());
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}
