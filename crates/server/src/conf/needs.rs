//! Files, directories and TCP ports that a configuration uses at run time, read from its directives.
//!
//! A path with variables counts as the directory before the first variable, or as all files if it begins with one.

use crate::conf::CorePlan;
use conf_syntax::{Directive, TreeItem, Word, list_directives};
use http_engine::HttpPlan;
use sandbox::{Needs, PathAccess, PortRules};
use shared_store::{RedisMode, StoreAddress};
use std::path::{Path, PathBuf};

pub struct Bases<'a> {
    pub prefix: &'a Path,
    pub conf_prefix: &'a Path,
}

/// Suffixes of directives whose first argument is a file that a worker may read.
const READ_ENDINGS: &[&str] =
    &["_certificate", "_certificate_key", "_crl", "_dhparam", "_file", "_ticket_key", "_entities"];

/// Directories below the prefix that directives use by default.
const TEMPORARY: &[&str] = &["client_body_temp", "proxy_temp", "fastcgi_temp", "scgi_temp", "uwsgi_temp"];

/// Directives by which a server's address comes from outside of the configuration.
const NAMED_ELSEWHERE: &[&str] =
    &["acme_client", "acme_issuer", "api", "dashboard", "oidc_provider", "ssl_stapling", "ssl_ocsp", "auth_http"];

/// Variables that contain a path below a site's root.
const PATHS: [&[u8]; 4] = [b"$uri", b"$document_uri", b"$request_uri", b"$fastcgi_script_name"];

const HTTP: u16 = 80;
const HTTPS: u16 = 443;
const DNS: u16 = 53;
const OTLP_GRPC: u16 = 4317;
const OTLP_HTTP: u16 = 4318;

pub fn collect_needs(items: &[TreeItem], bases: &Bases<'_>, core: &CorePlan, http: Option<&HttpPlan>) -> Needs {
    let isolated = core.key_isolation;
    let mut walk = Walk { needs: Needs::default(), bases, writes_to_roots: false, roots: Vec::new(), isolated };
    let mut below = |folder: &Path, access, why: &str| {
        walk.needs.paths.entry((folder.to_path_buf(), access)).or_insert_with(|| why.to_string());
    };
    if let Some(http) = http {
        below(&bases.prefix.join("html"), PathAccess::Read, "root");
        for name in TEMPORARY {
            below(&bases.prefix.join(name), PathAccess::Write, name);
        }
        for folder in &http.folders {
            below(&folder.path, PathAccess::Write, "temporary files and caches");
        }
    }
    if let Some(folder) = &core.working_directory {
        below(folder, PathAccess::Read, "working_directory");
    }
    walk.block(items, "");
    if walk.writes_to_roots {
        for (words, why) in std::mem::take(&mut walk.roots) {
            walk.path(&words, PathAccess::Write, &why, false);
        }
    }
    walk.needs
}

struct Walk<'a> {
    needs: Needs,
    bases: &'a Bases<'a>,
    /// WebDAV and stored responses write below roots.
    writes_to_roots: bool,
    /// Arguments of `root` and `alias`.
    roots: Vec<(Vec<u8>, String)>,
    /// Keys are for the key process only (`ssl_key_isolation`).
    isolated: bool,
}

impl Walk<'_> {
    fn block(&mut self, items: &[TreeItem], around: &str) {
        for directive in list_directives(items) {
            self.directive(directive, around);
            // Lines of a zone begin with host names, which may be those of directives.
            if let Some(block) = directive.block.as_ref().filter(|_| directive.name.bytes != b"dns") {
                self.block(block, &directive.name.text());
            }
        }
    }

    fn directive(&mut self, d: &Directive, around: &str) {
        let name = d.name.text();
        let name = name.as_ref();
        self.files(d, name);
        self.servers(d, name, around);
    }

    fn files(&mut self, d: &Directive, name: &str) {
        let first = d.args.first().map_or(&b""[..], |word| &word.bytes);
        let why = || format!("{name} {}", String::from_utf8_lossy(first));
        for word in &d.args {
            if let Some(path) = word.bytes.strip_prefix(b"state=") {
                self.path(path, PathAccess::Write, &why(), false);
            }
        }
        if self.isolated && self.keys(d, name, &why()) {
            return;
        }
        match name {
            "root" | "alias" => {
                self.path(first, PathAccess::Read, &why(), false);
                self.roots.push((first.to_vec(), why()));
            }
            "include" => {}
            "dns_hook" => self.needs.program = Some(why()),
            "access_log" if first == b"off" || first.starts_with(b"syslog:") => {}
            // The master opens logs, except those with variables, which workers open.
            "access_log" if first.contains(&b'$') => self.path(first, PathAccess::Write, &why(), false),
            "state" | "state_path" | "vhost_traffic_status_dump" => self.path(first, PathAccess::Write, &why(), false),
            "dav_methods" | "dav_ext_methods" => self.writes_to_roots |= first != b"off",
            "shared_store" => {
                if let Some(folder) = first.strip_prefix(b"file:") {
                    self.path(folder, PathAccess::Write, &why(), false);
                }
            }
            _ if name.ends_with("_temp_path") || name.ends_with("_cache_path") => {
                self.path(first, PathAccess::Write, &why(), false);
            }
            _ if name.ends_with("_store") => match first {
                b"off" => {}
                b"on" => self.writes_to_roots = true,
                _ => self.path(first, PathAccess::Write, &why(), false),
            },
            // `document()` reads files beside the stylesheet.
            "xslt_stylesheet" => match first.iter().rposition(|byte| *byte == b'/') {
                Some(end @ 1..) => self.path(first.get(..end).unwrap_or(first), PathAccess::Read, &why(), false),
                _ => self.path(first, PathAccess::Read, &why(), true),
            },
            _ if name.starts_with("geoip") || READ_ENDINGS.iter().any(|end| name.ends_with(end)) => {
                self.path(first, PathAccess::Read, &why(), true);
            }
            _ => {}
        }
    }

    /// Records key files, which workers do not read. `false` for other directives.
    fn keys(&mut self, d: &Directive, name: &str, why: &str) -> bool {
        let word = |n: usize| d.args.get(n).map(|word| word.text().into_owned()).unwrap_or_default();
        let (text, has_key) = match name {
            "ssl_conf_command" if word(0).eq_ignore_ascii_case("privatekey") => (word(1), true),
            _ if name.ends_with("_certificate_key") || name.ends_with("ssl_password_file") => (word(0), true),
            // Trusted certificates and names without variables are read with the configuration.
            _ if name.ends_with("ssl_certificate") => (word(0), false),
            _ => return false,
        };
        let path = text.strip_prefix("store:").unwrap_or(&text);
        let path = path.strip_prefix("file:").unwrap_or(path);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.starts_with("data:") || path.starts_with("engine:") {
            return true;
        }
        match path.find('$') {
            None if has_key => {
                self.needs.secrets.insert(self.bases.conf_prefix.join(path));
            }
            None => {}
            Some(0) => self.needs.keys_anywhere = Some(why.to_string()),
            Some(at) => {
                let folder = path[..at].rfind('/').map_or("", |slash| &path[..=slash]);
                let folder: PathBuf = self.bases.conf_prefix.join(folder).components().collect();
                self.needs.key_paths.entry(folder).or_insert_with(|| why.to_string());
            }
        }
        true
    }

    /// `in_conf`: a relative path may also start at the configuration's directory.
    fn path(&mut self, words: &[u8], access: PathAccess, why: &str, in_conf: bool) {
        let schemes: [&[u8]; 4] = [b"data:", b"engine:", b"store:", b"off"];
        if words.is_empty() || schemes.iter().any(|scheme| words.starts_with(scheme)) {
            return;
        }
        let constant = match words.iter().position(|byte| *byte == b'$') {
            None => words,
            // Other directives name these roots.
            Some(0) if words.starts_with(b"$document_root") || words.starts_with(b"$realpath_root") => return,
            // Values of these variables begin with a slash.
            Some(at) if at > 0 && PATHS.iter().any(|name| words[at..].starts_with(name)) => &words[..at],
            Some(at) => match words[..at].iter().rposition(|byte| *byte == b'/') {
                Some(slash) => &words[..=slash],
                // A relative name that begins with a constant.
                None if at > 0 => b".",
                None => {
                    self.needs.anywhere.entry(access).or_insert_with(|| why.to_string());
                    return;
                }
            },
        };
        let text = String::from_utf8_lossy(constant).into_owned();
        let bases = if in_conf { &[self.bases.prefix, self.bases.conf_prefix][..] } else { &[self.bases.prefix][..] };
        for base in bases {
            let path: PathBuf = base.join(&text).components().collect();
            self.needs.paths.entry((path, access)).or_insert_with(|| why.to_string());
        }
    }

    fn servers(&mut self, d: &Directive, name: &str, around: &str) {
        let first = d.args.first();
        let on = first.is_some_and(|word| word.bytes != b"off");
        match name {
            _ if NAMED_ELSEWHERE.contains(&name) && on => self.needs.connect = PortRules::Any,
            "mail" => self.needs.connect = PortRules::Any,
            "resolver" => {
                for word in d.args.iter().filter(|word| !word.bytes.contains(&b'=')) {
                    self.address(&word.text(), DNS);
                }
            }
            "server" if around == "upstream" => {
                if d.args.iter().any(|word| word.bytes.starts_with(b"service=")) {
                    self.needs.connect = PortRules::Any;
                }
                self.address(&first.map(Word::text).unwrap_or_default(), HTTP);
            }
            "endpoint" if around == "otel_exporter" => {
                let text = first.map(Word::text).unwrap_or_default();
                // The protocol determines the default port.
                let authority = text.split_once("://").map_or(&*text, |(_, rest)| rest);
                let authority = authority.split('/').next().unwrap_or_default();
                self.address(authority, OTLP_GRPC);
                self.address(authority, OTLP_HTTP);
            }
            "shared_store" => match StoreAddress::parse(&first.map(Word::text).unwrap_or_default()) {
                Ok(StoreAddress::Redis { mode: RedisMode::Server, hosts, .. }) => {
                    hosts.iter().for_each(|(_, port)| self.needs.connect.add(*port));
                }
                // Sentinels and clusters name further servers.
                Ok(StoreAddress::Redis { mode: RedisMode::Sentinel(_) | RedisMode::Cluster, .. }) => {
                    self.needs.connect = PortRules::Any;
                }
                _ => {}
            },
            "health_check" => {
                for port in d.args.iter().filter_map(|word| word.bytes.strip_prefix(b"port=")) {
                    self.address(&format!("x:{}", String::from_utf8_lossy(port)), HTTP);
                }
            }
            _ if name.ends_with("_bind") && on => self.bind(&first.map(Word::text).unwrap_or_default()),
            _ if name.ends_with("_pass") => self.address(&first.map(Word::text).unwrap_or_default(), HTTP),
            _ => {}
        }
    }

    /// Records the port of a server: `[scheme://]host[:port][/uri]`.
    fn address(&mut self, text: &str, default: u16) {
        let (default, rest) = match text.split_once("://") {
            Some(("https" | "grpcs", rest)) => (HTTPS, rest),
            Some((_, rest)) => (default, rest),
            None => (default, text),
        };
        if rest.starts_with("unix:") {
            return;
        }
        let host = rest.split('/').next().unwrap_or_default();
        if host.contains('$') {
            self.needs.connect = PortRules::Any;
            return;
        }
        let port =
            host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).and_then(|(_, port)| port.parse().ok());
        self.needs.connect.add(port.unwrap_or(default));
    }

    /// `proxy_bind ADDRESS[:PORT]`: without a port the kernel chooses one; its rule has port 0.
    fn bind(&mut self, text: &str) {
        if text.contains('$') {
            self.needs.bind = PortRules::Any;
            return;
        }
        self.needs.bind.add(0);
        let port = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
        if let Some(port) = port.and_then(|(_, port)| port.parse().ok()) {
            self.needs.bind.add(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{FileId, parse_file};
    use std::collections::BTreeSet;

    fn walk(text: &str) -> Needs {
        walk_isolated(text, false)
    }

    #[test]
    fn names_of_a_zone_need_nothing() {
        let needs = walk("server { dns a { root A 192.0.2.1; mail A 192.0.2.2; x_pass CNAME b; state TXT /s; } }");
        assert!(needs.paths.is_empty() && needs.connect == walk("").connect);
    }

    fn walk_isolated(text: &str, isolated: bool) -> Needs {
        let items = parse_file(FileId(0), text.as_bytes());
        let bases = Bases { prefix: Path::new("/p"), conf_prefix: Path::new("/p/conf") };
        let mut walk =
            Walk { needs: Needs::default(), bases: &bases, writes_to_roots: false, roots: Vec::new(), isolated };
        walk.block(&items, "");
        if walk.writes_to_roots {
            for (words, why) in std::mem::take(&mut walk.roots) {
                walk.path(&words, PathAccess::Write, &why, false);
            }
        }
        walk.needs
    }

    fn paths(text: &str, access: PathAccess) -> Vec<String> {
        let needs = walk(text);
        needs.paths.keys().filter(|(_, a)| *a == access).map(|(path, _)| path.display().to_string()).collect()
    }

    fn ports(list: &[u16]) -> PortRules {
        PortRules::Only(list.iter().copied().collect::<BTreeSet<_>>())
    }

    #[test]
    fn paths_that_are_read() {
        let text = "http { server { root /srv/www; location / { alias html/; } ssl_certificate c.pem;
            auth_basic_user_file /etc/x/.htpasswd; ssl_certificate_key data:$key; xslt_stylesheet /x/y/a.xslt b=1; } }";
        let want = ["/etc/x/.htpasswd", "/p/c.pem", "/p/conf/c.pem", "/p/html", "/srv/www", "/x/y"];
        assert_eq!(paths(text, PathAccess::Read), want);
        assert!(paths(text, PathAccess::Write).is_empty());
    }

    #[test]
    fn isolated_keys_are_no_needs_of_workers() {
        let text = "ssl_certificate a.crt; ssl_certificate_key a.key; proxy_ssl_certificate_key store:file:///k/b.key;
            ssl_password_file /k/words; ssl_conf_command PrivateKey c.key; ssl_trusted_certificate ca.pem;
            server { ssl_certificate /certs/$ssl_server_name.crt; ssl_certificate_key $ssl_server_name.key; }";
        let needs = walk_isolated(text, true);
        let secrets: Vec<String> = needs.secrets.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(secrets, ["/k/b.key", "/k/words", "/p/conf/a.key", "/p/conf/c.key"]);
        assert_eq!(needs.key_paths.keys().collect::<Vec<_>>(), [Path::new("/certs")]);
        assert!(needs.keys_anywhere.is_some(), "a name may begin with a slash");
        assert!(!needs.paths.keys().any(|(path, _)| path.ends_with("a.key") || path.ends_with("a.crt")));
        assert!(walk(text).secrets.is_empty());
    }

    #[test]
    fn variables_leave_the_folder_before_them() {
        assert_eq!(paths("root /srv/$host/www;", PathAccess::Read), ["/srv"]);
        assert_eq!(paths("root /srv/site-$host;", PathAccess::Read), ["/srv"]);
        assert_eq!(paths("access_log logs/$host.log;", PathAccess::Write), ["/p/logs"]);
        assert!(paths("access_log logs/a.log;", PathAccess::Write).is_empty(), "the master opens it");
        assert_eq!(walk("root $x;").anywhere.keys().collect::<Vec<_>>(), [&PathAccess::Read]);
        assert!(walk("auth_basic_user_file $document_root/.users;").anywhere.is_empty());
    }

    #[test]
    fn paths_that_are_written() {
        let text = "proxy_cache_path /c/x keys_zone=a:1m; proxy_temp_path tmp; keyval_zone zone=a:1m state=/s/kv;
            proxy_store /st$uri; upstream u { state /s/up; }";
        assert_eq!(paths(text, PathAccess::Write), ["/c/x", "/p/tmp", "/s/kv", "/s/up", "/st"]);
        assert_eq!(paths("root /dav; dav_methods PUT;", PathAccess::Write), ["/dav"]);
        assert!(paths("root /dav; dav_methods off;", PathAccess::Write).is_empty());
        assert_eq!(paths("alias /mirror/; proxy_store on;", PathAccess::Write), ["/mirror"]);
    }

    #[test]
    fn ports_of_servers() {
        let text = "resolver 127.0.0.1 [::1]:5353; upstream u { server a:8080; server b; server unix:/x; }
            server { proxy_pass https://h/; fastcgi_pass 127.0.0.1:9000; listen 1; }";
        assert_eq!(walk(text).connect, ports(&[53, 80, 443, 5353, 8080, 9000]));
        for (endpoint, want) in [
            ("localhost", &[4317, 4318][..]),
            ("http://a/v1/traces", &[4317, 4318]),
            ("https://[::1]:99/x", &[99]),
            ("a:98", &[98]),
        ] {
            assert_eq!(walk(&format!("otel_exporter {{ endpoint {endpoint}; }}")).connect, ports(want), "{endpoint}");
        }
        assert_eq!(walk("proxy_pass http://$host;").connect, PortRules::Any);
        assert_eq!(walk("proxy_pass http://a:81$request_uri;").connect, PortRules::Any, "what follows may be digits");
        assert_eq!(walk("proxy_pass http://a:81/$uri;").connect, ports(&[81]));
        assert_eq!(walk("upstream u { server a service=http resolve; }").connect, PortRules::Any);
        assert_eq!(walk("ssl_stapling on;").connect, PortRules::Any);
        assert_eq!(walk("ssl_stapling off;").connect, ports(&[]));
    }

    #[test]
    fn programs_are_needs() {
        let needs = walk("acme_issuer a { challenge dns-01; dns_hook /usr/local/bin/hook timeout=1m; }");
        assert_eq!(needs.program.as_deref(), Some("dns_hook /usr/local/bin/hook"));
        assert_eq!(walk("acme_issuer a { challenge http-01; }").program, None);
    }

    #[test]
    fn ports_of_local_addresses() {
        assert_eq!(walk("proxy_bind 127.0.0.1;").bind, ports(&[0]));
        assert_eq!(walk("proxy_bind 127.0.0.1:4000;").bind, ports(&[0, 4000]));
        assert_eq!(walk("proxy_bind ::1;").bind, ports(&[0]));
        assert_eq!(walk("proxy_bind $remote_addr transparent;").bind, PortRules::Any);
        assert_eq!(walk("proxy_bind off;").bind, ports(&[]));
    }
}
