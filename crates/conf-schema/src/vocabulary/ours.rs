//! Directives that nginx does not have: ours, and those of well-known third-party modules that we do.

use super::{Arity, Known, k};

const HSL: u32 = 0b1_1100;
const HTTP: u32 = 0b100;
const LOCATION: u32 = 0b1_0000;
const UPSTREAM: u32 = 0b1_0000_0000;
const STREAM: u32 = 0b10_0000_0000;

#[rustfmt::skip]
pub const ROWS: &[Known] = &[
    k("server_identity", "tidegate", HSL, Arity::exact(1), false, "tidegate", ""),
    k("tidegate_cache", "tidegate", HTTP, Arity::Counts(0b110), false, "64m", ""),
    k("htaccess", "tidegate", HSL, Arity::exact(1), false, "off", ""),
    k("metrics", "tidegate", LOCATION, Arity::Counts(0b11), false, "", ""),
    k("tidegate_explain", "tidegate", 0b1100, Arity::AtLeast(1), false, "off", ""),
    k("http2_upgrade", "tidegate", HTTP | 0b1000, Arity::exact(1), false, "off", ""),
    k("http2_websockets", "tidegate", HTTP | 0b1000, Arity::exact(1), false, "on", ""),
    k("outlier_ejection", "tidegate", UPSTREAM, Arity::AtLeast(0), false, "", ""),
    k("retry_budget", "tidegate", UPSTREAM, Arity::Counts(0b110), false, "", ""),
    // Documented with nginx's commercial edition.
    k("status_zone", "ngx_http_api_module", 0b101_1000, Arity::exact(1), false, "", "1.13.12"),
    k("status_zone", "ngx_http_api_module", 0b100_0000_0000, Arity::exact(1), false, "", "1.13.12"),
    k("health_check", "ngx_http_upstream_hc_module", LOCATION, Arity::AtLeast(0), false, "", "1.5.8"),
    k("match", "ngx_http_upstream_hc_module", HTTP, Arity::exact(1), true, "", "1.5.8"),
    k("queue", "ngx_http_upstream_queue_module", UPSTREAM, Arity::Counts(0b110), false, "", "1.5.12"),
    k("ntlm", "ngx_http_upstream_ntlm_module", UPSTREAM, Arity::exact(0), false, "", "1.9.2"),
    k("state", "ngx_http_upstream_state_module", UPSTREAM, Arity::exact(1), false, "", "1.9.7"),
    k("tidegate_response_memory", "tidegate", HTTP, Arity::exact(1), false, "64m", ""),
    k("fastcgi_cache_rfc9111", "tidegate", HSL, Arity::exact(1), false, "off", ""),
    k("fastcgi_cache_purge", "tidegate", HSL, Arity::AtLeast(1), false, "", ""),
    k("scgi_cache_rfc9111", "tidegate", HSL, Arity::exact(1), false, "off", ""),
    k("scgi_cache_purge", "tidegate", HSL, Arity::AtLeast(1), false, "", ""),
    k("uwsgi_cache_rfc9111", "tidegate", HSL, Arity::exact(1), false, "off", ""),
    k("uwsgi_cache_purge", "tidegate", HSL, Arity::AtLeast(1), false, "", ""),
    k("proxy_cache_rfc9111", "tidegate", HSL, Arity::exact(1), false, "off", ""),
    k("proxy_cache_purge", "tidegate", HSL, Arity::AtLeast(1), false, "", ""),
    k("brotli", "ngx_brotli", HSL | 0b100_0000, Arity::exact(1), false, "off", ""),
    k("brotli_comp_level", "ngx_brotli", HSL, Arity::exact(1), false, "6", ""),
    k("brotli_min_length", "ngx_brotli", HSL, Arity::exact(1), false, "20", ""),
    k("brotli_types", "ngx_brotli", HSL, Arity::AtLeast(1), false, "text/html", ""),
    k("brotli_buffers", "ngx_brotli", HSL, Arity::exact(2), false, "", ""),
    k("brotli_window", "ngx_brotli", HSL, Arity::exact(1), false, "512k", ""),
    k("brotli_static", "ngx_brotli", HSL, Arity::exact(1), false, "off", ""),
    k("dav_ext_methods", "nginx-dav-ext-module", HSL, Arity::AtLeast(1), false, "", ""),
    k("dav_ext_lock", "nginx-dav-ext-module", HSL, Arity::exact(1), false, "", ""),
    k("dav_ext_lock_zone", "nginx-dav-ext-module", HTTP, Arity::Counts(0b110), false, "", ""),
    k("geoip2", "ngx_http_geoip2_module", HTTP, Arity::exact(1), true, "", ""),
    k("geoip2", "ngx_stream_geoip2_module", STREAM, Arity::exact(1), true, "", ""),
    k("geoip2_proxy", "ngx_http_geoip2_module", HTTP, Arity::exact(1), false, "", ""),
    k("geoip2_proxy_recursive", "ngx_http_geoip2_module", HTTP, Arity::exact(1), false, "off", ""),
    k("more_set_headers", "ngx_headers_more", HSL | 0b100_0000, Arity::AtLeast(1), false, "", ""),
    k("more_clear_headers", "ngx_headers_more", HSL | 0b100_0000, Arity::AtLeast(1), false, "", ""),
    k("more_set_input_headers", "ngx_headers_more", HSL | 0b100_0000, Arity::AtLeast(1), false, "", ""),
    k("more_clear_input_headers", "ngx_headers_more", HSL | 0b100_0000, Arity::AtLeast(1), false, "", ""),
    k("zstd", "ngx_zstd", HSL | 0b100_0000, Arity::exact(1), false, "off", ""),
    k("zstd_comp_level", "ngx_zstd", HSL, Arity::exact(1), false, "1", ""),
    k("zstd_min_length", "ngx_zstd", HSL, Arity::exact(1), false, "20", ""),
    k("zstd_types", "ngx_zstd", HSL, Arity::AtLeast(1), false, "text/html", ""),
    k("zstd_buffers", "ngx_zstd", HSL, Arity::exact(2), false, "", ""),
    k("zstd_static", "ngx_zstd", HSL, Arity::exact(1), false, "off", ""),
];
