//! Directives of TLS servers, and where they may stand.

/// Block that a directive is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPlace {
    Http,
    /// The default server of the http area.
    A,
    /// Another server of the same address.
    B,
    Stream,
    /// The default server of the stream area.
    StreamA,
    /// Another server of the same address.
    StreamB,
    /// The server that reads the ClientHello and passes it on.
    Preread,
    /// The server with TLS towards the server behind it.
    Upstream,
}

impl TlsPlace {
    pub fn is_stream(self) -> bool {
        !matches!(self, TlsPlace::Http | TlsPlace::A | TlsPlace::B)
    }
}

pub struct TlsFragment {
    pub text: &'static str,
    pub places: &'static [TlsPlace],
}

use TlsPlace::{A, B, Http, Preread, Stream, StreamA, StreamB, Upstream};

const ANY: &[TlsPlace] = &[Http, A, A, B, Stream, StreamA, StreamA, StreamB];
const SERVERS: &[TlsPlace] = &[A, B, StreamA, StreamB];
const HTTP: &[TlsPlace] = &[Http, A, B];
const HTTP_SERVERS: &[TlsPlace] = &[A, B];
/// Settings that nginx takes from the default server, whatever name the client sends.
const AREAS: &[TlsPlace] = &[Http, Stream];
const AREA: &[TlsPlace] = &[Http];
const STREAM: &[TlsPlace] = &[Stream, StreamA, StreamB];

/// `DIR` is the server's folder, `FILES` the folder of certificates, `AREA` the name of the area.
const POOL: &[(&str, &[TlsPlace])] = &[
    ("ssl_protocols TLSv1.2;", ANY),
    ("ssl_protocols TLSv1.3;", ANY),
    ("ssl_protocols TLSv1.2 TLSv1.3;", ANY),
    ("ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;", ANY),
    ("ssl_ciphers HIGH:!aNULL:!MD5;", ANY),
    ("ssl_ciphers ECDHE+CHACHA20;", ANY),
    ("ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256;", ANY),
    (
        "ssl_ciphers ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384; ssl_prefer_server_ciphers on;",
        ANY,
    ),
    ("ssl_ciphers bogus;", ANY),
    ("ssl_prefer_server_ciphers on;", ANY),
    ("ssl_ecdh_curve X25519;", AREAS),
    ("ssl_ecdh_curve prime256v1;", AREAS),
    ("ssl_ecdh_curve secp384r1:prime256v1;", AREAS),
    ("ssl_ecdh_curve prime256v1:X25519;", AREAS),
    ("ssl_ecdh_curve auto;", AREAS),
    ("ssl_session_cache off;", ANY),
    ("ssl_session_cache none;", ANY),
    ("ssl_session_cache builtin;", ANY),
    ("ssl_session_cache builtin:100;", ANY),
    ("ssl_session_cache shared:AREA:1m;", ANY),
    ("ssl_session_cache builtin:100 shared:AREA:1m;", ANY),
    ("ssl_session_tickets off;", ANY),
    ("ssl_session_tickets off; ssl_session_cache shared:AREA:1m;", ANY),
    ("ssl_session_tickets off; ssl_session_cache builtin;", ANY),
    ("ssl_session_ticket_key FILES/ticket.key;", ANY),
    ("ssl_session_timeout 1h;", ANY),
    ("ssl_session_timeout 10;", ANY),
    ("ssl_verify_client on; ssl_client_certificate FILES/root.crt;", ANY),
    ("ssl_verify_client on; ssl_client_certificate FILES/bundle.crt; ssl_verify_depth 3;", ANY),
    ("ssl_verify_client on; ssl_client_certificate FILES/two.crt;", ANY),
    ("ssl_verify_client on; ssl_client_certificate FILES/other.crt;", ANY),
    ("ssl_verify_client on; ssl_trusted_certificate FILES/root.crt;", ANY),
    ("ssl_verify_client on;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/root.crt;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/inter.crt;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/selfca.crt;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/root.crt; ssl_verify_depth 2;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/root.crt; ssl_session_cache shared:AREA:1m;", ANY),
    (
        "ssl_verify_client on; ssl_client_certificate FILES/root.crt; ssl_session_cache shared:AREA:1m; ssl_session_tickets off;",
        ANY,
    ),
    ("ssl_verify_client optional; ssl_client_certificate FILES/root.crt; ssl_crl FILES/root.crl;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate FILES/bundle.crt; ssl_crl FILES/both.crl;", ANY),
    ("ssl_verify_client optional_no_ca;", ANY),
    ("ssl_verify_client optional_no_ca; ssl_client_certificate FILES/two.crt;", ANY),
    ("ssl_verify_client off;", ANY),
    ("ssl_verify_depth 0;", ANY),
    ("ssl_verify_depth 1;", ANY),
    ("ssl_verify_depth 2;", ANY),
    ("ssl_client_certificate FILES/root.crt;", ANY),
    ("ssl_client_certificate FILES/two.crt;", ANY),
    ("ssl_client_certificate FILES/self.crt;", ANY),
    ("ssl_client_certificate FILES/none.crt;", ANY),
    ("ssl_trusted_certificate FILES/bundle.crt;", ANY),
    ("ssl_trusted_certificate FILES/other.crt;", ANY),
    ("ssl_crl FILES/root.crl;", ANY),
    ("ssl_crl FILES/both.crl;", ANY),
    ("ssl_crl FILES/old.crl;", ANY),
    ("ssl_crl FILES/inter.crl;", ANY),
    ("ssl_certificate FILES/serverrsa.crt; ssl_certificate_key FILES/serverrsa.key;", ANY),
    (
        "ssl_certificate FILES/server.crt; ssl_certificate_key FILES/server.key; ssl_certificate FILES/serverrsa.crt; ssl_certificate_key FILES/serverrsa.key;",
        ANY,
    ),
    (
        "ssl_certificate FILES/serverrsa.crt; ssl_certificate_key FILES/serverrsa.key; ssl_certificate FILES/serverchain.crt; ssl_certificate_key FILES/serverchain.key;",
        ANY,
    ),
    ("ssl_certificate FILES/serverchain.crt; ssl_certificate_key FILES/serverchain.key;", ANY),
    ("ssl_certificate FILES/$ssl_server_name.crt; ssl_certificate_key FILES/$ssl_server_name.key;", ANY),
    (
        "ssl_certificate FILES/$ssl_server_name.crt; ssl_certificate_key FILES/$ssl_server_name.key; ssl_certificate_cache max=10;",
        ANY,
    ),
    ("ssl_certificate FILES/server.crt; ssl_certificate_key FILES/serverchain.key;", ANY),
    ("ssl_certificate FILES/none.crt; ssl_certificate_key FILES/server.key;", ANY),
    ("ssl_reject_handshake on;", SERVERS),
    ("ssl_reject_handshake on; ssl_certificate FILES/server.crt; ssl_certificate_key FILES/server.key;", SERVERS),
    ("ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;", AREAS),
    ("ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384;", AREAS),
    ("ssl_conf_command Options PrioritizeChaCha;", AREAS),
    ("ssl_conf_command MinProtocol TLSv1.3;", AREAS),
    ("ssl_conf_command MaxProtocol TLSv1.2;", AREAS),
    ("ssl_conf_command Options -SessionTicket;", AREAS),
    ("ssl_conf_command Options ServerPreference;", AREAS),
    ("ssl_conf_command Bogus x;", AREAS),
    ("ssl_handshake_timeout 20s;", STREAM),
    ("ssl_early_data on;", AREA),
    ("ssl_early_data on; ssl_session_cache shared:AREA:1m;", AREA),
    ("ssl_early_data on; ssl_protocols TLSv1.3;", AREA),
    ("ssl_buffer_size 1k;", HTTP),
    ("error_page 495 /e;", HTTP_SERVERS),
    ("error_page 496 /e;", HTTP_SERVERS),
    ("error_page 495 496 =200 /e;", HTTP_SERVERS),
    ("error_page 497 =301 https://$host$request_uri;", HTTP_SERVERS),
    ("error_page 400 495 496 497 =403 /e;", HTTP_SERVERS),
    ("error_page 497 /e;", HTTP_SERVERS),
    ("http2 on;", HTTP),
    ("http2 on; ssl_early_data on;", AREA),
    ("keepalive_timeout 0;", HTTP),
    ("keepalive_requests 1;", HTTP),
    ("if ($ssl_client_verify != SUCCESS) { return 403 'no: $ssl_client_verify'; }", HTTP_SERVERS),
    ("if ($ssl_protocol = TLSv1.2) { return 418 old; }", HTTP_SERVERS),
    ("if ($ssl_early_data) { return 425 early; }", HTTP_SERVERS),
    ("large_client_header_buffers 2 1k;", HTTP_SERVERS),
    ("ssl_alpn h1 http/1.1;", STREAM),
    ("ssl_alpn foo;", STREAM),
    ("ssl_preread off;", &[Preread]),
    ("preread_buffer_size 64;", &[Preread]),
    ("proxy_ssl_name a.test; proxy_ssl_server_name on;", &[Upstream]),
    ("proxy_ssl_name b.test; proxy_ssl_server_name on;", &[Upstream]),
    ("proxy_ssl_name $ssl_server_name; proxy_ssl_server_name on;", &[Upstream]),
    ("proxy_ssl_verify on; proxy_ssl_trusted_certificate FILES/root.crt; proxy_ssl_name a.test;", &[Upstream]),
    ("proxy_ssl_verify on; proxy_ssl_trusted_certificate FILES/root.crt; proxy_ssl_name wrong.test;", &[Upstream]),
    ("proxy_ssl_verify on; proxy_ssl_trusted_certificate FILES/other.crt; proxy_ssl_name a.test;", &[Upstream]),
    ("proxy_ssl_verify on; proxy_ssl_trusted_certificate FILES/root.crt; proxy_ssl_crl FILES/root.crl;", &[Upstream]),
    ("proxy_ssl_verify on; proxy_ssl_trusted_certificate FILES/root.crt; proxy_ssl_crl FILES/old.crl;", &[Upstream]),
    ("proxy_ssl_verify on;", &[Upstream]),
    ("proxy_ssl_verify_depth 0;", &[Upstream]),
    ("proxy_ssl_certificate FILES/good.crt; proxy_ssl_certificate_key FILES/good.key;", &[Upstream]),
    ("proxy_ssl_certificate FILES/names.crt; proxy_ssl_certificate_key FILES/names.key;", &[Upstream]),
    ("proxy_ssl_certificate FILES/byinterchain.crt; proxy_ssl_certificate_key FILES/byinterchain.key;", &[Upstream]),
    (
        "proxy_ssl_certificate FILES/$ssl_server_name.crt; proxy_ssl_certificate_key FILES/$ssl_server_name.key;",
        &[Upstream],
    ),
    ("proxy_ssl_certificate FILES/none.crt; proxy_ssl_certificate_key FILES/good.key;", &[Upstream]),
    ("proxy_ssl_protocols TLSv1.2;", &[Upstream]),
    ("proxy_ssl_protocols TLSv1.3;", &[Upstream]),
    ("proxy_ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256; proxy_ssl_protocols TLSv1.2;", &[Upstream]),
    ("proxy_ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256; proxy_ssl_protocols TLSv1.2;", &[Upstream]),
    ("proxy_ssl_session_reuse off;", &[Upstream]),
    ("proxy_ssl_alpn http/1.1;", &[Upstream]),
    ("proxy_ssl_alpn foo;", &[Upstream]),
    ("proxy_ssl off;", &[Upstream]),
];

/// Directives that contain the text.
pub fn tls_fragments(text: Option<&str>) -> Vec<TlsFragment> {
    let of = |(text, places): &(&'static str, &'static [TlsPlace])| TlsFragment { text, places };
    let mut all: Vec<TlsFragment> = POOL.iter().map(of).collect();
    all.retain(|fragment| text.is_none_or(|text| fragment.text.contains(text)));
    all
}
