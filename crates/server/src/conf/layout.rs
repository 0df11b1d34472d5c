//! Maps paths of stored configurations (generations), and rewrites `include` lines to a generation and back. Reads no
//! files.
//!
//! A configuration with several files becomes active when its main file is renamed. The `include` lines of that file
//! name the generation's directory, `.tidegate/N/conf/`, instead of the main file's directory. Directives that read an
//! attachment name its directory, `.tidegate-files/DIGEST/`.

use conf_syntax::{FileId, TreeItem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directory beside the main file, for all generations.
pub const FOLDER: &str = ".tidegate";
/// Directory of the configuration files in a generation's directory.
pub const FILES: &str = "conf";
/// Directory beside the main file, for attachments by the SHA-256 of their contents.
pub const ATTACHMENTS: &str = ".tidegate-files";
/// Characters of a digest in hexadecimal.
const DIGEST_LENGTH: usize = 64;

/// Ends of the names of directives whose first argument may be an attachment. All read it relative to the main file's directory.
const READS_ATTACHMENTS: &[&str] = &[
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_dhparam",
    "ssl_password_file",
    "ssl_session_ticket_key",
    "ssl_stapling_file",
    "ssl_trusted_certificate",
    READS_AT_REQUESTS,
];
/// The directive that reads its file with each request, in a worker process.
const READS_AT_REQUESTS: &str = "auth_basic_user_file";

/// Digests by name of attachment.
pub type Digests = BTreeMap<String, String>;

/// A stored configuration, as the list of generations shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationFacts {
    pub generation: u64,
    /// In milliseconds since 1970.
    pub at: u64,
    /// `start`, `reload`, `api` or `rollback`.
    pub by: String,
    /// Generation that a rollback restored.
    pub from: Option<u64>,
}

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
    pub fn attachments(&self) -> PathBuf {
        self.folder.join(ATTACHMENTS)
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
    /// Rewrites the `include` lines for which `moves` returns a value to the files of a generation, and the arguments that are names of
    /// attachments to these.
    ///
    /// # Errors
    /// Returns the line of an argument that contains an escape and therefore cannot be rewritten.
    pub fn moved(
        &self,
        text: &[u8],
        words: &[FileWord],
        generation: u64,
        moves: impl Fn(&str) -> bool,
        attached: &Digests,
    ) -> Result<Vec<u8>, u32> {
        let mut edits = Vec::new();
        for word in words {
            let Some(name) = self.relative(&word.argument) else { continue };
            let prefix = match word.reader {
                Reader::Include if moves(name) => format!("{FOLDER}/{generation}/{FILES}/"),
                Reader::Include => continue,
                Reader::Load | Reader::Requests => match attached.get(name) {
                    Some(digest) => format!("{ATTACHMENTS}/{digest}/"),
                    None => continue,
                },
            };
            // An argument with an escape differs from its source text.
            let raw = text.get(word.start..word.end).unwrap_or_default();
            let at = raw.len().checked_sub(name.len() + usize::from(word.quoted)).ok_or(word.line)?;
            if raw.get(at..at + name.len()) != Some(name.as_bytes()) {
                return Err(word.line);
            }
            edits.push((word.start + at, word.start + at, prefix));
        }
        Ok(edited(text, &edits))
    }
    /// Undoes [`Layout::moved`], for any generation.
    pub fn unmoved(&self, text: &[u8]) -> Vec<u8> {
        // The name of both directories. Most texts have none, and need no parsing.
        if !contains(text, FOLDER.as_bytes()) {
            return text.to_vec();
        }
        let mut edits = Vec::new();
        for word in file_words(text) {
            let raw = text.get(word.start..word.end).unwrap_or_default();
            let folder = if word.reader == Reader::Include { FOLDER } else { ATTACHMENTS };
            let mark = format!("{folder}/");
            let found = raw.windows(mark.len()).position(|part| part == mark.as_bytes());
            let Some(at) = found else { continue };
            let rest = raw.get(at..).and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
            let name = match word.reader {
                Reader::Include => split_generation(rest).map(|(_, name)| name),
                Reader::Load | Reader::Requests => split_digest(rest).map(|(_, name)| name),
            };
            if let Some(name) = name {
                let start = word.start + at;
                edits.push((start, start + rest.len() - name.len(), String::new()));
            }
        }
        edited(text, &edits)
    }
    /// Removes the directories of attachments from paths in a message.
    pub fn without_digests(&self, words: &str) -> String {
        let mut out = String::new();
        let mut rest = words;
        while let Some(at) = rest.find(ATTACHMENTS) {
            let (before, named) = rest.split_at(at);
            out.push_str(before);
            rest = match split_digest(named) {
                Some((_, name)) => name,
                None => {
                    out.push_str(ATTACHMENTS);
                    named.strip_prefix(ATTACHMENTS).unwrap_or_default()
                }
            };
        }
        out.push_str(rest);
        out
    }
    /// Returns the attachments that a moved text reads.
    pub fn attached(&self, text: &[u8]) -> Digests {
        if !contains(text, ATTACHMENTS.as_bytes()) {
            return Digests::new();
        }
        let words = file_words(text).into_iter().filter(|word| word.reader != Reader::Include);
        let split = |word: FileWord| {
            let (digest, name) = split_digest(self.relative(&word.argument)?)?;
            Some((name.to_string(), digest.to_string()))
        };
        words.filter_map(split).collect()
    }
    /// Returns the attachments that a text as it was sent reads; `true` for those that worker processes read with requests.
    pub fn reads<'a>(&self, words: &[FileWord], attached: &'a Digests) -> BTreeMap<&'a str, bool> {
        let mut found = BTreeMap::new();
        for word in words.iter().filter(|word| word.reader != Reader::Include) {
            if let Some((name, _)) = self.relative(&word.argument).and_then(|name| attached.get_key_value(name)) {
                *found.entry(name.as_str()).or_default() |= word.reader == Reader::Requests;
            }
        }
        found
    }
    /// Returns the line of an argument that names the directory of kept configurations or of attachments.
    pub fn names_kept(&self, words: &[FileWord]) -> Option<u32> {
        let names = |word: &&FileWord| {
            let folder = if word.reader == Reader::Include { FOLDER } else { ATTACHMENTS };
            word.argument.split('/').any(|part| part == folder)
        };
        words.iter().find(names).map(|word| word.line)
    }
}

/// Splits `.tidegate/N/conf/NAME`.
fn split_generation(name: &str) -> Option<(u64, &str)> {
    let rest = name.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let (number, rest) = rest.split_once('/')?;
    Some((number.parse().ok()?, rest.strip_prefix(FILES)?.strip_prefix('/')?))
}

/// Splits `.tidegate-files/DIGEST/NAME`.
fn split_digest(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix(ATTACHMENTS)?.strip_prefix('/')?;
    rest.split_once('/').filter(|(digest, _)| is_digest(digest))
}

/// Tells whether a word is a digest as the names of directories have it.
pub fn is_digest(word: &str) -> bool {
    word.len() == DIGEST_LENGTH && word.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// Way in which the file of an argument is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Include,
    /// With the configuration, by the master process.
    Load,
    Requests,
}

/// Argument that names a file.
#[derive(Clone, Debug)]
pub struct FileWord {
    pub reader: Reader,
    pub argument: String,
    /// Bytes of the argument, with its quotes.
    start: usize,
    end: usize,
    quoted: bool,
    pub line: u32,
}

impl FileWord {
    /// Returns the argument of an `include` line.
    pub fn include(&self) -> Option<&str> {
        (self.reader == Reader::Include).then_some(&self.argument)
    }
}

/// Returns the arguments of a text that name files, in its order.
pub fn file_words(text: &[u8]) -> Vec<FileWord> {
    // The files of the lines were not read, so that `conf_syntax::directives` would skip patterns.
    fn visit(items: &[TreeItem], found: &mut Vec<FileWord>) {
        for item in items {
            let TreeItem::Directive(d) = item else { continue };
            if let Some(block) = &d.block {
                visit(block, found);
                continue;
            }
            let reader = match (&d.name.bytes[..], d.args.len()) {
                (b"include", 1) => Reader::Include,
                (_, 0) => continue,
                (name, _) if name == READS_AT_REQUESTS.as_bytes() => Reader::Requests,
                (name, _) if READS_ATTACHMENTS.iter().any(|end| name.ends_with(end.as_bytes())) => Reader::Load,
                _ => continue,
            };
            found.extend(d.args.first().map(|word| FileWord {
                reader,
                argument: word.text().into_owned(),
                start: word.span.start as usize,
                end: word.span.end as usize,
                quoted: word.quoted,
                line: d.line,
            }));
        }
    }
    let mut found = Vec::new();
    visit(&conf_syntax::parse_file(FileId(0), text), &mut found);
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
        let moved =
            layout().moved(text, &file_words(text), 12, |name| name != "other", &Digests::new()).expect("moved");
        let want = "include .tidegate/12/conf/conf.d/*.conf; http { include \".tidegate/12/conf/a b.conf\"; \
                    include /etc/nginx/.tidegate/12/conf/x/y;\n include './.tidegate/12/conf/z'; \
                    include other; include /usr/share/m; include x/../y; } # include c;";
        assert_eq!(String::from_utf8_lossy(&moved), want);
        assert_eq!(layout().unmoved(&moved), text);
        assert_eq!(layout().unmoved(text), text);
        assert_eq!(layout().names_kept(&file_words(&moved)), Some(1));
        assert_eq!(layout().names_kept(&file_words(text)), None);
    }

    #[test]
    fn an_argument_with_an_escape_is_an_error() {
        let text = b"\ninclude a\\\"b;";
        assert_eq!(layout().moved(text, &file_words(text), 1, |_| true, &Digests::new()), Err(2));
    }

    #[test]
    fn arguments_that_read_attachments_move_to_their_digests_and_back() {
        let digest = |c: char| c.to_string().repeat(DIGEST_LENGTH);
        let attached: Digests = [("c/a.crt", 'a'), ("c/a.key", 'b'), ("users", 'c'), ("unused", 'd')]
            .map(|(name, c)| (name.to_string(), digest(c)))
            .into();
        let text =
            b"http { ssl_certificate c/a.crt; ssl_certificate_key \"./c/a.key\"; server { ssl_certificate other.crt;\n\
                     proxy_ssl_trusted_certificate /etc/nginx/c/a.crt; auth_basic_user_file users; root users; \
                     ssl_certificate $x/c/a.crt; include users; } }";
        let moved = layout().moved(text, &file_words(text), 1, |_| false, &attached).expect("moved");
        let folder = |c| format!(".tidegate-files/{}", digest(c));
        let want = format!(
            "http {{ ssl_certificate {}/c/a.crt; ssl_certificate_key \"./{}/c/a.key\"; server {{ ssl_certificate other.crt;\n\
             proxy_ssl_trusted_certificate /etc/nginx/{}/c/a.crt; auth_basic_user_file {}/users; root users; \
             ssl_certificate $x/c/a.crt; include users; }} }}",
            folder('a'),
            folder('b'),
            folder('a'),
            folder('c')
        );
        assert_eq!(String::from_utf8_lossy(&moved), want);
        assert_eq!(layout().unmoved(&moved), text);
        let mut used = attached.clone();
        used.remove("unused");
        assert_eq!(layout().attached(&moved), used);
        assert!(layout().attached(text).is_empty());
        let reads = layout().reads(&file_words(text), &attached);
        assert_eq!(reads, BTreeMap::from([("c/a.crt", false), ("c/a.key", false), ("users", true)]));
        let words = format!("cannot load \"/etc/nginx/{}/c/a.crt\" in .tidegate-files/x", folder('a'));
        assert_eq!(layout().without_digests(&words), "cannot load \"/etc/nginx/c/a.crt\" in .tidegate-files/x");
        let named = |text: &[u8]| layout().names_kept(&file_words(text));
        assert_eq!((named(&moved), named(text)), (Some(1), None));
        let text = b"\nssl_certificate a\\\"b;";
        let attached = [("a\"b".to_string(), digest('a'))].into();
        assert_eq!(layout().moved(text, &file_words(text), 1, |_| true, &attached), Err(2));
        assert!(is_digest(&digest('0')) && !is_digest(&digest('A')) && !is_digest("../x") && !is_digest(""));
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
