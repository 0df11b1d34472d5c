//! Rules of a server: directives outside of .htaccess files, with `<Directory>`, `<DirectoryMatch>`, `<Location>` and
//! `<LocationMatch>` (Apache: `ap_directory_walk`, `ap_location_walk`).

use crate::pattern::{RulePattern, matches_glob};
use crate::reader::{File, Override, part, section_holds};
use crate::settings::Settings;
use crate::syntax::{self, ParseError, SyntaxLine};

/// Rules that apply to every request of a server.
#[derive(Debug, Default)]
pub struct ServerRules {
    /// Directives outside of sections, and `<Files>` there. Its rewriting rules and redirects precede the choice of a file.
    pub base: File,
    pub directories: Vec<DirectoryRules>,
    pub locations: Vec<LocationRules>,
    /// `AllowEncodedSlashes`; off: a path with `%2F` is not found.
    pub encoded_slashes: bool,
}

/// A `<Directory>` section.
#[derive(Debug)]
pub struct DirectoryRules {
    scope: PathScope,
    pub overrides: Option<Override>,
    pub file: File,
    /// File system path with a final slash, which rewriting rules strip.
    pub path: Vec<u8>,
}

/// A `<Location>` section.
#[derive(Debug)]
pub struct LocationRules {
    scope: PathScope,
    pub settings: Settings,
}

#[derive(Debug)]
enum PathScope {
    /// Without a final slash, except for `/`, and except in `<Location>`.
    Path(String),
    Glob(String),
    Pattern(RulePattern),
}

impl PathScope {
    fn of(line: &SyntaxLine, directory: bool) -> Result<PathScope, String> {
        let is_match = line.name.to_ascii_lowercase().ends_with("match");
        let (is_pattern, text) = match line.args.as_slice() {
            [sign, text] if sign == "~" => (true, text),
            [text] => (is_match, text),
            _ => return Err(format!("<{}> takes one argument", line.name)),
        };
        if is_pattern {
            return Ok(PathScope::Pattern(RulePattern::new(text, false)?));
        }
        if !text.starts_with('/') {
            return Err(format!("<{} {text}> is no absolute path", line.name));
        }
        let bare = text.trim_end_matches('/');
        let text = if directory && !bare.is_empty() { bare.to_string() } else { text.clone() };
        Ok(if text.contains(['*', '?', '[']) { PathScope::Glob(text) } else { PathScope::Path(text) })
    }
}

/// Components of a path.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Matches each component of a path with one of a pattern: no wildcard matches a slash.
fn glob_path(pattern: &str, path: &[u8]) -> bool {
    let (mut patterns, mut names) = (components(pattern.as_bytes()), components(path));
    loop {
        match (patterns.next(), names.next()) {
            (Some(pattern), Some(name)) if matches_glob(pattern, name) => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

impl DirectoryRules {
    /// Tells whether the section applies to a directory, named without a final slash (`/` for the file system's root).
    pub fn is_of(&self, directory: &[u8]) -> bool {
        match &self.scope {
            PathScope::Path(path) => path.as_bytes() == directory,
            PathScope::Glob(pattern) => glob_path(pattern, directory),
            PathScope::Pattern(_) => false,
        }
    }
    /// Tells whether its regular expression matches a file's path. Fails when it exceeds its limits.
    pub fn matches(&self, file: &[u8]) -> Result<bool, String> {
        match &self.scope {
            PathScope::Pattern(pattern) => pattern.holds(file),
            _ => Ok(false),
        }
    }
}

impl LocationRules {
    /// Tells whether the section applies to a path. Fails when its regular expression exceeds its limits.
    pub fn is_of(&self, uri: &[u8]) -> Result<bool, String> {
        Ok(match &self.scope {
            PathScope::Path(path) => uri
                .strip_prefix(path.as_bytes())
                .is_some_and(|rest| path.ends_with('/') || rest.is_empty() || rest.starts_with(b"/")),
            PathScope::Glob(pattern) => pattern.ends_with('/') == uri.ends_with(b"/") && glob_path(pattern, uri),
            PathScope::Pattern(pattern) => pattern.holds(uri)?,
        })
    }
}

/// Parses a server's rules. Fails on the first invalid or unsupported line.
pub fn read_rules(text: &str) -> Result<ServerRules, ParseError> {
    let mut rules = ServerRules::default();
    let mut own = Vec::new();
    rules.sections(&syntax::parse_lines(text)?, &mut own)?;
    rules.base = File::of(&own)?;
    Ok(rules)
}

impl ServerRules {
    /// Takes the sections of paths, and leaves all other lines to `own`.
    fn sections(&mut self, lines: &[SyntaxLine], own: &mut Vec<SyntaxLine>) -> Result<(), ParseError> {
        for line in lines {
            let fail = |text: String| ParseError { line: line.number, text };
            let Some(inner) = &line.section else {
                match (line.is("AllowEncodedSlashes"), line.arg(0).to_ascii_lowercase().as_str()) {
                    (true, "on" | "nodecode") => self.encoded_slashes = true,
                    (true, "off") => self.encoded_slashes = false,
                    _ => own.push(line.clone()),
                }
                continue;
            };
            match (section_holds(line), line.name.to_ascii_lowercase().as_str()) {
                (Some(true), _) => self.sections(inner, own)?,
                (Some(false), _) => {}
                (None, "directory" | "directorymatch") => {
                    let scope = PathScope::of(line, true).map_err(fail)?;
                    let is_override = |line: &&SyntaxLine| line.is("AllowOverride");
                    let mut overrides = None;
                    for line in inner.iter().filter(is_override) {
                        let fail = |text: String| ParseError { line: line.number, text };
                        overrides = Some(Override::of(&line.args).map_err(fail)?);
                    }
                    let rest: Vec<SyntaxLine> = inner.iter().filter(|line| !is_override(line)).cloned().collect();
                    let file = File::of(&rest)?;
                    let path = match &scope {
                        PathScope::Path(path) => format!("{}/", path.trim_end_matches('/')).into_bytes(),
                        _ if file.rewrite.is_some() => {
                            return Err(fail("rewriting rules need a <Directory> with a plain path".into()));
                        }
                        _ => Vec::new(),
                    };
                    self.directories.push(DirectoryRules { scope, overrides, file, path });
                }
                (None, "location" | "locationmatch") => {
                    let scope = PathScope::of(line, false).map_err(fail)?;
                    self.locations.push(LocationRules { scope, settings: part(inner)? });
                }
                (None, _) => own.push(line.clone()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> ServerRules {
        read_rules(text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
    }

    #[test]
    fn sections_of_directories_match_whole_components() {
        for (head, directory, want) in [
            ("<Directory />", "/", true),
            ("<Directory />", "/srv", false),
            ("<Directory /srv/www/>", "/srv/www", true),
            ("<Directory /srv>", "/srv/www", false),
            ("<Directory /srv/*/d>", "/srv/a/d", true),
            ("<Directory /srv/*>", "/srv/a/d", false),
            ("<Directory ~ d$>", "/srv/d", false),
        ] {
            assert_eq!(
                rules(&format!("{head}\n</Directory>")).directories[0].is_of(directory.as_bytes()),
                want,
                "{head}"
            );
        }
        let matching = &rules("<DirectoryMatch \"/d(/|$)\">\n</DirectoryMatch>").directories[0];
        assert_eq!(matching.matches(b"/srv/d/x"), Ok(true));
        assert_eq!(matching.matches(b"/srv/dd"), Ok(false));
    }

    #[test]
    fn sections_of_paths_match_whole_names() {
        for (head, uri, want) in [
            ("<Location /a>", "/a", true),
            ("<Location /a>", "/a/b", true),
            ("<Location /a>", "/ab", false),
            ("<Location /a/>", "/a", false),
            ("<Location />", "/x", true),
            ("<Location /*/b>", "/a/b", true),
            ("<Location /*/b>", "/a/b/c", false),
            ("<Location ~ b>", "/a/b/c", true),
        ] {
            assert_eq!(
                rules(&format!("{head}\n</Location>")).locations[0].is_of(uri.as_bytes()),
                Ok(want),
                "{head} {uri}"
            );
        }
    }

    #[test]
    fn permissions_of_files_are_checked_by_class() {
        let rules = rules(
            "<Directory /a>\nAllowOverride FileInfo Limit\n</Directory>\n<Directory /b>\nAllowOverride None\n</Directory>",
        );
        let some = rules.directories[0].overrides.clone().expect("given");
        assert_eq!(rules.directories[1].overrides, Some(Override::None));
        let check =
            |text: &str| some.check(&crate::reader::read_htaccess(text).expect("reads")).map_err(|e| (e.line, e.text));
        assert_eq!(check("Header set A b\nDeny from all\n<Files x>\nRedirect /a /b\n</Files>"), Ok(()));
        assert_eq!(check("Header set A b\nRequire all granted"), Err((2, "Require not allowed here".into())));
        assert_eq!(check("<Files x>\nOptions -Indexes\n</Files>"), Err((2, "Options not allowed here".into())));
        let unset = Override::of(&["Unset".to_string()]).expect("known");
        for (text, line) in
            [("<IfModule mod_x.c>\n</IfModule>", 1), ("\n<Limit GET>\n</Limit>", 2), ("Header set A b", 1)]
        {
            assert_eq!(
                unset.check(&crate::reader::read_htaccess(text).expect("reads")).map_err(|e| e.line),
                Err(line),
                "{text}"
            );
        }
        assert!(read_rules("<Directory /a>\nAllowOverride Options=Indexes\n</Directory>").is_err());
    }

    #[test]
    fn faults_are_named_with_their_line() {
        for (text, line) in [
            ("Header set A b\nNoSuchThing", 2),
            ("<Location x>\n</Location>", 1),
            ("<Directory /srv/*>\nRewriteEngine On\n</Directory>", 1),
            ("<If \"true\">\n</If>", 1),
            ("<Directory /a>\n\nRequire ldap-user x\n</Directory>", 3),
        ] {
            assert_eq!(read_rules(text).map(|_| ()).map_err(|e| e.line), Err(line), "{text}");
        }
    }
}
