//! Files of an issuer: the account's key and URL, certificates and their keys. Readable by their owner alone; replaced as a whole.

use acme::{Algorithm, Identifier, Issued};
use aws_lc_rs::digest;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Octets of a file.
const FILE_MAX: u64 = 1 << 20;

/// The folder of an issuer.
#[derive(Clone)]
pub struct Folder(pub PathBuf);

/// The name of a certificate's files, without their ending: the first identifier, and a digest of all.
pub fn stem(identifiers: &[Identifier], key: Algorithm) -> String {
    let all: Vec<String> = identifiers.iter().map(Identifier::to_string).collect();
    let digest = digest::digest(&digest::SHA256, format!("{} {key}", all.join(" ")).as_bytes());
    let digest: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let first = all.first().map_or("", String::as_str).replace(['*', '/', ':'], "_");
    format!("{}-{digest}", first.chars().take(120).collect::<String>())
}

impl Folder {
    fn read(&self, name: &str) -> Option<String> {
        let path = self.0.join(name);
        let found = fs::metadata(&path).ok()?;
        if !found.is_file() || found.len() > FILE_MAX {
            return None;
        }
        fs::read_to_string(path).ok()
    }

    /// Writes a file beside its place, syncs it, and moves it there.
    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        // Issuers may share a folder.
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let write = WRITES.fetch_add(1, Ordering::Relaxed);
        let temporary = self.0.join(format!(".{name}.{}.{write}", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, self.0.join(name))
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            return written;
        }
        // The directory's entry must survive a crash, too.
        sync(&self.0)
    }

    pub fn account_key(&self) -> Option<String> {
        self.read("account.key")
    }
    pub fn account_url(&self) -> Option<String> {
        Some(self.read("account.url")?.trim().to_string())
    }
    pub fn store_account_key(&self, pem: &str) -> std::io::Result<()> {
        self.write("account.key", pem)
    }
    pub fn store_account_url(&self, url: &str) -> std::io::Result<()> {
        self.write("account.url", &format!("{url}\n"))
    }

    /// Reads a certificate with its key.
    pub fn certificate(&self, stem: &str) -> Option<Issued> {
        Some(Issued { chain: self.read(&format!("{stem}.crt"))?, key: self.read(&format!("{stem}.key"))? })
    }
    /// Stores a certificate. The key is written first: a crash in between leaves a pair that does not match and is not used.
    pub fn store(&self, stem: &str, issued: &Issued) -> std::io::Result<()> {
        self.write(&format!("{stem}.key"), &issued.key)?;
        self.write(&format!("{stem}.crt"), &issued.chain)
    }
}

/// Ending of a file that tells the state of a certificate's orders.
const STATUS: &str = ".status";
/// Ending of a file that asks the running server for an order.
const RENEW: &str = ".renew";
/// Files of a folder that a search for requests looks at.
const ENTRIES_MAX: usize = 100_000;
/// Age of a temporary file that a process has left behind.
const ABANDONED: Duration = Duration::from_secs(3600);

impl Folder {
    pub fn store_status(&self, stem: &str, text: &str) -> std::io::Result<()> {
        self.write(&format!("{stem}{STATUS}"), text)
    }
    pub fn status(&self, stem: &str) -> Option<String> {
        self.read(&format!("{stem}{STATUS}"))
    }

    /// Asks the running server to order a certificate anew.
    pub fn request(&self, stem: &str) -> std::io::Result<()> {
        File::create(self.0.join(format!("{stem}{RENEW}"))).map(drop)
    }
    /// Takes the requests for orders.
    pub fn take_requests(&self) -> std::io::Result<Vec<String>> {
        let mut stems = Vec::new();
        for entry in fs::read_dir(&self.0)?.take(ENTRIES_MAX).flatten() {
            let name = entry.file_name();
            let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(RENEW)) else { continue };
            fs::remove_file(entry.path())?;
            stems.push(stem.to_string());
        }
        Ok(stems)
    }
    /// Returns the time of the folder's last change.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.0).and_then(|found| found.modified()).ok()
    }

    /// Takes the folder's lock, which other processes with this folder respect; `None`: another process has it. Closing the file
    /// gives it back.
    pub fn lock(&self) -> std::io::Result<Option<File>> {
        let path = self.0.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
    /// Removes temporary files that a killed process has left behind. The caller holds the lock.
    pub fn tidy(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.0)?.take(ENTRIES_MAX).flatten() {
            let found = entry.metadata()?;
            let old = found.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED);
            if entry.file_name().as_encoded_bytes().starts_with(b".") && found.is_file() && old {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_private_and_replaced_as_a_whole() {
        let path = std::env::temp_dir().join(format!("tidegate-acme-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(path.clone());
        let issued = |text: &str| Issued { chain: format!("{text} chain"), key: format!("{text} key") };
        for text in ["one", "two"] {
            folder.store("a", &issued(text)).expect("stored");
            assert_eq!(folder.certificate("a").map(|found| found.chain), Some(format!("{text} chain")));
        }
        folder.store_account_url("https://a/1").expect("stored");
        assert_eq!(folder.account_url().as_deref(), Some("https://a/1"));
        assert!(folder.account_key().is_none() && folder.certificate("b").is_none());
        for entry in fs::read_dir(&path).expect("a folder").flatten() {
            assert_eq!(entry.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
            assert!(!entry.file_name().to_string_lossy().starts_with('.'));
        }
        fs::remove_dir_all(&path).expect("removed");
        assert!(folder.store("a", &issued("x")).is_err());
    }

    #[test]
    fn requests_are_taken_once_and_the_lock_is_exclusive() {
        let path = std::env::temp_dir().join(format!("tidegate-acme-lock-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(path.clone());
        folder.request("a").expect("requested");
        folder.store_status("a", "{}").expect("stored");
        assert_eq!(folder.take_requests().expect("read"), ["a"]);
        assert!(folder.take_requests().expect("read").is_empty());
        assert_eq!(folder.status("a").as_deref(), Some("{}"));
        let held = folder.lock().expect("a lock");
        assert!(held.is_some() && folder.lock().expect("no lock").is_none());
        drop(held);
        assert!(folder.lock().expect("a lock").is_some());
        fs::write(path.join(".a.crt.1.1"), "x").expect("a file");
        folder.tidy().expect("tidied");
        assert!(path.join(".a.crt.1.1").exists(), "it may belong to a process that lives");
        fs::remove_dir_all(&path).expect("removed");
    }

    #[test]
    fn names_of_files() {
        let parse = |text: &str| Identifier::parse(text).expect("valid");
        let one = stem(&[parse("a.example"), parse("b.example")], Algorithm::default());
        assert!(one.starts_with("a.example-") && one.len() == "a.example-".len() + 16);
        assert_ne!(one, stem(&[parse("a.example")], Algorithm::default()));
        assert_ne!(one, stem(&[parse("a.example"), parse("b.example")], Algorithm::Rsa(2048)));
        assert!(stem(&[parse("::1")], Algorithm::default()).starts_with("__1-"));
    }
}
