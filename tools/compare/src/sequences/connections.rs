//! Connections (`--connections`): valid and broken requests that follow each other, cut at random octets.

use super::{ConfigLine, Scene, SceneStep, SequenceSubject, Talk};
use crate::Dice;

pub const SUBJECT: SequenceSubject = SequenceSubject {
    name: "connections",
    site: "http {
    @own
    types { text/plain html; text/css css; }
    log_format c '$remote_addr|$request|$status|$body_bytes_sent|$connection_requests|$request_completion|'
                 '$content_length|$http_x_long|$host|$uri';
    access_log @dir/access.log c;
    server {
        listen 127.0.0.1:@port;
        root @dir/html;
        @(server)
        location = /fallback { return 200 fb; }
        location = /four { return 200 four; }
        location @named { return 200 named; }
        location = /auth { return 204; }
        location = /mir { return 204; }
        location /r/ { return 200 ret; }
        location /s/ { @(s) alias @dir/html/; }
        location /o/ { proxy_pass http://@origin0; }
        location /a/ { @(a) proxy_pass http://@origin0; }
        location /b/ { @(b) proxy_pass http://@origin0; }
        location /c/ { @(c) proxy_pass http://@origin0; }
    }
}
",
    draw,
    at_once: 2,
    in_parallel: true,
    numbers: false,
};

/// Connections of a scene.
const CONNECTIONS: u8 = 8;

const OF_SERVER: &[&str] = &[
    "client_max_body_size 4;",
    "client_max_body_size 0;",
    "keepalive_requests 1;",
    "keepalive_requests 2;",
    "keepalive_requests 3;",
    "keepalive_timeout 0;",
    "keepalive_timeout 65 20;",
    "keepalive_min_timeout 1s;",
    "keepalive_disable safari;",
    "keepalive_disable none;",
    "client_body_buffer_size 8;",
    "client_body_in_file_only clean;",
    "client_body_in_single_buffer on;",
    "lingering_close off;",
    "lingering_close always;",
    "chunked_transfer_encoding off;",
    "error_page 404 413 405 = /fallback;",
    "error_page 400 /four;",
    "error_page 413 @named;",
    "error_page 404 =200 @named;",
    "error_page 414 431 494 495 /four;",
    "underscores_in_headers on;",
    "ignore_invalid_headers off;",
    "merge_slashes off;",
    "large_client_header_buffers 2 512;",
    "connection_pool_size 256; large_client_header_buffers 2 256;",
    "client_header_buffer_size 128;",
    "client_header_buffer_size 16;",
    "server_tokens off;",
    "postpone_output 0;",
    "tcp_nodelay off;",
    "tcp_nopush on;",
    "msie_padding on;",
    "max_headers 4;",
    "absolute_redirect off;",
    "add_trailer X-T x always;",
    "early_hints $http_x_early;",
    "open_file_cache max=10;",
    "sendfile on;",
    "output_buffers 1 1k;",
    "reset_timedout_connection on;",
    "etag off;",
    "server_name a;",
    "request_pool_size 1k;",
    "connection_pool_size 256;",
    "client_header_timeout 10s;",
    "client_body_timeout 10s;",
];

const OF_PROXY: &[&str] = &[
    "proxy_request_buffering off;",
    "proxy_http_version 1.0;",
    "proxy_pass_request_body off; proxy_set_header Content-Length '';",
    "proxy_set_body x;",
    "proxy_method PUT;",
    "proxy_buffering off;",
    "proxy_intercept_errors on;",
    "proxy_ignore_client_abort on;",
    "proxy_set_header Connection '';",
    "proxy_set_header X-Length $content_length;",
    "proxy_set_header TE $http_te;",
    "proxy_pass_request_headers off;",
    "proxy_next_upstream off;",
    "proxy_pass_trailers on;",
    "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;",
];

/// Left out on purpose: `post_action` and `log_subrequest`, behind which nginx logs values of another request.
const OF_LOCATION: &[&str] = &[
    "auth_request /auth;",
    "mirror /mir;",
    "limit_except GET { deny all; }",
    "client_max_body_size 3;",
    "auth_basic x; auth_basic_user_file @dir/users;",
    "return 200 own;",
    "return 403;",
    "return 301 /x;",
    "return 444;",
    "return 413;",
    "add_before_body /four;",
    "satisfy any; deny all; auth_basic x; auth_basic_user_file @dir/users;",
    "rewrite ^ /four last;",
    "dav_methods PUT DELETE;",
    "expires 1h;",
    "limit_rate 1m;",
    "internal;",
    "try_files /none /four;",
    "lingering_close off;",
    "keepalive_timeout 0;",
    "error_page 403 404 @named;",
    "client_body_buffer_size 4;",
];

fn some(dice: &mut Dice, block: &'static str, pools: &[&[&'static str]], most: usize, lines: &mut Vec<ConfigLine>) {
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..dice.below(most + 1) {
        let pool = dice.one(pools);
        let text = dice.text(pool);
        let own: Vec<&str> = text.split("; ").filter_map(|part| part.split(' ').next()).collect();
        if !own.iter().any(|name| names.contains(name) && !matches!(*name, "error_page" | "proxy_set_header")) {
            names.extend(own);
            lines.push(ConfigLine { block, text: text.into() });
        }
    }
}

/// Responses of servers without a status line are left out: behind one, nginx keeps the client's connection.
const TARGETS: &[&str] = &[
    "/a/x",
    "/b/x",
    "/c/x",
    "/a/x",
    "/b/x?ch=1",
    "/a/chunk?ch=1&tr=1",
    "/b/large?z=20000",
    "/c/eof?eof=1",
    "/a/noct?s=204",
    "/c/short?s=short",
    "/b/close?s=close",
    "/a/hint?eh=1",
    "/s/a/x.html",
    "/s/none",
    "/s/",
    "/s",
    "/s/a/x.css",
    "/r/x",
    "/o/x",
    "/o/chunk?ch=1",
    "/",
    "/nope",
    "*",
    "http://h/a/x",
    "http://h",
    "/a/../r/x",
    "//r/x",
    "/%zz",
    "/r/x?q",
    "/s/a",
    "/r/x#f",
    "/r/%2e%2e/x",
    "/o/a%20b",
    "example.com:80",
    "/r/\u{1}",
    "/../x",
];

/// Fields, each of them now and then.
const FIELDS: &[&str] = &[
    "X_Under: 1",
    "X-Long: @y200",
    "X-Long: @y60",
    "X-Long: @y600",
    "Bad Header: 1",
    "X:",
    ": empty",
    "nocolon",
    "User-Agent: Mozilla/5.0 Safari/1",
    "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0)",
    " folded",
    "Host: b",
    "Host: a b",
    "Upgrade: h2c",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "Range: bytes=0-1",
    "If-None-Match: *",
    "X-Early: 1",
    "Content-Type: a",
    "Authorization: Basic eDp5",
    "Authorization: Basic am9lOnNlY3JldA==",
    "Cookie: a=b",
    "Cookie: a=b\r\nCookie: c=d",
    "TE: trailers",
    "X-Tab: a\tb",
    "X-Ctl: a\u{1}b",
    "X-\u{e4}: a",
    "Content-Length: 0",
    "Proxy-Connection: close",
    "Keep-Alive: timeout=1",
    "X.Dot: 1",
    "X-1:2\r\nX-2:3\r\nX-3:4\r\nX-4:5\r\nX-5:6",
];

fn chunked(dice: &mut Dice, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(1 + dice.below(rest.len()));
        let extension = dice.text(&["", "", "", "", "", ";e=1", " ;e=\"q\"", ";x", ";=;"]);
        let size = match dice.below(8) {
            0 => format!("{:X}", part.len()),
            1 => format!("000{:x}", part.len()),
            _ => format!("{:x}", part.len()),
        };
        body.extend_from_slice(format!("{size}{extension}\r\n").as_bytes());
        body.extend_from_slice(part);
        body.extend_from_slice(b"\r\n");
        rest = behind;
    }
    body.extend_from_slice(b"0\r\n");
    body.extend_from_slice(
        dice.text(&["", "", "", "", "", "T: 1\r\n", "T: 1\r\nU: 2\r\n", "bad\r\n", "Content-Length: 5\r\n"]).as_bytes(),
    );
    body.extend_from_slice(b"\r\n");
    body
}

fn request(dice: &mut Dice, from: u8) -> Vec<u8> {
    const METHODS: [&str; 17] = [
        "GET", "GET", "GET", "GET", "GET", "POST", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH",
        "TRACE", "FOO", "CONNECT",
    ];
    let method = dice.text(&METHODS);
    let mut target = dice.text(TARGETS).to_string();
    if target.starts_with('/') || target.starts_with("http") {
        // Tells the servers behind which client asks.
        target += &format!("{}n={from}", if target.contains('?') { "&" } else { "?" });
    }
    let version = match dice.below(40) {
        0..=3 => " HTTP/1.0",
        4 => " HTTP/1.2",
        5 => " HTTP/2.0",
        6 => " HTTP/0.9",
        7 => "",
        8 => " HTTP/1.1 ",
        9 => "  HTTP/1.1",
        10 => " HTTP/1.",
        11 => " http/1.1",
        _ => " HTTP/1.1",
    };
    let mut fields: Vec<String> = Vec::new();
    if dice.percent(95) {
        fields.push("Host: a".into());
    }
    if dice.percent(15) {
        fields.push(format!(
            "Connection: {}",
            dice.text(&["keep-alive", "close", "Keep-Alive, x", "upgrade", "TE, close", "CLOSE"])
        ));
    }
    let has_body = matches!(method, "POST" | "PUT" | "PATCH");
    // Without a body there is nothing to continue with; nginx sends 100 if a handler reads bodies.
    if has_body && dice.percent(20) {
        fields.push(format!("Expect: {}", dice.text(&["100-continue", "100-Continue", "x"])));
    }
    if dice.percent(20) {
        let field = dice.text(FIELDS);
        fields.push(
            field
                .replace("@y600", &"y".repeat(600))
                .replace("@y200", &"y".repeat(200))
                .replace("@y60", &"y".repeat(60)),
        );
    }
    let mut body = Vec::new();
    if has_body || dice.percent(8) {
        let length = *dice.one(&[0, 1, 3, 4, 5, 12, 100, 3_000]);
        let data: Vec<u8> = (0..length).map(|_| *dice.one(b"abcdef")).collect();
        match dice.below(100) {
            0..=54 => {
                fields.push(format!("Content-Length: {length}"));
                body = data;
            }
            55..=89 => {
                let coding = match dice.below(10) {
                    0 => dice.text(&["Chunked", "gzip, chunked", "identity", "chunked, chunked", "chunked "]),
                    _ => "chunked",
                };
                fields.push(format!("Transfer-Encoding: {coding}"));
                body = chunked(dice, &data);
                if dice.percent(6) {
                    body = String::from_utf8_lossy(&body).replace("\r\n", "\n").into();
                }
                if dice.percent(6) {
                    let fault = dice.text(&["zz\r\n", "-1\r\n", "fffffffffffffffff\r\n", "\r\n", "3 3\r\n", "0x3\r\n"]);
                    body.splice(0..0, fault.bytes());
                }
                if dice.percent(4) {
                    fields.push("Content-Length: 3".into());
                }
            }
            90..=94 => fields.push(format!(
                "Content-Length: {}",
                dice.text(&[
                    "-1",
                    "x",
                    "99999999999999999999999",
                    "1, 1",
                    "+1",
                    "",
                    "1 1",
                    "0x1",
                    "9223372036854775807"
                ])
            )),
            _ => {
                fields.push(format!("Content-Length: {length}"));
                fields.push(format!("Content-Length: {length}"));
                body = data;
            }
        }
    }
    let end = if dice.percent(4) { "\n" } else { "\r\n" };
    let mut head = format!("{method} {target}{version}{end}");
    for field in fields {
        head += &field;
        head += end;
    }
    head += end;
    if version.is_empty() {
        head = format!("{method} {target}{end}");
        body.clear();
    }
    let before = if dice.percent(5) { dice.text(&["\r\n", "\n", "\r\n\r\n", "\0", "\u{16}\u{3}\u{1}"]) } else { "" };
    let head: Vec<u8> =
        before.chars().chain(head.chars()).map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
    [head, body].concat()
}

fn talk(dice: &mut Dice, from: u8) -> Talk {
    let requests: Vec<Vec<u8>> = (0..1 + dice.below(6)).map(|_| request(dice, from)).collect();
    let mut all = requests.concat();
    let one_by_one = dice.percent(50);
    if !one_by_one && dice.percent(30) {
        all.truncate(1 + dice.below(all.len()));
    }
    let mut parts = requests;
    if !one_by_one {
        let mut cuts: Vec<usize> = (0..*dice.one(&[0, 0, 1, 2, 4])).map(|_| dice.below(all.len() + 1)).collect();
        cuts.sort_unstable();
        parts = Vec::new();
        let mut at = 0;
        for cut in cuts.into_iter().chain([all.len()]) {
            parts.push(all.get(at..cut).unwrap_or_default().to_vec());
            at = cut;
        }
    }
    parts.retain(|part| !part.is_empty());
    Talk { from, parts, half_closes: dice.percent(30) }
}

fn draw(dice: &mut Dice) -> Scene {
    let mut lines = Vec::new();
    some(dice, "server", &[OF_SERVER], 5, &mut lines);
    for block in ["a", "b", "c"] {
        some(dice, block, &[OF_PROXY, OF_LOCATION], 3, &mut lines);
    }
    some(dice, "s", &[OF_LOCATION], 2, &mut lines);
    let steps = (1..=CONNECTIONS).map(|from| SceneStep::Talk(talk(dice, from))).collect();
    Scene { lines, steps }
}
