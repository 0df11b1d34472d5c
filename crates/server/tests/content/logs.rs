//! Error logs in every context, and log files over their life.

use crate::support;

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;
use support::client::Client;
use support::{Site, free_port, text, wait};

const WORDS: &str = "failed (2: No such file or directory)";

#[test]
fn a_block_with_a_log_of_its_own_uses_no_other() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("bind");
    server.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let syslog = server.local_addr().expect("address").port();
    let port = free_port();
    let http = format!(
        "http {{
            error_log logs/http.log;
            server {{
                listen 127.0.0.1:{port};
                location /http/ {{ }}
                location /own/ {{ error_log logs/own.log error; error_log logs/grave.log crit; error_log logs/all.log debug; }}
                location /syslog/ {{ error_log syslog:server=127.0.0.1:{syslog},severity=crit,tag=T; }}
                location /memory/ {{ error_log memory:16k; }}
            }}
        }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for place in ["http", "own", "syslog", "memory"] {
        let request = format!("GET /{place}/none HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.ask(&request).expect("answered").0, 404);
    }
    let has = |log: &str, place: &str| site.read(log).contains(&format!("/{place}/none\" {WORDS}"));
    wait("the lines", || {
        if has("logs/http.log", "http") && has("logs/own.log", "own") { Ok(()) } else { Err(site.log()) }
    });
    assert!(has("logs/all.log", "own"));
    for (log, lines) in [("logs/error.log", 0), ("logs/grave.log", 0), ("logs/http.log", 1), ("logs/own.log", 1)] {
        assert_eq!(site.read(log).matches(WORDS).count(), lines, "{log}: {}", site.read(log));
    }
    let line = site.read("logs/own.log");
    let form = line.get(19..28).unwrap_or_default();
    assert_eq!(form, " [error] ", "{line}");
    assert!(
        line.contains(", client: 127.0.0.1, server: ") && line.contains("request: \"GET /own/none HTTP/1.1\""),
        "{line}"
    );
    let mut buffer = [0; 2048];
    let length = server.recv(&mut buffer).expect("a message");
    let message = text(&buffer[..length]);
    // The severity is that of the line; the one that is configured is for access logs.
    assert!(message.starts_with("<187>") && message.contains(" T: 2") && message.contains("/syslog/none"), "{message}");
    running.quit();
}

#[test]
fn a_syslog_server_that_is_gone_is_told_once_a_message_and_harms_nothing() {
    let port = free_port();
    let gone = Site::new("", "");
    let socket = gone.path("none");
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port};
            error_log syslog:server=unix:{}; error_log logs/file.log; location / {{ }} }} }}",
        socket.display()
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(client.ask("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("answered").0, 404);
    wait("both lines", || {
        let log = site.read("logs/file.log");
        let told = log.contains("send() failed (2: No such file or directory) while logging to syslog, server: unix:");
        if told && log.contains("/none\" failed") { Ok(()) } else { Err(log) }
    });
    running.quit();
}

#[test]
fn a_reload_opens_log_files_anew() {
    let port = free_port();
    let server = format!(
        "http {{ access_log logs/a.log; server {{ listen 127.0.0.1:{port}; location / {{ return 200 x; }} }} }}"
    );
    let site = Site::new("daemon off;", &server);
    let running = site.start();
    let ask = || Client::connect(port).and_then(|mut client| client.get()).expect("answered");
    ask();
    wait("a line", || if site.read("logs/a.log").lines().count() == 1 { Ok(()) } else { Err("none") });
    std::fs::rename(site.path("logs/a.log"), site.path("logs/a.log.1")).expect("renamed");
    running.signal("HUP");
    site.wait_for_log("its work has exited with code 0", 1);
    ask();
    wait("a line in the new file", || if site.read("logs/a.log").lines().count() == 1 { Ok(()) } else { Err("none") });
    std::fs::rename(site.path("logs/a.log"), site.path("logs/a.log.2")).expect("renamed");
    running.signal("USR1");
    wait("the newest file", || if site.path("logs/a.log").exists() { Ok(()) } else { Err("none") });
    // The worker is told after the new file exists; until then it writes to the old one.
    let mut asked = 2;
    wait("a line in the newest file", || {
        ask();
        asked += 1;
        if site.read("logs/a.log").is_empty() { Err("none") } else { Ok(()) }
    });
    let lines = |name: &str| site.read(name).lines().count();
    wait("a line for each request", || {
        let all = lines("logs/a.log.1") + lines("logs/a.log.2") + lines("logs/a.log");
        if all == asked { Ok(()) } else { Err(format!("{all} of {asked}")) }
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn packaged_configurations_are_in_order() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/");
    let site = Site::new("", "");
    std::fs::copy(format!("{root}mime.types"), site.path("conf/mime.types")).expect("copied");
    for name in ["nginx.conf", "container/nginx.conf"] {
        let conf = std::fs::read_to_string(format!("{root}{name}")).expect("readable");
        // Maps paths into the test's directory; port 80 may be taken or forbidden.
        let inside = |text: &str| text.replace("/var/log/tidegate", "logs").replace("/run/tidegate.pid", "logs/x.pid");
        let conf = inside(&conf).replace("listen 80;", &format!("listen 127.0.0.1:{};", free_port()));
        site.write("conf/nginx.conf", &conf);
        let output = site.run(&["-t"]);
        let words = text(&output.stderr);
        let no_such_user = words.contains("getpwnam(\"www-data\") failed");
        assert!(output.status.success() || no_such_user, "{name}: {words}");
    }
}

#[test]
fn lines_of_before_a_reopening_stand_in_the_file_of_before() {
    for master in ["on", "off"] {
        let port = free_port();
        let http = format!(
            "http {{ log_format path $request_uri; access_log logs/access.log path buffer=64k;
               server {{ listen 127.0.0.1:{port}; location / {{ return 204; }}
                         location /probe {{ access_log logs/probe.log; return 204; }} }} }}"
        );
        let site = Site::new(&format!("daemon off; master_process {master};"), &http);
        let running = site.start();
        let mut client = Client::connect(port).expect("connected");
        let mut ask = |target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(client.ask(&request).expect("answered").0, 204);
        };
        ask("/before");
        std::fs::rename(site.path("logs/access.log"), site.path("logs/access.log.1")).expect("renamed");
        // Logs are reopened in the order of their names: when the second one is, the first one was.
        std::fs::remove_file(site.path("logs/probe.log")).expect("removed");
        running.signal("USR1");
        wait("the new files", || {
            ask("/probe");
            (!site.read("logs/probe.log").is_empty()).then_some(()).ok_or("none")
        });
        ask("/after");
        running.quit();
        assert_eq!(site.read("logs/access.log.1"), "/before\n", "master_process {master}");
        assert_eq!(site.read("logs/access.log"), "/after\n", "master_process {master}");
    }
}

#[test]
fn clients_that_go_away_between_requests_are_told_of_at_info() {
    let (port, proxied) = (free_port(), free_port());
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{proxied} proxy_protocol;
         client_header_timeout 1s; location / {{ return 200 here; }} }} }}"
    );
    let site = Site::new("daemon off; error_log logs/info.log info;", &http);
    let running = site.start();
    drop(Client::connect(port).expect("connected"));
    let mut kept = Client::connect(port).expect("connected");
    assert_eq!(kept.get().expect("answered").0, 200);
    drop(kept);
    let _silent = Client::connect(port).expect("connected");
    let start = |port: u16, bytes: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(bytes.as_bytes()).expect("sent");
        stream
    };
    let _half = start(port, "GET / HT");
    drop(start(proxied, "PRO"));
    let server = format!(", client: 127.0.0.1, server: 127.0.0.1:{port}");
    for words in [
        format!("client closed connection while waiting for request{server}"),
        "client 127.0.0.1 closed keepalive connection".to_string(),
        format!("client timed out (110: Connection timed out) while waiting for request{server}"),
        "client timed out (110: Connection timed out) while reading client request line, client: 127.0.0.1, server: , \
         request: \"GET / HT\""
            .to_string(),
        format!("broken header: \"PRO\" while reading PROXY protocol, client: 127.0.0.1, server: 127.0.0.1:{proxied}"),
    ] {
        wait(&words, || if site.read("logs/info.log").contains(&words) { Ok(()) } else { Err(site.log()) });
    }
    running.quit();
}

#[test]
fn the_ratio_of_compression_is_logged() {
    let port = free_port();
    let http = format!(
        "http {{ log_format ratio '$uri $gzip_ratio'; access_log logs/ratio.log ratio; gzip on; gzip_types *; gzip_min_length 1;
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 '{}'; }} }} }}",
        "a".repeat(1000)
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for (path, field) in [("coded", "Accept-Encoding: gzip\r\n"), ("plain", "")] {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n");
        assert_eq!(client.ask(&request).expect("answered").0, 200);
    }
    wait("the lines", || if site.read("logs/ratio.log").lines().count() == 2 { Ok(()) } else { Err(site.log()) });
    let log = site.read("logs/ratio.log");
    assert!(log.ends_with("\n/plain -\n"), "{log}");
    let ratio = log.strip_prefix("/coded ").and_then(|rest| rest.lines().next()).unwrap_or_default();
    // A thousand equal letters become some 29 bytes.
    let (whole, decimals) = ratio.split_once('.').unwrap_or_default();
    assert!(decimals.len() == 2 && whole.parse::<u32>().is_ok_and(|n| (20..50).contains(&n)), "{log}");
    running.quit();
}

#[test]
fn bodies_of_more_than_two_pages_are_in_files() {
    let port = free_port();
    let conf = format!(
        "http {{ map $request_body $held {{ '' file; default memory; }} log_format l '$held'; access_log logs/l.log l;
            server {{ listen 127.0.0.1:{port};
                location / {{ proxy_pass http://127.0.0.1:{port}/ok; }} location /ok {{ access_log off; return 200 x; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let mut client = wait("a connection", || Client::connect(port));
    // Announced bodies may have a quarter more.
    for length in [8192, 10_000, 11_000] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}", "b".repeat(length));
        assert_eq!(client.ask(&request).expect("a response").0, 200);
    }
    running.quit();
    assert_eq!(site.read("logs/l.log"), "memory\nmemory\nfile\n");
}

#[test]
fn a_question_mark_alone_is_no_query() {
    let port = free_port();
    let http = format!(
        "http {{ log_format z '$request_uri|$args|$query_string|$is_args'; access_log logs/z.log z;
           server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} location /set {{ set $args \"\"; return 204; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    // As nginx 1.31 has them.
    for (index, (target, line)) in [
        ("/?x", "/?x|x|x|?"),
        ("/?", "/?|-|-|"),
        ("/", "/|-|-|"),
        ("/a/../?", "/a/../?|-|-|"),
        ("/a/../?#f", "/a/../?#f|||"),
        ("/?#f", "/?#f|||"),
        ("http://a?", "?|-|-|"),
        ("http://a?x", "?x|x|x|?"),
        ("/set?x", "/set?x|||"),
    ]
    .into_iter()
    .enumerate()
    {
        client.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).expect("answered");
        let seen = wait(target, || site.read("logs/z.log").lines().nth(index).map(str::to_string).ok_or("no line"));
        assert_eq!(seen, line, "{target}");
    }
    running.quit();
}

#[test]
fn a_variable_of_set_without_a_value_is_empty_and_told_of_once() {
    let port = free_port();
    let http = format!(
        "http {{ log_format v '[$own][$maybe][$group][$by_request][$http_set]'; access_log logs/v.log v;
           server {{ listen 127.0.0.1:{port}; set $own '';
             location / {{ if ($arg_q) {{ set $maybe 1; set $http_set 2; }} add_header X-Maybe [$maybe]; return 200 '[$maybe]'; }}
             location ~ ^/g(?<group>.) {{ auth_request_set $by_request $status; return 204; }}
             location /quiet {{ uninitialized_variable_warn off; return 200 '[$maybe]'; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    // As nginx 1.31 has them; the request of the last line has no location.
    for (index, (target, line, told)) in [
        ("/?q=1", "[][1][-][-][2]", &[][..]),
        ("/", "[][][-][-][-]", &["maybe"]),
        ("/gx", "[][][x][-][-]", &["maybe"]),
        ("/quiet", "[][][-][-][-]", &[]),
        ("/%00", "[][][-][-][-]", &["own", "maybe"]),
    ]
    .into_iter()
    .enumerate()
    {
        let before = site.log().len();
        let mut client = Client::connect(port).expect("connected");
        let _ = client.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let seen = wait(target, || site.read("logs/v.log").lines().nth(index).map(str::to_string).ok_or("no line"));
        assert_eq!(seen, line, "{target}");
        let log = site.log();
        let new = log.get(before..).unwrap_or_default();
        assert_eq!(new.matches("using uninitialized").count(), told.len(), "{target}: {new}");
        assert!(told.iter().all(|name| new.contains(&format!("using uninitialized \"{name}\" variable"))), "{new}");
    }
    running.quit();
}

#[test]
fn the_directory_of_an_alias_without_a_slash_is_named_whole() {
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; root html;
           location ~ ^/r/ {{ alias html/dir; index none.html; }}
           location /pre/ {{ alias html/dir; index none.html x.html; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    std::fs::create_dir_all(site.path("html/dir")).expect("a directory");
    let running = site.start();
    for path in ["/r/", "/pre/"] {
        let before = site.log().len();
        let mut client = Client::connect(port).expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(client.ask(&request).expect("answered").0, 403);
        // As nginx 1.31 has it: the alias, without the rest of the request's path.
        let log = wait("the line", || {
            let log = site.log();
            let new = log.get(before..).unwrap_or_default().to_string();
            if new.contains("is forbidden") { Ok(new) } else { Err(log) }
        });
        let words = format!("directory index of \"{}\" is forbidden", site.path("html/dir").display());
        assert!(log.contains(&words), "{log}");
    }
    running.quit();
}

#[test]
fn a_syslog_server_that_is_gone_is_told_to_the_main_log() {
    let port = free_port();
    let gone = Site::new("", "");
    let socket = gone.path("none").display().to_string();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; error_log syslog:server=unix:{socket}; location / {{ }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = wait("a connection", || Client::connect(port));
    assert_eq!(client.ask("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("answered").0, 404);
    site.wait_for_log("send() failed (2: No such file or directory) while logging to syslog, server: unix:", 1);
    running.quit();
}

#[test]
fn variables_without_a_value_are_empty_or_missing() {
    let port = free_port();
    let http = format!(
        "http {{
            log_format all '[$https][$http2][$http3][$msie][$modern_browser][$proxy_host][$proxy_port]';
            access_log logs/a.log all;
            server {{
                listen 127.0.0.1:{port};
                location / {{ return 200 x; }}
                location /none {{ fastcgi_pass unix:logs/none; }}
            }}
        }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for path in ["/", "/none"] {
        client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("answered");
    }
    wait("both lines", || {
        // A hyphen stands for a value that does not exist.
        let lines = site.read("logs/a.log");
        if lines == "[][][][][][-][-]\n".repeat(2) { Ok(()) } else { Err(lines) }
    });
    running.quit();
}
