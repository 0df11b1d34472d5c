//! Directives and requests of upstream servers that speak HTTP/2, gRPC and TLS (`--peers`). The server behind them is the nginx that
//! is compared with.
//!
//! Left out: what nginx sends over HTTP/2 although the protocol forbids it (`Connection`, a second `:authority`, a `Content-Length`
//! without the body).

use crate::pool::{PoolRequest, make_ask};
use crate::server::Binary;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(2);

/// Bytes of the large file: more than a window of HTTP/2.
const LARGE_BYTES: usize = 200_000;

/// Lines for `proxy` and `grpc`, whose name replaces `@g`.
const OF_EACH: &[&str] = &[
    "@g_set_header X-A a;",
    "@g_set_header Host $host;",
    "@g_set_header Host '';",
    "@g_set_header TE trailers;",
    "@g_set_header TE '';",
    "@g_set_header Content-Type application/own;",
    "@g_set_header Accept-Encoding '';",
    "@g_set_header X-Real-IP $remote_addr;",
    "@g_hide_header X-Powered-By;",
    "@g_hide_header Set-Cookie;",
    "@g_pass_header Server;",
    "@g_pass_header Date;",
    "@g_ignore_headers X-Accel-Redirect Set-Cookie;",
    "@g_intercept_errors on;",
    "@g_intercept_errors on; error_page 404 500 /404.html;",
    "@g_buffer_size 1k;",
    "@g_buffer_size 8k;",
    "@g_next_upstream http_500 http_404;",
    "@g_next_upstream error invalid_header http_403 non_idempotent;",
    "@g_next_upstream off;",
    "@g_next_upstream_tries 1;",
    "@g_bind 127.0.0.1;",
    "@g_connect_timeout 10s;",
    "@g_read_timeout 10s;",
    "@g_send_timeout 10s;",
    "@g_socket_keepalive on;",
    "@g_ssl_name localhost;",
    "@g_ssl_name localhost; @g_ssl_server_name on;",
    "@g_ssl_server_name on;",
    "@g_ssl_verify on; @g_ssl_trusted_certificate @dir/one.crt;",
    "@g_ssl_verify on; @g_ssl_trusted_certificate @dir/one.crt; @g_ssl_name localhost;",
    "@g_ssl_verify on; @g_ssl_trusted_certificate @dir/one.crt; @g_ssl_name other.test;",
    "@g_ssl_verify on;",
    "@g_ssl_verify_depth 0;",
    "@g_ssl_protocols TLSv1.2;",
    "@g_ssl_protocols TLSv1.3;",
    "@g_ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256;",
    "@g_ssl_ciphers bogus;",
    "@g_ssl_certificate @dir/one.crt; @g_ssl_certificate_key @dir/one.key;",
    "@g_ssl_certificate @dir/one.crt;",
    "@g_ssl_certificate @dir/none.crt; @g_ssl_certificate_key @dir/one.key;",
    "@g_ssl_session_reuse off;",
    "@g_pass @schemegroup;",
    "@g_pass @schemetwo;",
    "@g_pass @schemes127.0.0.1:@secure;",
    "@g_pass @schemes127.0.0.1:@plain;",
    "@g_pass @scheme127.0.0.1:@secure;",
    "@g_pass @scheme127.0.0.1:@plain;",
    "@g_pass @scheme127.0.0.1:1;",
    "@g_pass @schemes$own;",
    "@g_pass $own;",
];

/// Lines of one module, and others whose effect shows with them.
const LINES: &[&str] = &[
    "proxy_http_version 2;",
    "proxy_http_version 1.1;",
    "proxy_http_version 1.0;",
    "proxy_http_version 2; proxy_buffering off;",
    "proxy_http_version 2; proxy_request_buffering off;",
    "proxy_http_version 2; proxy_set_body 'body of $uri';",
    "proxy_http_version 2; proxy_method PUT;",
    "proxy_http_version 2; proxy_pass_request_headers off;",
    "proxy_http_version 2; proxy_pass_trailers on;",
    "proxy_http_version 2; proxy_redirect http://127.0.0.1:@plain/ /mapped/;",
    "proxy_http_version 2; proxy_cookie_domain example.com example.org;",
    "proxy_http_version 2; proxy_cache one; proxy_cache_valid any 1m; add_header X-Cache $upstream_cache_status always;",
    "proxy_http_version 2; proxy_limit_rate 0;",
    "proxy_http_version 2; proxy_force_ranges on;",
    "proxy_pass_trailers on;",
    "proxy_allow_upstream 127.0.0.1;",
    "grpc_pass 127.0.0.1:@plain;",
    "grpc_pass localhost:@plain;",
    "grpc_pass unix:@dir/none.sock;",
    "grpc_pass http://127.0.0.1:@plain;",
    "grpc_pass grpc://127.0.0.1:@plain/uri;",
    "add_header X-Up '$upstream_addr $upstream_status' always;",
    "add_header X-Up '$upstream_http_x_powered_by $upstream_http_grpc_status $upstream_cookie_one' always;",
    "add_header X-Up '$upstream_trailer_x_t $upstream_trailer_grpc_status' always;",
    "add_trailer X-Own t;",
    "client_body_buffer_size 1k;",
    "client_max_body_size 2;",
    "error_page 502 504 =200 /404.html;",
    "error_page 502 @named;",
    "limit_except GET POST { deny all; }",
    "if ($arg_i) { proxy_pass https://127.0.0.1:@secure; }",
    "if ($arg_i) { grpc_pass grpc://127.0.0.1:1; }",
    "rewrite ^/h/(.*)$ /g/$1 last;",
    "rewrite ^/g/(.*)$ /own/$1 break;",
    "mirror /h/mirror;",
    "auth_request /s/status204;",
    "post_action /g/after;",
    "ssi on; ssi_types *;",
    "sub_filter hello goodbye; sub_filter_types *;",
    "gunzip on;",
    "underscores_in_headers on;",
];

/// All lines. They are few, and live as long as the process.
pub fn peer_lines() -> Vec<&'static str> {
    let of_each = [("proxy", "http"), ("grpc", "grpc")].into_iter().flat_map(|(name, scheme)| {
        OF_EACH.iter().map(move |line| {
            let line = line.replace("@g", name).replace("@schemes", &format!("{scheme}s://"));
            &*line.replace("@scheme", &format!("{scheme}://")).leak()
        })
    });
    of_each.chain(LINES.iter().copied()).collect()
}

/// The blocks: HTTP/2 in clear and in TLS, HTTP/1 in TLS, gRPC in clear and in TLS.
pub fn peer_locations(location: &str, nested: &str, in_if: &str) -> String {
    let one = |path: &str, version: &str, pass: &str| {
        let version = if location.contains("proxy_http_version") { "" } else { version };
        format!(
            "location /{path}/ {{ {version} {location} {pass}
            location /{path}/in/ {{ {nested} {pass} }}
            if ($arg_i) {{ {in_if} }}
        }}\n"
        )
    };
    [
        one("h", "proxy_http_version 2;", "proxy_pass http://127.0.0.1:@plain;"),
        one("hs", "proxy_http_version 2;", "proxy_pass https://127.0.0.1:@secure/;"),
        one("s", "proxy_http_version 1.1;", "proxy_pass https://127.0.0.1:@secure;"),
        one("g", "", "grpc_pass grpc://127.0.0.1:@plain;"),
        one("gs", "", "grpc_pass grpcs://127.0.0.1:@secure;"),
    ]
    .concat()
}

/// Groups, in the `http` block.
pub fn peer_groups() -> String {
    "upstream two { server 127.0.0.1:@plain; server 127.0.0.1:@plain max_fails=0; }\n".into()
}

const CONF: &str = "daemon off;
master_process off;
pid @dir/pid;
error_log @dir/error.log crit;
events { }
http {
    access_log off;
    root @dir;
    types { text/html html; }
    log_format none '';
    server {
        listen 127.0.0.1:@plain;
        listen 127.0.0.1:@secure ssl;
        http2 on;
        server_name localhost;
        ssl_certificate @dir/one.crt;
        ssl_certificate_key @dir/one.key;
        ssl_verify_client optional_no_ca;
        default_type text/plain;
        add_header Vary X;
        location / { return 200 '$request_method $request_uri $server_protocol [$http_host] own=$http_x_own a=$http_x_a te=$http_te
length=$content_length type=$content_type agent=$http_user_agent cookie=$http_cookie encoding=$http_accept_encoding ip=$http_x_real_ip
connection=$http_connection tls=$ssl_protocol name=$ssl_server_name client=$ssl_client_s_dn
'; }
        location ~ /redirect$ { add_header X-Powered-By b; return 302 http://127.0.0.1:@plain/to?x; }
        location ~ /relative$ { return 301 /relative/to; }
        location ~ /cookie$ {
            add_header Set-Cookie 'one=1; domain=example.com; path=/'; add_header Set-Cookie 'two=2; Path=/x';
            default_type text/html; return 200 'cookies, hello hello';
        }
        location ~ /error$ { add_header X-Powered-By b always; return 500 'an error'; }
        location ~ /missing$ { return 404 'not here'; }
        location ~ /denied$ { return 403; }
        location ~ /status204$ { return 204; }
        location ~ /accel$ { add_header X-Accel-Redirect /a/x.html; return 200 'not seen'; }
        location ~ /trailer$ { add_trailer X-T t; add_trailer grpc-status 0; return 200 'with trailers'; }
        location ~ /only$ { add_header grpc-status 5; add_header grpc-message gone; default_type application/grpc; return 200; }
        location ~ /closed$ { return 444; }
        location ~ /page$ { try_files /page.html =404; }
        location ~ /large$ { try_files /large.html =404; }
    }
}
";

/// The nginx behind; its end is that of the value.
pub struct Peer {
    child: Child,
    folder: PathBuf,
    pub plain: u16,
    pub secure: u16,
}

impl Peer {
    /// # Errors
    /// The server does not start.
    pub fn start(nginx: &Binary) -> Result<Peer, String> {
        let folder = std::env::temp_dir().join(format!("compare-peer-{}", std::process::id()));
        let say = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder.join("logs")).map_err(say)?;
        write_identity(&folder)?;
        fs::write(folder.join("page.html"), "hello, page").map_err(say)?;
        fs::write(folder.join("large.html"), "0123456789abcdef".repeat(LARGE_BYTES / 16)).map_err(say)?;
        const AGE: Duration = Duration::from_secs(1_700_000_000);
        for name in ["page.html", "large.html"] {
            let file = fs::File::options().write(true).open(folder.join(name)).map_err(say)?;
            file.set_modified(std::time::UNIX_EPOCH + AGE).map_err(say)?;
        }
        let (plain, secure) = (testkit::free_port(), testkit::free_port());
        let conf = CONF
            .replace("@dir", &folder.display().to_string())
            .replace("@plain", &plain.to_string())
            .replace("@secure", &secure.to_string());
        fs::write(folder.join("peer.conf"), conf).map_err(say)?;
        let mut child = Command::new(&nginx.path)
            .args(["-p".as_ref(), folder.as_os_str(), "-c".as_ref(), folder.join("peer.conf").as_os_str()])
            .args(["-e".as_ref(), folder.join("error.log").as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}", nginx.path.display()))?;
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", secure)).is_err() {
            if Instant::now() > until || child.try_wait().ok().flatten().is_some() {
                let _ = child.kill();
                return Err("the nginx behind does not start".into());
            }
            std::thread::park_timeout(GLANCE);
        }
        Ok(Peer { child, folder, plain, secure })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes the certificate and key that all servers use.
///
/// # Errors
/// The generation or a write failed.
pub fn write_identity(folder: &Path) -> Result<(), String> {
    let (certificate, key) = cases::test_identity()?;
    for (name, text) in [("one.crt", certificate), ("one.key", key)] {
        fs::write(folder.join(name), text).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
}

const GRPC: &str = "Content-Type: application/grpc\r\nTE: trailers\r\n";

pub const REQUESTS: &[PoolRequest] = &[
    make_ask("GET", "/h/echo", "", ""),
    make_ask("HEAD", "/h/echo", "", ""),
    make_ask("GET", "/h/echo?i=1", "X-Own: o\r\nAccept-Encoding: gzip\r\nCookie: one=1\r\nX_Under: u\r\n", ""),
    make_ask("GET", "/h/a%20b//c?d=e", "", ""),
    make_ask("POST", "/h/echo", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("POST", "/h/echo", "", ""),
    make_ask("DELETE", "/h/echo", "", ""),
    make_ask("GET", "/h/in/echo", "TE: trailers\r\n", ""),
    make_ask("GET", "/h/redirect", "", ""),
    make_ask("GET", "/h/relative", "", ""),
    make_ask("GET", "/h/cookie", "", ""),
    make_ask("GET", "/h/error", "", ""),
    make_ask("GET", "/h/missing", "", ""),
    make_ask("GET", "/h/denied", "", ""),
    make_ask("GET", "/h/status204", "", ""),
    make_ask("GET", "/h/accel", "", ""),
    make_ask("GET", "/h/trailer", "TE: trailers\r\n", ""),
    make_ask("GET", "/h/closed", "", ""),
    make_ask("GET", "/h/page", "", ""),
    make_ask("GET", "/h/page", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/h/page", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", ""),
    make_ask("GET", "/h/large", "", ""),
    make_ask("HEAD", "/h/large", "", ""),
    make_ask("GET", "/hs/echo", "X-Own: o\r\n", ""),
    make_ask("POST", "/hs/echo?i=1", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("GET", "/hs/redirect", "", ""),
    make_ask("GET", "/hs/error", "", ""),
    make_ask("GET", "/hs/closed", "", ""),
    make_ask("GET", "/hs/large", "", ""),
    make_ask("GET", "/s/echo", "X-Own: o\r\n", ""),
    make_ask("HEAD", "/s/page", "", ""),
    make_ask("POST", "/s/echo?i=1", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("GET", "/s/in/echo", "", ""),
    make_ask("GET", "/s/redirect", "", ""),
    make_ask("GET", "/s/missing", "", ""),
    make_ask("GET", "/s/closed", "", ""),
    make_ask("GET", "/s/large", "", ""),
    make_ask("POST", "/g/echo", GRPC, "abcd"),
    make_ask("GET", "/g/echo?i=1", "X-Own: o\r\nConnection: keep-alive\r\n", ""),
    make_ask("HEAD", "/g/echo", "", ""),
    make_ask("POST", "/g/only", GRPC, "abcd"),
    make_ask("POST", "/g/trailer", GRPC, "abcd"),
    make_ask("POST", "/g/in/trailer", GRPC, ""),
    make_ask("GET", "/g/redirect", "", ""),
    make_ask("GET", "/g/cookie", "", ""),
    make_ask("GET", "/g/error", "", ""),
    make_ask("GET", "/g/missing", "", ""),
    make_ask("GET", "/g/status204", "", ""),
    make_ask("GET", "/g/accel", "", ""),
    make_ask("GET", "/g/closed", "", ""),
    make_ask("GET", "/g/page", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/g/large", "", ""),
    make_ask("POST", "/gs/echo", GRPC, "abcd"),
    make_ask("POST", "/gs/trailer?i=1", GRPC, "abcd"),
    make_ask("GET", "/gs/error", "", ""),
    make_ask("GET", "/gs/closed", "", ""),
];
