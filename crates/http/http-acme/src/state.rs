//! Files of an issuer: the account's key and URL, certificates and their keys. Readable by their owner alone; replaced as a whole.

use acme::{Algorithm, Identifier, IssuedChain, LocalAuthority};
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
pub struct IssuerFolder(pub PathBuf);

/// The name of a certificate's files, without their ending: the first identifier, and a digest of all.
pub fn file_stem(identifiers: &[Identifier], key: Algorithm) -> String {
    let all: Vec<String> = identifiers.iter().map(Identifier::to_string).collect();
    let digest = digest::digest(&digest::SHA256, format!("{} {key}", all.join(" ")).as_bytes());
    let digest: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let first = all.first().map_or("", String::as_str).replace(['*', '/', ':'], "_");
    format!("{}-{digest}", first.chars().take(120).collect::<String>())
}

impl IssuerFolder {
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
        self.put(name, text, FileKind::Private, rename)?;
        // The directory's entry must survive a crash, too.
        sync(&self.0)
    }

    /// Writes a file beside its place and puts it there.
    fn put(
        &self,
        name: &str,
        text: &str,
        kind: FileKind,
        place: impl FnOnce(&Path, &Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        // Issuers may share a folder.
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let write = WRITES.fetch_add(1, Ordering::Relaxed);
        let temporary = self.0.join(format!(".{name}.{}.{write}", std::process::id()));
        let written = (|| {
            let mode = if kind == FileKind::Public { 0o644 } else { 0o600 };
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            if kind != FileKind::Loose {
                file.sync_all()?;
            }
            place(&temporary, &self.0.join(name))
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Writes a file unless it exists.
    fn write_first(&self, name: &str, text: &str) -> std::io::Result<()> {
        let linked =
            self.put(name, text, FileKind::Private, |temporary, place| match fs::hard_link(temporary, place) {
                // A file system without links.
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists && !place.exists() => {
                    fs::rename(temporary, place)
                }
                linked => fs::remove_file(temporary).and(linked),
            });
        match linked {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
            Ok(()) => sync(&self.0),
        }
    }

    /// Reads the account's key; one whose file is empty is to be made again, as in Angie.
    pub fn account_key(&self) -> Option<String> {
        self.read(ACCOUNT_KEY).filter(|pem| !pem.trim_ascii().is_empty())
    }
    pub fn account_key_file(&self) -> PathBuf {
        self.0.join(ACCOUNT_KEY)
    }
    /// Returns the account's URL. The thumbprint of its key and its server's URL follow.
    pub fn account(&self) -> Option<Vec<String>> {
        Some(self.read("account.url")?.lines().map(str::to_string).collect())
    }
    /// Stores a key unless another process has stored one meanwhile, and returns the stored one.
    pub fn store_account_key(&self, pem: &str) -> std::io::Result<String> {
        if fs::metadata(self.0.join(ACCOUNT_KEY)).is_ok_and(|found| found.is_file() && found.len() == 0) {
            self.write(ACCOUNT_KEY, pem)?;
        }
        self.write_first(ACCOUNT_KEY, pem)?;
        self.account_key().ok_or_else(|| {
            let path = self.account_key_file();
            let unreadable = || std::io::Error::other("it is no key");
            let why = fs::read_to_string(&path).err().unwrap_or_else(unreadable);
            std::io::Error::other(format!("\"{}\" cannot be read: {why}", path.display()))
        })
    }
    pub fn store_account(&self, lines: &str) -> std::io::Result<()> {
        self.write("account.url", lines)
    }

    /// Lists the stems of the stored certificates.
    pub fn stems(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().take(ENTRIES_MAX).flatten();
        let stem = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".crt")?.to_string());
        let mut stems: Vec<String> = entries.filter_map(stem).collect();
        stems.sort();
        stems
    }

    /// Reads a certificate with its key, also one whose storing was interrupted.
    pub fn certificate(&self, stem: &str) -> Option<IssuedChain> {
        let chain = self.read(&format!("{stem}.crt"))?;
        let keys = [format!("{stem}.key"), format!("{stem}{NEXT}")];
        let with = |name: &String| Some(IssuedChain { chain: chain.clone(), key: self.read(name)? });
        keys.iter().filter_map(with).find(IssuedChain::is_pair)
    }
    /// Reads a certificate that Angie has stored.
    pub fn foreign(&self) -> Option<IssuedChain> {
        let found = IssuedChain { chain: self.read(ANGIE)?, key: self.read("private.key")? };
        found.is_pair().then_some(found)
    }
    pub fn foreign_file(&self) -> PathBuf {
        self.0.join(ANGIE)
    }
    /// Stores a copy of a certificate under Angie's names, for programs that read them. A crash between the two files leaves no pair,
    /// which [`IssuerFolder::foreign`] does not use.
    pub fn store_as_angie(&self, issued: &IssuedChain) -> std::io::Result<()> {
        self.write("private.key", &issued.key)?;
        self.write(ANGIE, &issued.chain)
    }
    /// Stores a certificate. At each moment a crash leaves the old pair or the new one: the key waits under another name until
    /// its certificate has taken the place of the old one.
    pub fn store(&self, stem: &str, issued: &IssuedChain) -> std::io::Result<()> {
        let next = format!("{stem}{NEXT}");
        // The only key of the present certificate, if its storing was interrupted.
        if self.0.join(&next).exists()
            && let Some(stored) = self.certificate(stem)
            && self.read(&next).is_some_and(|key| key == stored.key)
        {
            fs::rename(self.0.join(&next), self.0.join(format!("{stem}.key")))?;
        }
        self.write(&next, &issued.key)?;
        self.write(&format!("{stem}.crt"), &issued.chain)?;
        fs::rename(self.0.join(next), self.0.join(format!("{stem}.key")))?;
        sync(&self.0)
    }
    /// Removes the certificates that ended some time ago: names on demand come and go. `now`: seconds since 1970.
    pub fn remove_ended(&self, now: i64) {
        for stem in self.stems() {
            let chain = self.read(&format!("{stem}.crt")).unwrap_or_default();
            let leaf = tls::certs::parse_certificates(chain.as_bytes()).ok().and_then(|all| all.into_iter().next());
            if leaf.is_none_or(|leaf| leaf.not_after < now.saturating_sub(ENDED)) {
                for ending in [".crt", ".key", NEXT, STATUS] {
                    let _ = fs::remove_file(self.0.join(format!("{stem}{ending}")));
                }
            }
        }
    }

    /// Loads the local authority, or creates it. `now`: seconds since 1970.
    pub fn authority(&self, now: i64) -> Result<LocalAuthority, String> {
        if let Some(stored) = self.stored_authority()?.filter(|stored| stored.is_usable(now)) {
            return Ok(stored);
        }
        let failed = |e: std::io::Error| format!("{}: {e}", self.0.display());
        // One of several processes makes it.
        let lock = self.lock_file(AUTHORITY_LOCK).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        if let Some(stored) = self.stored_authority()?.filter(|stored| stored.is_usable(now)) {
            return Ok(stored);
        }
        let made = LocalAuthority::create(now)?;
        // The key first: a certificate without its key is replaced.
        self.write(AUTHORITY_KEY, &made.key()).map_err(failed)?;
        let stored = self.put(AUTHORITY, made.certificate(), FileKind::Public, rename);
        stored.and_then(|()| sync(&self.0)).map_err(failed)?;
        Ok(made)
    }
    /// Loads the local authority; `None`: there is none yet.
    pub fn stored_authority(&self) -> Result<Option<LocalAuthority>, String> {
        let (Some(certificate), Some(key)) = (self.read(AUTHORITY), self.read(AUTHORITY_KEY)) else { return Ok(None) };
        match LocalAuthority::load(&certificate, &key) {
            Ok(stored) => Ok(Some(stored)),
            // A crash between the two files.
            Err(why) if why == "key values mismatch" => Ok(None),
            Err(why) => {
                let place = self.0.join(AUTHORITY_KEY);
                Err(format!("{}: {why}; remove it to create a new authority", place.display()))
            }
        }
    }
    /// Returns the place of the local authority's certificate.
    pub fn authority_file(&self) -> PathBuf {
        self.0.join(AUTHORITY)
    }
}

const ACCOUNT_KEY: &str = "account.key";
/// Angie's name of a certificate.
const ANGIE: &str = "certificate.pem";
/// Ending of a new key whose certificate is being stored.
const NEXT: &str = ".key.next";
/// Files of a local authority.
const AUTHORITY: &str = "local-authority.crt";
const AUTHORITY_KEY: &str = "local-authority.key";
const AUTHORITY_LOCK: &str = "local-authority.lock";
/// Ending of a file that tells the state of a certificate's orders.
const STATUS: &str = ".status";
/// Ending of a file that asks the running server for an order.
const RENEW: &str = ".renew";
/// Maximum number of files that a search for requests examines.
const ENTRIES_MAX: usize = 100_000;
/// Seconds after its end for which a certificate on demand stays.
const ENDED: i64 = 7 * 86_400;
/// Age of a temporary file that a process has left behind.
const ABANDONED: Duration = Duration::from_secs(3600);

impl IssuerFolder {
    pub fn store_status(&self, stem: &str, text: &str) -> std::io::Result<()> {
        self.put(&format!("{stem}{STATUS}"), text, FileKind::Loose, rename)
    }
    pub fn status(&self, stem: &str) -> Option<String> {
        self.read(&format!("{stem}{STATUS}"))
    }

    /// Requests an order of a certificate from the running server.
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
        let file = self.lock_file("lock")?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
    fn lock_file(&self, name: &str) -> std::io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.0.join(name))
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

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Private,
    /// Readable by all.
    Public,
    /// May be lost in a crash.
    Loose,
}

fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::rename(from, to)
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
        let folder = IssuerFolder(path.clone());
        let names = [Identifier::Dns("a".into())];
        let issued = || acme::placeholder_certificate(&names).expect("made");
        let of = |folder: &IssuerFolder| folder.certificate("a").map(|found| (found.chain, found.key));
        let (one, two, three) = (issued(), issued(), issued());
        for made in [&one, &two] {
            folder.store("a", made).expect("stored");
            assert_eq!(of(&folder), Some((made.chain.clone(), made.key.clone())));
        }
        // A crash after each step leaves one of the pairs, also when it happens twice.
        folder.write("a.key.next", &three.key).expect("written");
        assert_eq!(of(&folder), Some((two.chain.clone(), two.key.clone())));
        folder.write("a.crt", &three.chain).expect("written");
        assert_eq!(of(&folder), Some((three.chain.clone(), three.key.clone())));
        folder.store("a", &one).expect("stored");
        assert_eq!(of(&folder), Some((one.chain.clone(), one.key.clone())));
        assert_eq!(folder.store_account_key("first").expect("stored"), "first");
        assert_eq!(folder.store_account_key("second").expect("stored"), "first", "another process was faster");
        fs::remove_file(path.join("account.key")).expect("removed");
        folder.store_account("https://a/1\nkey\n").expect("stored");
        assert_eq!(folder.account(), Some(vec!["https://a/1".into(), "key".into()]));
        assert!(folder.account_key().is_none() && folder.certificate("b").is_none());
        for entry in fs::read_dir(&path).expect("a folder").flatten() {
            assert_eq!(entry.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
            assert!(!entry.file_name().to_string_lossy().starts_with('.'));
        }
        fs::remove_dir_all(&path).expect("removed");
        assert!(folder.store("a", &one).is_err());
    }

    #[test]
    fn requests_are_taken_once_and_the_lock_is_exclusive() {
        let path = std::env::temp_dir().join(format!("tidegate-acme-lock-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let folder = IssuerFolder(path.clone());
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
        let one = file_stem(&[parse("a.example"), parse("b.example")], Algorithm::default());
        assert!(one.starts_with("a.example-") && one.len() == "a.example-".len() + 16);
        assert_ne!(one, file_stem(&[parse("a.example")], Algorithm::default()));
        assert_ne!(one, file_stem(&[parse("a.example"), parse("b.example")], Algorithm::Rsa(2048)));
        assert!(file_stem(&[parse("::1")], Algorithm::default()).starts_with("__1-"));
    }
}
