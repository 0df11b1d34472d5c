//! Settings of the controller, and the defaults that its ConfigMap changes.

use cluster_objects::types::ConfigMap;
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};
use std::net::IpAddr;

use crate::config::{self, ExternalAuth, ProxyDirectives};
use crate::config_types::GlobalFirewall;
use crate::firewall::{self, FirewallPolicy};
use crate::keys::{OTHER_KEYS, all_keys, is_translated};
use crate::snippets::{self, SnippetPlace};
use crate::template::template;
use crate::values::{Reader, parse_networks};

/// Name that an IngressClass of Tidegate has in `controller`.
pub const CONTROLLER_NAME: &str = "tidegate.invalid/ingress-controller";

/// Settings of the controller, which no object has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub controller_name: String,
    /// Serves Ingresses of this class, whatever its IngressClass says.
    pub class: Option<String>,
    /// Serves Ingresses that name no class.
    pub serves_without_class: bool,
    /// Secret with the certificate of hosts without one of their own.
    pub default_certificate: Option<ObjectName>,
    /// ConfigMap with the keys of ingress-nginx's ConfigMap.
    pub config_map: Option<ObjectName>,
    /// Service, with its first port, of requests that no rule takes.
    pub default_backend: Option<ObjectName>,
    pub allows_snippets: bool,
    /// Folder of `tidegate waf setup` where the server runs, an absolute path: rules of the firewall.
    pub firewall_folder: Option<String>,
    /// The server resolves names while it runs.
    pub has_resolver: bool,
    /// Without any slice in the set, groups contain the names of Services: manifests have none.
    pub names_services_without_slices: bool,
    /// Address of the listeners; `None` for all.
    pub address: Option<IpAddr>,
    pub http_port: u16,
    pub https_port: u16,
}

impl Settings {
    /// Returns the permissions for rules of the firewall.
    pub(crate) fn firewall_policy(&self) -> FirewallPolicy<'_> {
        FirewallPolicy { folder: self.firewall_folder.as_deref(), allows_snippets: self.allows_snippets }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            controller_name: CONTROLLER_NAME.into(),
            class: None,
            serves_without_class: false,
            default_certificate: None,
            config_map: None,
            default_backend: None,
            allows_snippets: false,
            firewall_folder: None,
            has_resolver: false,
            names_services_without_slices: true,
            address: None,
            http_port: 80,
            https_port: 443,
        }
    }
}

/// Values of paths without an annotation, and lines of all servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Defaults {
    pub proxy: ProxyDirectives,
    pub ssl_redirect: bool,
    pub force_ssl_redirect: bool,
    pub preserve_trailing_slash: bool,
    pub relative_redirects: bool,
    pub service_upstream: bool,
    pub load_balance: Option<String>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub custom_errors: Vec<u16>,
    pub limit_rate: i64,
    pub limit_rate_after: i64,
    pub allowed_response_headers: Vec<String>,
    pub redirect_status: u16,
    pub no_redirect_paths: Vec<String>,
    pub no_auth_paths: Vec<String>,
    pub global_auth: Option<ExternalAuth>,
    pub hsts: Option<String>,
    pub firewall: GlobalFirewall,
    pub uses_forwarded_headers: bool,
    pub forwarded_for: String,
    pub adds_original_uri: bool,
    pub retries_non_idempotent: bool,
    pub proxy_set_headers: Vec<(String, Argument)>,
    pub limit_key: Argument,
    pub http: Vec<WriteNode>,
    pub server: Vec<WriteNode>,
    pub tls_server: Vec<WriteNode>,
    pub location: Vec<WriteNode>,
    pub stream: Vec<WriteNode>,
    pub group: Vec<WriteNode>,
}

impl Default for Defaults {
    fn default() -> Defaults {
        let acme = vec!["/.well-known/acme-challenge".to_owned()];
        Defaults {
            proxy: ProxyDirectives {
                body_size: "1m".into(),
                body_buffer_size: None,
                connect_timeout: 5,
                send_timeout: 60,
                read_timeout: 60,
                buffering: "off".into(),
                buffer_size: "4k".into(),
                buffers_number: 4,
                busy_buffers_size: None,
                max_temp_file_size: "1024m".into(),
                request_buffering: "on".into(),
                http_version: "1.1".into(),
                next_upstream: "error timeout".into(),
                next_upstream_timeout: 0,
                next_upstream_tries: 3,
                redirect_from: "off".into(),
                redirect_to: "off".into(),
                cookie_domain: "off".into(),
                cookie_path: "off".into(),
            },
            ssl_redirect: true,
            force_ssl_redirect: false,
            preserve_trailing_slash: false,
            relative_redirects: false,
            service_upstream: false,
            load_balance: None,
            allow: Vec::new(),
            deny: Vec::new(),
            custom_errors: Vec::new(),
            limit_rate: 0,
            limit_rate_after: 0,
            allowed_response_headers: Vec::new(),
            redirect_status: 308,
            no_redirect_paths: acme.clone(),
            no_auth_paths: acme,
            global_auth: None,
            hsts: Some("max-age=31536000; includeSubDomains".into()),
            firewall: GlobalFirewall::default(),
            uses_forwarded_headers: false,
            forwarded_for: "X-Forwarded-For".into(),
            adds_original_uri: false,
            retries_non_idempotent: false,
            proxy_set_headers: Vec::new(),
            limit_key: Argument::variable("binary_remote_addr"),
            http: Vec::new(),
            server: Vec::new(),
            tls_server: Vec::new(),
            location: Vec::new(),
            stream: Vec::new(),
            group: Vec::new(),
        }
    }
}

/// Reads the ConfigMap of the controller. An unknown key gives a complaint.
pub(crate) fn read(set: &ObjectSet, settings: &Settings, complaints: &mut Vec<Complaint>) -> Defaults {
    let mut defaults = Defaults::default();
    let Some(name) = &settings.config_map else { return defaults };
    let mut complain =
        |words: String| complaints.push(Complaint::about(Kind::ConfigMap, &name.namespace, &name.name, words));
    let Some(map) = set.get::<ConfigMap>(&name.namespace, &name.name) else {
        complain("does not exist: the defaults are used".into());
        return defaults;
    };
    let data = map.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut reader = Reader::new(data);
    apply(&mut defaults, &mut reader, set, settings);
    for key in map.data.iter().flat_map(|data| data.keys()) {
        let is_known = is_translated(key);
        if OTHER_KEYS.contains(&key.as_str()) {
            complain(format!("{key}: has no equal, or is a setting of the process"));
        } else if !is_known {
            let known = all_keys();
            let near = conf_schema::suggest::nearest_word(key, known.iter().map(String::as_str));
            let hint = near.map_or(String::new(), |near| format!(": write {near}"));
            complain(format!("\"{}\" is no key of ingress-nginx and has no effect{hint}", key.escape_debug()));
        }
    }
    reader.complaints.into_iter().for_each(complain);
    defaults
}

fn line(name: &'static str, words: &[&str]) -> WriteNode {
    NewDirective::new(name).args(words.iter().map(Argument::plain)).into()
}

fn apply(defaults: &mut Defaults, reader: &mut Reader<'_>, set: &ObjectSet, settings: &Settings) {
    defaults.proxy = config::proxy(reader, &defaults.proxy);
    for (key, place) in [
        ("ssl-redirect", &mut defaults.ssl_redirect),
        ("force-ssl-redirect", &mut defaults.force_ssl_redirect),
        ("preserve-trailing-slash", &mut defaults.preserve_trailing_slash),
        ("relative-redirects", &mut defaults.relative_redirects),
        ("service-upstream", &mut defaults.service_upstream),
        ("use-forwarded-headers", &mut defaults.uses_forwarded_headers),
        ("proxy-add-original-uri-header", &mut defaults.adds_original_uri),
        ("retry-non-idempotent", &mut defaults.retries_non_idempotent),
    ] {
        *place = reader.boolean(key).unwrap_or(*place);
    }
    defaults.load_balance = reader.text("load-balance").map(Into::into);
    defaults.limit_rate = reader.integer("limit-rate").unwrap_or(0).max(0);
    defaults.limit_rate_after = reader.integer("limit-rate-after").unwrap_or(0).max(0);
    defaults.custom_errors = config::custom_errors(reader).unwrap_or_default();
    let list = |value: &str| value.split(',').map(|entry| entry.trim().to_owned()).filter(|e| !e.is_empty()).collect();
    if let Some(names) = reader.text("global-allowed-response-headers") {
        defaults.allowed_response_headers = list(names);
    }
    for (key, place) in [
        ("no-tls-redirect-locations", &mut defaults.no_redirect_paths),
        ("no-auth-locations", &mut defaults.no_auth_paths),
    ] {
        if let Some(paths) = reader.text(key) {
            *place = list(paths);
        }
    }
    for (key, place) in [("whitelist-source-range", &mut defaults.allow), ("denylist-source-range", &mut defaults.deny)]
    {
        match reader.text(key).map(parse_networks) {
            Some(Ok(networks)) => *place = networks,
            Some(Err(error)) => reader.complaints.push(format!("{key}: {error}")),
            None => {}
        }
    }
    if let Some(status) = reader.integer("http-redirect-code").filter(|status| [301, 302, 307, 308].contains(status)) {
        defaults.redirect_status = u16::try_from(status).unwrap_or(308);
    }
    if let Some(url) = reader.text("global-auth-url") {
        let text = |name: &str| reader.text(name).map(str::to_owned);
        defaults.global_auth = Some(ExternalAuth {
            url: url.into(),
            method: text("global-auth-method"),
            signin: text("global-auth-signin"),
            redirect_param: text("global-auth-signin-redirect-param"),
            response_headers: text("global-auth-response-headers").map_or_else(Vec::new, |names| list(&names)),
            request_redirect: text("global-auth-request-redirect"),
            always_set_cookie: text("global-auth-always-set-cookie").as_deref() == Some("true"),
            cache_key: text("global-auth-cache-key"),
            cache_durations: text("global-auth-cache-duration")
                .map_or_else(|| vec!["200 202 401 5m".into()], |d| list(&d)),
            proxy_set_headers: None,
        });
    }
    hsts(defaults, reader);
    clients(defaults, reader);
    servers(defaults, reader);
    headers(defaults, reader, set);
    let (firewall, lines) = firewall::read_global(reader, settings.firewall_policy());
    defaults.firewall = firewall;
    defaults.server.extend(lines);
    let mut snippet = |key: &str, place: SnippetPlace| -> Vec<WriteNode> {
        let Some(text) = reader.text(key) else { return Vec::new() };
        if !settings.allows_snippets {
            reader.complaints.push(format!("{key} is ignored: snippets need --allow-snippets"));
            return Vec::new();
        }
        snippets::parse(text, place).unwrap_or_else(|error| {
            reader.complaints.push(format!("{key} is ignored: {error}"));
            Vec::new()
        })
    };
    defaults.http.extend(snippet("http-snippet", SnippetPlace::Http));
    defaults.server.extend(snippet("server-snippet", SnippetPlace::Server));
    defaults.location.extend(snippet("location-snippet", SnippetPlace::Location));
    defaults.stream.extend(snippet("stream-snippet", SnippetPlace::Stream));
}

fn hsts(defaults: &mut Defaults, reader: &mut Reader<'_>) {
    if !reader.boolean("hsts").unwrap_or(true) {
        defaults.hsts = None;
        return;
    }
    let mut value = format!("max-age={}", reader.integer("hsts-max-age").unwrap_or(31_536_000).max(0));
    if reader.boolean("hsts-include-subdomains").unwrap_or(true) {
        value.push_str("; includeSubDomains");
    }
    if reader.boolean("hsts-preload").unwrap_or(false) {
        value.push_str("; preload");
    }
    defaults.hsts = Some(value);
}

/// Addresses of clients behind other proxies.
fn clients(defaults: &mut Defaults, reader: &mut Reader<'_>) {
    if let Some(name) = reader.text("forwarded-for-header") {
        if cluster_model::is_field_name(name) && !name.contains('$') {
            defaults.forwarded_for = name.into();
        } else {
            reader.complaints.push("forwarded-for-header: expected the name of a header".into());
        }
    }
    if let Some(variable) = reader.text("limit-conn-zone-variable") {
        match template(variable, &[]) {
            Ok(key) => defaults.limit_key = key,
            Err(error) => reader.complaints.push(format!("limit-conn-zone-variable: {error}")),
        }
    }
    if defaults.uses_forwarded_headers || reader.boolean("enable-real-ip").unwrap_or(false) {
        let networks = reader.text("proxy-real-ip-cidr").unwrap_or("0.0.0.0/0");
        match parse_networks(networks) {
            Ok(networks) => {
                for network in networks {
                    defaults.server.push(line("set_real_ip_from", &[&network]));
                }
                defaults.server.push(line("real_ip_header", &[&defaults.forwarded_for]));
                defaults.server.push(line("real_ip_recursive", &["on"]));
            }
            Err(error) => reader.complaints.push(format!("proxy-real-ip-cidr: {error}")),
        }
    }
    match reader.text("block-cidrs").map(parse_networks) {
        Some(Ok(networks)) => defaults.server.extend(networks.iter().map(|network| line("deny", &[network]))),
        Some(Err(error)) => reader.complaints.push(format!("block-cidrs: {error}")),
        None => {}
    }
}

/// Directives that have the values of a key.
fn servers(defaults: &mut Defaults, reader: &mut Reader<'_>) {
    let switches = [
        ("enable-underscores-in-headers", "underscores_in_headers"),
        ("ignore-invalid-headers", "ignore_invalid_headers"),
        ("use-gzip", "gzip"),
        ("enable-brotli", "brotli"),
        ("server-tokens", "server_tokens"),
        ("use-http2", "http2"),
    ];
    for (key, directive) in switches {
        if let Some(value) = reader.boolean(key) {
            defaults.server.push(line(directive, &[if value { "on" } else { "off" }]));
        }
    }
    let numbers = [
        ("gzip-level", "gzip_comp_level", ""),
        ("gzip-min-length", "gzip_min_length", ""),
        ("brotli-level", "brotli_comp_level", ""),
        ("brotli-min-length", "brotli_min_length", ""),
        ("client-body-timeout", "client_body_timeout", "s"),
        ("client-header-timeout", "client_header_timeout", "s"),
        ("keep-alive", "keepalive_timeout", "s"),
        ("keep-alive-requests", "keepalive_requests", ""),
        ("http2-max-concurrent-streams", "http2_max_concurrent_streams", ""),
        ("limit-req-status-code", "limit_req_status", ""),
        ("limit-conn-status-code", "limit_conn_status", ""),
    ];
    for (key, directive, unit) in numbers {
        if let Some(value) = reader.integer(key).filter(|value| *value >= 0) {
            defaults.server.push(line(directive, &[&format!("{value}{unit}")]));
        }
    }
    let word = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+:!=@* ".contains(c));
    let words = [
        ("gzip-types", "gzip_types", false),
        ("brotli-types", "brotli_types", false),
        ("client-header-buffer-size", "client_header_buffer_size", false),
        ("large-client-header-buffers", "large_client_header_buffers", false),
        ("ssl-protocols", "ssl_protocols", true),
        ("ssl-ciphers", "ssl_ciphers", true),
        ("ssl-ecdh-curve", "ssl_ecdh_curve", true),
        ("ssl-buffer-size", "ssl_buffer_size", true),
        ("ssl-session-timeout", "ssl_session_timeout", true),
    ];
    for (key, directive, is_tls) in words {
        if let Some(value) = reader.checked(key, "words of the directive", word) {
            let node = line(directive, &value.split_whitespace().collect::<Vec<_>>());
            if is_tls { &mut defaults.tls_server } else { &mut defaults.server }.push(node);
        }
    }
    if let Some(tickets) = reader.boolean("ssl-session-tickets") {
        defaults.tls_server.push(line("ssl_session_tickets", &[if tickets { "on" } else { "off" }]));
    }
    if let Some(pattern) = reader.text("gzip-disable") {
        defaults.server.push(NewDirective::new("gzip_disable").arg(Argument::plain(pattern)).into());
    }
    let keepalive = [
        ("upstream-keepalive-connections", "keepalive", ""),
        ("upstream-keepalive-requests", "keepalive_requests", ""),
        ("upstream-keepalive-timeout", "keepalive_timeout", "s"),
    ];
    for (key, directive, unit) in keepalive {
        if let Some(value) = reader.integer(key).filter(|value| *value > 0) {
            defaults.group.push(line(directive, &[&format!("{value}{unit}")]));
        }
    }
    if let Some(time) = reader.checked("upstream-keepalive-time", "a time", word) {
        defaults.group.push(line("keepalive_time", &[time]));
    }
    if let Some(format) = reader.text("log-format-upstream") {
        match template(format, &[]) {
            Ok(format) => {
                let is_json = reader.boolean("log-format-escape-json").unwrap_or(false);
                let mut directive = NewDirective::new("log_format").arg("ingress");
                if is_json {
                    directive = directive.arg("escape=json");
                }
                defaults.http.push(directive.arg(format).into());
                defaults.server.push(line("access_log", &["/dev/stdout", "ingress"]));
            }
            Err(error) => reader.complaints.push(format!("log-format-upstream: {error}")),
        }
    }
}

/// Header fields that stand in ConfigMaps of their own.
fn headers(defaults: &mut Defaults, reader: &mut Reader<'_>, set: &ObjectSet) {
    for name in reader.text("hide-headers").unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty()) {
        defaults.server.push(line("proxy_hide_header", &[name]));
    }
    for key in ["add-headers", "proxy-set-headers"] {
        let Some(name) = reader.text(key) else { continue };
        let map = name.split_once('/').and_then(|(namespace, name)| set.get::<ConfigMap>(namespace, name));
        let Some(map) = map else {
            reader.complaints.push(format!("{key}: ConfigMap {} does not exist", name.escape_debug()));
            continue;
        };
        for (name, value) in map.data.iter().flatten() {
            if let Err(error) = cluster_model::check_field(name, value) {
                reader.complaints.push(format!("{key}: {error}"));
            } else if key == "add-headers" {
                let field = Argument::literal(format!("{name}: {value}"));
                defaults.server.push(NewDirective::new("more_set_headers").arg(field).into());
            } else {
                match template(value, &[]) {
                    Ok(value) => defaults.proxy_set_headers.push((name.clone(), value)),
                    Err(error) => reader.complaints.push(format!("{key}: {error}")),
                }
            }
        }
    }
}
