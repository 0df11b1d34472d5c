//! Kept configurations on disk: `.tidegate/N/` beside the main file. `conf/` contains the received files, `disk/`
//! copies of files read from the main file's directory, `facts.json` the rest.
//!
//! A directory named by a number is complete. `in-force` marks configurations that have been active.

use super::candidate::{BYTES_MAX, Texts};
use super::steps::{self, ActivationStep};
use crate::conf::layout::{Digests, FILES, GenerationFacts, Layout};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Directory of copies of files read from the main file's directory.
const COPIES: &str = "disk";
const FACTS: &str = "facts.json";
const IN_FORCE: &str = "in-force";
const UNFINISHED: &str = ".new";
/// While incomplete.
const TEMPORARY: &str = ".tidegate-new";

/// A failed call with its path.
#[derive(Debug)]
pub struct DiskError(String);

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn failed(call: &str, path: &Path, e: &io::Error) -> DiskError {
    DiskError(format!("{call}() \"{}\" failed {}", path.display(), observe::os_error(e)))
}

type DiskResult<T> = Result<T, DiskError>;

#[derive(Clone, Debug)]
pub struct Generations {
    pub layout: Layout,
}

impl Generations {
    fn folder(&self, generation: u64) -> PathBuf {
        self.layout.kept().join(generation.to_string())
    }

    /// Oldest first.
    pub fn numbers(&self) -> Vec<u64> {
        let entries = fs::read_dir(self.layout.kept()).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.collect::<BTreeSet<u64>>().into_iter().collect()
    }

    fn fact_sheet(&self, generation: u64) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.folder(generation).join(FACTS)).ok()?).ok()
    }

    /// Tells whether a configuration read these texts and attachments.
    pub fn is_same(&self, generation: u64, read: &Texts, attached: &Digests) -> bool {
        let sheet = self.fact_sheet(generation).unwrap_or_default();
        let names: Option<BTreeSet<&str>> =
            sheet.get("read").and_then(Value::as_array).map(|all| all.iter().filter_map(Value::as_str).collect());
        let bytes = sheet.get("read_bytes").and_then(Value::as_u64);
        names.is_some_and(|names| names.iter().eq(read.keys()))
            && attached_of(&sheet) == *attached
            && bytes == Some(read.values().map(Vec::len).sum::<usize>() as u64)
            && self.read(generation).is_ok_and(|all| read.iter().all(|(name, text)| all.get(name) == Some(text)))
    }

    /// Returns the attachments of a configuration.
    pub fn attached(&self, generation: u64) -> Digests {
        self.fact_sheet(generation).map(|sheet| attached_of(&sheet)).unwrap_or_default()
    }

    pub fn names(&self, generation: u64) -> Value {
        self.fact_sheet(generation).and_then(|mut sheet| Some(sheet.get_mut("files")?.take())).unwrap_or_default()
    }

    pub fn facts(&self, generation: u64) -> Option<GenerationFacts> {
        let facts = self.fact_sheet(generation)?;
        Some(GenerationFacts {
            generation,
            at: facts.get("at")?.as_u64()?,
            by: facts.get("by")?.as_str()?.to_string(),
            from: facts.get("from").and_then(Value::as_u64),
        })
    }

    pub fn was_in_force(&self, generation: u64) -> bool {
        self.folder(generation).join(IN_FORCE).exists()
    }

    /// Stores a configuration, completely or not at all. `files`: received files; `read`: all files read from the main
    /// file's directory; `attached`: attachments that they read, which are on the disk.
    ///
    /// # Errors
    /// The failed call; nothing remains.
    pub fn write(&self, facts: &GenerationFacts, files: &Texts, read: &Texts, attached: &Digests) -> DiskResult<()> {
        let folder = self.folder(facts.generation);
        let unfinished = folder.with_extension(UNFINISHED.trim_start_matches('.'));
        let written = self.write_unfinished(&unfinished, facts, files, read, attached).and_then(|()| {
            fs::rename(&unfinished, &folder).map_err(|e| failed("rename", &folder, &e))?;
            sync_folder(&self.layout.kept())
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        written
    }

    fn write_unfinished(
        &self,
        folder: &Path,
        facts: &GenerationFacts,
        files: &Texts,
        read: &Texts,
        attached: &Digests,
    ) -> DiskResult<()> {
        private_folder(&self.layout.kept())?;
        remove_folder(folder)?;
        private_folder(folder)?;
        let mut folders = BTreeSet::from([folder.to_path_buf()]);
        let sent = files.iter().map(|(name, text)| (folder.join(FILES).join(name), text));
        let copies = read.iter().filter(|(name, _)| !files.contains_key(*name));
        for (path, text) in sent.chain(copies.map(|(name, text)| (folder.join(COPIES).join(name), text))) {
            let mut missing: Vec<&Path> =
                path.ancestors().skip(1).take_while(|above| !folders.contains(*above)).collect();
            while let Some(above) = missing.pop() {
                private_folder(above)?;
                folders.insert(above.to_path_buf());
            }
            write_file(&path, text, 0o600)?;
        }
        let names: BTreeSet<&String> = files.keys().chain(read.keys()).collect();
        let read_bytes: usize = read.values().map(Vec::len).sum();
        let sheet = json!({
            "at": facts.at, "by": facts.by, "from": facts.from, "files": names,
            "read": read.keys().collect::<Vec<_>>(), "read_bytes": read_bytes,
            "attached": attached,
        });
        write_file(&folder.join(FACTS), sheet.to_string().as_bytes(), 0o600)?;
        folders.iter().rev().try_for_each(|folder| sync_folder(folder))
    }

    /// Reads the files of a kept configuration as they were received, with `include` lines relative to the main file's
    /// directory.
    ///
    /// # Errors
    /// The failed call.
    pub fn read(&self, generation: u64) -> DiskResult<Texts> {
        fn visit(folder: &Path, prefix: &str, left: &mut usize, out: &mut Texts) -> DiskResult<()> {
            let entries = match fs::read_dir(folder) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && prefix.is_empty() => return Ok(()),
                entries => entries.map_err(|e| failed("opendir", folder, &e))?,
            };
            for entry in entries {
                let entry = entry.map_err(|e| failed("readdir", folder, &e))?;
                let (path, Ok(name)) = (entry.path(), entry.file_name().into_string()) else { continue };
                let kind = entry.file_type().map_err(|e| failed("stat", &path, &e))?;
                if kind.is_dir() {
                    visit(&path, &format!("{prefix}{name}/"), left, out)?;
                } else if kind.is_file() {
                    let mut text = Vec::new();
                    let file = File::open(&path).map_err(|e| failed("open", &path, &e))?;
                    file.take(*left as u64 + 1).read_to_end(&mut text).map_err(|e| failed("read", &path, &e))?;
                    *left = left.checked_sub(text.len()).ok_or_else(|| {
                        DiskError(format!("the configuration in \"{}\" is too large", folder.display()))
                    })?;
                    out.insert(format!("{prefix}{name}"), text);
                }
            }
            Ok(())
        }
        let mut out = Texts::new();
        let mut left = 2 * BYTES_MAX;
        for part in [COPIES, FILES] {
            visit(&self.folder(generation).join(part), "", &mut left, &mut out)?;
        }
        Ok(out.into_iter().map(|(name, text)| (name, self.layout.unmoved(&text))).collect())
    }

    /// Marks a configuration as having been active. Best effort: at start the files themselves tell.
    pub fn mark(&self, generation: u64) {
        let _ = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.folder(generation).join(IN_FORCE));
    }

    pub fn remove(&self, generation: u64) {
        // Removes the number first: a partly removed directory after a crash does not count.
        let folder = self.folder(generation);
        let gone = folder.with_extension(UNFINISHED.trim_start_matches('.'));
        if fs::rename(&folder, &gone).is_ok() {
            let _ = fs::remove_dir_all(&gone);
        }
    }

    /// Removes the oldest beyond `most`, except those in `needed`.
    pub fn prune(&self, most: usize, needed: &BTreeSet<u64>) {
        let all = self.numbers();
        let mut surplus = all.len().saturating_sub(most.max(1));
        for generation in all.into_iter().filter(|one| !needed.contains(one)) {
            if surplus == 0 {
                return;
            }
            self.remove(generation);
            surplus -= 1;
        }
    }

    /// Removes leftovers of an interrupted change.
    pub fn clean_up(&self) {
        for entry in fs::read_dir(self.layout.kept()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.ends_with(UNFINISHED)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        if let Ok(path) = self.target() {
            let _ = fs::remove_file(temporary(&path));
        }
    }

    /// Returns the main file, or the target if it is a symbolic link.
    fn target(&self) -> io::Result<PathBuf> {
        fs::canonicalize(&self.layout.main)
    }

    /// Replaces the main file atomically; owner and mode stay.
    ///
    /// # Errors
    /// The failed call; the old file is unchanged, unless only the synchronization of the directory failed.
    pub fn place(&self, text: &[u8]) -> DiskResult<()> {
        let path = self.target().map_err(|e| failed("realpath", &self.layout.main, &e))?;
        let temporary = temporary(&path);
        let written = fs::metadata(&path).map_err(|e| failed("stat", &path, &e)).and_then(|old| {
            match fs::remove_file(&temporary) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("unlink", &temporary, &e)),
                _ => {}
            }
            write_file(&temporary, text, 0o600)?;
            let new = fs::metadata(&temporary).map_err(|e| failed("stat", &temporary, &e))?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                std::os::unix::fs::chown(&temporary, Some(old.uid()), Some(old.gid()))
                    .map_err(|e| failed("chown", &temporary, &e))?;
            }
            let mode = fs::Permissions::from_mode(old.permissions().mode() & 0o7777);
            fs::set_permissions(&temporary, mode).map_err(|e| failed("chmod", &temporary, &e))?;
            steps::reached(ActivationStep::Written);
            fs::rename(&temporary, &path).map_err(|e| failed("rename", &path, &e))
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        sync_folder(path.parent().unwrap_or(Path::new("/")))
    }
}

fn attached_of(sheet: &Value) -> Digests {
    let all = sheet.get("attached").and_then(Value::as_object).into_iter().flatten();
    all.filter_map(|(name, digest)| Some((name.clone(), digest.as_str()?.to_string()))).collect()
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

fn private_folder(path: &Path) -> DiskResult<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(|e| failed("mkdir", path, &e)),
    }
}

fn remove_folder(path: &Path) -> DiskResult<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("rmdir", path, &e)),
        _ => Ok(()),
    }
}

/// Writes a new file, neither a symbolic link nor an existing file, and waits until the disk has it.
fn write_file(path: &Path, text: &[u8], mode: u32) -> DiskResult<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|e| failed("open", path, &e))?;
    file.write_all(text).map_err(|e| failed("write", path, &e))?;
    file.sync_all().map_err(|e| failed("fsync", path, &e))
}

fn sync_folder(path: &Path) -> DiskResult<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|e| failed("fsync", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_kept_read_and_removed() {
        let dir = std::env::temp_dir().join(format!("tidegate-kept-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        let kept = Generations { layout: Layout::of(&dir.join("nginx.conf")).expect("a layout") };
        assert!(kept.numbers().is_empty());
        let files: Texts = [("nginx.conf", "include .tidegate/2/conf/a/b/c;"), ("a/b/c", "x;"), ("a/d", "y;")]
            .map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()))
            .into();
        // (One file of the disk; one that was sent is not read.)
        let read: Texts = [("nginx.conf", "include a/b/c;"), ("a/b/c", "x;"), ("types", "t;")]
            .map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()))
            .into();
        let attached: Digests = [("c".to_string(), "a".repeat(64))].into();
        for generation in [2, 10, 9] {
            let facts = GenerationFacts { generation, at: 7, by: "api".into(), from: None };
            kept.write(&facts, &files, &read, &attached).expect("written");
            assert_eq!(kept.attached(generation), attached);
            assert_eq!(kept.facts(generation), Some(facts));
        }
        assert_eq!(kept.numbers(), [2, 9, 10]);
        let all = kept.read(2).expect("read");
        assert_eq!(all.get("nginx.conf").map(Vec::as_slice), Some(&b"include a/b/c;"[..]));
        assert_eq!(all.len(), 4);
        assert!(
            kept.is_same(2, &read, &attached)
                && !kept.is_same(2, &all, &attached)
                && !kept.is_same(3, &read, &attached)
        );
        assert!(!kept.is_same(2, &read, &Digests::new()), "another certificate");
        let other = Texts::from_iter(read.keys().map(|name| (name.clone(), Vec::new())));
        assert!(!kept.is_same(2, &other, &attached));
        assert_eq!(fs::metadata(kept.layout.kept()).expect("a folder").mode() & 0o777, 0o700);
        kept.mark(9);
        assert!(kept.was_in_force(9) && !kept.was_in_force(10));
        fs::create_dir(kept.layout.kept().join("11.new")).expect("a folder");
        kept.clean_up();
        kept.prune(1, &BTreeSet::from([2]));
        assert_eq!(kept.numbers(), [2], "what is needed stays");
        fs::write(&kept.layout.main, "old").expect("a file");
        fs::set_permissions(&kept.layout.main, fs::Permissions::from_mode(0o640)).expect("a mode");
        kept.place(b"new").expect("placed");
        let main = fs::metadata(&kept.layout.main).expect("a file");
        assert_eq!((fs::read(&kept.layout.main).expect("read"), main.mode() & 0o777), (b"new".to_vec(), 0o640));
        assert_eq!(fs::read_dir(&dir).expect("entries").count(), 2);
        let _ = fs::remove_dir_all(&dir);
    }
}
