//! Variables of nginx's http modules, for messages about their use in other blocks.

/// Names; a final `_` marks a prefix.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "ancient_browser", "arg_", "args", "binary_remote_addr", "body_bytes_sent", "bytes_sent", "connection",
    "connection_requests", "connection_time", "connections_active", "connections_reading", "connections_waiting",
    "connections_writing", "content_length", "content_type", "cookie_", "date_gmt", "date_local", "document_root",
    "document_uri", "fastcgi_path_info", "fastcgi_script_name", "geoip_area_code", "geoip_city",
    "geoip_city_continent_code", "geoip_city_country_code", "geoip_city_country_code3", "geoip_city_country_name",
    "geoip_country_code", "geoip_country_code3", "geoip_country_name", "geoip_dma_code", "geoip_latitude",
    "geoip_longitude", "geoip_org", "geoip_postal_code", "geoip_region", "geoip_region_name", "host", "hostname",
    "http2", "http3", "http_", "http_cookie", "http_host", "http_referer", "http_user_agent", "http_via",
    "http_x_forwarded_for", "https", "is_args", "is_request_port", "limit_conn_status", "limit_rate",
    "limit_req_status", "modern_browser", "msec", "msie", "nginx_version", "pid", "pipe",
    "proxy_add_x_forwarded_for", "proxy_host", "proxy_port", "proxy_protocol_addr", "proxy_protocol_port",
    "proxy_protocol_server_addr", "proxy_protocol_server_port", "proxy_protocol_tlv_", "query_string",
    "realip_remote_addr", "realip_remote_port", "realpath_root", "remote_addr", "remote_port", "remote_user",
    "request", "request_body", "request_body_file", "request_completion", "request_filename", "request_id",
    "request_length", "request_method", "request_port", "request_time", "request_uri", "scheme", "sent_http_",
    "sent_http_cache_control", "sent_http_connection", "sent_http_content_length", "sent_http_content_type",
    "sent_http_keep_alive", "sent_http_last_modified", "sent_http_link", "sent_http_location",
    "sent_http_transfer_encoding", "sent_trailer_", "server_addr", "server_name", "server_port", "server_protocol",
    "ssl_alpn_protocol", "ssl_cipher", "ssl_ciphers", "ssl_client_cert", "ssl_client_escaped_cert",
    "ssl_client_fingerprint", "ssl_client_i_dn", "ssl_client_i_dn_legacy", "ssl_client_raw_cert",
    "ssl_client_s_dn", "ssl_client_s_dn_legacy", "ssl_client_serial", "ssl_client_sigalg", "ssl_client_v_end",
    "ssl_client_v_remain", "ssl_client_v_start", "ssl_client_verify", "ssl_curve", "ssl_curves", "ssl_early_data",
    "ssl_ech_outer_server_name", "ssl_ech_status", "ssl_protocol", "ssl_server_name", "ssl_session_id",
    "ssl_session_reused", "ssl_sigalg", "ssl_sigalgs", "status", "tcpinfo_rcv_space", "tcpinfo_rtt",
    "tcpinfo_rttvar", "tcpinfo_snd_cwnd", "time_iso8601", "time_local", "upstream_addr", "upstream_bytes_received",
    "upstream_bytes_sent", "upstream_cache_etag", "upstream_cache_last_modified", "upstream_cache_status",
    "upstream_connect_time", "upstream_cookie_", "upstream_header_time", "upstream_http_",
    "upstream_last_addr", "upstream_last_server_name", "upstream_response_length", "upstream_response_time", "upstream_status", "upstream_trailer_", "uri",
];

pub fn is_of_http(name: &str) -> bool {
    NAMES.iter().any(|known| *known == name || (known.ends_with('_') && name.starts_with(known)))
}

#[cfg(test)]
mod tests {
    use super::is_of_http;

    #[test]
    fn names_and_families() {
        assert!(is_of_http("ssl_early_data") && is_of_http("upstream_trailer_x") && !is_of_http("ssl_early_date"));
    }
}
