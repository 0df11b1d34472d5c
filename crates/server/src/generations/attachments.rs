//! Attachments: files that travel in a change of the configuration, and that its directives read: certificates, keys,
//! authorities, passwords.
//!
//! `.tidegate-files/DIGEST/NAME` beside the main file, by the SHA-256 of the contents: a file that is there is complete, does not change,
//! and generations share it. The child that judges a change writes the files ([`AttachedFiles::write`]); the master removes those
//! that no kept generation has ([`AttachedFiles::sweep`]).

use super::candidate::{Candidate, check_name};
use crate::conf::layout::{Digests, is_digest};
use aws_lc_rs::digest;
use http_api::{Attachment, ConfigRefusal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// Maximum number of attachments of a configuration.
pub const ATTACHMENTS_MAX: usize = 20_000;
/// In bytes, of all attachments that one change brings.
pub const BYTES_MAX: usize = 16 << 20;
/// Name of an incomplete file. No name of an attachment begins with a dot.
const UNFINISHED: &str = ".new";

/// Returns the SHA-256 of contents in hexadecimal.
pub fn digest_of(contents: &[u8]) -> String {
    digest::digest(&digest::SHA256, contents).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Attachments of a change: the digests of all, and the contents of those that came with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedContents {
    pub digests: Digests,
    pub contents: BTreeMap<String, Vec<u8>>,
}

impl AttachedContents {
    /// Checks names and sizes, and computes the digests.
    ///
    /// # Errors
    /// The first name that is not a file below a directory, too many files or bytes, or a digest that is none.
    pub fn check(all: BTreeMap<String, Attachment>) -> Result<AttachedContents, ConfigRefusal> {
        let too_large = |words: String| Err(ConfigRefusal::new(413, "ConfigTooLarge", words));
        if all.len() > ATTACHMENTS_MAX {
            return too_large(format!("more than {ATTACHMENTS_MAX} attachments"));
        }
        let mut checked = AttachedContents::default();
        let mut left = BYTES_MAX;
        for (name, attachment) in all {
            check_name(&name)?;
            let digest = match attachment {
                Attachment::Stored(digest) if is_digest(&digest) => digest,
                Attachment::Stored(_) => {
                    let words = format!("the \"sha256\" of the attachment \"{name}\" is not 64 digits of 0-9a-f");
                    return Err(ConfigRefusal::new(400, "ConfigFormatError", words));
                }
                Attachment::Sent(contents) => {
                    let Some(rest) = left.checked_sub(contents.len()) else {
                        return too_large(format!("more than {BYTES_MAX} bytes of attachments"));
                    };
                    left = rest;
                    let digest = digest_of(&contents);
                    checked.contents.insert(name.clone(), contents);
                    digest
                }
            };
            checked.digests.insert(name, digest);
        }
        Ok(checked)
    }
}

/// The directory of attachments.
#[derive(Clone, Debug)]
pub struct AttachedFiles(pub PathBuf);

impl AttachedFiles {
    fn path(&self, name: &str, digest: &str) -> PathBuf {
        self.0.join(digest).join(name)
    }

    /// Finds an attachment that the directory does not have, although the change does not bring it.
    pub fn missing<'a>(&self, candidate: &'a Candidate, contents: &AttachedContents) -> Option<&'a str> {
        let is_there = |name: &str, digest: &str| {
            contents.contents.contains_key(name)
                || fs::symlink_metadata(self.path(name, digest)).is_ok_and(|m| m.is_file())
        };
        candidate.attached.iter().find(|(name, digest)| !is_there(name, digest)).map(|(name, _)| name.as_str())
    }

    /// Writes the attachments of a change that directives read, and waits until the disk has them. Returns the directories that were not
    /// there before, which [`AttachedFiles::remove`] removes if the change is not made.
    ///
    /// # Errors
    /// The failed call; nothing remains.
    pub fn write(&self, candidate: &Candidate, contents: &AttachedContents) -> Result<Vec<String>, ConfigRefusal> {
        let mut new = Vec::new();
        let written = self.write_all(candidate, contents, &mut new);
        if let Err((call, path, e)) = written {
            self.remove(&new);
            let words = format!("{call}() \"{}\" failed {}", path.display(), observe::os_error(&e));
            return Err(ConfigRefusal::internal(words));
        }
        Ok(new)
    }

    fn write_all(&self, candidate: &Candidate, contents: &AttachedContents, new: &mut Vec<String>) -> AttachResult {
        let mut is_changed = false;
        for (name, digest) in &candidate.attached {
            let Some(bytes) = contents.contents.get(name) else { continue };
            let path = self.path(name, digest);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                continue;
            }
            is_changed = true;
            make_folder(&self.0)?;
            let folder = self.0.join(digest);
            if fs::symlink_metadata(&folder).is_err() {
                new.push(digest.clone());
            }
            let mut above = folder;
            make_folder(&above)?;
            let mut parts = name.split('/').peekable();
            while let Some(part) = parts.next().filter(|_| parts.peek().is_some()) {
                above.push(part);
                make_folder(&above)?;
            }
            write_file(&above.join(UNFINISHED), &path, bytes)?;
        }
        if is_changed {
            // One call for thousands of files.
            let synchronized =
                File::open(&self.0).and_then(|folder| rustix::fs::syncfs(&folder).map_err(io::Error::from));
            synchronized.map_err(|e| ("syncfs", self.0.clone(), e))?;
        }
        Ok(())
    }

    /// Gives the attachments that worker processes read to their account.
    ///
    /// # Errors
    /// The failed call.
    pub fn hand_over(&self, candidate: &Candidate, uid: u32) -> Result<(), ConfigRefusal> {
        for name in &candidate.read_at_requests {
            let Some(digest) = candidate.attached.get(name) else { continue };
            let path = self.path(name, digest);
            let given = File::open(&path).and_then(|file| fchown(&file, Some(uid), None));
            given.map_err(|e| {
                ConfigRefusal::internal(format!("chown() \"{}\" failed {}", path.display(), observe::os_error(&e)))
            })?;
        }
        Ok(())
    }

    /// Tells whether the directory is one, and no link.
    fn is_folder(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_dir())
    }

    /// Removes directories of attachments, by their digests. Nothing else is removed, and no link is followed.
    pub fn remove(&self, digests: &[String]) {
        if !self.is_folder() {
            return;
        }
        for digest in digests.iter().filter(|digest| is_digest(digest)) {
            let _ = fs::remove_dir_all(self.0.join(digest));
        }
        // If it is empty.
        let _ = fs::remove_dir(&self.0);
    }

    /// Removes all attachments that no configuration needs. No change may be under way.
    pub fn sweep(&self, needed: &BTreeSet<String>) {
        // A link may name any directory of the machine, whose contents are none of ours.
        if !self.is_folder() {
            return;
        }
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let surplus: Vec<String> = names.filter(|name| is_digest(name) && !needed.contains(name)).collect();
        self.remove(&surplus);
    }
}

type AttachResult = Result<(), (&'static str, PathBuf, io::Error)>;

/// Creates a directory that is not there. Worker processes pass through it to the files that they read, and cannot list it.
fn make_folder(path: &Path) -> AttachResult {
    match DirBuilder::new().mode(0o711).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) => {
            Ok(())
        }
        made => made.map_err(|e| ("mkdir", path.to_path_buf(), e)),
    }
}

/// Writes a file for its owner only, and moves it to its place.
fn write_file(unfinished: &Path, path: &Path, contents: &[u8]) -> AttachResult {
    let _ = fs::remove_file(unfinished);
    let error = |call, path: &Path| {
        let path = path.to_path_buf();
        move |e| (call, path, e)
    };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished);
    let mut file = opened.map_err(error("open", unfinished))?;
    file.write_all(contents).map_err(error("write", unfinished))?;
    fs::rename(unfinished, path).map_err(error("rename", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::layout::Layout;
    use crate::generations::candidate::Texts;
    use std::os::unix::fs::PermissionsExt;

    fn sent(all: &[(&str, &str)]) -> AttachedContents {
        let all = all.iter().map(|(name, text)| ((*name).to_string(), Attachment::Sent(text.as_bytes().to_vec())));
        AttachedContents::check(all.collect()).expect("in order")
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn attachments_are_written_shared_and_removed() {
        let dir = std::env::temp_dir().join(format!("tidegate-attachments-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        let layout = Layout::of(&dir.join("nginx.conf")).expect("a layout");
        let files = AttachedFiles(layout.attachments());
        let text = b"ssl_certificate c/a.crt; ssl_certificate_key c/a.key; auth_basic_user_file users;".to_vec();
        let texts: Texts = [("nginx.conf".to_string(), text)].into();
        let first = sent(&[("c/a.crt", "one"), ("c/a.key", "two"), ("users", "three"), ("nobody", "reads")]);
        let candidate = Candidate::new(&layout, 1, texts.clone(), &first.digests).expect("a candidate");
        assert_eq!(candidate.unread, ["nobody"]);
        assert_eq!(candidate.read_at_requests, BTreeSet::from(["users".to_string()]));
        assert_eq!(files.missing(&candidate, &AttachedContents::default()), Some("c/a.crt"));
        let new = files.write(&candidate, &first).expect("written");
        assert_eq!(new.len(), 3, "a file that no directive reads is not written");
        assert_eq!(files.missing(&candidate, &AttachedContents::default()), None);
        let key = files.0.join(digest_of(b"two")).join("c/a.key");
        assert_eq!((fs::read(&key).expect("read"), mode(&key), mode(&files.0)), (b"two".to_vec(), 0o600, 0o711));
        // The next change has the certificate by its digest, and another key.
        let stored = Attachment::Stored(digest_of(b"one"));
        let second = [("c/a.crt".to_string(), stored), ("c/a.key".into(), Attachment::Sent(b"four".to_vec()))];
        let second = AttachedContents::check(second.into()).expect("in order");
        let next = Candidate::new(&layout, 2, texts, &second.digests).expect("a candidate");
        let new = files.write(&next, &second).expect("written");
        assert_eq!(new, [digest_of(b"four")]);
        files.remove(&new);
        assert!(key.exists() && !files.0.join(digest_of(b"four")).exists());
        files.sweep(&[digest_of(b"two")].into());
        assert_eq!(fs::read_dir(&files.0).expect("entries").count(), 1);
        files.sweep(&BTreeSet::new());
        assert_eq!(fs::read_dir(&dir).expect("entries").count(), 0, "nothing is left");
        // A directory that is a link is not followed.
        fs::create_dir(dir.join("elsewhere")).expect("a folder");
        std::os::unix::fs::symlink(dir.join("elsewhere"), &files.0).expect("a link");
        assert!(files.write(&candidate, &first).is_err());
        assert_eq!(fs::read_dir(dir.join("elsewhere")).expect("entries").count(), 0);
        fs::create_dir_all(dir.join("elsewhere").join("a".repeat(64))).expect("a folder");
        files.sweep(&BTreeSet::new());
        files.remove(&["a".repeat(64)]);
        assert_eq!(
            fs::read_dir(dir.join("elsewhere")).expect("entries").count(),
            1,
            "nothing behind a link is removed"
        );
        let _ = fs::remove_dir_all(&dir);
    }

    #[test]
    fn names_and_digests_are_checked() {
        let refused = |name: &str, attachment: Attachment| {
            AttachedContents::check([(name.to_string(), attachment)].into()).expect_err(name).code
        };
        for name in ["../a", "/etc/a", "a/../b", ".hidden", "", "a//b", "a\nb", "a/.new"] {
            assert_eq!(refused(name, Attachment::Sent(Vec::new())), "ConfigFormatError", "{name}");
        }
        for digest in ["", "../../etc", &"A".repeat(64), &"a".repeat(63)] {
            assert_eq!(refused("a", Attachment::Stored(digest.into())), "ConfigFormatError", "{digest}");
        }
        assert_eq!(refused("a", Attachment::Sent(vec![0; BYTES_MAX + 1])), "ConfigTooLarge");
    }
}
