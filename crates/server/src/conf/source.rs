//! Recorded reads of a configuration: file contents and matches of patterns, so that another process reads the same.

use conf_syntax::{SourceFiles, TextSource};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Files matched by the patterns of `include` lines.
pub type Matches = BTreeMap<String, Vec<PathBuf>>;

/// Forwards queries and records the matches of patterns; the loader records file contents.
pub struct Recorder<'a> {
    inner: &'a dyn TextSource,
    matches: RefCell<Matches>,
}

impl<'a> Recorder<'a> {
    pub fn new(inner: &'a dyn TextSource) -> Self {
        Recorder { inner, matches: RefCell::default() }
    }
    pub fn matches(self) -> Matches {
        self.matches.into_inner()
    }
}

impl TextSource for Recorder<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let found = self.inner.glob(pattern);
        self.matches.borrow_mut().insert(pattern.to_string(), found.clone());
        found
    }
}

/// Answers queries from a record.
pub struct Replay<'a> {
    pub files: &'a SourceFiles,
    pub matches: &'a Matches,
}

impl TextSource for Replay<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        const ENOENT: i32 = 2;
        let file = self.files.all.iter().find(|file| file.path == path);
        file.map(|file| file.text.clone()).ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        self.matches.get(pattern).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{Disk, load_files};

    #[test]
    fn a_replay_reads_what_was_read() {
        let dir = std::env::temp_dir().join(format!("tidegate-source-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("d/sub")).expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
        // The pattern is not in its simplest form, and another directive reads a file below its directory.
        write("main", "include ./d/../d/*.conf; include d/sub/x.conf; include none/*;");
        write("d/a.conf", "a;");
        write("d/sub/x.conf", "x;");
        let recorder = Recorder::new(&Disk);
        let first = load_files(&recorder, &dir.join("main")).expect("read");
        let matches = recorder.matches();
        std::fs::remove_dir_all(&dir).expect("removed");
        let second = load_files(&Replay { files: &first.files, matches: &matches }, &dir.join("main")).expect("read");
        let names = |load: &conf_syntax::Load| -> Vec<String> {
            conf_syntax::list_directives(&load.items).iter().map(|d| d.name.text().into_owned()).collect()
        };
        assert_eq!(names(&first), ["a", "x"]);
        assert_eq!(names(&first), names(&second));
    }
}
