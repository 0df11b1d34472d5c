//! Files and includes: loads the tree of a path with everything that it includes.

use crate::parser::parse;
use crate::tree::{FileId, Files, Included, Item, SourceFile, SyntaxError};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Nested includes at most; stops files that include themselves.
pub const INCLUDE_DEPTH_MAX: usize = 64;

/// Origin of texts: the disk, or a table in tests.
pub trait Source {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Files that match a pattern with `*`, `?` or `[...]`, sorted.
    fn glob(&self, pattern: &str) -> Vec<PathBuf>;
}

const OPTIONS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Tells whether the argument of `include` is a pattern.
pub fn is_pattern(argument: &str) -> bool {
    argument.contains(['*', '?', '['])
}

/// Tells whether an argument of `include` names a path, as [`Disk`] matches patterns.
pub fn matches(argument: &str, path: &str) -> bool {
    match is_pattern(argument) {
        true => glob::Pattern::new(argument).is_ok_and(|pattern| pattern.matches_with(path, OPTIONS)),
        false => argument == path,
    }
}

pub struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            glob::glob_with(pattern, OPTIONS).map(|paths| paths.filter_map(Result::ok).collect()).unwrap_or_default();
        found.sort();
        found
    }
}

#[derive(Clone, Debug, Default)]
pub struct Memory(pub HashMap<PathBuf, Vec<u8>>);

impl Source for Memory {
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
    pub files: Files,
    pub items: Vec<Item>,
}

/// Reads `path` and its includes, relative to its directory (nginx's conf prefix). Fails when the main file is
/// unreadable; a missing include is an error in the tree.
pub fn load(source: &dyn Source, path: &Path) -> io::Result<Load> {
    let text = source.read(path)?;
    Ok(load_text(source, path, text))
}

/// [`load`] of a text already read; `path` names it in messages.
pub fn load_text(source: &dyn Source, path: &Path, text: Vec<u8>) -> Load {
    load_texts(source, path, text, None).0
}

/// [`load_text`], and the items of another text with its name, whose includes start at the same directory.
pub fn load_texts(source: &dyn Source, path: &Path, text: Vec<u8>, other: Option<(&Path, &[u8])>) -> (Load, Vec<Item>) {
    let prefix = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut loader = Loader { source, prefix, files: Files::default(), by_path: HashMap::new() };
    let items = loader.file(path.to_path_buf(), text, 0);
    let others = other.map_or_else(Vec::new, |(name, text)| loader.file(name.to_path_buf(), text.to_vec(), 0));
    (Load { files: loader.files, items }, others)
}

struct Loader<'a> {
    source: &'a dyn Source,
    prefix: PathBuf,
    files: Files,
    by_path: HashMap<PathBuf, FileId>,
}

impl Loader<'_> {
    fn file(&mut self, path: PathBuf, text: Vec<u8>, depth: usize) -> Vec<Item> {
        let id = *self.by_path.entry(path.clone()).or_insert_with(|| {
            self.files.all.push(SourceFile { path, text: text.clone() });
            FileId(self.files.all.len() as u32 - 1)
        });
        let mut items = parse(id, &text);
        self.includes(&mut items, depth);
        items
    }

    fn includes(&mut self, items: &mut Vec<Item>, depth: usize) {
        let mut failed = None;
        for (index, item) in items.iter_mut().enumerate() {
            let Item::Directive(d) = item else { continue };
            if let Some(block) = &mut d.block {
                self.includes(block, depth);
            } else if d.name.bytes == b"include" && d.args.len() == 1 {
                match self.include(&d.args[0].text(), depth) {
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
            items.push(Item::Error(error));
        }
    }

    fn include(&mut self, pattern: &str, depth: usize) -> Result<Vec<Included>, (String, Option<String>)> {
        if depth >= INCLUDE_DEPTH_MAX {
            let hint = "does a file include itself?".to_string();
            return Err((format!("too many nested includes, \"{pattern}\" is not read"), Some(hint)));
        }
        let full = if pattern.starts_with('/') { PathBuf::from(pattern) } else { self.prefix.join(pattern) };
        let paths = if is_pattern(pattern) { self.source.glob(&full.to_string_lossy()) } else { vec![full] };
        let mut out = Vec::with_capacity(paths.len());
        for path in paths {
            let text = self.source.read(&path).map_err(|e| {
                let (code, words) = (e.raw_os_error().unwrap_or(0), os_words(&e));
                let hint = (code == 2 && !pattern.starts_with('/'))
                    .then(|| format!("relative paths start at \"{}\"", self.prefix.display()));
                (format!("open() \"{}\" failed ({code}: {words})", path.display()), hint)
            })?;
            let items = self.file(path.clone(), text, depth + 1);
            out.push(Included { file: self.by_path[&path], items });
        }
        Ok(out)
    }
}

/// The operating system's message, without Rust's "(os error N)".
fn os_words(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}
