//! The annotations of ingress-nginx, and their place here. Documents and `convert-ingress` are made of this list.

use serde::Serialize;

/// Prefix of the annotations.
pub const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Prefix before 2018, which ingress-nginx does not read.
pub const OLD_PREFIX: &str = "ingress.kubernetes.io/";

/// Treatment of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    Translated,
    /// Translated with `--allow-snippets`.
    Snippet,
    /// Refused: the paths of the object answer 503.
    Refused,
    /// Ignored with a complaint: it has no equal, and requests are treated as without it.
    NoEqual,
    /// Ignored without a complaint: the default does it.
    NotNeeded,
}

/// Annotation of ingress-nginx, without its prefix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Annotation {
    pub name: &'static str,
    pub treatment: Treatment,
    /// Directives, or the reason.
    pub becomes: &'static str,
}

const fn done(name: &'static str, becomes: &'static str) -> Annotation {
    Annotation { name, treatment: Treatment::Translated, becomes }
}

const fn snippet(name: &'static str, becomes: &'static str) -> Annotation {
    Annotation { name, treatment: Treatment::Snippet, becomes }
}

const fn refused(name: &'static str, becomes: &'static str) -> Annotation {
    Annotation { name, treatment: Treatment::Refused, becomes }
}

const fn no_equal(name: &'static str, becomes: &'static str) -> Annotation {
    Annotation { name, treatment: Treatment::NoEqual, becomes }
}

const fn not_needed(name: &'static str, becomes: &'static str) -> Annotation {
    Annotation { name, treatment: Treatment::NotNeeded, becomes }
}

/// All annotations that ingress-nginx reads, in order of their names.
pub const ANNOTATIONS: &[Annotation] = &[
    done("affinity", "`sticky cookie`"),
    no_equal("affinity-canary-behavior", "requests of a canary are drawn anew, as with `legacy`"),
    not_needed("affinity-mode", "`sticky` keeps sessions, as with `persistent`"),
    done("allowlist-source-range", "`allow`, `deny all`"),
    done("app-root", "`if ($uri = /)`, `return 302`"),
    done("auth-always-set-cookie", "`add_header Set-Cookie ... always`"),
    done("auth-cache-duration", "`proxy_cache_valid`"),
    done("auth-cache-key", "`proxy_cache`, `proxy_cache_key`"),
    not_needed("auth-keepalive", "connections are kept without it"),
    not_needed("auth-keepalive-requests", "connections are kept without it"),
    not_needed("auth-keepalive-share-vars", "variables are shared without it"),
    not_needed("auth-keepalive-timeout", "connections are kept without it"),
    done("auth-method", "`proxy_method`"),
    done("auth-proxy-set-headers", "`proxy_set_header`, from a ConfigMap"),
    done("auth-realm", "`auth_basic`"),
    done("auth-request-redirect", "`proxy_set_header X-Auth-Request-Redirect`"),
    done("auth-response-headers", "`auth_request_set`, `proxy_set_header`"),
    done("auth-secret", "`auth_basic_user_file`"),
    done("auth-secret-type", "`auth-file` or `auth-map`"),
    done("auth-signin", "`error_page 401`, `return 302`"),
    done("auth-signin-redirect-param", "parameter of the address in `return 302`"),
    snippet("auth-snippet", "directives of the location of `auth_request`"),
    done("auth-tls-error-page", "`error_page 495 496`"),
    done("auth-tls-match-cn", "`if ($ssl_client_s_dn !~ ...)`, `return 403`"),
    done("auth-tls-pass-certificate-to-upstream", "`proxy_set_header ssl-client-cert`"),
    done("auth-tls-secret", "`ssl_client_certificate`"),
    done("auth-tls-verify-client", "`ssl_verify_client`"),
    done("auth-tls-verify-depth", "`ssl_verify_depth`"),
    done("auth-type", "`auth_basic`; `digest` is refused"),
    done("auth-url", "`auth_request`"),
    done("backend-protocol", "`proxy_pass`, `grpc_pass`, `fastcgi_pass`"),
    done("canary", "a `map` between two groups"),
    done("canary-by-cookie", "`map $cookie_NAME`"),
    done("canary-by-header", "`map $http_NAME`"),
    done("canary-by-header-pattern", "`map $http_NAME` with a regular expression"),
    done("canary-by-header-value", "`map $http_NAME`"),
    done("canary-weight", "`split_clients`"),
    done("canary-weight-total", "`split_clients`"),
    done("client-body-buffer-size", "`client_body_buffer_size`"),
    snippet("configuration-snippet", "directives of the location"),
    done("connection-proxy-header", "`proxy_set_header Connection`"),
    done("cors-allow-credentials", "`more_set_headers`"),
    done("cors-allow-headers", "`more_set_headers`"),
    done("cors-allow-methods", "`more_set_headers`"),
    done("cors-allow-origin", "`if ($http_origin ~* ...)`, `more_set_headers`"),
    done("cors-expose-headers", "`more_set_headers`"),
    done("cors-max-age", "`more_set_headers`"),
    done("custom-headers", "`more_set_headers`, from a ConfigMap"),
    done("custom-http-errors", "`error_page`, `proxy_intercept_errors`"),
    done("default-backend", "the group of another Service, without endpoints and for `custom-http-errors`"),
    done("denylist-source-range", "`deny`"),
    done("disable-proxy-intercept-errors", "no `proxy_intercept_errors`"),
    done("enable-access-log", "`access_log off`"),
    done("enable-cors", "`more_set_headers`, `return 204`"),
    done("enable-global-auth", "no `auth_request` of the ConfigMap"),
    done("enable-modsecurity", "`modsecurity`, with the settings of the engine unless `modsecurity-snippet` has them"),
    no_equal("enable-opentelemetry", "traces are a setting of the process"),
    done("enable-owasp-core-rules", "`modsecurity_rules_file`, with `--firewall-folder`"),
    done("enable-rewrite-log", "`rewrite_log`"),
    done("fastcgi-index", "`fastcgi_index`"),
    done("fastcgi-params-configmap", "`fastcgi_param`, from a ConfigMap"),
    done("force-ssl-redirect", "`return 308`"),
    done("from-to-www-redirect", "a `server` with `return 308`"),
    no_equal("http2-push-preload", "browsers do not take pushes any more"),
    done("limit-allowlist", "`geo`, `map`"),
    done("limit-burst-multiplier", "`limit_req ... burst=`"),
    done("limit-connections", "`limit_conn_zone`, `limit_conn`"),
    done("limit-rate", "`limit_rate`"),
    done("limit-rate-after", "`limit_rate_after`"),
    done("limit-rpm", "`limit_req_zone`, `limit_req`"),
    done("limit-rps", "`limit_req_zone`, `limit_req`"),
    done("limit-whitelist", "`geo`, `map`"),
    done("load-balance", "`least_time` for `ewma`; round robin otherwise"),
    done("mirror-host", "`proxy_set_header Host`"),
    done("mirror-request-body", "`mirror_request_body`"),
    done("mirror-target", "`mirror`"),
    snippet("modsecurity-snippet", "`modsecurity_rules`"),
    done("modsecurity-transaction-id", "`modsecurity_transaction_id`"),
    no_equal("opentelemetry-operation-name", "traces are a setting of the process"),
    no_equal("opentelemetry-trust-incoming-span", "traces are a setting of the process"),
    done("permanent-redirect", "`return 301`"),
    done("permanent-redirect-code", "`return`"),
    done("preserve-trailing-slash", "`return 308` with the slash"),
    done("proxy-body-size", "`client_max_body_size`"),
    done("proxy-buffer-size", "`proxy_buffer_size`, `proxy_buffers`"),
    done("proxy-buffering", "`proxy_buffering`"),
    done("proxy-buffers-number", "`proxy_buffers`"),
    done("proxy-busy-buffers-size", "`proxy_busy_buffers_size`"),
    done("proxy-connect-timeout", "`proxy_connect_timeout`, `grpc_connect_timeout`"),
    done("proxy-cookie-domain", "`proxy_cookie_domain`"),
    done("proxy-cookie-path", "`proxy_cookie_path`"),
    done("proxy-http-version", "`proxy_http_version`"),
    done("proxy-max-temp-file-size", "`proxy_max_temp_file_size`"),
    done("proxy-next-upstream", "`proxy_next_upstream`"),
    done("proxy-next-upstream-timeout", "`proxy_next_upstream_timeout`"),
    done("proxy-next-upstream-tries", "`proxy_next_upstream_tries`"),
    done("proxy-read-timeout", "`proxy_read_timeout`, `grpc_read_timeout`"),
    done("proxy-redirect-from", "`proxy_redirect`"),
    done("proxy-redirect-to", "`proxy_redirect`"),
    done("proxy-request-buffering", "`proxy_request_buffering`"),
    done("proxy-send-timeout", "`proxy_send_timeout`, `grpc_send_timeout`"),
    done("proxy-ssl-ciphers", "`proxy_ssl_ciphers`"),
    done("proxy-ssl-name", "`proxy_ssl_name`"),
    done("proxy-ssl-protocols", "`proxy_ssl_protocols`"),
    done("proxy-ssl-secret", "`proxy_ssl_certificate`, `proxy_ssl_trusted_certificate`"),
    done("proxy-ssl-server-name", "`proxy_ssl_server_name`"),
    done("proxy-ssl-verify", "`proxy_ssl_verify`"),
    done("proxy-ssl-verify-depth", "`proxy_ssl_verify_depth`"),
    done("relative-redirects", "`absolute_redirect off`"),
    done("rewrite-target", "`location ~*`, `rewrite ... break`"),
    done("satisfy", "`satisfy`"),
    done("server-alias", "a `server` for each name; regular expressions have no equal"),
    snippet("server-snippet", "directives of the server"),
    done("service-upstream", "the cluster address of the Service as the only server"),
    no_equal("session-cookie-change-on-failure", "a failed server's sessions go to another one, and come back"),
    no_equal("session-cookie-conditional-samesite-none", "the cookie is the same for all browsers"),
    done("session-cookie-domain", "`sticky cookie ... domain=`"),
    done("session-cookie-expires", "`sticky cookie ... expires=`"),
    done("session-cookie-max-age", "`sticky cookie ... expires=`"),
    done("session-cookie-name", "`sticky cookie`"),
    done("session-cookie-path", "`sticky cookie ... path=`"),
    done("session-cookie-samesite", "`sticky cookie ... samesite=`"),
    done("session-cookie-secure", "`sticky cookie ... secure`"),
    done("ssl-ciphers", "`ssl_ciphers`"),
    done("ssl-passthrough", "`stream` with `ssl_preread`"),
    done("ssl-prefer-server-ciphers", "`ssl_prefer_server_ciphers`"),
    done("ssl-redirect", "`return 308`"),
    snippet("stream-snippet", "directives of the `stream` block"),
    done("temporal-redirect", "`return 302`"),
    done("temporal-redirect-code", "`return`"),
    done("upstream-hash-by", "`hash ... consistent`"),
    no_equal("upstream-hash-by-subset", "a key has one server, not a subset"),
    no_equal("upstream-hash-by-subset-size", "a key has one server, not a subset"),
    done("upstream-vhost", "`proxy_set_header Host`"),
    done("use-port-in-redirects", "`port_in_redirect`"),
    done("use-regex", "`location ~*`"),
    done("whitelist-source-range", "`allow`, `deny all`"),
    done("x-forwarded-prefix", "`proxy_set_header X-Forwarded-Prefix`, with `rewrite-target`"),
];

/// Values of a translated annotation that are refused.
pub const REFUSED_VALUES: &[Annotation] = &[
    refused("auth-type: digest", "digest authentication is not part of Tidegate"),
    refused(
        "custom-headers, not in global-allowed-response-headers",
        "the ConfigMap of the controller does not allow it",
    ),
    refused("enable-owasp-core-rules without --firewall-folder", "the rules are files of the server's machine"),
    refused("modsecurity-snippet without --allow-snippets, if enable-modsecurity is on", "the rules are a protection"),
    refused("auth-secret, auth-tls-secret, proxy-ssl-secret of another namespace", "a Secret is for its namespace"),
];

/// Names that manifests have and ingress-nginx does not know, with the right ones.
const MISTAKEN: &[(&str, &str)] = &[
    ("rate-limit", "limit-rps"),
    ("rate-limit-rps", "limit-rps"),
    ("rate-limit-requests-per-second", "limit-rps"),
    ("rate-limit-requests-per-minute", "limit-rpm"),
    ("rate-limit-rpm", "limit-rpm"),
    ("rate-limit-connections", "limit-connections"),
    ("rate-limit-burst-multiplier", "limit-burst-multiplier"),
    ("rate-limit-burst", "limit-burst-multiplier"),
    ("rate-limit-window", "limit-rps or limit-rpm: their window is a second or a minute"),
    ("client-max-body-size", "proxy-body-size"),
    ("max-body-size", "proxy-body-size"),
    ("read-timeout", "proxy-read-timeout"),
    ("send-timeout", "proxy-send-timeout"),
    ("connect-timeout", "proxy-connect-timeout"),
    ("rewrite", "rewrite-target"),
    ("grpc-backend", "backend-protocol: GRPC"),
    ("secure-backends", "backend-protocol: HTTPS"),
    ("blacklist-source-range", "denylist-source-range"),
    ("session-cookie-hash", "session-cookie-name: the algorithm is fixed"),
];

/// Names that need no annotation, or that are keys of the ConfigMap.
const ELSEWHERE: &[(&str, &str)] = &[
    ("websocket-services", "WebSocket needs no annotation"),
    ("add-base-url", "ingress-nginx removed it in 0.22"),
    ("base-url-scheme", "ingress-nginx removed it in 0.22"),
    ("ssl-protocols", "a key of the controller's ConfigMap, for all hosts"),
    ("use-forwarded-headers", "a key of the controller's ConfigMap, for all hosts"),
    ("forwarded-for-header", "a key of the controller's ConfigMap, for all hosts"),
    ("real-ip-header", "forwarded-for-header of the controller's ConfigMap does it, for all hosts"),
    ("use-proxy-protocol", "a key of the controller's ConfigMap, for all hosts"),
    ("hsts", "a key of the controller's ConfigMap, for all hosts"),
    ("use-gzip", "a key of the controller's ConfigMap, for all hosts"),
    ("server-tokens", "a key of the controller's ConfigMap, for all hosts"),
];

/// Returns the annotation of this name (without the prefix).
pub fn find_annotation(name: &str) -> Option<&'static Annotation> {
    ANNOTATIONS.iter().find(|known| known.name == name)
}

/// Returns the answer to a name that ingress-nginx does not know.
pub fn annotation_advice(name: &str) -> String {
    if let Some((_, words)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return format!("\"{name}\" is no annotation of ingress-nginx and has no effect: {words}");
    }
    let known = MISTAKEN.iter().find(|(known, _)| *known == name).map(|(_, right)| *right);
    let near = || conf_schema::suggest::nearest_word(name, ANNOTATIONS.iter().map(|known| known.name));
    match known.or_else(near) {
        Some(right) => format!("\"{name}\" is no annotation of ingress-nginx and has no effect: write {right}"),
        None => format!("\"{name}\" is no annotation of ingress-nginx and has no effect"),
    }
}
