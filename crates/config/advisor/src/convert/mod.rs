//! `tidegate convert apache`: virtual hosts and .htaccess files as an nginx configuration.
//! Untranslated lines become comments in place and entries of [`Converted::left`]. Front controllers become
//! `try_files`; Apache's repeated application of rules has no counterpart except `htaccess on`.

mod directives;
mod rewrite;

use crate::scope::quoted;
use htaccess::syntax::{self, Line, ParseError};
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Debug)]
pub struct Options {
    /// Target of scripts when the files name none (`fastcgi_pass`).
    pub php: String,
    pub server_root: String,
    /// Writes the server blocks only, for an include.
    pub snippet: bool,
    /// Address for virtual hosts without `Listen`, and for .htaccess files.
    pub listen: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            php: "unix:/run/php/php-fpm.sock".into(),
            server_root: "/etc/apache2".into(),
            snippet: false,
            listen: "80".into(),
        }
    }
}

pub struct Input {
    pub name: String,
    pub text: String,
    /// Directory of a .htaccess file.
    pub folder: Option<String>,
}

/// Quotes a word as nginx reads it: patterns keep their backslashes where nginx keeps them.
fn word(text: &str) -> String {
    let special = text.contains([' ', '\t', '\n', '\r', ';', '{', '}', '"', '\'', '#']);
    let bytes = text.as_bytes();
    let escapes = bytes.windows(2).any(|pair| matches!(pair, [b'\\', b'"' | b'\'' | b'\\' | b't' | b'r' | b'n']));
    if text.is_empty() || special || escapes || text.ends_with('\\') { quoted(text, true) } else { text.to_string() }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconverted {
    pub file: String,
    pub line: u32,
    pub text: String,
    pub why: String,
}

pub struct Converted {
    pub text: String,
    pub left: Vec<Unconverted>,
}

/// Lines and locations, by the locations' words.
#[derive(Clone, Debug, Default)]
struct Block {
    lines: Vec<String>,
    locations: Vec<(String, Block)>,
}

impl Block {
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
    fn location(&mut self, words: &str) -> &mut Block {
        let at = self.locations.iter().position(|(own, _)| own == words).unwrap_or_else(|| {
            self.locations.push((words.to_string(), Block::default()));
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

#[derive(Clone, Debug, Default)]
struct Server {
    block: Block,
    listen: Vec<String>,
    secure: bool,
    names: Vec<String>,
    root: Option<String>,
    /// Address of the script server, and PHP settings.
    php: Option<String>,
    php_values: BTreeMap<String, String>,
    rewrites: rewrite::Rewrites,
    aliases: Vec<(String, String)>,
    /// Lines without a virtual host and root: a snippet for an existing server.
    is_part: bool,
}

impl Server {
    fn is_blank(&self) -> bool {
        self.root.is_none()
            && self.block.lines.is_empty()
            && self.block.locations.is_empty()
            && self.rewrites.is_empty()
            && self.php.is_none()
            && self.names.is_empty()
    }
}

struct Converter<'a> {
    options: &'a Options,
    file: String,
    left: Vec<Unconverted>,
    http: Block,
    listen: Vec<String>,
    defines: BTreeMap<String, String>,
}

/// Converts files, virtual hosts first, so that .htaccess files find the server whose root contains them. Errors name
/// the file that is not Apache's language.
pub fn apache(inputs: &[Input], options: &Options) -> Result<Converted, (String, ParseError)> {
    let mut converter = Converter {
        options,
        file: String::new(),
        left: Vec::new(),
        http: Block::default(),
        listen: Vec::new(),
        defines: BTreeMap::new(),
    };
    let mut servers: Vec<Server> = Vec::new();
    let mut outside = Server::default();
    for input in inputs.iter().filter(|input| input.folder.is_none()) {
        let lines = syntax::parse(&input.text).map_err(|e| (input.name.clone(), e))?;
        converter.file.clone_from(&input.name);
        converter.hosts(&lines, &mut outside, &mut servers);
    }
    if servers.is_empty() && !outside.is_blank() {
        outside.listen.clone_from(&converter.listen);
        outside.is_part = outside.root.is_none() && outside.names.is_empty() && outside.listen.is_empty();
        servers.push(outside);
    } else {
        converter.spread(outside, &mut servers);
    }
    for input in inputs {
        let Some(folder) = &input.folder else { continue };
        let lines = syntax::parse(&input.text).map_err(|e| (input.name.clone(), e))?;
        converter.file.clone_from(&input.name);
        let below = |server: &&mut Server| server.root.as_ref().is_some_and(|root| below(folder, root).is_some());
        let at = match servers.iter_mut().find(below) {
            Some(server) => server,
            None => {
                servers.push(Server { root: Some(folder.clone()), ..Server::default() });
                let Some(last) = servers.last_mut() else { continue };
                last
            }
        };
        let base = at.root.as_deref().and_then(|root| self::below(folder, root)).unwrap_or_default();
        converter.folder(&lines, at, &format!("{base}/"));
    }
    let text = converter.print(servers);
    Ok(Converted { text, left: converter.left })
}

/// Part of a path below a root: `/sub`, or empty for the root itself.
fn below(path: &str, root: &str) -> Option<String> {
    let rest = path.trim_end_matches('/').strip_prefix(root.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_string())
}

impl Converter<'_> {
    /// Records an untranslated line: a comment in place, and an entry of the list.
    fn leave(&mut self, line: &Line, why: &str, block: &mut Block) {
        let open = if line.section.is_some() { ("<", ">") } else { ("", "") };
        let text = format!("{}{} {}{}", open.0, line.name, line.rest, open.1).replace(['\n', '\r'], " ");
        block.lines.push(format!("# not converted: {}:{}: {}: {why}", self.file, line.number, text.trim()));
        self.left.push(Unconverted {
            file: self.file.clone(),
            line: line.number,
            text: text.trim().to_string(),
            why: why.into(),
        });
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

    fn hosts(&mut self, lines: &[Line], outside: &mut Server, servers: &mut Vec<Server>) {
        let mut own = Vec::new();
        for line in lines {
            match (&line.section, htaccess::settings::section_holds(line)) {
                (Some(inner), None) if line.is("VirtualHost") => {
                    let mut server = Server { listen: self.addresses(line), ..Server::default() };
                    self.directives(inner, &mut server, None);
                    servers.push(server);
                }
                (Some(inner), Some(true)) => self.hosts(inner, outside, servers),
                // Assumes modules that are usually loaded for virtual hosts.
                (Some(inner), Some(false)) if line.is("IfModule") && usual(line.arg(0)) => {
                    self.hosts(inner, outside, servers)
                }
                (Some(_), Some(false)) => {}
                _ if line.is("Listen") => {
                    let words: Vec<&str> = line.args.iter().map(String::as_str).collect();
                    self.listen.push(words.first().copied().unwrap_or("80").to_string());
                }
                _ if line.is("Define") => {
                    self.defines.insert(line.arg(0).to_string(), line.arg(1).to_string());
                }
                _ => own.push(line.clone()),
            }
        }
        self.directives(&own, outside, None);
    }

    /// Applies lines outside of virtual hosts to all hosts; a host's own lines win.
    fn spread(&mut self, outside: Server, servers: &mut [Server]) {
        let (comments, lines): (Vec<_>, Vec<_>) = outside.block.lines.into_iter().partition(|l| l.starts_with('#'));
        self.http.lines.extend(comments);
        for (file, line) in outside.rewrites.written() {
            let why = "rules outside of virtual hosts apply to requests that match no virtual host";
            let mut comment = Block::default();
            self.file.clone_from(file);
            self.leave(line, why, &mut comment);
            self.http.lines.extend(comment.lines);
        }
        for server in servers {
            for line in lines.iter().filter(|line| line.ends_with(';')) {
                let name = line.split([' ', ';']).next().unwrap_or_default();
                if !server.block.has(name) {
                    server.block.line(line.clone());
                }
            }
            for (words, block) in &outside.block.locations {
                if !server.block.locations.iter().any(|(own, _)| own == words) {
                    server.block.locations.push((words.clone(), block.clone()));
                }
            }
            server.aliases.extend(outside.aliases.iter().cloned());
            server.root = server.root.take().or_else(|| outside.root.clone());
            server.php = server.php.take().or_else(|| outside.php.clone());
            for (name, value) in &outside.php_values {
                server.php_values.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }

    /// Converts `*:80`, `192.0.2.1:8080`, `_default_:443` to `listen` addresses.
    fn addresses(&self, line: &Line) -> Vec<String> {
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

    /// Converts a .htaccess file for its part of a server's paths (`/`, `/sub/`).
    fn folder(&mut self, lines: &[Line], server: &mut Server, base: &str) {
        self.directives(lines, server, Some(base));
    }

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

    fn finish(&mut self, mut server: Server) -> Block {
        let mut block = Block::default();
        let is_part = server.is_part && self.options.snippet;
        if server.listen.is_empty() && !is_part {
            server.listen.push(self.options.listen.clone());
        }
        for address in &server.listen {
            block.line(format!("listen {address}{};", if server.secure { " ssl" } else { "" }));
        }
        if !server.names.is_empty() {
            let names: Vec<String> = server.names.iter().map(|name| word(name)).collect();
            block.line(format!("server_name {};", names.join(" ")));
        }
        if let Some(root) = &server.root {
            block.line(format!("root {};", word(root)));
        }
        let mut rest = std::mem::take(&mut server.block);
        server.rewrites.write(&mut rest);
        let scripts = server.rewrites.names_scripts()
            || server.php.is_some()
            || rest.lines.iter().any(|line| line.starts_with("index ") && line.contains(".php"));
        if !rest.has("index") && !is_part {
            block.line(if scripts { "index index.html index.php;" } else { "index index.html;" });
        }
        block.lines.extend(rest.lines);
        block.locations = rest.locations;
        if !is_part {
            let hidden = block.location("~ /\\.ht");
            hidden.line("deny all;");
        }
        // A regular expression would bypass the alias's prefix and serve its scripts as text.
        let has_scripts = |inner: &Block| scripts || inner.lines.iter().any(|line| line.contains(".php"));
        for (_, inner) in block.locations.iter_mut().filter(|(words, _)| words.starts_with("^~ ")) {
            if inner.has("alias") && has_scripts(inner) {
                self.scripts_of_alias(&server, inner);
            }
        }
        if scripts && !is_part {
            // A regular expression would bypass prefixes with rules of their own.
            let refuses = |inner: &Block| inner.lines.iter().all(|line| line == "deny all;" || line.starts_with('#'));
            for (words, inner) in &mut block.locations {
                if words.starts_with("^~ ") && !inner.has("alias") && !inner.has("proxy_pass") && !refuses(inner) {
                    self.scripts(&server, inner);
                }
            }
            self.scripts(&server, &mut block);
        }
        block
    }

    fn scripts_of_alias(&self, server: &Server, block: &mut Block) {
        let address = server.php.clone().unwrap_or_else(|| self.options.php.clone());
        let location = block.location("~ [^/]\\.php$");
        location.line("if (!-f $request_filename) {");
        location.line("return 404;");
        location.line("}");
        location.line(format!("fastcgi_pass {address};"));
        location.line("fastcgi_param SCRIPT_FILENAME $request_filename;");
        Self::parameters(server, location);
    }

    /// Adds the location that runs scripts; a name behind the script is its path information, as in Apache.
    fn scripts(&self, server: &Server, block: &mut Block) {
        let address = server.php.clone().unwrap_or_else(|| self.options.php.clone());
        let location = block.location("~ [^/]\\.php(/|$)");
        location.line("fastcgi_split_path_info ^(.+?\\.php)(/.*)?$;");
        location.line("if (!-f $document_root$fastcgi_script_name) {");
        location.line("return 404;");
        location.line("}");
        location.line(format!("fastcgi_pass {address};"));
        location.line("fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;");
        location.line("fastcgi_param PATH_INFO $fastcgi_path_info;");
        Self::parameters(server, location);
    }

    fn parameters(server: &Server, location: &mut Block) {
        for (name, value) in [
            ("SCRIPT_NAME", "$fastcgi_script_name"),
            ("QUERY_STRING", "$query_string"),
            ("REQUEST_METHOD", "$request_method"),
            ("CONTENT_TYPE", "$content_type"),
            ("CONTENT_LENGTH", "$content_length"),
            ("REQUEST_URI", "$request_uri"),
            ("DOCUMENT_URI", "$document_uri"),
            ("DOCUMENT_ROOT", "$document_root"),
            ("SERVER_PROTOCOL", "$server_protocol"),
            ("REQUEST_SCHEME", "$scheme"),
            ("HTTPS", "$https if_not_empty"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "nginx/$nginx_version"),
            ("REMOTE_ADDR", "$remote_addr"),
            ("REMOTE_PORT", "$remote_port"),
            ("REMOTE_USER", "$remote_user"),
            ("SERVER_ADDR", "$server_addr"),
            ("SERVER_PORT", "$server_port"),
            ("SERVER_NAME", "$server_name"),
            ("REDIRECT_STATUS", "200"),
        ] {
            location.line(format!("fastcgi_param {name} {value};"));
        }
        if !server.php_values.is_empty() {
            let values: Vec<String> = server.php_values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            location.line(format!("fastcgi_param PHP_VALUE {};", quoted(&values.join("\n"), true)));
        }
    }
}

/// Types by file name extension, which Apache reads from the system's mime.types.
fn types() -> String {
    let lines = include_str!("../../../../../packaging/mime.types").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("    {line}\n")).collect()
}

fn usual(word: &str) -> bool {
    let name = word.trim_end_matches(".c").trim_end_matches("_module").trim_start_matches("mod_");
    ["ssl", "proxy", "proxy_http", "http2", "proxy_fcgi", "socache_shmcb", "log_config"].contains(&name)
}

#[cfg(test)]
mod tests;
