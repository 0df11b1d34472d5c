//! Settings of a path, as types.

use conf_syntax::writer::WriteNode;

/// Settings that belong to each path of an Ingress.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Config {
    /// Reason why the paths answer 503: a protection that cannot be set up must not be left open.
    pub denied: Option<String>,
    pub rewrite_target: Option<String>,
    pub use_regex: bool,
    pub app_root: Option<String>,
    pub ssl_redirect: bool,
    pub force_ssl_redirect: bool,
    pub preserve_trailing_slash: bool,
    pub redirect: Option<(u16, String)>,
    pub www_redirect: bool,
    pub relative_redirects: bool,
    pub port_in_redirects: bool,
    pub ssl_passthrough: bool,
    pub protocol: BackendProtocol,
    pub proxy: ProxyDirectives,
    pub cors: Option<Cors>,
    pub canary: Option<Canary>,
    pub affinity: Option<Affinity>,
    pub hash_by: Option<String>,
    pub load_balance: Option<String>,
    pub service_upstream: bool,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub satisfy: Option<String>,
    pub firewall: IngressFirewall,
    pub auth: Option<BasicAuth>,
    pub external_auth: Option<ExternalAuth>,
    pub global_auth: bool,
    pub auth_tls: Option<AuthTls>,
    pub proxy_ssl: Option<ProxySsl>,
    pub limits: LimitDirectives,
    pub custom_errors: Vec<u16>,
    pub intercepts_errors: bool,
    pub default_backend: Option<String>,
    pub aliases: Vec<String>,
    pub upstream_vhost: Option<String>,
    pub forwarded_prefix: Option<String>,
    pub connection_header: Option<String>,
    pub custom_headers: Option<String>,
    pub mirror: Option<Mirror>,
    pub ssl_ciphers: Option<String>,
    pub prefer_server_ciphers: Option<bool>,
    pub access_log: bool,
    pub rewrite_log: bool,
    pub fastcgi_index: Option<String>,
    pub fastcgi_params: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BackendProtocol {
    #[default]
    Http,
    Https,
    AutoHttp,
    Grpc,
    Grpcs,
    Fcgi,
}

impl BackendProtocol {
    pub fn is_grpc(self) -> bool {
        matches!(self, BackendProtocol::Grpc | BackendProtocol::Grpcs)
    }
}

/// Directives of proxying. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProxyDirectives {
    pub body_size: String,
    pub body_buffer_size: Option<String>,
    pub connect_timeout: i64,
    pub send_timeout: i64,
    pub read_timeout: i64,
    pub buffering: String,
    pub buffer_size: String,
    pub buffers_number: i64,
    pub busy_buffers_size: Option<String>,
    pub max_temp_file_size: String,
    pub request_buffering: String,
    pub http_version: String,
    pub next_upstream: String,
    pub next_upstream_timeout: i64,
    pub next_upstream_tries: i64,
    pub redirect_from: String,
    pub redirect_to: String,
    pub cookie_domain: String,
    pub cookie_path: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cors {
    pub origins: Vec<String>,
    pub methods: String,
    pub headers: String,
    pub expose: Option<String>,
    pub credentials: bool,
    pub max_age: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Canary {
    pub header: Option<String>,
    pub header_value: Option<String>,
    pub header_pattern: Option<String>,
    pub cookie: Option<String>,
    pub weight: i64,
    pub weight_total: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Affinity {
    pub name: String,
    pub max_age: Option<i64>,
    pub path: Option<String>,
    pub domain: Option<String>,
    pub same_site: Option<String>,
    pub secure: bool,
    pub is_sticky_canary: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BasicAuth {
    pub secret: String,
    pub is_map: bool,
    pub realm: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ExternalAuth {
    pub url: String,
    pub method: Option<String>,
    pub signin: Option<String>,
    pub redirect_param: Option<String>,
    pub response_headers: Vec<String>,
    pub request_redirect: Option<String>,
    pub always_set_cookie: bool,
    pub cache_key: Option<String>,
    pub cache_durations: Vec<String>,
    pub proxy_set_headers: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthTls {
    pub secret: String,
    pub verify: String,
    pub depth: i64,
    pub error_page: Option<String>,
    pub passes_certificate: bool,
    pub match_cn: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProxySsl {
    pub secret: String,
    pub ciphers: String,
    pub protocols: String,
    pub name: Option<String>,
    pub verify: String,
    pub depth: i64,
    pub server_name: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitDirectives {
    pub rps: i64,
    pub rpm: i64,
    pub connections: i64,
    pub burst_multiplier: i64,
    pub allow: Vec<String>,
    /// In kilobytes.
    pub rate: i64,
    pub rate_after: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mirror {
    pub target: String,
    pub host: Option<String>,
    pub sends_body: bool,
}

/// Settings of an Ingress for the firewall.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IngressFirewall {
    /// Directives of its locations, without `modsecurity_transaction_id`.
    pub lines: Vec<WriteNode>,
    /// A template with variables; `None` where no request is inspected.
    pub transaction_id: Option<String>,
}

/// Settings of all servers for the firewall, of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GlobalFirewall {
    pub is_on: bool,
    pub has_core_rules: bool,
    /// Reason why paths answer 503 unless they say `enable-modsecurity: "false"`.
    pub denied: Option<String>,
}
