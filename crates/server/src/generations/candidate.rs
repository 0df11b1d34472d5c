//! A configuration that may become active: its texts as they will be on disk, read from memory until then.

use crate::conf::layout::{self, Digests, FileWord, Layout, file_words};
use conf_schema::{Complaint, ComplaintLevel};
use conf_syntax::{Disk, INCLUDE_DEPTH_MAX, TextSource, is_pattern, matches_include};
use http_api::ConfigRefusal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// Attachments that a directive reads.
    pub attached: Digests,
    /// Attachments that worker processes read with requests.
    pub read_at_requests: BTreeSet<String>,
    /// Names of attachments that no directive reads.
    pub unread: Vec<String>,
}

/// Checks names and sizes of received files.
///
/// # Errors
/// The first name that is not a file below the main file's directory.
pub fn check_texts(texts: &Texts) -> Result<(), ConfigRefusal> {
    if texts.len() > FILES_MAX {
        return Err(ConfigRefusal::new(413, "ConfigTooLarge", format!("more than {FILES_MAX} files")));
    }
    if texts.values().map(Vec::len).sum::<usize>() > BYTES_MAX {
        return Err(ConfigRefusal::new(413, "ConfigTooLarge", format!("more than {BYTES_MAX} bytes")));
    }
    for name in texts.keys() {
        check_name(name)?;
        // A file cannot be a directory, too.
        let folder = format!("{name}/");
        if texts.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder)) {
            let words = format!("\"{name}\" is a file and a folder");
            return Err(ConfigRefusal::new(400, "ConfigFormatError", words));
        }
    }
    Ok(())
}

/// Returns the arguments of a text that may be moved or refused. Large generated configurations often have none, and need no
/// parsing.
fn words_of(text: &[u8], attached: &Digests) -> Vec<FileWord> {
    let may_have = |part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
    match attached.is_empty() && !may_have("include") && !may_have(layout::ATTACHMENTS) {
        true => Vec::new(),
        false => file_words(text),
    }
}

/// Checks that a name is a file below a directory.
///
/// # Errors
/// `ConfigFormatError`.
pub fn check_name(name: &str) -> Result<(), ConfigRefusal> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && part.len() <= NAME_BYTES_MAX;
    if !name.split('/').all(plain) || name.len() > 4 * NAME_BYTES_MAX || name.contains(|c: char| c.is_control()) {
        let words = format!(
            "\"{name}\" is not a file name below the main file's directory: write it relative to that directory, \
             without \"..\" and without names that begin with a dot"
        );
        return Err(ConfigRefusal::new(400, "ConfigFormatError", words));
    }
    Ok(())
}

impl Candidate {
    /// Creates a candidate. An `include` line that matches a received file reads only received files, from the
    /// generation's directory. Other lines, and lines whose files on disk are equal, read the disk. Arguments that are names of attachments
    /// read these, which are on the disk when the candidate is read ([`super::attachments`]).
    ///
    /// # Errors
    /// The main file is missing, or an argument cannot be moved.
    pub fn new(layout: &Layout, generation: u64, texts: Texts, attached: &Digests) -> Result<Candidate, ConfigRefusal> {
        check_texts(&texts)?;
        if !texts.contains_key(&layout.name) {
            let words = format!("the main file \"{}\" is missing", layout.name);
            return Err(ConfigRefusal::new(400, "ConfigFormatError", words));
        }
        let words: BTreeMap<&str, Vec<FileWord>> =
            texts.iter().map(|(name, text)| (name.as_str(), words_of(text, attached))).collect();
        for (name, words) in &words {
            if let Some(line) = layout.names_kept(words) {
                let words = format!(
                    "an argument names a kept configuration in {name}:{line}: name the file as in the folder of the main \
                     file, and send it as well"
                );
                return Err(ConfigRefusal::new(400, "ConfigFormatError", words));
            }
        }
        let mut reads = BTreeMap::new();
        for words in words.values() {
            for (name, at_requests) in layout.reads(words, attached) {
                *reads.entry(name).or_default() |= at_requests;
            }
        }
        let mut compare = Compare { layout, texts: &texts, words: &words, attached, known: HashMap::new() };
        let mut moved = BTreeMap::new();
        for words in words.values() {
            for include in words.iter().filter_map(FileWord::include) {
                if let Some(name) = layout.relative(include) {
                    let is_moved = compare.is_sent(name) && !compare.is_on_disk(name, 0);
                    moved.insert(name.to_string(), is_moved);
                }
            }
        }
        let moves = |name: &str| moved.get(name).copied().unwrap_or(false);
        let unmovable = |name: &str, line: u32| {
            let words = format!("the name of a file of the request must be written without escapes in {name}:{line}");
            ConfigRefusal::new(400, "ConfigFormatError", words)
        };
        let mut files = Texts::new();
        for (name, text) in &texts {
            let words = words.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let text = layout.moved(text, words, generation, moves, attached).map_err(|line| unmovable(name, line))?;
            files.insert(name.clone(), text);
        }
        let main = files.get(&layout.name).cloned().unwrap_or_default();
        let is_read = |name: &&String| reads.contains_key(name.as_str());
        Ok(Candidate {
            layout: layout.clone(),
            generation,
            main,
            files,
            attached: attached.iter().filter(|(name, _)| is_read(name)).map(|(n, d)| (n.clone(), d.clone())).collect(),
            read_at_requests: reads.iter().filter(|(_, at)| **at).map(|(name, _)| (*name).to_string()).collect(),
            unread: attached.keys().filter(|name| !is_read(name)).cloned().collect(),
        })
    }
}

impl Candidate {
    /// Returns warnings about attachments without a reader.
    pub fn complaints(&self) -> impl Iterator<Item = Complaint> {
        self.unread.iter().map(|name| Complaint {
            level: ComplaintLevel::Warn,
            hint: Some("attachments are read by directives of TLS and auth_basic_user_file, under their names without variables".into()),
            ..Complaint::emerg(format!("the attachment \"{name}\" is not stored, because no directive reads it"))
        })
    }
}

struct Compare<'a> {
    layout: &'a Layout,
    texts: &'a Texts,
    words: &'a BTreeMap<&'a str, Vec<FileWord>>,
    attached: &'a Digests,
    known: HashMap<String, bool>,
}

impl Compare<'_> {
    fn sent<'b>(&'b self, pattern: &'b str) -> impl Iterator<Item = &'b String> {
        self.texts.keys().filter(move |name| matches_include(pattern, name))
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
            let words = self.words.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            // A text that reads attachments changes when it moves.
            if Disk.read(path).ok().as_ref() != Some(text) || !self.layout.reads(words, self.attached).is_empty() {
                return false;
            }
            for include in words.iter().filter_map(FileWord::include) {
                let Some(inner) = self.layout.relative(include).map(str::to_string) else { continue };
                if self.is_sent(&inner) && !self.is_on_disk(&inner, depth + 1) {
                    return false;
                }
            }
        }
        true
    }
}

/// The disk as it will be with the candidate.
impl TextSource for Candidate {
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
            Some(pattern) => {
                self.files.keys().filter(|name| matches_include(pattern, name)).map(|n| folder.join(n)).collect()
            }
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
        let candidate = Candidate::new(&layout, 3, all, &Digests::new()).expect("a candidate");
        let load = conf_syntax::load_files(&candidate, &layout.main).expect("read");
        let names: Vec<String> =
            conf_syntax::list_directives(&load.items).iter().map(|d| d.name.text().into_owned()).collect();
        assert_eq!(names, ["i", "types"]);
        // Equal files on the disk are read there.
        std::fs::remove_file(dir.0.join("d/old.conf")).expect("removed");
        std::fs::write(dir.0.join("d/a.conf"), "include inner;").expect("a file");
        let all = texts(&[("nginx.conf", "include d/*.conf;"), ("d/a.conf", "include inner;"), ("inner", "i;")]);
        let moved = Candidate::new(&layout, 4, all.clone(), &Digests::new()).expect("a candidate");
        assert!(String::from_utf8_lossy(&moved.main).contains(".tidegate/4/conf/d/"), "the inner file differs");
        std::fs::write(dir.0.join("inner"), "i;").expect("a file");
        let same = Candidate::new(&layout, 4, all.clone(), &Digests::new()).expect("a candidate");
        assert_eq!(Some(&same.main), all.get("nginx.conf"));
    }

    #[test]
    fn names_stay_below_the_folder() {
        let (_dir, layout) = folder("names");
        for wrong in
            ["/etc/passwd", "../a", "a/../b", "a//b", "", ".tidegate/1/conf/a", ".hidden", "a\nb", "nginx.conf/x"]
        {
            let refused = Candidate::new(&layout, 1, texts(&[("nginx.conf", ""), (wrong, "")]), &Digests::new())
                .expect_err(wrong);
            assert_eq!((refused.status, refused.code), (400, "ConfigFormatError"), "{wrong}");
        }
        assert!(Candidate::new(&layout, 1, texts(&[("other", "")]), &Digests::new()).is_err(), "no main file");
        let kept = texts(&[("nginx.conf", "include .tidegate/1/conf/a;")]);
        assert!(Candidate::new(&layout, 1, kept, &Digests::new()).is_err());
        let many = (0..=FILES_MAX).map(|n| (format!("f{n}"), Vec::new())).collect();
        assert_eq!(Candidate::new(&layout, 1, many, &Digests::new()).expect_err("too many").status, 413);
    }
}
