//! Maps paths of stored configurations (generations), and rewrites `include` lines to a generation and back. Reads no
//! files.
//!
//! A configuration with several files becomes active when its main file is renamed. The `include` lines of that file
//! name the generation's directory, `.tidegate/N/conf/`, instead of the main file's directory.

use conf_syntax::{FileId, Item};
use std::path::{Path, PathBuf};

/// Directory beside the main file, for all generations.
pub const FOLDER: &str = ".tidegate";
/// Directory of the configuration files in a generation's directory.
pub const FILES: &str = "conf";

/// Paths of a configuration that the API may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Main file, as given by `-c`.
    pub main: PathBuf,
    /// The main file's directory, the base of `include`.
    pub folder: PathBuf,
    pub name: String,
}

impl Layout {
    /// Returns `None` unless the path is UTF-8 and ends with a file name.
    pub fn of(main: &Path) -> Option<Layout> {
        let name = main.file_name()?.to_str()?.to_string();
        let folder = main.parent()?.to_path_buf();
        folder.to_str()?;
        Some(Layout { main: main.to_path_buf(), folder, name })
    }
    pub fn kept(&self) -> PathBuf {
        self.folder.join(FOLDER)
    }
    pub fn files_of(&self, generation: u64) -> PathBuf {
        self.kept().join(generation.to_string()).join(FILES)
    }
    /// Returns the generation that contains a file, and the file's name relative to the main file's directory. Returns
    /// `None` for a file outside that directory.
    pub fn natural(&self, path: &Path) -> Option<(Option<u64>, String)> {
        let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
        match split_generation(name) {
            Some((generation, rest)) => Some((Some(generation), rest.to_string())),
            None => Some((None, name.to_string())),
        }
    }
    /// Formats a path for messages, without the directory of a generation.
    pub fn shown(&self, path: &Path) -> String {
        match self.natural(path) {
            Some((Some(_), name)) => self.folder.join(name).display().to_string(),
            _ => path.display().to_string(),
        }
    }
    /// Returns the argument of an `include` line relative to the main file's directory. Returns `None` for a path
    /// outside that directory, or with empty or dot segments.
    pub fn relative<'a>(&self, argument: &'a str) -> Option<&'a str> {
        let name = match argument.strip_prefix(self.folder.to_str()?) {
            Some(rest) => rest.strip_prefix('/')?,
            None if argument.starts_with('/') => return None,
            None => argument,
        };
        let name = name.strip_prefix("./").unwrap_or(name);
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        name.split('/').all(plain).then_some(name)
    }
    /// Rewrites the `include` lines for which `moves` returns a value to the files of a generation.
    ///
    /// # Errors
    /// Returns the line of an argument that contains an escape and therefore cannot be rewritten.
    pub fn moved(&self, text: &[u8], generation: u64, moves: impl Fn(&str) -> bool) -> Result<Vec<u8>, u32> {
        let mut edits = Vec::new();
        for include in includes(text) {
            let Some(name) = self.relative(&include.argument).filter(|name| moves(name)) else { continue };
            // An argument with an escape differs from its source text.
            let raw = text.get(include.start..include.end).unwrap_or_default();
            let at = raw.len().checked_sub(name.len() + usize::from(include.quoted)).ok_or(include.line)?;
            if raw.get(at..at + name.len()) != Some(name.as_bytes()) {
                return Err(include.line);
            }
            edits.push((include.start + at, include.start + at, format!("{FOLDER}/{generation}/{FILES}/")));
        }
        Ok(edited(text, &edits))
    }
    /// Undoes [`Layout::moved`], for any generation.
    pub fn unmoved(&self, text: &[u8]) -> Vec<u8> {
        let mut edits = Vec::new();
        for include in includes(text) {
            let raw = text.get(include.start..include.end).unwrap_or_default();
            let mark = format!("{FOLDER}/");
            let found = raw.windows(mark.len()).position(|part| part == mark.as_bytes());
            let Some(at) = found else { continue };
            let rest = raw.get(at..).and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
            if let Some((_, name)) = split_generation(rest) {
                let start = include.start + at;
                edits.push((start, start + rest.len() - name.len(), String::new()));
            }
        }
        edited(text, &edits)
    }
    /// Returns the line of an `include` that names the directory of kept configurations.
    pub fn names_kept(&self, text: &[u8]) -> Option<u32> {
        let names = |argument: &str| argument.split('/').any(|part| part == FOLDER);
        includes(text).into_iter().find(|include| names(&include.argument)).map(|include| include.line)
    }
}

/// Splits `.tidegate/N/conf/NAME`.
fn split_generation(name: &str) -> Option<(u64, &str)> {
    let rest = name.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let (number, rest) = rest.split_once('/')?;
    Some((number.parse().ok()?, rest.strip_prefix(FILES)?.strip_prefix('/')?))
}

#[derive(Clone, Debug)]
pub struct Include {
    pub argument: String,
    /// Bytes of the argument, with its quotes.
    pub start: usize,
    pub end: usize,
    pub quoted: bool,
    pub line: u32,
}

pub fn includes(text: &[u8]) -> Vec<Include> {
    // The files of the lines were not read, so that `conf_syntax::directives` would skip patterns.
    fn visit(items: &[Item], found: &mut Vec<Include>) {
        for item in items {
            let Item::Directive(d) = item else { continue };
            match (&d.block, d.args.as_slice()) {
                (Some(block), _) => visit(block, found),
                (None, [word]) if d.name.bytes == b"include" => found.push(Include {
                    argument: word.text().into_owned(),
                    start: word.span.start as usize,
                    end: word.span.end as usize,
                    quoted: word.quoted,
                    line: d.line,
                }),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    visit(&conf_syntax::parse(FileId(0), text), &mut found);
    found
}

/// Replaces sorted ranges with texts.
fn edited(text: &[u8], edits: &[(usize, usize, String)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + edits.len() * 32);
    let mut at = 0;
    for (start, end, new) in edits {
        out.extend_from_slice(text.get(at..*start).unwrap_or_default());
        out.extend_from_slice(new.as_bytes());
        at = *end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::of(Path::new("/etc/nginx/nginx.conf")).expect("a layout")
    }

    #[test]
    fn include_lines_move_to_a_generation_and_back() {
        let text = b"include conf.d/*.conf; http { include \"a b.conf\"; include /etc/nginx/x/y;\n include './z'; \
                     include other; include /usr/share/m; include x/../y; } # include c;";
        let moved = layout().moved(text, 12, |name| name != "other").expect("moved");
        let want = "include .tidegate/12/conf/conf.d/*.conf; http { include \".tidegate/12/conf/a b.conf\"; \
                    include /etc/nginx/.tidegate/12/conf/x/y;\n include './.tidegate/12/conf/z'; \
                    include other; include /usr/share/m; include x/../y; } # include c;";
        assert_eq!(String::from_utf8_lossy(&moved), want);
        assert_eq!(layout().unmoved(&moved), text);
        assert_eq!(layout().unmoved(text), text);
        assert_eq!(layout().names_kept(&moved), Some(1));
        assert_eq!(layout().names_kept(text), None);
    }

    #[test]
    fn an_argument_with_an_escape_is_an_error() {
        assert_eq!(layout().moved(b"\ninclude a\\\"b;", 1, |_| true), Err(2));
    }

    #[test]
    fn names_are_those_of_the_main_files_folder() {
        let natural = |path: &str| layout().natural(Path::new(path));
        assert_eq!(natural("/etc/nginx/conf.d/a"), Some((None, "conf.d/a".into())));
        assert_eq!(natural("/etc/nginx/.tidegate/7/conf/conf.d/a"), Some((Some(7), "conf.d/a".into())));
        assert_eq!(natural("/etc/nginx-2/a"), None);
        assert_eq!(layout().shown(Path::new("/etc/nginx/.tidegate/7/conf/x")), "/etc/nginx/x");
        for (argument, want) in [
            ("a/*.conf", Some("a/*.conf")),
            ("./a", Some("a")),
            ("/etc/nginx/a", Some("a")),
            ("/etc/nginxa", None),
            ("/a", None),
            ("../a", None),
            ("a//b", None),
            ("", None),
        ] {
            assert_eq!(layout().relative(argument), want, "{argument}");
        }
    }
}
