//! Requests over kept connections that the server closes: sent once unless `proxy_next_upstream` permits another try, and
//! every try is in the variables (nginx: `ngx_http_upstream_next`, `u->peer.cached`).

use crate::support;

use std::sync::{Arc, Mutex};
use support::client::Client;
use support::origin::{Origin, Talk, ok};
use support::{Site, free_port};

/// An end of a connection after its first response.
#[derive(Clone, Copy)]
enum End {
    Silent,
    PartialHead,
}

/// Answers the first request of each connection, and notes the first lines of all requests.
fn closing(end: End) -> (Origin, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let its = lines.clone();
    let origin = Origin::new(move |mut talk: Talk<'_>| {
        let mut is_first = true;
        while let Some(request) = talk.request() {
            let line = request.lines().next().unwrap_or_default().to_string();
            its.lock().expect("lines").push(line);
            if !is_first {
                if matches!(end, End::PartialHead) {
                    talk.send(b"HTTP/1.1 200 OK\r\nContent-Le");
                }
                return;
            }
            is_first = false;
            if !talk.send(&ok("here")) {
                return;
            }
        }
    });
    (origin, lines)
}

#[test]
fn a_request_over_a_kept_connection_is_sent_as_often_as_the_configuration_says() {
    for end in [End::Silent, End::PartialHead] {
        // Directives, method, whether a second try follows.
        for (directives, method, is_retried) in [
            ("", "GET", true),
            ("", "PUT", true),
            ("", "POST", false),
            ("proxy_next_upstream off;", "GET", false),
            ("proxy_next_upstream off;", "PUT", false),
            ("proxy_next_upstream timeout http_500;", "DELETE", false),
            ("proxy_next_upstream error non_idempotent;", "POST", true),
            ("proxy_next_upstream_tries 1;", "GET", true),
            // Response fields are read: the request takes the general path.
            ("add_header X-Length $upstream_http_content_length;", "GET", true),
            ("proxy_next_upstream off; proxy_buffering off;", "GET", false),
            // A task of its own.
            ("proxy_store on; proxy_next_upstream off;", "GET", false),
            ("proxy_store on;", "GET", true),
        ] {
            let (origin, lines) = closing(end);
            let port = free_port();
            let site = Site::new(
                "daemon off; worker_processes 1;",
                &format!(
                    "http {{ log_format tries '$upstream_addr|$upstream_status|$status'; access_log logs/access.log tries;
                     upstream u {{ server 127.0.0.1:{}; keepalive 4; }}
                     server {{ listen 127.0.0.1:{port}; location / {{ {directives} proxy_pass http://u;
                     proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}",
                    origin.port
                ),
            );
            let running = site.start();
            let mut client = Client::connect(port).expect("connects");
            assert_eq!(client.ask("GET /first HTTP/1.1\r\nHost: a\r\n\r\n"), Ok((200, "here".into())));
            let body = if method == "GET" || method == "DELETE" { "" } else { "Content-Length: 4\r\n" };
            let text = if body.is_empty() { "" } else { "body" };
            let answer = client.ask(&format!("{method} /second HTTP/1.1\r\nHost: a\r\n{body}\r\n{text}"));
            let status = if is_retried { 200 } else { 502 };
            assert_eq!(answer.map(|(status, _)| status), Ok(status), "{method} {directives}");
            running.quit();
            let times = if is_retried { 2 } else { 1 };
            let sent = lines.lock().expect("lines").iter().filter(|line| line.contains("/second")).count();
            assert_eq!(sent, times, "{method} {directives}");
            let address = format!("127.0.0.1:{}", origin.port);
            let (addresses, statuses) = match is_retried {
                true => (format!("{address}, {address}"), "502, 200".to_string()),
                false => (address, "502".to_string()),
            };
            let log = site.read("logs/access.log");
            let wanted = format!("{addresses}|{statuses}|{status}");
            assert_eq!(log.lines().last(), Some(wanted.as_str()), "{method} {directives}: {log}");
            assert_eq!(site.log().matches("upstream prematurely closed connection").count(), 1, "{}", site.log());
            site.assert_no_alerts();
        }
    }
}

/// A record of FastCGI for request 1.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a short record").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

#[test]
fn a_request_to_a_gateway_over_a_kept_connection_is_sent_as_often_as_the_configuration_says() {
    for (directives, is_retried) in
        [("", true), ("fastcgi_next_upstream off;", false), ("fastcgi_next_upstream timeout;", false)]
    {
        let counts = Arc::new(Mutex::new(Vec::new()));
        let its_counts = counts.clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let gateway = listener.local_addr().expect("an address").port();
        // Answers the first request of each connection and closes it at the second one.
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                for n in 0..2 {
                    // A request without a body ends with an empty record of its standard input.
                    let (mut all, mut part) = (Vec::new(), [0; 4096]);
                    while !all.windows(8).any(|bytes| bytes == [1, 5, 0, 1, 0, 0, 0, 0]) {
                        match stream.read(&mut part) {
                            Ok(0) | Err(_) => break,
                            Ok(n) => all.extend_from_slice(&part[..n]),
                        }
                    }
                    if all.is_empty() {
                        break;
                    }
                    its_counts.lock().expect("counts").push(n);
                    if n == 0 {
                        let head = record(6, b"Content-Length: 4\r\n\r\nhere");
                        let end = record(3, &[0; 8]);
                        let _ = stream.write_all(&[head, record(6, b""), end].concat());
                    }
                }
            }
        });
        let port = free_port();
        let site = Site::new(
            "daemon off; worker_processes 1;",
            &format!(
                "http {{ log_format tries '$upstream_status|$status'; access_log logs/access.log tries;
                 upstream u {{ server 127.0.0.1:{gateway}; keepalive 4; }}
                 server {{ listen 127.0.0.1:{port}; location / {{ {directives} fastcgi_pass u; fastcgi_keep_conn on; }} }} }}"
            ),
        );
        let running = site.start();
        let mut client = Client::connect(port).expect("connects");
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(client.ask(request), Ok((200, "here".into())));
        let status = if is_retried { 200 } else { 502 };
        assert_eq!(client.ask(request).map(|(status, _)| status), Ok(status), "{directives}");
        running.quit();
        let wanted: &[i32] = if is_retried { &[0, 1, 0] } else { &[0, 1] };
        assert_eq!(*counts.lock().expect("counts"), wanted, "{directives}");
        let log = site.read("logs/access.log");
        let wanted = if is_retried { "502, 200|200" } else { "502|502" };
        assert_eq!(log.lines().last(), Some(wanted), "{directives}: {log}");
        site.assert_no_alerts();
    }
}

/// Answers the first request of each HTTP/2 connection, and ends the connection at the second one.
fn closing_http2(counts: Arc<Mutex<Vec<usize>>>) -> Origin {
    Origin::new(move |mut talk: Talk<'_>| {
        let mut server = wire_h2::Server::new(wire_h2::ServerLimits::default());
        let mut requests = 0;
        loop {
            let out = server.output().to_vec();
            server.advance(out.len());
            if !talk.send(&out) {
                return;
            }
            let Some(bytes) = talk.some() else { return };
            if server.receive(&bytes).is_err() {
                return;
            }
            while let Some(event) = server.poll_event() {
                let http_types::Event::Head { stream, .. } = event else { continue };
                counts.lock().expect("counts").push(requests);
                requests += 1;
                if requests > 1 {
                    return;
                }
                let stream = u32::try_from(stream).expect("a stream");
                let fields = [(&b"content-length"[..], &b"4"[..]), (b"content-type", b"application/grpc")];
                server.send_head(stream, 200, fields.into_iter(), false);
                server.send_body(stream, b"here", 16_384, true);
            }
        }
    })
}

#[test]
fn a_request_over_a_kept_http2_connection_is_sent_as_often_as_the_configuration_says() {
    for (prefix, pass) in [("proxy", "proxy_pass http://u; proxy_http_version 2;"), ("grpc", "grpc_pass grpc://u;")] {
        for (next, method, is_retried) in [
            ("", "GET", true),
            ("", "POST", false),
            ("off", "GET", false),
            ("timeout http_500", "GET", false),
            ("error non_idempotent", "POST", true),
        ] {
            let counts: Arc<Mutex<Vec<usize>>> = Arc::default();
            let origin = closing_http2(counts.clone());
            let port = free_port();
            let directive = if next.is_empty() { String::new() } else { format!("{prefix}_next_upstream {next};") };
            let site = Site::new(
                "daemon off; worker_processes 1;",
                &format!(
                    "http {{ log_format tries '$upstream_addr|$upstream_status|$status'; access_log logs/access.log tries;
                     upstream u {{ server 127.0.0.1:{}; keepalive 4; }}
                     server {{ listen 127.0.0.1:{port}; location / {{ {directive} {pass} }} }} }}",
                    origin.port
                ),
            );
            let running = site.start();
            let mut client = Client::connect(port).expect("connects");
            let case = format!("{prefix} {next} {method}");
            assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok((200, "here".into())), "{case}");
            let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
            let answer = client.ask(&format!("{method} / HTTP/1.1\r\nHost: a\r\n{body}"));
            let status = if is_retried { 200 } else { 502 };
            assert_eq!(answer.map(|(status, _)| status), Ok(status), "{case}: {}", site.log());
            running.quit();
            let wanted: &[usize] = if is_retried { &[0, 1, 0] } else { &[0, 1] };
            assert_eq!(*counts.lock().expect("counts"), wanted, "{case}");
            let address = format!("127.0.0.1:{}", origin.port);
            let wanted = match is_retried {
                true => format!("{address}, {address}|502, 200|200"),
                false => format!("{address}|502|502"),
            };
            let log = site.read("logs/access.log");
            assert_eq!(log.lines().last(), Some(wanted.as_str()), "{case}: {log}");
            site.assert_no_alerts();
        }
    }
}
