//! Servers of the result: lines of a virtual host, scripts, proxies, and the rules in Apache's language.

use super::{ConvertedBlock, Converter, Hosts, Input, LeftOutLine, below, directives, rules, word};
use crate::scope::quote_word;
use htaccess::syntax::SyntaxLine;
use std::collections::{BTreeMap, BTreeSet};

/// Extensions of scripts, as Debian's Apache has them.
const SCRIPTS: &[&str] = &["phar", "php", "phtml"];

#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub block: ConvertedBlock,
    pub listen: Vec<String>,
    pub secure: bool,
    pub names: Vec<String>,
    pub root: Option<String>,
    /// Address of the script server, and PHP settings.
    pub php: Option<String>,
    pub php_values: BTreeMap<String, String>,
    /// Extensions of scripts: at a name's end, and anywhere in it (`AddHandler`).
    pub extensions: BTreeSet<String>,
    pub anywhere: BTreeSet<String>,
    pub aliases: Vec<(String, String)>,
    pub proxies: Vec<String>,
    /// Access rules of `<Proxy>` sections.
    pub proxy_rules: Vec<Vec<SyntaxLine>>,
    /// Names of `SetEnv`, for scripts.
    pub variables: Vec<String>,
    /// Lines of `htaccess_rules`.
    pub rules: Vec<String>,
    /// A server-level line about access has no counterpart.
    pub is_closed: bool,
    /// Lines without a virtual host and root: a snippet for an existing server.
    pub is_part: bool,
    /// No .htaccess file may contain anything unless a rule says so.
    pub overrides_unset: bool,
}

impl Server {
    /// A location that serves files of the root.
    pub fn folder(&mut self, uri: &str) {
        self.block.location(&word(uri)).set("htaccess", "on");
    }
    /// [`Server::folder`] for one path.
    pub fn folder_exact(&mut self, uri: &str) {
        self.block.location(&format!("= {}", word(uri))).set("htaccess", "on");
    }
}

/// Name of a server; wildcards that nginx does not have become patterns.
fn server_name(name: &str) -> String {
    let stars = name.matches('*').count();
    let is_plain = stars == 0 || stars == 1 && (name.starts_with("*.") || name.ends_with(".*"));
    if is_plain && !name.contains('?') {
        return name.to_string();
    }
    let pattern: String = name
        .chars()
        .map(|c| match c {
            '*' => ".*".to_string(),
            '?' => ".".to_string(),
            c => directives::regex_quoted(&c.to_string()),
        })
        .collect();
    format!("~^{pattern}$")
}

/// Lines that Apache does not inherit, or inherits behind the virtual host's own.
fn is_rewriting(line: &SyntaxLine) -> bool {
    line.name.to_ascii_lowercase().starts_with("rewrite")
}

fn is_redirect(line: &SyntaxLine) -> bool {
    line.name.to_ascii_lowercase().starts_with("redirect")
}

impl Converter<'_> {
    /// Makes servers of virtual hosts, or one of lines without any.
    pub(super) fn servers(&mut self, hosts: Hosts) -> Vec<Server> {
        let Hosts { hosts, outside } = hosts;
        if hosts.is_empty() {
            if outside.is_empty() {
                return Vec::new();
            }
            let mut server = Server { listen: self.listen.clone(), ..Server::default() };
            self.fill(&outside, &mut server);
            server.is_part = server.root.is_none() && server.names.is_empty() && server.listen.is_empty();
            return vec![server];
        }
        let (rewriting, outside): (Vec<_>, Vec<_>) = outside.into_iter().partition(|(_, line)| is_rewriting(line));
        for (file, line) in rewriting {
            self.file = file;
            let mut block = ConvertedBlock::default();
            let why = "rules outside of virtual hosts apply to requests that match no virtual host";
            self.leave(&line, why, &mut block);
            self.http.lines.extend(block.lines);
        }
        let (redirects, outside): (Vec<_>, Vec<_>) = outside.into_iter().partition(|(_, line)| is_redirect(line));
        let mut common = Server::default();
        self.fill(&outside, &mut common);
        self.http.lines.extend(common.block.lines.extract_if(.., |line| line.starts_with('#')));
        let mut servers = Vec::new();
        for (file, line) in hosts {
            self.file = file.clone();
            let inner = line.section.clone().unwrap_or_default();
            let own: Vec<_> = inner.into_iter().map(|line| (file.clone(), line)).collect();
            let mut server = Server { listen: self.addresses(&line), ..common.clone() };
            server.block.lines.clear();
            server.names.clear();
            server.proxies.clear();
            self.fill(&own, &mut server);
            self.fill(&redirects, &mut server);
            // A host's own lines win.
            for line in &common.block.lines {
                if !server.block.has(line.split([' ', ';']).next().unwrap_or_default()) {
                    server.block.line(line.clone());
                }
            }
            servers.push(server);
        }
        servers
    }

    /// Translates the lines of a server.
    fn fill(&mut self, lines: &[(String, SyntaxLine)], server: &mut Server) {
        for (file, line) in lines {
            self.file.clone_from(file);
            if line.is("SSLEngine") {
                server.secure = line.arg(0).eq_ignore_ascii_case("on");
            }
            if line.is("DocumentRoot") {
                server.root = Some(self.absolute(line.arg(0)).trim_end_matches('/').to_string());
            }
        }
        // Conditions of a rewriting rule stand beside it: lines of one file go together.
        for group in lines.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some((file, _)) = group.first() {
                self.file.clone_from(file);
            }
            let mut own: Vec<SyntaxLine> = Vec::new();
            for (_, line) in group {
                match &line.section {
                    Some(inner) if line.is("Proxy") => self.proxy_section(line, inner, server),
                    _ => own.push(line.clone()),
                }
            }
            let place = self.place(&own, &[], server);
            server.is_closed |= place.is_closed();
            server.rules.extend(place.lines());
        }
    }

    /// Takes a .htaccess file: it stays where it is, or becomes a section.
    pub(super) fn folder(&mut self, input: &Input, folder: &str, lines: &[SyntaxLine], servers: &mut Vec<Server>) {
        let holds = |server: &&mut Server| {
            let aliases = server.aliases.iter().map(|(_, target)| target);
            server.root.iter().chain(aliases).any(|root| below(folder, root).is_some())
        };
        let server = match servers.iter_mut().find(holds) {
            Some(server) => server,
            None => {
                let root = self.options.root.clone().filter(|root| below(folder, root).is_some());
                servers.push(Server { root: Some(root.unwrap_or_else(|| folder.to_string())), ..Server::default() });
                let Some(last) = servers.last_mut() else { return };
                last
            }
        };
        if !input.in_place {
            let head = format!("<Directory \"{folder}\">");
            let place = self.place(lines, std::slice::from_ref(&head), server);
            server.rules.push(head);
            server.rules.push("    AllowOverride All".into());
            server.rules.extend(place.lines().iter().map(|line| format!("    {line}")));
            server.rules.push("</Directory>".into());
            return;
        }
        // The server reads the file with each change, and answers with 500 if it does not know a line, as Apache does without
        // the line's module.
        let Err(e) = htaccess::reader::read_htaccess(&input.text) else { return };
        let text = input.text.lines().nth(e.line.saturating_sub(1) as usize).unwrap_or_default().trim().to_string();
        let why = format!("{}; requests for its directory get status 500", e.text);
        server.block.lines.push(format!("# not converted: {}:{}: {text}: {why}", self.file, e.line));
        self.left.push(LeftOutLine { file: self.file.clone(), line: e.line, text, why });
    }

    pub(super) fn finish(&mut self, mut server: Server) -> ConvertedBlock {
        let mut block = ConvertedBlock::default();
        let is_part = server.is_part && self.options.snippet;
        if server.listen.is_empty() && !is_part {
            server.listen.push(self.options.listen.clone());
        }
        for address in &server.listen {
            block.line(format!("listen {address}{};", if server.secure { " ssl" } else { "" }));
        }
        if !server.names.is_empty() {
            let names: Vec<String> = server.names.iter().map(|name| word(&server_name(name))).collect();
            block.line(format!("server_name {};", names.join(" ")));
        }
        if !is_part {
            // Without a document root, nginx would serve a folder of its own.
            block.line(format!("root {};", word(server.root.as_deref().unwrap_or("/var/empty"))));
        }
        block.line("htaccess on;");
        // The rules say where.
        block.line("autoindex on;");
        let text = self.rules_of(&mut server);
        let rest = std::mem::take(&mut server.block);
        block.lines.extend(rest.lines);
        block.lines.push("htaccess_rules".into());
        let words = rules::words(&text);
        for (index, line) in words.iter().enumerate() {
            let end = if index + 1 == words.len() { ";" } else { "" };
            block.lines.push(format!("    {}{end}", quote_word(line, true)));
        }
        block.locations = rest.locations;
        if !is_part {
            block.location("/");
        }
        if self.options.php != "off" {
            for (words, inner) in &mut block.locations {
                if inner.has("alias") && !words.starts_with("= ") {
                    self.scripts(&server, inner, true);
                } else if !inner.has("proxy_pass") && !inner.has("deny") && !inner.has("alias") {
                    self.scripts(&server, inner, false);
                }
            }
        }
        if self.upgrades {
            for (_, inner) in block.locations.iter_mut().filter(|(_, inner)| inner.has("proxy_pass")) {
                directives::add_upgrade(inner);
            }
        }
        block
    }

    /// Lines of `htaccess_rules`.
    fn rules_of(&mut self, server: &mut Server) -> Vec<String> {
        // Apache's defaults.
        let mut lines = vec!["Options FollowSymLinks".to_string()];
        if server.overrides_unset {
            lines.extend(["<Directory />", "    AllowOverride Unset", "</Directory>"].map(str::to_string));
        }
        if !server.is_part && !server.rules.iter().any(|line| line.starts_with("DirectoryIndex ")) {
            let scripts = if self.options.php == "off" { "" } else { " index.php" };
            lines.push(format!("DirectoryIndex index.html{scripts}"));
        }
        let mut names = server.extensions.clone();
        if self.options.php != "off" {
            names.extend(SCRIPTS.iter().map(|name| (*name).to_string()));
            lines.extend(
                ["<FilesMatch \"^\\.ph(ar|p|ps|tml)$|.+\\.phps$\">", "    Require all denied", "</FilesMatch>"]
                    .map(str::to_string),
            );
        }
        // The text of a script that no location runs is not served.
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().collect();
            lines.push(format!("<FilesMatch \"\\.({})$\">", names.join("|")));
            lines.extend(["    SetHandler application/x-httpd-php", "</FilesMatch>"].map(str::to_string));
        }
        if !server.anywhere.is_empty() {
            let names: Vec<String> = server.anywhere.iter().map(|name| format!(".{name}")).collect();
            lines.push(format!("AddHandler application/x-httpd-php {}", names.join(" ")));
        }
        lines.append(&mut server.rules);
        let (proxies, all) = (server.proxies.clone(), std::mem::take(&mut server.proxy_rules));
        for inner in &all {
            for uri in &proxies {
                let head = format!("<Location \"{uri}\">");
                let place = self.place(inner, std::slice::from_ref(&head), server);
                lines.push(head);
                lines.extend(place.lines().iter().map(|line| format!("    {line}")));
                lines.push("</Location>".into());
            }
        }
        if server.is_closed {
            lines.extend(["<Location />", "    Require all denied", "</Location>"].map(str::to_string));
        }
        lines
    }

    /// Adds the location that runs scripts; a name behind the script is its path information, as in Apache.
    fn scripts(&self, server: &Server, block: &mut ConvertedBlock, in_alias: bool) {
        let address = server.php.clone().unwrap_or_else(|| self.options.php.clone());
        let mut names: BTreeSet<&str> = SCRIPTS.iter().copied().collect();
        names.extend(server.extensions.iter().map(String::as_str));
        let mut pattern = format!("[^/]\\.(?:{})", names.into_iter().collect::<Vec<_>>().join("|"));
        if !server.anywhere.is_empty() {
            let anywhere: Vec<&str> = server.anywhere.iter().map(String::as_str).collect();
            pattern = format!("(?:{pattern}|[^/]\\.(?:{})(?:\\.[^/]*)?)", anywhere.join("|"));
        }
        let location = block.location(&format!("~ {}", word(&format!("{pattern}(?:/|$)"))));
        if in_alias {
            location.line("try_files $uri =404;");
            location.line("fastcgi_param SCRIPT_FILENAME $request_filename;");
        } else {
            location.line(format!("fastcgi_split_path_info {};", word(&format!("^(.+?{pattern})(/.*)?$"))));
            location.line("set $script_path_info $fastcgi_path_info;");
            location.line("try_files $fastcgi_script_name =404;");
            location.line("fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;");
            location.line("fastcgi_param PATH_INFO $script_path_info;");
        }
        location.line(format!("fastcgi_pass {address};"));
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
            ("REMOTE_USER", "$htaccess_env_remote_user if_not_empty"),
            ("SERVER_ADDR", "$server_addr"),
            ("SERVER_PORT", "$server_port"),
            ("SERVER_NAME", "$server_name"),
            ("REDIRECT_STATUS", "200"),
        ] {
            location.line(format!("fastcgi_param {name} {value};"));
        }
        let is_name = |name: &&String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        for name in server.variables.iter().filter(is_name) {
            location.line(format!("fastcgi_param {name} $htaccess_env_{} if_not_empty;", name.to_ascii_lowercase()));
        }
        location.line("fastcgi_param PHP_VALUE $htaccess_php_values if_not_empty;");
        if !server.php_values.is_empty() {
            let values: Vec<String> = server.php_values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            location.line(format!("fastcgi_param PHP_ADMIN_VALUE {};", quote_word(&values.join("\n"), true)));
        }
    }
}
