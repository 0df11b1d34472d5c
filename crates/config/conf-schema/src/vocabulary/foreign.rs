//! Directives of modules that Tidegate lacks, and directives that nginx removed, with their module and a replacement.
//! Covers the distributions' packages (Debian's `nginx-extras` and `libnginx-mod-*`), nginx's commercial edition and
//! well-known third-party modules.

struct ForeignFamily {
    /// Names; `*` at the end matches a prefix, at the start a suffix, at both ends a part.
    names: &'static [&'static str],
    module: &'static str,
    /// Replacement: a clause after a colon.
    instead: &'static str,
}

const fn family(names: &'static [&'static str], module: &'static str, instead: &'static str) -> ForeignFamily {
    ForeignFamily { names, module, instead }
}

const APPLICATION: &str = "answer in an application behind \"proxy_pass\" or \"fastcgi_pass\"";
const WAF: &str = "write \"modsecurity on;\" with rules of SecLang, such as those of the OWASP Core Rule Set";

#[rustfmt::skip]
const FAMILIES: &[ForeignFamily] = &[
    family(&["ssl"], "", "write \"listen 443 ssl;\" instead (nginx removed \"ssl\" in 1.25.1)"),
    family(&["spdy_*"], "", "SPDY is gone: write \"http2 on;\""),
    family(&["limit_zone"], "", "write \"limit_conn_zone KEY zone=NAME:SIZE;\" instead (nginx removed \"limit_zone\" in 1.7.6)"),
    family(&["open_file_cache_retest"], "", "write \"open_file_cache_valid\" instead"),
    family(&["satisfy_any"], "", "write \"satisfy any;\" instead"),
    family(&["optimize_server_names"], "", "write \"server_name_in_redirect\" instead"),
    family(&["post_accept_timeout", "connections"], "", "it is not needed any more: remove it, or write \"worker_connections\""),
    family(&["fastcgi_redirect_errors", "proxy_redirect_errors"], "", "write \"fastcgi_intercept_errors\" or \"proxy_intercept_errors\" instead"),
    family(&["proxy_upstream_max_fails", "proxy_upstream_fail_timeout", "fastcgi_upstream_max_fails", "fastcgi_upstream_fail_timeout"],
        "", "write \"max_fails=N\" and \"fail_timeout=TIME\" on the \"server\" lines of the upstream"),
    family(&["*_by_lua", "*_by_lua_block", "*_by_lua_file", "lua_*"], "lua-nginx-module",
        "\"map\", \"rewrite\", \"auth_request\" and \"more_set_headers\" replace many such scripts; otherwise answer in an application behind \"proxy_pass\""),
    family(&["js_*"], "njs", "\"map\", \"rewrite\", \"auth_request\" and \"more_set_headers\" replace many such scripts; otherwise answer in an application behind \"proxy_pass\""),
    family(&["passenger_*", "passenger_enabled"], "Phusion Passenger", "run the application as its own server (puma, gunicorn, node) and use \"proxy_pass\""),
    family(&["php_*", "mruby_*", "*_by_mruby", "quickjs_*", "wasm_*", "proxy_wasm", "proxy_wasm_*"], "a module with an interpreter", APPLICATION),
    family(&["ajp_*"], "nginx_ajp_module", "let Tomcat listen for HTTP and use \"proxy_pass\""),
    family(&["auth_pam", "auth_pam_*"], "ngx_http_auth_pam_module", "write \"auth_request\" to a service that asks PAM, or \"auth_basic\""),
    family(&["auth_ldap", "auth_ldap_*", "ldap_server", "satisfy_ldap"], "nginx-auth-ldap", "write \"auth_request\" to a service that asks LDAP"),
    family(&["auth_gss", "auth_gss_*"], "spnego-http-auth-nginx-module", "write \"auth_request\" to a service that speaks SPNEGO"),
    family(&["auth_digest", "auth_digest_*"], "nginx-http-auth-digest", "write \"auth_basic\" over TLS"),
    family(&["auth_oidc_*"], "a module for OpenID Connect", "write \"oidc_provider\" and \"auth_oidc\""),
    family(&["auth_jwt_key", "auth_jwt_enabled", "auth_jwt_algorithm", "auth_jwt_location", "auth_jwt_redirect", "auth_jwt_loginurl", "auth_jwt_validate_*", "auth_jwt_extract_*", "auth_jwt_use_keyfile", "auth_jwt_keyfile_path"],
        "a module for tokens", "write \"auth_jwt\" with \"auth_jwt_key_file\", which names a JWK set"),
    family(&["auth_totp_*", "auth_radius_*", "auth_cas_*", "cas_*"], "a module for logins", "write \"auth_request\" to a service that checks them"),
    family(&["ModSecurity*"], "ModSecurity for nginx before version 3", "write \"modsecurity on;\" with \"modsecurity_rules_file\""),
    family(&["SecRulesEnabled", "SecRulesDisabled", "LearningMode", "DeniedUrl", "CheckRule", "BasicRule", "MainRule", "LibInjection*",
        "sec_rules_*", "naxsi_*"], "naxsi", WAF),
    family(&["waf*", "testcookie*", "roboo_*"], "a module against bots", WAF),
    family(&["geo_ip2_*"], "ngx_http_geoip2_module", "write \"geoip2\""),
    family(&["access_country", "ipset_*"], "a module for blocking", "write \"geo\" or \"map\" with \"deny\""),
    family(&["limit_upstream_*", "dynamic_limit_req*", "sysguard*"], "a module for limits", "write \"limit_req\", \"limit_conn\" or, on the \"server\" lines, \"max_conns\""),
    family(&["ModPagespeed*"], "ngx_pagespeed", "optimize pages when they are built; \"gzip\", \"brotli\" and \"expires\" are supported"),
    family(&["subs_filter", "subs_filter_*"], "ngx_http_substitutions_filter_module", "write \"sub_filter\" (fixed strings, with variables)"),
    family(&["replace_filter", "replace_filter_*"], "replace-filter-nginx-module", "write \"sub_filter\" (fixed strings, with variables)"),
    family(&["fancyindex_*"], "ngx-fancyindex", "it hides files of a listing, which \"autoindex\" does not: write \"deny\" rules"),
    family(&["concat", "concat_*", "trim", "trim_*", "strip", "footer", "footer_*", "xss_*", "iconv_*", "css_*", "cssmin*", "jsmin*"],
        "a filter module", "transform files when they are built, or behind \"proxy_pass\""),
    family(&["security_headers", "security_headers_*", "hide_server_tokens", "headers_inherit"], "ngx_security_headers", "write \"add_header\" and \"server_tokens\""),
    family(&["set_cookie_flag"], "nginx_cookie_flag_module", "write \"proxy_cookie_flags\""),
    family(&["length_hiding*", "securities_*"], "a filter module", "write \"more_set_headers\" or \"add_header\""),
    family(&["vod", "vod_*", "f4f", "f4f_*", "secure_token*", "akamai_token*"], "a module for video",
        "produce the stream in a server behind \"proxy_pass\"; \"mp4\", \"hls\" and \"slice\" are supported"),
    family(&["rtmp", "rtmp_*", "dash", "dash_*", "application", "exec_push", "exec_pull", "exec_options"], "nginx-rtmp-module", "run a streaming server (MediaMTX, SRS) and use \"proxy_pass\""),
    family(&["untar", "untar_*", "unzip*", "small_light*", "dav_ext_acl"], "a filter module", APPLICATION),
    family(&["fair", "upstream_fair_*", "weighted_clear"], "nginx-upstream-fair", "write \"least_conn;\""),
    family(&["check", "check_*"], "nginx_upstream_check_module", "write \"health_check\" in the location"),
    family(&["consistent_hash", "upstream_consistent_hash*", "hash_again", "hash_method"], "ngx_http_upstream_consistent_hash", "write \"hash KEY consistent;\""),
    family(&["upstream_show", "upstream_conf", "dyups_*", "dynamic_upstream", "upstream_dynamic*", "upsync*", "jdomain", "dynamic_resolve"],
        "a module for changing groups", "write \"server NAME resolve;\" with \"zone\" and \"resolver\", or a reload"),
    family(&["redis_*", "redis2_*"], "a module for Redis", "use \"memcached_pass\", or query it from an application behind \"proxy_pass\""),
    family(&["memc_*", "srcache_*", "slowfs_*", "selective_cache_purge*"], "a module for caching", "write \"proxy_cache\" or \"fastcgi_cache\", and \"proxy_cache_purge\""),
    family(&["drizzle_*", "postgres_*", "rds_*", "gridfs*", "mongo*", "mysql_*", "couchbase_*", "oracle_*"], "a module for databases", APPLICATION),
    family(&["nchan_*", "push_stream*", "push_*", "websockify*"], "a module for publishing", "publish from a server behind \"proxy_pass\" (WebSocket and event streams pass through)"),
    family(&["upload_pass", "upload_pass_*", "upload_store*", "upload_set_*", "upload_aggregate_*", "upload_cleanup", "upload_state_*", "upload_resumable", "upload_limit_*", "upload_max_*", "upload_buffer_*", "upload_tame_*", "upload_add_header", "upload_archive_*", "upload_range_*", "upload_merge_*", "upload_empty_*"],
        "nginx-upload-module", "read the form in the application; \"client_body_in_file_only\" passes the body as a file"),
    family(&["aws_*", "s3_*"], "a module for S3", "sign requests in a gateway behind \"proxy_pass\""),
    family(&["eval", "eval_*", "array_*", "form_input*", "set_form_input*", "encrypted_session_*", "set_encrypt_session", "set_decrypt_session", "ndk_*", "let", "var"],
        "a module for variables", "\"set\", \"map\" and the \"set_...\" directives of set-misc are supported"),
    family(&["proxy_connect", "proxy_connect_allow", "proxy_connect_address", "proxy_connect_bind", "proxy_connect_response", "proxy_connect_data_timeout"], "ngx_http_proxy_connect_module", "write \"tunnel_pass\""),
    family(&["opentracing", "opentracing_*", "opentelemetry*", "zipkin_*", "datadog_*", "jaeger_*"], "a module for tracing",
        "write \"otel_exporter\", \"otel_trace\" and \"otel_trace_context\""),
    family(&["statsd_*", "graphite_*", "req_status*", "reqstat*", "log_zmq_*", "stream_server_traffic_status*", "server_traffic_status*"], "a module for statistics",
        "write \"metrics;\" in a location, or \"vhost_traffic_status\""),
    family(&["status", "status_format", "zone_sync*", "mgmt", "license_token", "usage_report"],
        "nginx's commercial edition", "write \"api;\" or \"metrics;\" in a location"),
    family(&["error_log_tag"], "nginx's commercial edition", "add \"format=json\" to \"error_log\": its lines have the request's id"),
    family(&["ssl_ct*"], "nginx-ct", "certificates contain their proofs (SCTs): remove the line"),
    family(&["lower_upper*", "sorted_*", "sorted_querystring*", "cookie_limit*", "bot_verifier*"], "a third-party module", "\"map\" replaces most such lines"),
];

fn has(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        _ => pattern == name,
    }
}

/// Treatment of a directive of another module that changes no response's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Means the same as this directive.
    For(&'static str),
    /// Has no effect, with this reason.
    Without(&'static str),
}

/// Directives that stand in configurations everywhere, and whose absence changes only looks or speed.
#[rustfmt::skip]
const STANDS: &[(&str, Stand)] = &[
    ("fancyindex", Stand::For("autoindex")),
    ("fancyindex_exact_size", Stand::For("autoindex_exact_size")),
    ("fancyindex_localtime", Stand::For("autoindex_localtime")),
    ("fancyindex_case_sensitive", Stand::Without(LOOKS)),
    ("fancyindex_css_href", Stand::Without(LOOKS)),
    ("fancyindex_default_sort", Stand::Without(LOOKS)),
    ("fancyindex_directories_first", Stand::Without(LOOKS)),
    ("fancyindex_footer", Stand::Without(LOOKS)),
    ("fancyindex_header", Stand::Without(LOOKS)),
    ("fancyindex_hide_parent_dir", Stand::Without(LOOKS)),
    ("fancyindex_name_length", Stand::Without(LOOKS)),
    ("fancyindex_show_path", Stand::Without(LOOKS)),
    ("fancyindex_time_format", Stand::Without(LOOKS)),
    ("pagespeed", Stand::Without("pages are sent as they are: optimize them when they are built")),
];

const LOOKS: &str = "listings look as those of \"autoindex\"";

/// Returns the treatment of such a directive.
pub fn foreign_stand(name: &str) -> Option<Stand> {
    STANDS.iter().find(|(known, _)| *known == name).map(|(_, stand)| *stand)
}

/// Hint for a directive outside of all vocabularies; `None` if unknown here, too.
pub fn foreign_hint(name: &str) -> Option<String> {
    let family = FAMILIES.iter().find(|family| family.names.iter().any(|pattern| has(pattern, name)))?;
    Some(match family.module {
        "" => family.instead.to_string(),
        module => format!("a directive of {module}, which this program does not include: {}", family.instead),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_and_the_replacement_are_named() {
        for (name, module, instead) in [
            ("content_by_lua_block", "lua-nginx-module", "proxy_pass"),
            ("lua_shared_dict", "lua-nginx-module", "map"),
            ("js_content", "njs", "auth_request"),
            ("ModPagespeedFoo", "ngx_pagespeed", "brotli"),
            ("fancyindex_ignore", "ngx-fancyindex", "deny"),
            ("ssl", "", "listen 443 ssl;"),
            ("fair", "nginx-upstream-fair", "least_conn;"),
        ] {
            let hint = foreign_hint(name).unwrap_or_default();
            assert!(hint.contains(module) && hint.contains(instead), "{name}: {hint}");
        }
        assert_eq!(foreign_hint("banana"), None);
    }

    #[test]
    fn stands_are_names_of_the_vocabulary() {
        for (name, stand) in STANDS {
            assert!(super::super::find_directives(name).is_empty(), "{name}");
            if let Stand::For(other) = stand {
                assert!(!super::super::find_directives(other).is_empty(), "{other}");
            }
        }
    }

    #[test]
    fn nothing_of_the_vocabulary_is_foreign() {
        let both: Vec<_> =
            super::super::all().map(|known| known.name).filter(|name| foreign_hint(name).is_some()).collect();
        assert_eq!(both, Vec::<&str>::new());
    }
}
