//! The folder of certificates, read again when a file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster_discovery::{CertificateFolder, FolderFile};
use tokio::time::sleep;

use super::super::logs;
use super::inventory::Inventory;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// Files at most.
const FILES_MAX: usize = 10_000;
/// Largest file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Name, time of the last change, and length of each file.
type FileStamps = Vec<(String, Option<SystemTime>, u64)>;

/// Reads a folder.
///
/// # Errors
/// If the folder or a file cannot be read.
pub fn read_folder(folder: &Path) -> Result<CertificateFolder, String> {
    let mut files = Vec::new();
    for (name, _, length) in stamp(folder)? {
        if length > FILE_BYTES_MAX {
            return Err(format!("{}/{name}: larger than {FILE_BYTES_MAX} bytes", folder.display()));
        }
        let contents =
            std::fs::read(folder.join(&name)).map_err(|error| format!("{}/{name}: {error}", folder.display()))?;
        files.push(FolderFile { name, contents });
    }
    Ok(CertificateFolder::new(&files))
}

/// Looks for changes until the task is dropped. A folder that cannot be read changes nothing.
pub async fn watch_certificates(folder: PathBuf, inventory: Arc<Inventory>) {
    let mut known = stamp(&folder).ok();
    loop {
        sleep(PAUSE).await;
        let now = stamp(&folder);
        if now.as_ref().ok() == known.as_ref() {
            continue;
        }
        match now.and_then(|now| read_folder(&folder).map(|read| (now, read))) {
            Ok((now, read)) => {
                known = Some(now);
                inventory.set_certificates(read);
            }
            Err(error) => {
                if known.take().is_some() {
                    logs::warn("the certificates stay as they were", &[("error", &error)]);
                }
            }
        }
    }
}

/// Lists the certificates and keys of a folder by name.
fn stamp(folder: &Path) -> Result<FileStamps, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if !name.ends_with(".crt") && !name.ends_with(".key") {
            continue;
        }
        // Links, as Secrets and certbot have them.
        let metadata = std::fs::metadata(entry.path()).map_err(failed)?;
        if metadata.is_file() {
            found.push((name, metadata.modified().ok(), metadata.len()));
        }
        if found.len() > FILES_MAX {
            return Err(format!("{}: more than {FILES_MAX} files", folder.display()));
        }
    }
    found.sort();
    Ok(found)
}
