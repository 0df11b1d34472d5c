//! Upstream groups (`--groups`): methods, weights, backups, failures, retries, kept connections.

use super::{ConfigLine, FreshRequest, STICKY, Scene, SceneStep, SequenceSubject};
use crate::Dice;

pub const SUBJECT: SequenceSubject = SequenceSubject {
    name: "groups",
    site: "http {
    @own
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Forwarded-For;
    log_format c '$request|$status|$upstream_addr|$upstream_status|$upstream_bytes_received|$upstream_response_length';
    access_log @dir/access.log c;
    @(http)
    upstream g1 { @(g1) }
    upstream g2 { @(g2) }
    server {
        listen 127.0.0.1:@port;
        location = /own { return 200 own; }
        location /x/ { @(x) proxy_pass http://g1; add_header X-Up '$upstream_addr|$upstream_status' always; }
        location /y/ { @(y) proxy_pass http://g2; add_header X-Up '$upstream_addr|$upstream_status' always; }
        location /v/ { @(v) proxy_pass http://$arg_g; add_header X-Up '$upstream_addr|$upstream_status' always; }
    }
}
",
    draw,
    at_once: 4,
    in_parallel: false,
    numbers: true,
};

const METHODS: &[&str] = &[
    "",
    "",
    "",
    "",
    "ip_hash;",
    "hash $uri;",
    "hash $arg_k;",
    "hash $arg_k consistent;",
    "hash $uri$arg_on consistent;",
    "least_conn;",
    "sticky cookie srv expires=1h;",
    "sticky route $arg_r $cookie_r;",
    "sticky learn create=$upstream_cookie_own lookup=$cookie_own zone=@l:1m;",
    "least_conn; sticky cookie srv;",
    "ip_hash; sticky route $arg_r;",
    "hash $arg_k; sticky learn create=$upstream_cookie_own lookup=$cookie_own zone=@l:1m;",
];

/// Properties of a group that restrict its requests.
struct GroupFacts {
    /// Servers are chosen by chance.
    is_random: bool,
    /// Connections are kept.
    keeps: bool,
}

fn group(dice: &mut Dice, block: &'static str, lines: &mut Vec<ConfigLine>) -> GroupFacts {
    let is_random = dice.percent(5);
    let method = match is_random {
        true => dice.text(&["random;", "random two;", "random two least_conn;"]).to_string(),
        false => dice.text(METHODS).replace("@l", &format!("learn_{block}")),
    };
    let mut own: Vec<String> = Vec::new();
    if dice.percent(50) || method.contains("learn") {
        own.push(format!("zone z_{block} 128k;"));
    }
    // The default of nginx 1.29.7 and later keeps connections.
    let keepalive = dice.text(&[
        "keepalive 0;",
        "keepalive 0;",
        "",
        "keepalive 1;",
        "keepalive 4; keepalive_requests 2;",
        "keepalive 2 local;",
    ]);
    let count = 1 + dice.below(if is_random { 2 } else { 5 });
    let mut servers = Vec::new();
    for _ in 0..count {
        let address = match is_random {
            true => "@origin0".into(),
            false if dice.percent(75) => format!("@origin{}", dice.below(super::origin::SERVERS)),
            false => "127.0.0.1:1".into(),
        };
        let mut parameters = String::new();
        let mut add = |percent: usize, dice: &mut Dice, all: &[&'static str]| {
            if dice.percent(percent) {
                parameters += " ";
                parameters += dice.text(all);
            }
        };
        add(40, dice, &["weight=1", "weight=2", "weight=3", "weight=5"]);
        add(30, dice, &["max_fails=0", "max_fails=1", "max_fails=2", "max_fails=3"]);
        add(10, dice, &["down"]);
        let is_without = is_random || ["ip_hash", "hash "].iter().any(|name| method.starts_with(name));
        add(if is_without { 1 } else { 20 }, dice, &["backup"]);
        add(10, dice, &["max_conns=1", "max_conns=3"]);
        add(20, dice, &["fail_timeout=1h", "fail_timeout=100s"]);
        add(if method.contains("sticky") { 4 } else { 0 }, dice, &["drain"]);
        if method.contains("route") {
            add(70, dice, &["route=a", "route=b", "route=c"]);
        }
        servers.push(format!("server {address}{parameters};"));
    }
    if dice.percent(35) {
        own.extend(servers);
        own.push(method);
    } else {
        own.push(method);
        own.extend(servers);
    }
    own.push(keepalive.into());
    lines.extend(own.into_iter().filter(|text| !text.is_empty()).map(|text| ConfigLine { block, text }));
    GroupFacts { is_random, keeps: keepalive != "keepalive 0;" }
}

const OF_LOCATION: &[&str] = &[
    "proxy_next_upstream error;",
    "proxy_next_upstream off;",
    "proxy_next_upstream http_500;",
    "proxy_next_upstream error timeout http_500 http_503 http_404;",
    "proxy_next_upstream error non_idempotent http_503;",
    "proxy_next_upstream error http_404 http_503 non_idempotent;",
    "proxy_next_upstream error http_403 http_429 http_502 http_504;",
    "proxy_next_upstream invalid_header;",
    "proxy_next_upstream error invalid_header non_idempotent;",
    "proxy_next_upstream_tries 1;",
    "proxy_next_upstream_tries 2;",
    "proxy_next_upstream_tries 3;",
    "proxy_next_upstream_timeout 10s;",
    "proxy_intercept_errors on; error_page 500 502 503 = /y/x;",
    "proxy_intercept_errors on; error_page 404 429 =200 /own;",
    "proxy_request_buffering off;",
    "proxy_buffering off;",
    "proxy_http_version 1.0;",
    "proxy_set_header Connection '';",
    "proxy_set_header Connection close;",
    "proxy_set_body own;",
    "proxy_method GET;",
    "proxy_method POST;",
    "proxy_limit_rate 100k;",
    "proxy_ignore_client_abort on;",
    "proxy_buffer_size 1k;",
    "early_hints 1;",
    "client_body_buffer_size 4;",
];

/// Adds distinct directives.
fn some(dice: &mut Dice, block: &'static str, most: usize, lines: &mut Vec<ConfigLine>) {
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..dice.below(most + 1) {
        let text = dice.text(OF_LOCATION);
        let name = text.split(' ').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
            lines.push(ConfigLine { block, text: text.into() });
        }
    }
}

fn draw(dice: &mut Dice) -> Scene {
    let mut lines = Vec::new();
    let groups = [group(dice, "g1", &mut lines), group(dice, "g2", &mut lines)];
    some(dice, "http", 1, &mut lines);
    for block in ["x", "y", "v"] {
        some(dice, block, 3, &mut lines);
    }
    // With another method nginx leaves the body of a response to HEAD, and closes the connection.
    let has_method = lines.iter().any(|line| line.text.starts_with("proxy_method"));
    let is_random = groups.iter().any(|group| group.is_random);
    let mut faults = vec!["s=500", "s=503", "s=404", "s=403", "s=429", "s=502", "s=bad", "s=close", "s=short"];
    if groups.iter().any(|group| group.keeps) {
        // A kept connection that fails is replaced within its attempt; nginx has two entries in `$upstream_addr`.
        faults.retain(|fault| !matches!(*fault, "s=close" | "s=bad"));
    }
    let steps = (0..10 + dice.below(30)).map(|_| ask(dice, if is_random { &[] } else { &faults }));
    let steps = steps.filter(|ask| !has_method || ask.method != "HEAD").map(SceneStep::Ask).collect();
    Scene { lines, steps }
}

fn ask(dice: &mut Dice, faults: &[&'static str]) -> FreshRequest {
    let mut query =
        format!("k={}&g={}&r={}", dice.below(10), dice.text(&["g1", "g2"]), dice.text(&["a", "b", "c", "d"]));
    if !faults.is_empty() && dice.percent(45) {
        query +=
            &format!("&{}&on={}", dice.text(faults), dice.text(&["0", "1", "012", "0123", "01", "9", "012345", "345"]));
    }
    for (percent, all) in [
        (30, &["sc=own=u", "sc=own=v", "sc=own=w"][..]),
        (10, &["ch=1", "ch=1&tr=1", "eof=1"]),
        (10, &["z=0", "z=9000", "z=1"]),
    ] {
        if dice.percent(percent) {
            query += "&";
            query += dice.text(all);
        }
    }
    let mut fields = Vec::new();
    if dice.percent(50) {
        let (a, b) = (dice.below(256), dice.below(256));
        fields.push(match dice.percent(50) {
            true => format!("X-Forwarded-For: 10.{a}.{b}.1"),
            false => format!("X-Forwarded-For: 2001:db8::{:x}", a * 256 + b),
        });
    }
    match dice.below(10) {
        0..=2 => fields.push(STICKY.into()),
        3 | 4 => fields.push(format!("Cookie: own={}", dice.text(&["u", "v", "w"]))),
        5 => fields.push(format!("Cookie: r={}", dice.text(&["a", "b", "c", "d"]))),
        _ => {}
    }
    let method = dice.text(&["GET", "GET", "GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "PATCH", "DELETE"]);
    let mut body = Vec::new();
    if matches!(method, "POST" | "PUT" | "PATCH") {
        let data = dice.text(&["", "ab", "abcdefghijklmnop"]).as_bytes();
        if dice.percent(70) {
            fields.push(format!("Content-Length: {}", data.len()));
            body = data.to_vec();
        } else {
            fields.push("Transfer-Encoding: chunked".into());
            if !data.is_empty() {
                body = [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
            }
            body.extend_from_slice(b"0\r\n\r\n");
        }
    }
    if method == "HEAD" {
        // nginx logs the bytes of a server without a status line.
        query = query.replace("s=bad", "s=500");
    }
    let location = dice.text(&["x", "x", "x", "y", "y", "v"]);
    FreshRequest { method, target: format!("/{location}/{}?{query}", dice.text(&["a", "b", "c"])), fields, body }
}
