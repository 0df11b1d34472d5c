//! `tidegate convert apache`: virtual hosts and .htaccess files as an nginx configuration.
//! Addresses, folders, proxies and the like become nginx's directives. All rules stay in Apache's language, for the engine that
//! reads .htaccess files: Apache merges its sections and applies rules again to their own result, for which nginx has no words.
//! Untranslated lines become comments in place and entries of [`ConvertedConfig::left`].

mod directives;
mod rules;
mod server;

use crate::scope::quote_word;
pub use htaccess::pattern::matches_glob;
use htaccess::syntax::{self, ParseError, SyntaxLine};
use server::Server;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Debug)]
pub struct Options {
    /// Target of scripts when the files name none (`fastcgi_pass`); `off`: there are no scripts.
    pub php: String,
    pub server_root: String,
    /// Writes the server blocks only, for an include.
    pub snippet: bool,
    /// Address for virtual hosts without `Listen`, and for .htaccess files.
    pub listen: String,
    /// Document root of .htaccess files outside of all virtual hosts.
    pub root: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            php: "unix:/run/php/php-fpm.sock".into(),
            server_root: "/etc/apache2".into(),
            snippet: false,
            listen: "80".into(),
            root: None,
        }
    }
}

pub struct Input {
    pub name: String,
    pub text: String,
    /// Directory of a .htaccess file.
    pub folder: Option<String>,
    /// The .htaccess file lies in that directory, where the server reads it.
    pub in_place: bool,
}

/// Reads the files that `Include` names: their names and texts. Fails with the reason of the first that cannot be read.
pub type Includes<'a> = &'a dyn Fn(&str) -> Result<Vec<(String, String)>, String>;

/// Beginning of reasons to leave a line whose place is denied.
const CLOSED: &str = "denied here: ";

/// Nested `Include` directives at most.
const INCLUDES_DEEP_MAX: usize = 16;

/// Quotes a word as nginx reads it: patterns keep their backslashes where nginx keeps them.
fn word(text: &str) -> String {
    let special = text.contains([' ', '\t', '\n', '\r', ';', '{', '}', '"', '\'', '#']);
    let bytes = text.as_bytes();
    let escapes = bytes.windows(2).any(|pair| matches!(pair, [b'\\', b'"' | b'\'' | b'\\' | b't' | b'r' | b'n']));
    if text.is_empty() || special || escapes || text.ends_with('\\') {
        quote_word(text, true)
    } else {
        text.to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutLine {
    pub file: String,
    pub line: u32,
    pub text: String,
    pub why: String,
}

pub struct ConvertedConfig {
    pub text: String,
    pub left: Vec<LeftOutLine>,
}

/// Lines and locations, by the locations' words.
#[derive(Clone, Debug, Default)]
struct ConvertedBlock {
    lines: Vec<String>,
    locations: Vec<(String, ConvertedBlock)>,
}

impl ConvertedBlock {
    fn line(&mut self, text: impl Into<String>) {
        let text = text.into();
        let once = !text.starts_with('#') && !text.ends_with('{') && text != "}";
        if !(once && self.lines.contains(&text)) {
            self.lines.push(text);
        }
    }
    fn set(&mut self, name: &str, value: &str) {
        let head = format!("{name} ");
        self.lines.retain(|line| !line.starts_with(&head));
        self.lines.push(format!("{name} {value};"));
    }
    fn has(&self, name: &str) -> bool {
        self.lines.iter().any(|line| line.split([' ', ';']).next() == Some(name))
    }
    fn location(&mut self, words: &str) -> &mut ConvertedBlock {
        let at = self.locations.iter().position(|(own, _)| own == words).unwrap_or_else(|| {
            self.locations.push((words.to_string(), ConvertedBlock::default()));
            self.locations.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "it was found, or just added")]
        &mut self.locations[at].1
    }
    fn print(&self, out: &mut String, depth: usize) {
        let pad = "    ".repeat(depth);
        let mut inner = 0;
        for line in &self.lines {
            if line == "}" {
                inner -= 1;
            }
            let _ = writeln!(out, "{pad}{}{line}", "    ".repeat(inner));
            if line.ends_with('{') && !line.starts_with('#') {
                inner += 1;
            }
        }
        for (words, block) in &self.locations {
            let _ = writeln!(out, "\n{pad}location {words} {{");
            block.print(out, depth + 1);
            let _ = writeln!(out, "{pad}}}");
        }
    }
}

struct Converter<'a> {
    options: &'a Options,
    includes: Includes<'a>,
    include_depth: usize,
    file: String,
    left: Vec<LeftOutLine>,
    /// First line that cannot be left, with its file.
    failed: Option<(String, ParseError)>,
    http: ConvertedBlock,
    listen: Vec<String>,
    defines: BTreeMap<String, String>,
    has_proxy: bool,
    /// A rule passes WebSocket on to a proxy.
    upgrades: bool,
}

/// Converts files, virtual hosts first, so that .htaccess files find the server whose root contains them.
///
/// # Errors
/// Names the file and the line that is not Apache's language, or that decides about access in a way for which there are no
/// words at all.
pub fn convert_apache(
    inputs: &[Input],
    options: &Options,
    includes: Includes<'_>,
) -> Result<ConvertedConfig, (String, ParseError)> {
    let mut converter = Converter {
        options,
        includes,
        include_depth: 0,
        file: String::new(),
        left: Vec::new(),
        failed: None,
        http: ConvertedBlock::default(),
        listen: Vec::new(),
        defines: BTreeMap::new(),
        has_proxy: false,
        upgrades: false,
    };
    let mut hosts = Hosts::default();
    for input in inputs.iter().filter(|input| input.folder.is_none()) {
        let lines = syntax::parse_lines(&input.text).map_err(|e| (input.name.clone(), e))?;
        converter.file.clone_from(&input.name);
        converter.hosts(&lines, &mut hosts);
    }
    let names_override = hosts.names_override();
    let has_hosts = !(hosts.hosts.is_empty() && hosts.outside.is_empty());
    let mut servers = converter.servers(hosts);
    for input in inputs {
        let Some(folder) = &input.folder else { continue };
        let lines = syntax::parse_lines(&input.text).map_err(|e| (input.name.clone(), e))?;
        converter.file.clone_from(&input.name);
        converter.folder(input, folder, &lines, &mut servers);
    }
    let has_files = inputs.iter().any(|input| input.folder.is_some());
    for server in &mut servers {
        server.overrides_unset = has_hosts && (names_override || !has_files);
    }
    let text = converter.print(servers);
    match converter.failed {
        Some(failed) => Err(failed),
        None => Ok(ConvertedConfig { text, left: converter.left }),
    }
}

/// Virtual hosts and the lines outside of them, each with its file.
#[derive(Default)]
struct Hosts {
    hosts: Vec<(String, SyntaxLine)>,
    outside: Vec<(String, SyntaxLine)>,
}

impl Hosts {
    fn names_override(&self) -> bool {
        fn names(lines: &[SyntaxLine]) -> bool {
            lines.iter().any(|line| line.is("AllowOverride") || line.section.as_deref().is_some_and(names))
        }
        self.hosts.iter().chain(&self.outside).any(|(_, line)| names(std::slice::from_ref(line)))
    }
}

/// Part of a path below a root: `/sub`, or empty for the root itself.
fn below(path: &str, root: &str) -> Option<String> {
    let rest = path.trim_end_matches('/').strip_prefix(root.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_string())
}

impl Converter<'_> {
    /// Records an untranslated line: a comment in place, and an entry of the list.
    fn leave(&mut self, line: &SyntaxLine, why: &str, block: &mut ConvertedBlock) {
        let open = if line.section.is_some() { ("<", ">") } else { ("", "") };
        let text = format!("{}{} {}{}", open.0, line.name, line.rest, open.1).replace(['\n', '\r'], " ");
        block.lines.push(format!("# not converted: {}:{}: {}: {why}", self.file, line.number, text.trim()));
        self.left.push(LeftOutLine {
            file: self.file.clone(),
            line: line.number,
            text: text.trim().to_string(),
            why: why.into(),
        });
        for inner in line.section.iter().flatten() {
            self.leave(inner, "the enclosing section has no translation", block);
        }
    }

    /// Records a line without which the result would be open: there is no result.
    fn fail(&mut self, line: &SyntaxLine, why: &str) {
        let text = format!("{} {}: {why}, and leaving it out would open what it closes", line.name, line.rest);
        self.failed.get_or_insert((self.file.clone(), ParseError { line: line.number, text }));
    }

    /// Expands `Define` and the environment of Debian's Apache.
    fn filled(&self, text: &str) -> String {
        let mut out =
            text.replace("${APACHE_LOG_DIR}", "/var/log/nginx").replace("%{APACHE_LOG_DIR}", "/var/log/nginx");
        for (name, value) in &self.defines {
            out = out.replace(&format!("${{{name}}}"), value);
        }
        out
    }

    fn absolute(&self, path: &str) -> String {
        let path = self.filled(path);
        if path.starts_with('/') { path } else { format!("{}/{path}", self.options.server_root) }
    }

    /// Lines of the files that an `Include` names. A file that cannot be read may hold access rules.
    fn included(&mut self, line: &SyntaxLine) -> Vec<(String, Vec<SyntaxLine>)> {
        if self.include_depth >= INCLUDES_DEEP_MAX {
            self.fail(line, "files include each other");
            return Vec::new();
        }
        let path = self.absolute(line.arg(0));
        let mut out = Vec::new();
        match (self.includes)(&path) {
            Ok(files) if files.is_empty() && line.is("Include") => self.fail(line, "there is no such file"),
            Ok(files) => {
                for (name, text) in files {
                    match syntax::parse_lines(&text) {
                        Ok(lines) => out.push((name, lines)),
                        Err(e) => _ = self.failed.get_or_insert((name, e)),
                    }
                }
            }
            Err(why) => self.fail(line, &why),
        }
        out
    }

    /// Finds virtual hosts, and evaluates conditions around them.
    fn hosts(&mut self, lines: &[SyntaxLine], hosts: &mut Hosts) {
        for line in lines {
            let has_hosts = |lines: &[SyntaxLine]| lines.iter().any(|line| line.is("VirtualHost"));
            match &line.section {
                Some(_) if line.is("VirtualHost") => hosts.hosts.push((self.file.clone(), line.clone())),
                Some(inner) if has_hosts(inner) => match self.holds(line) {
                    Some(true) => self.hosts(inner, hosts),
                    Some(false) => {}
                    None => self.fail(line, "virtual hosts in this section have no translation"),
                },
                None if line.is("Listen") => self.listen.push(line.arg(0).to_string()),
                None if line.is("Define") => {
                    self.defines.insert(line.arg(0).to_string(), line.arg(1).to_string());
                }
                None if line.is("Include") || line.is("IncludeOptional") => {
                    for (name, lines) in self.included(line) {
                        let own = std::mem::replace(&mut self.file, name);
                        self.include_depth += 1;
                        self.hosts(&lines, hosts);
                        self.include_depth -= 1;
                        self.file = own;
                    }
                }
                _ => hosts.outside.push((self.file.clone(), line.clone())),
            }
        }
    }

    /// Converts `*:80`, `192.0.2.1:8080`, `_default_:443` to `listen` addresses.
    fn addresses(&self, line: &SyntaxLine) -> Vec<String> {
        let one = |text: &String| {
            let text = self.filled(text);
            let text = text.replace("_default_", "*");
            match text.strip_prefix("*:") {
                Some(port) => port.to_string(),
                None if text == "*" => self.options.listen.clone(),
                None => text,
            }
        };
        line.args.iter().map(one).collect()
    }

    /// Prints the whole configuration.
    fn print(&mut self, servers: Vec<Server>) -> String {
        let mut http = String::new();
        let depth = usize::from(!self.options.snippet);
        let mut blocks = Vec::new();
        for server in servers {
            let is_part = server.is_part && self.options.snippet;
            blocks.push((is_part, self.finish(server)));
        }
        self.http.print(&mut http, depth);
        for (is_part, block) in blocks {
            if is_part {
                http.push_str("# To be included in a server block.\n");
                block.print(&mut http, depth);
                continue;
            }
            let pad = "    ".repeat(depth);
            let _ = writeln!(http, "\n{pad}server {{");
            block.print(&mut http, depth + 1);
            let _ = writeln!(http, "{pad}}}");
        }
        if self.options.snippet {
            return http.trim_start_matches('\n').to_string();
        }
        format!(
            "# Translated from Apache's configuration by tidegate convert. Lines without a translation are kept as comments.\n\
             events {{ }}\n\nhttp {{\n{}{http}}}\n",
            types()
        )
    }
}

/// Types by file name extension, which Apache reads from the system's mime.types.
fn types() -> String {
    let lines = include_str!("../../../../../packaging/mime.types").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("    {line}\n")).collect()
}

/// Name of a module without its prefix and suffix.
fn module(word: &str) -> &str {
    word.trim_end_matches(".c").trim_end_matches("_module").trim_start_matches("mod_")
}

/// Scripts run in another process, so the module is not there in the real server either.
fn is_of_php(word: &str) -> bool {
    module(word).starts_with("php")
}

/// Modules that are usually loaded for virtual hosts.
fn usual(word: &str) -> bool {
    let name = module(word);
    ["ssl", "proxy", "proxy_http", "http2", "proxy_fcgi", "socache_shmcb", "log_config"].contains(&name)
}

#[cfg(test)]
mod tests;
