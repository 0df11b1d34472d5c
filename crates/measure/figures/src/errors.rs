//! Error messages of libraries in the words of a user: without names of Rust types.

use std::io;
use std::path::Path;

/// Replacements of serde's expectations.
const EXPECTED: [(&str, &str); 11] = [
    ("expected u8", WHOLE),
    ("expected u16", WHOLE),
    ("expected u32", WHOLE),
    ("expected u64", WHOLE),
    ("expected usize", WHOLE),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected a table"),
    ("expected a boolean", "expected true or false"),
    ("expected f64", "expected a number"),
    ("invalid type: floating point", "invalid value: number"),
    ("invalid type: ", "invalid value: "),
];
const WHOLE: &str = "expected a whole number that is not negative";

/// Rewrites an error of a TOML or JSON parser.
pub fn plain_message(message: &str) -> String {
    let mut text = message.to_string();
    for (from, to) in EXPECTED {
        text = text.replace(from, to);
    }
    let Some((before, after)) = text.split_once("expected struct ") else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    format!("{before}expected a table{rest}")
}

/// Describes why a text file could not be read, with its name.
pub fn unreadable_file(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => format!("{}: not a text file (UTF-8)", path.display()),
        io::ErrorKind::IsADirectory => format!("{}: is a directory", path.display()),
        _ => format!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_rust_are_not_shown() {
        let text = plain_message("invalid value: integer `-5`, expected u32\n");
        assert_eq!(text, "invalid value: integer `-5`, expected a whole number that is not negative\n");
        let text = plain_message("invalid type: string \"x\", expected struct Server\nin `server`");
        assert_eq!(text, "invalid value: string \"x\", expected a table\nin `server`");
        assert_eq!(plain_message("missing field `name`"), "missing field `name`");
    }

    #[test]
    fn unreadable_files_are_named() {
        let of = |kind: io::ErrorKind| unreadable_file(Path::new("a/b"), &kind.into());
        assert_eq!(of(io::ErrorKind::InvalidData), "a/b: not a text file (UTF-8)");
        assert_eq!(of(io::ErrorKind::IsADirectory), "a/b: is a directory");
        assert!(of(io::ErrorKind::NotFound).starts_with("a/b: "));
    }
}
