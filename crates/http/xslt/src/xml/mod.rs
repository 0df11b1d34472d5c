//! XML 1.0 with namespaces: a parser that checks well-formedness, expands entities and builds a tree. As libxml2 does, it
//! reads the internal subset, and external ones through the loader alone. Errors have libxml2's codes and messages.

mod decode;
mod dtd;
mod parser;
mod scan;

/// Characters of names and documents.
pub(crate) mod scan_rules {
    pub(crate) use super::scan::{is_name, is_name_start, is_ncname, is_space};
}

pub use decode::decode_document;
pub use dtd::{Dtd, parse_dtd};
pub use parser::{ParseOptions, ParsedDocument, parse_document};

/// Nested elements of a document, as in libxml2 (`xmlParserMaxDepth`).
pub const DEPTH_MAX: usize = 256;
/// Nested entities, as in libxml2.
pub const ENTITY_DEPTH_MAX: usize = 40;
/// Bytes of entities that every document may expand, as in libxml2.
pub const EXPANSION_FREE: usize = 1_000_000;
/// Bytes of expanded entities for each byte of the document above `EXPANSION_FREE`, as in libxml2.
pub const AMPLIFICATION_MAX: usize = 5;
/// Bytes of a document, an entity or a stylesheet.
pub const INPUT_MAX: usize = 32 << 20;
/// Bytes of the tree of a document.
pub const TREE_MAX: usize = 128 << 20;
/// Bytes of a name, as in libxml2.
pub const NAME_MAX: usize = 50_000;

/// Reads the resources that documents and stylesheets refer to, and tells whether the work goes on.
pub trait Loader {
    /// Reads the resource of an absolute reference, or of one relative to the working directory.
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String>;
    /// Tells whether the result still has a receiver. Asked every few milliseconds of work, which fails after `false`.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// Loader that finds nothing.
pub struct NoLoader;

impl Loader for NoLoader {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        Err(format!("failed to load \"{uri}\""))
    }
}

/// Error of a parser, with the code and the message of libxml2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmlError {
    /// libxml2's number (`xmlParserErrors`).
    pub code: u32,
    pub message: String,
    /// Address of the document.
    pub uri: String,
    /// Line, from 1.
    pub line: u32,
    /// Line of text up to the error, at most 80 bytes, and the rest.
    pub before: String,
    pub after: String,
}

impl XmlError {
    /// The lines that libxml2 prints: message, text, caret.
    pub fn report(&self) -> String {
        let XmlError { uri, line, message, before, after, .. } = self;
        let width = before.chars().count();
        format!("{uri}:{line}: parser error : {message}\n{before}{after}\n{:>1$}", "^", width + 1)
    }
}

/// Resolves a reference against a base address: RFC 3986, section 5.2, for files and absolute references.
pub fn resolve_uri(base: &str, reference: &str) -> String {
    let has_scheme = |text: &str| {
        text.split_once(':').is_some_and(|(scheme, _)| {
            scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        })
    };
    if reference.is_empty() {
        return base.into();
    }
    if has_scheme(reference) {
        return reference.into();
    }
    let (root, path) = match base.find("://").filter(|_| has_scheme(base)) {
        Some(at) => {
            let authority_end = base.get(at + 3..).and_then(|rest| rest.find('/')).map_or(base.len(), |n| at + 3 + n);
            base.split_at(authority_end)
        }
        None => ("", base),
    };
    if reference.starts_with('/') {
        return format!("{root}{reference}");
    }
    let folder = path.rfind('/').map_or("", |at| path.get(..=at).unwrap_or(""));
    let mut parts: Vec<&str> = Vec::new();
    let joined = format!("{folder}{reference}");
    let absolute = joined.starts_with('/');
    for part in joined.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    format!("{root}{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}
