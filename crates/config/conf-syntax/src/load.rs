//! Files and includes: loads the tree of a path with everything that it includes.

use crate::parser::parse_file;
use crate::tree::{FileId, IncludedFile, SourceFile, SourceFiles, SyntaxError, TreeItem};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Nested includes at most.
pub const INCLUDE_DEPTH_MAX: usize = 64;
/// Included files at most, each as often as it is included: nested includes multiply.
pub const INCLUDES_MAX: usize = 65_536;
/// Bytes of all files at most, where a file counts as often as it is included.
pub const LOADED_BYTES_MAX: usize = 256 << 20;
/// Bytes of files at most that are included again.
pub const REPEATED_BYTES_MAX: usize = 64 << 20;

/// Origin of texts: the disk, or a table in tests.
pub trait TextSource {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Files that match a pattern with `*`, `?` or `[...]`, sorted.
    fn glob(&self, pattern: &str) -> Vec<PathBuf>;
}

pub(crate) const OPTIONS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Tells whether the argument of `include` is a pattern.
pub fn is_pattern(argument: &str) -> bool {
    argument.contains(['*', '?', '['])
}

/// Tells whether an argument of `include` names a path, as [`Disk`] matches patterns.
pub fn matches_include(argument: &str, path: &str) -> bool {
    match is_pattern(argument) {
        true => glob::Pattern::new(argument).is_ok_and(|pattern| pattern.matches_with(path, OPTIONS)),
        false => argument == path,
    }
}

#[derive(Clone, Debug, Default)]
pub struct Memory(pub HashMap<PathBuf, Vec<u8>>);

impl TextSource for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(2))
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let Ok(pattern) = glob::Pattern::new(pattern) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = self.0.keys().filter(|p| pattern.matches_path(p)).cloned().collect();
        found.sort();
        found
    }
}

#[derive(Clone, Debug, Default)]
pub struct Load {
    pub files: SourceFiles,
    pub items: Vec<TreeItem>,
}

/// Reads `path` and its includes, relative to its directory (nginx's conf prefix). Fails when the main file is
/// unreadable; a missing include is an error in the tree.
pub fn load_files(source: &dyn TextSource, path: &Path) -> io::Result<Load> {
    let text = source.read(path)?;
    Ok(load_text(source, path, text))
}

/// [`load_files`] of a text already read; `path` names it in messages.
pub fn load_text(source: &dyn TextSource, path: &Path, text: Vec<u8>) -> Load {
    load_texts(source, path, text, None).0
}

/// [`load_text`], and the items of another text with its name, whose includes start at the same directory.
pub fn load_texts(
    source: &dyn TextSource,
    path: &Path,
    text: Vec<u8>,
    other: Option<(&Path, &[u8])>,
) -> (Load, Vec<TreeItem>) {
    let prefix = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut loader = Loader::new(source, prefix);
    let items = loader.file(path.to_path_buf(), text);
    let others = other.map_or_else(Vec::new, |(name, text)| loader.file(name.to_path_buf(), text.to_vec()));
    (Load { files: loader.files, items }, others)
}

struct Loader<'a> {
    source: &'a dyn TextSource,
    prefix: PathBuf,
    files: SourceFiles,
    by_path: HashMap<PathBuf, FileId>,
    /// Files that are being read: each is included by the one before it.
    open: Vec<PathBuf>,
    included: usize,
    bytes: usize,
    repeated_bytes: usize,
}

impl<'a> Loader<'a> {
    fn new(source: &'a dyn TextSource, prefix: PathBuf) -> Loader<'a> {
        Loader {
            source,
            prefix,
            files: SourceFiles::default(),
            by_path: HashMap::new(),
            open: Vec::new(),
            included: 0,
            bytes: 0,
            repeated_bytes: 0,
        }
    }
}

impl Loader<'_> {
    fn file(&mut self, path: PathBuf, text: Vec<u8>) -> Vec<TreeItem> {
        let known = self.by_path.get(&path).copied();
        self.bytes += text.len();
        self.repeated_bytes += if known.is_some() { text.len() } else { 0 };
        let id = known.unwrap_or_else(|| {
            self.files.all.push(SourceFile { path: path.clone(), text: text.clone() });
            let id = FileId(self.files.all.len() as u32 - 1);
            self.by_path.insert(path.clone(), id);
            id
        });
        let mut items = parse_file(id, &text);
        self.open.push(path);
        self.includes(&mut items);
        self.open.pop();
        items
    }

    fn includes(&mut self, items: &mut Vec<TreeItem>) {
        let mut failed = None;
        for (index, item) in items.iter_mut().enumerate() {
            let TreeItem::Directive(d) = item else { continue };
            if let Some(block) = &mut d.block {
                self.includes(block);
            } else if d.name.bytes == b"include" && d.args.len() == 1 {
                match self.include(&d.args[0].text()) {
                    Ok(files) => d.included = files,
                    Err((text, hint)) => {
                        failed = Some((index, SyntaxError { text, span: d.args[0].span, line: d.line, hint }));
                        break;
                    }
                }
            }
        }
        if let Some((index, error)) = failed {
            items.truncate(index);
            items.push(TreeItem::Error(error));
        }
    }

    fn include(&mut self, pattern: &str) -> Result<Vec<IncludedFile>, (String, Option<String>)> {
        if self.open.len() > INCLUDE_DEPTH_MAX {
            return Err((format!("too many nested includes, \"{pattern}\" is not read"), None));
        }
        let full = if pattern.starts_with('/') { PathBuf::from(pattern) } else { self.prefix.join(pattern) };
        let paths = if is_pattern(pattern) { self.source.glob(&full.to_string_lossy()) } else { vec![full] };
        let mut out = Vec::with_capacity(paths.len());
        for path in paths {
            if let Some(at) = self.open.iter().position(|open| *open == path) {
                let way: Vec<String> = self.open[at..].iter().map(|open| open.display().to_string()).collect();
                let hint = format!("it is read already: \"{}\" includes it", way.join("\" includes \""));
                return Err((format!("\"{}\" includes itself", path.display()), Some(hint)));
            }
            self.included += 1;
            if self.included > INCLUDES_MAX {
                return Err((format!("more than {INCLUDES_MAX} files are included"), None));
            }
            let text = self.source.read(&path).map_err(|e| self.unreadable(pattern, &path, &e))?;
            let again = self.by_path.contains_key(&path);
            if self.bytes + text.len() > LOADED_BYTES_MAX {
                return Err((format!("the configuration has more than {} MB", LOADED_BYTES_MAX >> 20), None));
            }
            if again && self.repeated_bytes + text.len() > REPEATED_BYTES_MAX {
                let most = REPEATED_BYTES_MAX >> 20;
                return Err((format!("files that are included again have more than {most} MB"), None));
            }
            let items = self.file(path.clone(), text);
            out.push(IncludedFile { file: self.by_path[&path], items });
        }
        Ok(out)
    }

    /// Returns nginx's message for a file that cannot be read, with a hint.
    fn unreadable(&self, pattern: &str, path: &Path, e: &io::Error) -> (String, Option<String>) {
        let path = path.display();
        let Some(code) = e.raw_os_error() else { return (format!("\"{path}\" cannot be included: {e}"), None) };
        let hint = (code == 2 && !pattern.starts_with('/'))
            .then(|| format!("relative paths start at \"{}\"", self.prefix.display()));
        (format!("open() \"{path}\" failed ({code}: {})", os_words(e)), hint)
    }
}

/// The operating system's message, without Rust's "(os error N)".
fn os_words(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}
