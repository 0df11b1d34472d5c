//! Output of `-v` and `-V`, including nginx's lines, which other tools read.

use crate::conf::paths;
use crate::messages;
use conf_schema::{Schema, vocabulary};
use std::collections::BTreeMap;

pub const NGINX: &str = "nginx/1.31.6";

/// Prints `-v`. Under the name `nginx`, the first line is nginx's version, for scripts.
pub fn short_version() -> String {
    let ours = concat!("tidegate version: tidegate/", env!("CARGO_PKG_VERSION"), "\n");
    let theirs = format!("nginx version: {NGINX}\n");
    if messages::is_nginx() { theirs + ours } else { ours.to_string() + &theirs }
}

/// `-V`
pub fn long_version(schema: &Schema) -> String {
    let mut out = short_version();
    // Tools derive the TLS features from OpenSSL's version. The defaults of 3.0 match.
    out.push_str("built with rustc, TLS by rustls; for scripts that read nginx's output:\n");
    out.push_str("built with OpenSSL 3.0.0\nTLS SNI support enabled\n");
    out.push_str("configure arguments: ");
    out.push_str(&configure_arguments(schema).join(" "));
    out.push('\n');
    out
}

/// Returns configure arguments of an nginx with these modules: `--with-...` for supported modules that are off by
/// default, `--without-...` for unsupported ones that are on by default. A module counts as supported if two thirds of
/// its directives are.
pub fn configure_arguments(schema: &Schema) -> Vec<String> {
    let mut modules: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    // Caching and TLS towards upstreams have options below; nginx's manual does not list the three of gzip.
    let apart = |name: &str| {
        ["_cache", "_ssl_", "_store"].iter().any(|part| name.contains(part))
            || ["gzip_hash", "gzip_no_buffer", "gzip_window"].contains(&name)
    };
    for known in vocabulary::all().filter(|known| !apart(known.name)) {
        let (has, all) = modules.entry(known.module).or_default();
        *all += 1;
        *has += usize::from(schema.supports(known));
    }
    let present = |module: &str| modules.get(module).is_some_and(|(has, all)| has * 3 >= all * 2);
    let defaults = paths::default_paths(None);
    let mut out = vec![
        format!("--prefix={}", defaults.prefix.display()),
        format!("--conf-path={}", defaults.conf_file.display()),
        format!("--error-log-path={}", defaults.error_log.display()),
        format!("--http-log-path={}", defaults.error_log.with_file_name("access.log").display()),
        format!("--pid-path={}", defaults.pid.display()),
        format!("--modules-path={}", defaults.prefix.join("modules").display()),
    ];
    out.push("--with-control-api".into());
    out.extend(OPTIONAL.iter().filter(|(_, module)| present(module)).map(|(option, _)| format!("--with-{option}")));
    out.extend(DEFAULT.iter().filter(|(_, module)| !present(module)).map(|(option, _)| format!("--without-{option}")));
    if !vocabulary::find_directives("proxy_cache").iter().any(|known| schema.supports(known)) {
        out.push("--without-http-cache".into());
    }
    out
}

/// Modules that nginx contains only with an option `--with-...`.
const OPTIONAL: &[(&str, &str)] = &[
    ("http_ssl_module", "ngx_http_ssl_module"),
    ("http_v2_module", "ngx_http_v2_module"),
    ("http_v3_module", "ngx_http_v3_module"),
    ("http_realip_module", "ngx_http_realip_module"),
    ("http_sub_module", "ngx_http_sub_filter_module"),
    ("http_auth_request_module", "ngx_http_auth_request_module"),
    ("http_addition_module", "ngx_http_addition_filter_module"),
    ("http_dav_module", "ngx_http_dav_module"),
    ("http_flv_module", "ngx_http_flv_module"),
    ("http_mp4_module", "ngx_http_mp4_module"),
    ("http_gunzip_module", "ngx_http_gunzip_filter_module"),
    ("http_gzip_static_module", "ngx_http_gzip_static_module"),
    ("http_json_module", "ngx_http_json_module"),
    ("http_slice_module", "ngx_http_slice_filter_module"),
    ("http_secure_link_module", "ngx_http_secure_link_module"),
    ("http_random_index_module", "ngx_http_random_index_module"),
    ("http_stub_status_module", "ngx_http_stub_status_module"),
    ("http_perl_module", "ngx_http_perl_module"),
    ("http_xslt_module", "ngx_http_xslt_filter_module"),
    ("http_image_filter_module", "ngx_http_image_filter_module"),
    ("http_geoip_module", "ngx_http_geoip_module"),
    ("mail", "ngx_mail_core_module"),
    ("mail_ssl_module", "ngx_mail_ssl_module"),
    ("stream", "ngx_stream_core_module"),
    ("stream_ssl_module", "ngx_stream_ssl_module"),
    ("stream_realip_module", "ngx_stream_realip_module"),
    ("stream_ssl_preread_module", "ngx_stream_ssl_preread_module"),
    ("stream_geoip_module", "ngx_stream_geoip_module"),
];

/// Modules that nginx contains unless an option `--without-...` excludes them.
const DEFAULT: &[(&str, &str)] = &[
    ("http_charset_module", "ngx_http_charset_filter_module"),
    ("http_gzip_module", "ngx_http_gzip_filter_module"),
    ("http_ssi_module", "ngx_http_ssi_filter_module"),
    ("http_userid_module", "ngx_http_userid_filter_module"),
    ("http_access_module", "ngx_http_access_module"),
    ("http_auth_basic_module", "ngx_http_auth_basic_module"),
    ("http_mirror_module", "ngx_http_mirror_module"),
    ("http_autoindex_module", "ngx_http_autoindex_module"),
    ("http_geo_module", "ngx_http_geo_module"),
    ("http_map_module", "ngx_http_map_module"),
    ("http_split_clients_module", "ngx_http_split_clients_module"),
    ("http_referer_module", "ngx_http_referer_module"),
    ("http_rewrite_module", "ngx_http_rewrite_module"),
    ("http_proxy_module", "ngx_http_proxy_module"),
    ("http_fastcgi_module", "ngx_http_fastcgi_module"),
    ("http_uwsgi_module", "ngx_http_uwsgi_module"),
    ("http_scgi_module", "ngx_http_scgi_module"),
    ("http_grpc_module", "ngx_http_grpc_module"),
    ("http_tunnel_module", "ngx_http_tunnel_module"),
    ("http_memcached_module", "ngx_http_memcached_module"),
    ("http_limit_conn_module", "ngx_http_limit_conn_module"),
    ("http_limit_req_module", "ngx_http_limit_req_module"),
    ("http_empty_gif_module", "ngx_http_empty_gif_module"),
    ("http_browser_module", "ngx_http_browser_module"),
    ("http_upstream_hash_module", "ngx_http_upstream_hash_module"),
    ("http_upstream_ip_hash_module", "ngx_http_upstream_ip_hash_module"),
    ("http_upstream_least_conn_module", "ngx_http_upstream_least_conn_module"),
    ("http_upstream_least_time_module", "ngx_http_upstream_least_time_module"),
    ("http_upstream_random_module", "ngx_http_upstream_random_module"),
    ("http_upstream_keepalive_module", "ngx_http_upstream_keepalive_module"),
    ("http_upstream_zone_module", "ngx_http_upstream_zone_module"),
    ("http_upstream_sticky", "ngx_http_upstream_sticky_module"),
    ("mail_pop3_module", "ngx_mail_pop3_module"),
    ("mail_imap_module", "ngx_mail_imap_module"),
    ("mail_smtp_module", "ngx_mail_smtp_module"),
    ("stream_limit_conn_module", "ngx_stream_limit_conn_module"),
    ("stream_access_module", "ngx_stream_access_module"),
    ("stream_geo_module", "ngx_stream_geo_module"),
    ("stream_map_module", "ngx_stream_map_module"),
    ("stream_split_clients_module", "ngx_stream_split_clients_module"),
    ("stream_pass_module", "ngx_stream_pass_module"),
    ("stream_return_module", "ngx_stream_return_module"),
    ("stream_set_module", "ngx_stream_set_module"),
    ("stream_upstream_hash_module", "ngx_stream_upstream_hash_module"),
    ("stream_upstream_least_conn_module", "ngx_stream_upstream_least_conn_module"),
    ("stream_upstream_least_time_module", "ngx_stream_upstream_least_time_module"),
    ("stream_upstream_random_module", "ngx_stream_upstream_random_module"),
    ("stream_upstream_zone_module", "ngx_stream_upstream_zone_module"),
];
