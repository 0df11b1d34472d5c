//! Generated rewrite rules in Tidegate and a real nginx give equal responses.
//!
//! One seed is one set of configurations and requests. `TIDEGATE_REWRITE_SEEDS=FROM..TO` runs others than the few of every day.

use crate::support;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Site, free_port, wait};

const NGINX: &str = "/usr/sbin/nginx";
/// Configurations of one seed, each in its own server.
const SERVERS: usize = 40;

/// Deterministic (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }
    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(words.len())]
    }
}

const PATTERNS: &[&str] = &[
    "^/a/(.*)$",
    "^/(\\w+)/(\\w+)",
    "(.*)\\.html$",
    "^/(?<word>[a-z]+)",
    "^/x$",
    "/b",
    "(?i)/FOO(/?)",
    "^(.*)$",
    "^/([^/]*)/?(.*)",
    "\\s",
    "%",
    "^/(a|b)(c)?(.*)",
    "$",
];
const TARGETS: &[&str] = &[
    "/b/$1",
    "/$2/$1?x=$1",
    "/new?",
    "/p?q=$args&n=$1",
    "http://h.example/$1",
    "https://$host$uri?",
    "$scheme://z/$2",
    "\"/c d/$1\"",
    "/d/$v1?v=$v2",
    "/e?a=$1?",
    "/x",
    "/a/$uri",
    "/%41/$1",
    "$v1",
    "$1",
    "/w-${word}-$1$2$3$4",
    "/%20$request_uri",
];
const VALUES: &[&str] = &[
    "$1",
    "\"$v1-$2\"",
    "$uri",
    "$args",
    "\"a b\"",
    "$arg_x",
    "${v1}z",
    "\"$is_args\"",
    "/v$request_uri",
    "\"\"",
    "0",
    "$word",
    "$query_string$document_uri",
];
const CONDITIONS: &[&str] = &[
    "$v1",
    "$args ~ \"x=(\\d+)\"",
    "$uri ~* \"\\.(php|html)$\"",
    "$request_method = GET",
    "!-f $document_root$uri",
    "-d $document_root/",
    "$v2 != \"\"",
    "$http_x ~ ^(.)(.*)$",
    "$v1 = $v2",
    "$uri !~ ^/(a)",
    "!-e $request_filename",
    "$args !~* X",
];
const REQUESTS: &[&str] = &[
    "/",
    "/a/b",
    "/a/b.html?x=12",
    "/x",
    "/foo/bar/baz.php?y=1&x=3",
    "/a%20b/c%2Fd",
    "/A/FOO/",
    "/a//b?",
    "/a/./b/../c.html",
    "/%41%25/?%20",
    "/e%3Fz?a=b?c",
    "/bc/%C3%A9",
    "/a/?x=%41&x=5",
    "/ac",
];

fn rules(dice: &mut Dice, depth: usize, out: &mut String) {
    for _ in 0..dice.roll(4) {
        match dice.roll(if depth == 0 { 9 } else { 7 }) {
            0..3 => {
                let flag = dice.of(&["", "", "last", "break", "redirect", "permanent"]);
                let _ = writeln!(out, "rewrite \"{}\" {} {flag};", dice.of(PATTERNS), dice.of(TARGETS));
            }
            3..6 => {
                let _ = writeln!(out, "set $v{} {};", 1 + dice.roll(2), dice.of(VALUES));
            }
            6 => match dice.roll(5) {
                0 => out.push_str("break;\n"),
                1 => out.push_str("return 404;\n"),
                2 => _ = writeln!(out, "return 301 {};", dice.of(TARGETS)),
                3 => out.push_str("return 200 \"$1|$2|$v1\";\n"),
                _ => out.push_str("return 204;\n"),
            },
            _ => {
                let _ = writeln!(out, "if ({}) {{", dice.of(CONDITIONS));
                rules(dice, depth + 1, out);
                out.push_str("}\n");
            }
        }
    }
}

fn servers(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut out = String::new();
    for n in 0..SERVERS {
        let _ = writeln!(out, "server {{ listen 127.0.0.1:PORT; server_name s{n}; root DIR/html;");
        out.push_str("set $v1 one; set $v2 \"\"; set $word none;\n");
        rules(&mut dice, 0, &mut out);
        for place in ["/", "/a/", "= /x", "~ \\.php$", "~* ^/(foo|b)(.*)", "/p"] {
            let _ = writeln!(out, "location {place} {{");
            rules(&mut dice, 0, &mut out);
            out.push_str("return 200 \"$uri|$args|$v1|$v2|$word|$1|$2|$request_uri|$is_args\";\n}\n");
        }
        out.push_str("}\n");
    }
    out
}

/// Status, `Location` and, for 200, the body.
fn ask(stream: &mut Option<BufReader<TcpStream>>, port: u16, host: usize, target: &str) -> String {
    let mut kept = stream.take().unwrap_or_else(|| {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
        stream.set_nodelay(true).expect("no delay");
        BufReader::new(stream)
    });
    let request = format!("GET {target} HTTP/1.1\r\nHost: s{host}\r\nX: yz\r\n\r\n");
    kept.get_mut().write_all(request.as_bytes()).expect("sent");
    let (mut head, mut length, mut closing) = (Vec::new(), 0, false);
    let mut seen = String::new();
    loop {
        head.clear();
        assert!(kept.read_until(b'\n', &mut head).expect("read") > 0, "{target}: no answer");
        let line = String::from_utf8_lossy(&head).trim_end().to_string();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "connection" => closing = value == "close",
            "location" => seen += &format!(" -> {}", value.replace(&format!(":{port}"), "")),
            _ if name.starts_with("HTTP/1.1 ") => seen = name[9..12].to_string(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    kept.read_exact(&mut body).expect("a body");
    if seen.starts_with("200") {
        seen += &format!(" {}", String::from_utf8_lossy(&body));
    }
    if !closing {
        *stream = Some(kept);
    }
    seen
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nginx's answer with the dot segments of its path resolved: paths that rules make are canonical here (the manual's
/// "Differs" of `rewrite`), and nginx leaves their segments as they are.
fn without_dots(answer: &str) -> String {
    let Some((uri, rest)) = answer.strip_prefix("200 ").and_then(|body| body.split_once('|')) else {
        return answer.to_string();
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = uri.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." && kept.pop().is_none() {
                    return "400".into();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("200 /{}|{rest}", kept.join("/"))
}

/// A rule of the server makes a path that need not begin with a slash: its target begins with a variable.
fn makes_relative_paths(servers: &str, n: usize) -> bool {
    let of_server = servers.split("server_name ").find(|block| block.starts_with(&format!("s{n};"))).unwrap_or("");
    let mut rules = of_server.lines().filter(|line| line.starts_with("rewrite "));
    rules.any(|rule| rule.rsplit("\" ").next().is_some_and(|target| target.starts_with('$')))
}

fn compare(seed: u64) {
    let (ours, theirs) = (free_port(), free_port());
    let servers = servers(seed);
    let main = "daemon off; master_process off; pid logs/PID.pid;";
    let http = |port: u16, dir: &str| {
        format!("http {{ access_log off; {} }}", servers.replace("PORT", &port.to_string()).replace("DIR", dir))
    };
    let site = Site::new("", "");
    let dir = site.dir.display().to_string();
    site.configure(&main.replace("PID", "nginx"), &http(ours, &dir));
    let text = format!(
        "error_log logs/nginx-error.log;\n{}\nevents {{ }}\n{}",
        main.replace("PID", "other"),
        http(theirs, &dir)
    );
    site.write("conf/other.conf", &text);
    let running = site.start();
    let nginx =
        Command::new(NGINX).arg("-p").arg(&site.dir).args(["-c", "conf/other.conf"]).stderr(Stdio::null()).spawn();
    let _nginx = Killed(nginx.expect("nginx runs"));
    wait("nginx", || TcpStream::connect(("127.0.0.1", theirs)).map_err(|e| e.to_string()));
    let (mut our, mut their) = (None, None);
    let mut differences = String::new();
    for n in 0..SERVERS {
        for target in REQUESTS {
            let (a, b) = (ask(&mut our, ours, n, target), ask(&mut their, theirs, n, target));
            // A path without a slash would go on with the root's own name (`DIR/htmlname`): 400 here, and not looked for.
            let beside_root = a == "400" && b == "404" && makes_relative_paths(&servers, n);
            if a != b && a != without_dots(&b) && !beside_root {
                let _ = writeln!(differences, "seed {seed}, s{n}, {target}:\n   ours {a}\n  nginx {b}");
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
    drop(running);
}

#[test]
fn generated_rules_do_what_they_do_in_nginx() {
    if !std::path::Path::new(NGINX).exists() {
        testkit::missing_peer("there is no nginx here to compare with");
        return;
    }
    let range = std::env::var("TIDEGATE_REWRITE_SEEDS").unwrap_or_else(|_| "1..4".into());
    let (from, to) = range.split_once("..").expect("FROM..TO");
    for seed in from.parse().expect("a number")..to.parse().expect("a number") {
        compare(seed);
    }
}
