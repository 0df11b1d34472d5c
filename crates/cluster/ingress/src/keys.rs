//! Keys of ingress-nginx's ConfigMap.

/// Keys of the ConfigMap that are translated, with their directives.
pub const CONFIG_KEYS: &[(&str, &str)] = &[
    ("add-headers", "`more_set_headers`, from a ConfigMap"),
    ("allow-snippet-annotations", "no effect: `--allow-snippets` of the controller"),
    ("block-cidrs", "`deny`"),
    ("brotli-level, brotli-min-length, brotli-types", "`brotli_comp_level`, `brotli_min_length`, `brotli_types`"),
    ("client-body-buffer-size", "`client_body_buffer_size`"),
    ("client-body-timeout, client-header-timeout", "`client_body_timeout`, `client_header_timeout`"),
    (
        "client-header-buffer-size, large-client-header-buffers",
        "`client_header_buffer_size`, `large_client_header_buffers`",
    ),
    ("custom-http-errors", "`error_page`"),
    ("denylist-source-range, whitelist-source-range", "`deny`, `allow`"),
    ("enable-brotli", "`brotli`"),
    (
        "enable-modsecurity",
        "`modsecurity on` of all servers, with the settings of `--firewall-folder` or of ModSecurity's recommendation",
    ),
    ("enable-owasp-modsecurity-crs", "`modsecurity_rules_file`, with `--firewall-folder`"),
    ("enable-underscores-in-headers, ignore-invalid-headers", "`underscores_in_headers`, `ignore_invalid_headers`"),
    ("force-ssl-redirect, ssl-redirect, preserve-trailing-slash", "`return 308`"),
    ("forwarded-for-header", "`real_ip_header`"),
    ("global-allowed-response-headers", "names that custom-headers may set"),
    ("global-auth-*, no-auth-locations", "`auth_request`"),
    ("gzip-disable, gzip-level, gzip-min-length, gzip-types, use-gzip", "`gzip`"),
    ("hide-headers", "`proxy_hide_header`"),
    ("hsts, hsts-include-subdomains, hsts-max-age, hsts-preload", "`more_set_headers Strict-Transport-Security`"),
    ("http-redirect-code, no-tls-redirect-locations", "`return`"),
    ("http-snippet, server-snippet, location-snippet, stream-snippet", "directives, with `--allow-snippets`"),
    ("http2-max-concurrent-streams", "`http2_max_concurrent_streams`"),
    ("keep-alive, keep-alive-requests", "`keepalive_timeout`, `keepalive_requests`"),
    ("limit-conn-status-code, limit-req-status-code", "`limit_conn_status`, `limit_req_status`"),
    ("limit-conn-zone-variable", "key of `limit_conn_zone` and `limit_req_zone`"),
    ("limit-rate, limit-rate-after", "`limit_rate`, `limit_rate_after`"),
    ("load-balance", "`least_time` for `ewma`"),
    ("log-format-upstream, log-format-escape-json", "`log_format`, `access_log`"),
    ("modsecurity-snippet", "`modsecurity_rules`, with `--allow-snippets`"),
    ("proxy-add-original-uri-header", "`proxy_set_header X-Original-URI`"),
    ("proxy-body-size and other proxy-* keys with an annotation", "as the annotation, for all paths"),
    ("proxy-real-ip-cidr", "`set_real_ip_from`"),
    ("proxy-set-headers", "`proxy_set_header`, from a ConfigMap"),
    ("relative-redirects", "`absolute_redirect off`"),
    ("retry-non-idempotent", "`proxy_next_upstream ... non_idempotent`"),
    ("server-tokens", "`server_tokens`"),
    ("service-upstream", "the cluster address of a Service as the only server"),
    (
        "ssl-buffer-size, ssl-ciphers, ssl-ecdh-curve, ssl-protocols",
        "`ssl_buffer_size`, `ssl_ciphers`, `ssl_ecdh_curve`, `ssl_protocols`",
    ),
    ("ssl-session-tickets, ssl-session-timeout", "`ssl_session_tickets`, `ssl_session_timeout`"),
    ("upstream-keepalive-connections, -requests, -time, -timeout", "`keepalive` and its limits"),
    (
        "use-forwarded-headers, enable-real-ip, compute-full-forwarded-for",
        "`set_real_ip_from`, `real_ip_header`, `X-Forwarded-Proto` of the client",
    ),
    ("use-http2", "`http2`"),
];

/// Keys of ingress-nginx that have no equal here or belong to the process.
pub(crate) const OTHER_KEYS: &[&str] = &[
    "access-log-params",
    "access-log-path",
    "allow-backend-server-header",
    "allow-cross-namespace-resources",
    "annotation-value-word-blocklist",
    "annotations-risk-level",
    "bind-address",
    "block-referers",
    "block-user-agents",
    "debug-connections",
    "default-type",
    "disable-access-log",
    "disable-ipv6",
    "disable-ipv6-dns",
    "disable-proxy-intercept-errors",
    "enable-access-log-for-default-backend",
    "enable-aio-write",
    "enable-auth-access-log",
    "enable-multi-accept",
    "enable-ocsp",
    "enable-opentelemetry",
    "enable-serial-reloads",
    "enable-syslog",
    "error-log-level",
    "error-log-path",
    "forwarded-for-proxy-protocol-header",
    "generate-request-id",
    "geoip2-autoreload-in-minutes",
    "grpc-buffer-size-kb",
    "http-access-log-path",
    "http2-max-field-size",
    "http2-max-header-size",
    "http2-max-requests",
    "log-format-escape-none",
    "log-format-stream",
    "lua-shared-dicts",
    "main-snippet",
    "map-hash-bucket-size",
    "max-worker-connections",
    "max-worker-open-files",
    "nginx-status-ipv4-whitelist",
    "nginx-status-ipv6-whitelist",
    "opentelemetry-config",
    "opentelemetry-operation-name",
    "opentelemetry-trust-incoming-span",
    "otlp-collector-host",
    "otlp-collector-port",
    "proxy-headers-hash-bucket-size",
    "proxy-headers-hash-max-size",
    "proxy-protocol-header-timeout",
    "proxy-ssl-location-only",
    "proxy-stream-next-upstream",
    "proxy-stream-next-upstream-timeout",
    "proxy-stream-next-upstream-tries",
    "proxy-stream-responses",
    "proxy-stream-timeout",
    "reuse-port",
    "server-name-hash-bucket-size",
    "server-name-hash-max-size",
    "skip-access-log-urls",
    "ssl-dh-param",
    "ssl-early-data",
    "ssl-reject-handshake",
    "ssl-session-cache",
    "ssl-session-cache-size",
    "ssl-session-ticket-key",
    "stream-access-log-path",
    "strict-validate-path-type",
    "syslog-host",
    "syslog-port",
    "use-geoip",
    "use-geoip2",
    "use-proxy-protocol",
    "variables-hash-bucket-size",
    "variables-hash-max-size",
    "worker-cpu-affinity",
    "worker-processes",
    "worker-serial-reloads",
    "worker-shutdown-timeout",
];

/// Keys that are read as the annotation of their name.
const PROXY_KEYS: &[&str] = &[
    "client-body-buffer-size",
    "proxy-body-size",
    "proxy-buffer-size",
    "proxy-buffering",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "proxy-connect-timeout",
    "proxy-cookie-domain",
    "proxy-cookie-path",
    "proxy-http-version",
    "proxy-max-temp-file-size",
    "proxy-next-upstream",
    "proxy-next-upstream-timeout",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-redirect-from",
    "proxy-redirect-to",
    "proxy-request-buffering",
    "proxy-send-timeout",
];

pub(crate) fn is_translated(key: &str) -> bool {
    all_keys().iter().any(|known| known == key)
        || PROXY_KEYS.contains(&key)
        || key.strip_prefix("global-auth-").is_some_and(|rest| AUTH_KEYS.contains(&rest))
}

const AUTH_KEYS: &[&str] = &[
    "url",
    "method",
    "signin",
    "signin-redirect-param",
    "response-headers",
    "request-redirect",
    "cache-key",
    "cache-duration",
    "always-set-cookie",
];

pub(crate) fn all_keys() -> Vec<String> {
    let mut keys = Vec::new();
    for (names, _) in CONFIG_KEYS {
        let mut first = "";
        for name in names.split(", ").filter(|name| !name.contains(['*', ' '])) {
            match name.strip_prefix('-') {
                Some(end) => keys.push(format!("{}-{end}", first.rsplit_once('-').map_or("", |(begin, _)| begin))),
                None => {
                    first = name;
                    keys.push(name.to_owned());
                }
            }
        }
    }
    keys.extend(["no-auth-locations".to_owned()]);
    keys
}

#[cfg(test)]
mod tests {
    use super::{OTHER_KEYS, all_keys, is_translated};

    #[test]
    fn a_key_is_translated_or_not() {
        assert!(all_keys().iter().any(|key| key == "upstream-keepalive-timeout"));
        for key in ["hsts-max-age", "proxy-body-size", "global-auth-url", "use-gzip", "no-auth-locations"] {
            assert!(is_translated(key), "{key}");
        }
        for key in OTHER_KEYS {
            assert!(!is_translated(key), "{key}");
        }
    }
}
