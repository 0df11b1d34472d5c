//! A configuration that may become active: its texts as they will be on disk, read from memory until then.

use super::layout::{Layout, includes};
use conf_syntax::{Disk, INCLUDE_DEPTH_MAX, Source, is_pattern, matches};
use http_features::Refusal;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of files of a configuration.
pub const FILES_MAX: usize = 1000;
/// In bytes, of all files.
pub const BYTES_MAX: usize = 16 << 20;
/// In bytes.
const NAME_BYTES_MAX: usize = 255;

/// Names are relative to the main file's directory.
pub type Texts = BTreeMap<String, Vec<u8>>;

/// A configuration as it will be on the disk.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub layout: Layout,
    pub generation: u64,
    pub main: Vec<u8>,
    /// Texts by file name.
    pub files: Texts,
}

/// Checks names and sizes of received files.
///
/// # Errors
/// The first name that is not a file below the main file's directory.
pub fn check(texts: &Texts) -> Result<(), Refusal> {
    if texts.len() > FILES_MAX {
        return Err(Refusal::new(413, "ConfigTooLarge", format!("more than {FILES_MAX} files")));
    }
    if texts.values().map(Vec::len).sum::<usize>() > BYTES_MAX {
        return Err(Refusal::new(413, "ConfigTooLarge", format!("more than {BYTES_MAX} bytes")));
    }
    for name in texts.keys() {
        let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && part.len() <= NAME_BYTES_MAX;
        if !name.split('/').all(plain) || name.len() > 4 * NAME_BYTES_MAX || name.contains(|c: char| c.is_control()) {
            let words = format!(
                "\"{name}\" is not a file name below the main file's directory: write it relative to that directory, \
                 without \"..\" and without names that begin with a dot"
            );
            return Err(Refusal::new(400, "ConfigFormatError", words));
        }
        // A file cannot be a directory, too.
        let folder = format!("{name}/");
        if texts.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder)) {
            let words = format!("\"{name}\" is a file and a folder");
            return Err(Refusal::new(400, "ConfigFormatError", words));
        }
    }
    Ok(())
}

impl Candidate {
    /// Creates a candidate. An `include` line that matches a received file reads only received files, from the
    /// generation's directory. Other lines, and lines whose files on disk are equal, read the disk.
    ///
    /// # Errors
    /// The main file is missing, or an `include` line cannot be moved.
    pub fn new(layout: &Layout, generation: u64, texts: Texts) -> Result<Candidate, Refusal> {
        check(&texts)?;
        let Some(main) = texts.get(&layout.name) else {
            let words = format!("the main file \"{}\" is missing", layout.name);
            return Err(Refusal::new(400, "ConfigFormatError", words));
        };
        for (name, text) in &texts {
            if let Some(line) = layout.names_kept(text) {
                let words = format!(
                    "\"include\" names a kept configuration in {name}:{line}: name the file as in the folder of the main \
                     file, and send it as well"
                );
                return Err(Refusal::new(400, "ConfigFormatError", words));
            }
        }
        let mut compare = Compare { layout, texts: &texts, known: HashMap::new() };
        let mut moved = BTreeMap::new();
        for text in texts.values() {
            for include in includes(text) {
                if let Some(name) = layout.relative(&include.argument) {
                    let is_moved = compare.is_sent(name) && !compare.is_on_disk(name, 0);
                    moved.insert(name.to_string(), is_moved);
                }
            }
        }
        let moves = |name: &str| moved.get(name).copied().unwrap_or(false);
        let unmovable = |name: &str, line: u32| {
            let words = format!("the argument of \"include\" must be written without escapes in {name}:{line}");
            Refusal::new(400, "ConfigFormatError", words)
        };
        let main = layout.moved(main, generation, moves).map_err(|line| unmovable(&layout.name, line))?;
        let mut files = Texts::new();
        for (name, text) in &texts {
            let text = layout.moved(text, generation, moves).map_err(|line| unmovable(name, line))?;
            files.insert(name.clone(), text);
        }
        Ok(Candidate { layout: layout.clone(), generation, main, files })
    }
}

struct Compare<'a> {
    layout: &'a Layout,
    texts: &'a Texts,
    known: HashMap<String, bool>,
}

impl Compare<'_> {
    fn sent<'b>(&'b self, pattern: &'b str) -> impl Iterator<Item = &'b String> {
        self.texts.keys().filter(move |name| matches(pattern, name))
    }
    fn is_sent(&self, pattern: &str) -> bool {
        self.sent(pattern).next().is_some()
    }
    /// Tells whether the disk has the same files for an `include` line, and for those in them.
    fn is_on_disk(&mut self, pattern: &str, depth: usize) -> bool {
        if let Some(known) = self.known.get(pattern) {
            return *known;
        }
        if depth >= INCLUDE_DEPTH_MAX {
            return false;
        }
        // Files that include each other are equal if the others are.
        self.known.insert(pattern.to_string(), true);
        let result = self.compare(pattern, depth);
        self.known.insert(pattern.to_string(), result);
        result
    }
    fn compare(&mut self, pattern: &str, depth: usize) -> bool {
        let full = self.layout.folder.join(pattern);
        let disk = match is_pattern(pattern) {
            true => Disk.glob(&full.to_string_lossy()),
            false => vec![full],
        };
        let names: Vec<String> = self.sent(pattern).cloned().collect();
        if !disk.iter().eq(names.iter().map(|name| self.layout.folder.join(name)).collect::<Vec<_>>().iter()) {
            return false;
        }
        for (name, path) in names.iter().zip(&disk) {
            let Some(text) = self.texts.get(name) else { return false };
            if Disk.read(path).ok().as_ref() != Some(text) {
                return false;
            }
            for include in includes(text) {
                let Some(inner) = self.layout.relative(&include.argument).map(str::to_string) else { continue };
                if self.is_sent(&inner) && !self.is_on_disk(&inner, depth + 1) {
                    return false;
                }
            }
        }
        true
    }
}

/// The disk as it will be with the candidate.
impl Source for Candidate {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        const ENOENT: i32 = 2;
        if path == self.layout.main {
            return Ok(self.main.clone());
        }
        match path.strip_prefix(self.layout.files_of(self.generation)) {
            Ok(name) => {
                let text = name.to_str().and_then(|name| self.files.get(name));
                text.cloned().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
            }
            Err(_) => Disk.read(path),
        }
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let folder = self.layout.files_of(self.generation);
        let prefix = format!("{}/", folder.display());
        match pattern.strip_prefix(&prefix) {
            Some(pattern) => self.files.keys().filter(|name| matches(pattern, name)).map(|n| folder.join(n)).collect(),
            None => Disk.glob(pattern),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[(&str, &str)]) -> Texts {
        all.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
    }

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> (Folder, Layout) {
        let dir = std::env::temp_dir().join(format!("tidegate-candidate-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("d")).expect("a folder");
        let layout = Layout::of(&dir.join("nginx.conf")).expect("a layout");
        (Folder(dir), layout)
    }

    #[test]
    fn files_that_are_sent_are_read_alone() {
        let (dir, layout) = folder("alone");
        std::fs::write(dir.0.join("d/old.conf"), "old;").expect("a file");
        std::fs::write(dir.0.join("types"), "types;").expect("a file");
        let all = texts(&[
            ("nginx.conf", "include d/*.conf; include types;"),
            ("d/a.conf", "include inner;"),
            ("inner", "i;"),
        ]);
        let candidate = Candidate::new(&layout, 3, all).expect("a candidate");
        let load = conf_syntax::load(&candidate, &layout.main).expect("read");
        let names: Vec<String> =
            conf_syntax::directives(&load.items).iter().map(|d| d.name.text().into_owned()).collect();
        assert_eq!(names, ["i", "types"]);
        // Equal files on the disk are read there.
        std::fs::remove_file(dir.0.join("d/old.conf")).expect("removed");
        std::fs::write(dir.0.join("d/a.conf"), "include inner;").expect("a file");
        let all = texts(&[("nginx.conf", "include d/*.conf;"), ("d/a.conf", "include inner;"), ("inner", "i;")]);
        let moved = Candidate::new(&layout, 4, all.clone()).expect("a candidate");
        assert!(String::from_utf8_lossy(&moved.main).contains(".tidegate/4/conf/d/"), "the inner file differs");
        std::fs::write(dir.0.join("inner"), "i;").expect("a file");
        let same = Candidate::new(&layout, 4, all.clone()).expect("a candidate");
        assert_eq!(Some(&same.main), all.get("nginx.conf"));
    }

    #[test]
    fn names_stay_below_the_folder() {
        let (_dir, layout) = folder("names");
        for wrong in
            ["/etc/passwd", "../a", "a/../b", "a//b", "", ".tidegate/1/conf/a", ".hidden", "a\nb", "nginx.conf/x"]
        {
            let refused = Candidate::new(&layout, 1, texts(&[("nginx.conf", ""), (wrong, "")])).expect_err(wrong);
            assert_eq!((refused.status, refused.code), (400, "ConfigFormatError"), "{wrong}");
        }
        assert!(Candidate::new(&layout, 1, texts(&[("other", "")])).is_err(), "no main file");
        let kept = texts(&[("nginx.conf", "include .tidegate/1/conf/a;")]);
        assert!(Candidate::new(&layout, 1, kept).is_err());
        let many = (0..=FILES_MAX).map(|n| (format!("f{n}"), Vec::new())).collect();
        assert_eq!(Candidate::new(&layout, 1, many).expect_err("too many").status, 413);
    }
}
