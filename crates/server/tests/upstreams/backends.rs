//! Servers behind other protocols: FastCGI, uwsgi, SCGI, memcached, HTTP/2. What reaches them, and what a client sees when they die, hang
//! or talk nonsense.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::origin::{Origin, Talk};
use support::{Running, Site, free_port, text, wait};

fn serve<'a>(site: &'a Site, port: u16, locations: &str) -> Running<'a> {
    serve_with(site, port, "", locations)
}

fn serve_with<'a>(site: &'a Site, port: u16, upstream: &str, locations: &str) -> Running<'a> {
    let http = format!("http {{ {upstream} server {{ listen 127.0.0.1:{port}; {locations} }} }}");
    site.configure("daemon off; worker_processes 1;", &http);
    let running = site.start();
    wait("the port", || TcpStream::connect(("127.0.0.1", port)));
    running
}

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream.write_all(request.as_bytes()).expect("written");
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

fn get(port: u16, path: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n"))
}

fn short(answer: &str) -> String {
    let status = answer.get(9..12).unwrap_or("none");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    if status.starts_with('5') { status.into() } else { format!("{status} {body}") }
}

fn record(kind: u8, text: &[u8]) -> Vec<u8> {
    let [high, low] = (text.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], text].concat()
}

/// A FastCGI request: its end is an empty STDIN record.
fn fastcgi_request(buf: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let head = buf.get(at..at + 8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        at += 8 + length + usize::from(head[6]);
        buf.get(..at)?;
        if head[1] == 5 && length == 0 {
            return Some(at);
        }
    }
}

fn fastcgi_content(request: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
    let (mut params, mut body, mut at) = (Vec::new(), Vec::new(), 0);
    while at < request.len() {
        let length = usize::from(u16::from_be_bytes([request[at + 4], request[at + 5]]));
        let content = &request[at + 8..at + 8 + length];
        match request[at + 1] {
            4 => params.extend_from_slice(content),
            5 => body.extend_from_slice(content),
            _ => {}
        }
        at += 8 + length + usize::from(request[at + 6]);
    }
    let mut rest = params.as_slice();
    let length = |rest: &mut &[u8]| {
        let long = rest[0] & 0x80 != 0;
        let n = if long { 4 } else { 1 };
        let value = rest[..n].iter().fold(0, |value, byte| value << 8 | usize::from(*byte)) & 0x7fff_ffff;
        *rest = &rest[n..];
        value
    };
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        pairs.push((text(&rest[..name]), text(&rest[name..name + value])));
        rest = &rest[name + value..];
    }
    (pairs, body)
}

fn fastcgi_answer(text: &str) -> Vec<u8> {
    [record(6, text.as_bytes()), record(6, b""), record(3, &[0; 8])].concat()
}

#[test]
fn fastcgi_programs_get_their_parameters() {
    let origin = Origin::new(|mut talk| {
        while let Some(request) = talk.until(fastcgi_request) {
            let (params, body) = fastcgi_content(&request);
            let mut text = String::from("Content-Type: text/plain\r\n\r\n");
            params.iter().for_each(|(name, value)| text += &format!("{name}={value}\n"));
            text += &format!("body {}\n", body.len());
            talk.send(&fastcgi_answer(&text));
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let locations = format!(
        "client_body_buffer_size 1k; underscores_in_headers on; large_client_header_buffers 8 32k;
         location / {{ fastcgi_pass 127.0.0.1:{0}; fastcgi_keep_conn on; fastcgi_index i.php;
             fastcgi_split_path_info ^(.+\\.php)(/.+)$;
             fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param PATH_INFO $fastcgi_path_info if_not_empty;
             fastcgi_param LONG $arg_long if_not_empty; fastcgi_param HTTP_X_SAID said; fastcgi_param HTTP_X_GONE ''; }}",
        origin.port
    );
    let server = serve(&site, port, &locations);
    let request = "POST /a.php/info HTTP/1.1\r\nHost: me:81\r\nConnection: close\r\nContent-Length: 3000\r\nCookie: a=1\r\nX-Two: 1\r\n\
                   Cookie: b=2\r\nX-Two: 2\r\nProxy: evil\r\nX-Said: client\r\nX-Gone: client\r\nX-One: good\r\nX_One: bad\r\n\r\n";
    let answer = ask(port, &(request.to_string() + &"b".repeat(3000)));
    for line in [
        "SCRIPT_NAME=/a.php",
        "PATH_INFO=/info",
        "HTTP_HOST=me:81",
        "HTTP_COOKIE=a=1; b=2",
        "HTTP_X_TWO=1, 2",
        "HTTP_X_SAID=said",
        "HTTP_X_ONE=good",
        "HTTP_CONTENT_LENGTH=3000",
        "body 3000",
    ] {
        assert!(answer.contains(&format!("{line}\n")), "{line} in {answer}");
    }
    for never in ["HTTP_PROXY=", "HTTP_X_GONE", "=client", "=bad", "LONG="] {
        assert!(!answer.contains(never), "{never} in {answer}");
    }
    // More parameters than one record holds.
    let long = "x".repeat(6000);
    let many: String = (0..5).map(|n| format!("X-Long-{n}: {long}\r\n")).collect();
    let answer = ask(port, &format!("GET /b/?long={long} HTTP/1.1\r\nHost: me\r\nConnection: close\r\n{many}\r\n"));
    assert!(answer.contains("SCRIPT_NAME=/b/i.php\n") && answer.contains("HTTP_HOST=me\n"), "{}", short(&answer));
    assert!(answer.contains(&format!("HTTP_X_LONG_4={long}\n")) && !answer.contains("PATH_INFO"));
    server.quit();
    site.assert_no_alerts();
}

type Act = fn(&mut Talk<'_>);

fn done<T>(_: T) {}

/// Runs every script of a protocol: by its name, the answer that a client gets.
fn scripts(rows: &[(&'static str, Act, &str)], directives: &str, prefix: &str) {
    let origins: Vec<Origin> =
        rows.iter().map(|(_, act, _)| *act).map(|act| Origin::new(move |mut talk| act(&mut talk))).collect();
    let (site, port) = (Site::new("", ""), free_port());
    let mut locations = format!("{prefix}_read_timeout 300ms; {prefix}_next_upstream off; {directives}\n");
    for (index, origin) in origins.iter().enumerate() {
        locations += &format!("location = /{index} {{ {prefix}_pass 127.0.0.1:{}; }}\n", origin.port);
    }
    let server = serve(&site, port, &locations);
    for (index, (name, _, seen)) in rows.iter().enumerate() {
        let answer = get(port, &format!("/{index}"));
        assert_eq!(short(&answer), *seen, "{prefix}: {name}: {answer}\n{}", site.log());
    }
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn fastcgi_programs_that_misbehave() {
    const HEAD: &str = "Content-Length: 4\r\n\r\n";
    let rows: &[(&'static str, Act, &str)] = &[
        (
            "in order",
            |t| done(t.until(fastcgi_request).map(|_| t.send(&fastcgi_answer(&format!("{HEAD}body"))))),
            "200 body",
        ),
        (
            "octet by octet",
            |t| {
                done(
                    t.until(fastcgi_request)
                        .map(|_| t.send_slowly(&fastcgi_answer(&format!("Status: 201 X\n{HEAD}body")))),
                )
            },
            "201 body",
        ),
        ("gone before its head", |t| done(t.until(fastcgi_request)), "502"),
        (
            "cut within a record",
            |t| done(t.until(fastcgi_request).map(|_| t.send(&record(6, b"A: b\r\n")[..10]))),
            "502",
        ),
        (
            "cut within its body",
            |t| done(t.until(fastcgi_request).map(|_| t.send(&record(6, format!("{HEAD}bo").as_bytes())))),
            "200 bo",
        ),
        ("hangs", |t| done(t.until(fastcgi_request).map(|_| t.hang())), "504"),
        ("another protocol", |t| done(t.until(fastcgi_request).map(|_| t.send(b"HTTP/1.1 200 OK\r\n\r\n"))), "502"),
        ("an empty answer", |t| done(t.until(fastcgi_request).map(|_| t.send(&record(6, b"")))), "502"),
        ("an end without a beginning", |t| done(t.until(fastcgi_request).map(|_| t.send(&record(3, &[0; 8])))), "502"),
        ("a head without end", |t| done(t.until(fastcgi_request).map(|_| t.send(&record(6, &[b'x'; 60_000])))), "502"),
        (
            "complaints before and between",
            |t| {
                done(t.until(fastcgi_request).map(|_| {
                    let said = record(7, b"PHP message: careful\n");
                    let parts = [record(6, HEAD.as_bytes()), said.clone(), fastcgi_answer("body")];
                    t.send(&[said, parts.concat()].concat())
                }))
            },
            "200 body",
        ),
        (
            "more than it said",
            |t| done(t.until(fastcgi_request).map(|_| t.send(&fastcgi_answer(&format!("{HEAD}body and more"))))),
            "200 body",
        ),
        (
            "two lengths",
            |t| {
                let answer = fastcgi_answer(&format!("Content-Length: 5\r\n{HEAD}body"));
                done(t.until(fastcgi_request).map(|_| t.send(&answer)))
            },
            "502",
        ),
    ];
    scripts(rows, "", "fastcgi");
}

fn scgi_request(buf: &[u8]) -> Option<usize> {
    let colon = buf.iter().position(|c| *c == b':')?;
    let length: usize = std::str::from_utf8(&buf[..colon]).ok()?.parse().ok()?;
    (buf.len() >= colon + length + 2).then_some(colon + length + 2)
}

fn uwsgi_request(buf: &[u8]) -> Option<usize> {
    let whole = 4 + usize::from(u16::from_le_bytes([*buf.get(1)?, *buf.get(2)?]));
    (buf.len() >= whole).then_some(whole)
}

/// Requests to SCGI and uwsgi programs: constants and variables, empty ones, repeated fields, and values that are too
/// long for uwsgi.
#[test]
fn scgi_and_uwsgi_programs_get_their_parameters() {
    fn echo(mut talk: Talk<'_>, whole: fn(&[u8]) -> Option<usize>) {
        if let Some(request) = talk.until(whole) {
            talk.send(&[b"Content-Type: text/plain\r\n\r\n".as_slice(), &request].concat());
        }
    }
    let scgi = Origin::new(|talk| echo(talk, scgi_request));
    let uwsgi = Origin::new(|talk| echo(talk, uwsgi_request));
    let (site, port) = (Site::new("", ""), free_port());
    let params = |family: &str| {
        format!(
            "{family}_param A const; {family}_param B ''; {family}_param C $arg_c if_not_empty; {family}_param D $arg_d;"
        )
    };
    let locations = format!(
        "large_client_header_buffers 8 128k; chunked_transfer_encoding off;
         location /scgi {{ scgi_pass 127.0.0.1:{}; {} }}
         location /uwsgi {{ uwsgi_pass 127.0.0.1:{}; {} uwsgi_modifier1 3; uwsgi_modifier2 7; uwsgi_string tail; }}",
        scgi.port,
        params("scgi"),
        uwsgi.port,
        params("uwsgi"),
    );
    let server = serve(&site, port, &locations);
    let body = |path: &str, fields: &str| {
        let answer = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: me\r\nConnection: close\r\n{fields}\r\n"));
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or(answer)
    };
    let fields = "X-Two: 1\r\nx-two: 2\r\n";
    let words = [
        ("A", "const"),
        ("B", ""),
        ("D", "d"),
        ("HTTP_HOST", "me"),
        ("HTTP_CONNECTION", "close"),
        ("HTTP_X_TWO", "1, 2"),
    ];
    let strings: String = words.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    let strings = format!("CONTENT_LENGTH\00\0{strings}");
    assert_eq!(body("/scgi?d=d", fields), format!("{}:{strings},", strings.len()));
    let word = |text: &str| format!("{}\0{text}", text.len() as u8 as char);
    let packet: String = words.iter().map(|(name, value)| word(name) + &word(value)).collect::<String>() + "tail";
    assert_eq!(body("/uwsgi?d=d", fields), format!("\x03{}\0\x07{packet}", packet.len() as u8 as char));
    // As in nginx, the message contains the size that the packet would have.
    let long = "x".repeat(70_000);
    assert!(body("/uwsgi", &format!("X-Long: {long}\r\n")).contains("500 Internal Server Error"));
    server.quit();
    let sent = [("A", 5), ("B", 0), ("D", 0), ("HTTP_HOST", 2), ("HTTP_CONNECTION", 5), ("HTTP_X_LONG", long.len())];
    let size = sent.iter().map(|(name, value)| 4 + name.len() + value).sum::<usize>() + "tail".len();
    let log = site.log();
    assert!(log.contains(&format!("uwsgi request is too big: {size}, ")), "{log}");
}

#[test]
fn scgi_and_uwsgi_programs_that_misbehave() {
    macro_rules! rows {
        ($request:ident) => {
            &[
                (
                    "a status line",
                    |t| done(t.until($request).map(|_| t.send(b"HTTP/1.0 201 X\r\nA: b\r\n\r\nbody"))),
                    "201 body",
                ),
                (
                    "fields",
                    |t| done(t.until($request).map(|_| t.send_slowly(b"Status: 202 X\r\n\r\nbody"))),
                    "202 body",
                ),
                ("gone", |t| done(t.until($request)), "502"),
                ("hangs", |t| done(t.until($request).map(|_| t.hang())), "504"),
                ("no status", |t| done(t.until($request).map(|_| t.send(b"Status: good\r\n\r\n"))), "502"),
                ("cut", |t| done(t.until($request).map(|_| t.send(b"A: b\r\nContent-Length: 9\r\n\r\nbo"))), "200 bo"),
                ("more", |t| done(t.until($request).map(|_| t.send(b"Content-Length: 2\r\n\r\nbody"))), "200 bo"),
                (
                    "two lengths",
                    |t| {
                        let head = b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody";
                        done(t.until($request).map(|_| t.send(head)))
                    },
                    "502",
                ),
                (
                    "a length and chunks",
                    |t| {
                        let head = b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nbody";
                        done(t.until($request).map(|_| t.send(head)))
                    },
                    "502",
                ),
                (
                    "a length beyond files",
                    |t| done(t.until($request).map(|_| t.send(b"Content-Length: 9223372036854775808\r\n\r\nbody"))),
                    "502",
                ),
            ]
        };
    }
    let rows: &[(&'static str, Act, &str)] = rows!(scgi_request);
    scripts(rows, "scgi_param A b;", "scgi");
    let rows: &[(&'static str, Act, &str)] = rows!(uwsgi_request);
    scripts(rows, "uwsgi_param A b;", "uwsgi");
}

#[test]
fn memcached_servers_that_misbehave() {
    fn line(buf: &[u8]) -> Option<usize> {
        buf.iter().position(|c| *c == b'\n').map(|at| at + 1)
    }
    let rows: &[(&'static str, Act, &str)] = &[
        ("a value", |t| done(t.until(line).map(|_| t.send_slowly(b"VALUE key 0 4\r\nbody\r\nEND\r\n"))), "200 body"),
        ("gone", |t| done(t.until(line)), "502"),
        ("hangs", |t| done(t.until(line).map(|_| t.hang())), "504"),
        ("another key", |t| done(t.until(line).map(|_| t.send(b"VALUE other 0 4\r\nbody\r\nEND\r\n"))), "502"),
        ("nonsense", |t| done(t.until(line).map(|_| t.send(b"SERVER_ERROR out of memory\r\n"))), "502"),
        ("a line without end", |t| done(t.until(line).map(|_| t.send(&[b'x'; 10_000]))), "502"),
        (
            "a trailer that is none",
            |t| done(t.until(line).map(|_| t.send(b"VALUE key 0 4\r\nbody or not"))),
            "200 body",
        ),
    ];
    scripts(rows, "set $memcached_key key;", "memcached");
}

#[test]
fn a_missing_value_of_memcached_is_an_error_page_and_a_value_has_ranges() {
    fn line(buf: &[u8]) -> Option<usize> {
        buf.iter().position(|c| *c == b'\n').map(|at| at + 1)
    }
    let origin = Origin::new(|mut talk| {
        while let Some(request) = talk.until(line) {
            let answer: &[u8] =
                if request == b"get /none\r\n" { b"END\r\n" } else { b"VALUE /key 0 5\r\nvalue\r\nEND\r\n" };
            if !talk.send(answer) {
                return;
            }
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let locations = format!(
        "set $memcached_key $uri;
         location / {{ memcached_pass 127.0.0.1:{0}; }}
         location = /none {{ memcached_pass 127.0.0.1:{0}; error_page 404 = @other; }}
         location = /page {{ set $memcached_key /none; memcached_pass 127.0.0.1:{0}; }}
         location @other {{ return 200 other; }}",
        origin.port
    );
    let server = serve(&site, port, &locations);
    assert_eq!(short(&get(port, "/none")), "200 other");
    let page = get(port, "/page");
    assert!(page.starts_with("HTTP/1.1 404 ") && page.contains("<h1>404 Not Found</h1>"), "{page}");
    let part = ask(port, "GET /key HTTP/1.1\r\nHost: x\r\nRange: bytes=1-3\r\nConnection: close\r\n\r\n");
    assert!(part.starts_with("HTTP/1.1 206 ") && part.ends_with("\r\n\r\nalu"), "{part}");
    server.quit();
    site.assert_no_alerts();
}

struct H2 {
    server: wire_h2::Server,
    asked: Vec<u32>,
}

impl H2 {
    fn new() -> H2 {
        H2 { server: wire_h2::Server::new(wire_h2::ServerLimits::default()), asked: Vec::new() }
    }
    /// Moves bytes until a closure is content; `false`: the connection has ended.
    fn run(&mut self, talk: &mut Talk<'_>, done: impl Fn(&H2) -> bool) -> bool {
        loop {
            let out = self.server.output().to_vec();
            self.server.advance(out.len());
            if !talk.send(&out) {
                return false;
            }
            if done(self) {
                return true;
            }
            let Some(bytes) = talk.some() else { return false };
            if self.server.receive(&bytes).is_err() {
                return false;
            }
            while let Some(event) = self.server.poll_event() {
                if let http_types::Event::Head { stream, .. } = event {
                    self.asked.push(stream as u32);
                }
            }
        }
    }
    fn answer(&mut self, stream: u32, body: &str) {
        let length = body.len().to_string();
        let fields = [(&b"content-length"[..], length.as_bytes())];
        self.server.send_head(stream, 200, fields.into_iter(), false);
        self.server.send_body(stream, body.as_bytes(), 16_384, true);
    }
}

#[test]
fn requests_share_a_connection_of_http2() {
    const REQUESTS: usize = 20;
    // Responds only when all requests are open, which proves that they share a connection.
    let origin = Origin::new(|mut talk| {
        let mut h2 = H2::new();
        while h2.run(&mut talk, |h2| h2.asked.len() == REQUESTS) {
            for stream in std::mem::take(&mut h2.asked).into_iter().rev() {
                h2.answer(stream, &format!("stream {stream}"));
            }
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let server = serve_with(&site, port, &upstream, "location / { proxy_pass http://u; proxy_http_version 2; }");
    for _ in 0..2 {
        let clients: Vec<_> = (0..REQUESTS).map(|_| std::thread::spawn(move || get(port, "/"))).collect();
        let mut answers: Vec<String> =
            clients.into_iter().map(|client| short(&client.join().expect("a client"))).collect();
        answers.sort();
        answers.dedup();
        // Each has its own answer.
        assert_eq!(answers.len(), REQUESTS, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.starts_with("200 stream ")), "{answers:?}");
    }
    assert_eq!(origin.connections(), 1);
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn requests_that_http2_left_undone_are_repeated_and_broken_ones_are_not() {
    let tried = Arc::new(AtomicUsize::new(0));
    let its = tried.clone();
    let origin = Origin::new(move |mut talk| {
        let mut h2 = H2::new();
        if !h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
            return;
        }
        let number = its.fetch_add(1, Ordering::Relaxed);
        let frame = |kind: u8, stream: u32, payload: &[u8]| {
            let mut out = vec![0, 0, payload.len() as u8, kind, 0];
            out.extend_from_slice(&stream.to_be_bytes());
            out.extend_from_slice(payload);
            out
        };
        match number {
            // The first client disconnects without reading the second response.
            0 => {
                h2.answer(h2.asked[0], "first");
                h2.run(&mut talk, |h2| h2.asked.len() == 2);
                talk.send(&frame(7, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
                talk.hang();
            }
            1 => {
                h2.answer(h2.asked[0], "again");
                h2.run(&mut talk, |h2| h2.asked.len() == 2);
                // CANCEL: the server had started processing.
                talk.send(&frame(3, h2.asked[1], &[0, 0, 0, 8]));
                talk.hang();
            }
            _ => talk.hang(),
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let server = serve_with(&site, port, &upstream, "location / { proxy_pass http://u; proxy_http_version 2; }");
    let post = || {
        let text = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
        short(&ask(port, text))
    };
    assert_eq!(post(), "200 first");
    // A POST is retried, because the server reported that it did not process it.
    assert_eq!(post(), "200 again");
    assert_eq!(post(), "502");
    assert_eq!((origin.connections(), tried.load(Ordering::Relaxed)), (2, 2));
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn a_silent_connection_of_http2_gets_no_more_requests() {
    // The first connection answers once and is then silent, as that of a server that has vanished.
    let origin = Origin::new(|mut talk| {
        let mut h2 = H2::new();
        if h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
            h2.answer(h2.asked[0], "once");
            h2.run(&mut talk, |h2| h2.server.unsent() == 0);
            talk.hang();
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{} max_fails=0; keepalive 4; }}", origin.port);
    let location = "location / { proxy_pass http://u; proxy_http_version 2; proxy_read_timeout 300ms; }";
    let server = serve_with(&site, port, &upstream, location);
    let answers: Vec<String> = (0..4).map(|_| short(&get(port, "/"))).collect();
    assert_eq!(answers, ["200 once", "504", "200 once", "504"]);
    assert_eq!(origin.connections(), 2);
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn trailers_of_http2_are_variables() {
    // The trailers come with the head, or after the client has the body.
    let origin = Origin::new(|mut talk| {
        let mut h2 = H2::new();
        while h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
            let stream = h2.asked.remove(0);
            h2.server.send_head(stream, 200, [].into_iter(), false);
            h2.server.send_body(stream, b"body", 16_384, false);
            if stream > 1 && !h2.run(&mut talk, |h2| h2.server.unsent() == 0) {
                return;
            }
            h2.server.send_trailers(stream, [(&b"x-t"[..], &b"behind"[..])].into_iter());
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let location = "location / { proxy_pass http://u; proxy_http_version 2; add_trailer X-Up $upstream_trailer_x_t; }";
    let server = serve_with(&site, port, &upstream, location);
    for _ in 0..2 {
        let answer = ask(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(answer.contains("\r\nX-Up: behind\r\n") && !answer.contains("x-t"), "{answer}");
    }
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn complete_responses_of_http2_announce_only_trailers_that_came() {
    // In one write: a head that ends the stream; then head, body and trailers.
    let origin = Origin::new(|mut talk| {
        let mut h2 = H2::new();
        while h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
            let stream = h2.asked.remove(0);
            h2.server.send_head(stream, 200, [].into_iter(), stream == 1);
            if stream > 1 {
                h2.server.send_body(stream, b"body", 16_384, false);
                h2.server.send_trailers(stream, [(&b"x-t"[..], &b"behind"[..])].into_iter());
            }
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let location = "location / { proxy_pass http://u; proxy_http_version 2; proxy_pass_trailers on; }";
    let server = serve_with(&site, port, &upstream, location);
    let ask = || ask(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (alone, behind) = (ask(), ask());
    assert!(!alone.contains("Transfer-Encoding"), "{alone}");
    assert!(behind.contains("Transfer-Encoding") && behind.ends_with("\r\nx-t: behind\r\n\r\n"), "{behind}");
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn a_connection_of_http2_without_a_window_gets_no_more_requests() {
    // The first connection answers when its window of 65,535 octets is spent, and never opens it again.
    fn data(received: &[u8]) -> usize {
        let (mut rest, mut sum) = (received.get(wire_h2::PREFACE.len()..).unwrap_or_default(), 0);
        while let [a, b, c, kind, ..] = *rest {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            sum += if kind == 0 { length } else { 0 };
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        sum
    }
    let first = std::sync::atomic::AtomicBool::new(true);
    let origin = Origin::new(move |mut talk| {
        if !first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            let mut h2 = H2::new();
            while h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
                let stream = h2.asked.remove(0);
                h2.answer(stream, "another");
            }
            return;
        }
        talk.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        talk.until(|received| (data(received) >= 65_535).then_some(received.len()));
        // `:status: 200` and the end of the stream.
        talk.send(&[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]);
        talk.hang();
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!("upstream u {{ server 127.0.0.1:{} max_fails=0; keepalive 4; }}", origin.port);
    let location = "location / { proxy_pass http://u; proxy_http_version 2; proxy_send_timeout 2s; }";
    let server = serve_with(&site, port, &upstream, location);
    let post = |length: usize| {
        let head = format!("POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
        short(&ask(port, &(head + &"x".repeat(length))))
    };
    assert_eq!([post(100_000), post(5), post(5)], ["200 ", "200 another", "200 another"]);
    assert_eq!(origin.connections(), 2);
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn servers_of_http2_that_misbehave() {
    fn preface(buf: &[u8]) -> Option<usize> {
        (buf.len() >= wire_h2::PREFACE.len()).then_some(buf.len())
    }
    let rows: &[(&'static str, Act, &str)] = &[
        (
            "in order",
            |t| {
                let mut h2 = H2::new();
                h2.run(t, |h2| !h2.asked.is_empty());
                h2.answer(h2.asked[0], "body");
                h2.run(t, |_| false);
            },
            "200 body",
        ),
        ("gone", |t| done(t.until(preface)), "502"),
        ("hangs", |t| done(t.until(preface).map(|_| t.hang())), "504"),
        ("HTTP/1", |t| done(t.until(preface).map(|_| t.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"))), "502"),
        (
            "a flood",
            |t| {
                t.until(preface);
                t.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
                let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
                t.send(&ping.repeat(100_000));
            },
            "502",
        ),
        (
            "a body that is too short",
            |t| {
                let mut h2 = H2::new();
                h2.run(t, |h2| !h2.asked.is_empty());
                let stream = h2.asked[0];
                h2.server.send_head(stream, 200, [(&b"content-length"[..], &b"9"[..])].into_iter(), false);
                h2.server.send_body(stream, b"body", 100, true);
                h2.run(t, |_| false);
            },
            "502",
        ),
    ];
    let origins: Vec<Origin> =
        rows.iter().map(|(_, act, _)| *act).map(|act| Origin::new(move |mut talk| act(&mut talk))).collect();
    let (site, port) = (Site::new("", ""), free_port());
    let mut locations = String::from("proxy_http_version 2; proxy_read_timeout 300ms; proxy_next_upstream off;\n");
    for (index, origin) in origins.iter().enumerate() {
        locations += &format!("location = /{index} {{ proxy_pass http://127.0.0.1:{}; }}\n", origin.port);
    }
    let server = serve(&site, port, &locations);
    for (index, (name, _, seen)) in rows.iter().enumerate() {
        let answer = get(port, &format!("/{index}"));
        let seen_here = short(&answer);
        // Bytes before a fault may have been passed already: the client sees a truncated answer.
        let cut = *name == "a body that is too short" && answer.starts_with("HTTP/1.1 200");
        assert!(seen_here == *seen || (cut && !answer.contains("body12345")), "{name}: {answer}\n{}", site.log());
    }
    server.quit();
    site.assert_no_alerts();
}

/// Servers behind the usual map for WebSockets see `Connection: close` in all other requests. An application that writes
/// `Connection: keep-alive` itself, as for server-sent events, does not make such a connection reusable.
#[test]
fn a_connection_that_a_request_announced_to_close_gets_no_more_requests() {
    let origin = Origin::new(|mut talk| {
        let mut closing = false;
        while let Some(head) = talk.request() {
            // As Node.js answers a request behind `Connection: close`.
            let answer = if closing {
                "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
            };
            if !talk.send(answer.as_bytes()) || closing {
                return;
            }
            closing = head.contains("Connection: close") || head.contains("Connection: x, Close");
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let upstream = format!(
        "map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
         upstream u {{ server 127.0.0.1:{}; keepalive 4; }}",
        origin.port
    );
    let locations = "location / { proxy_pass http://u; proxy_set_header Upgrade $http_upgrade;
         proxy_set_header Connection $connection_upgrade; }
         location /list { proxy_pass http://u; proxy_set_header Connection \"x, Close\"; }
         location /kept { proxy_pass http://u; proxy_set_header Connection \"\"; }";
    let server = serve_with(&site, port, &upstream, locations);
    let body = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
    for _ in 0..2 {
        assert_eq!(short(&get(port, "/")), "200 ok");
        assert_eq!(short(&ask(port, body)), "200 ok");
        assert_eq!(short(&get(port, "/list")), "200 ok");
    }
    assert_eq!(origin.connections(), 6);
    // Others are reused.
    for _ in 0..3 {
        assert_eq!(short(&get(port, "/kept")), "200 ok");
    }
    assert_eq!(origin.connections(), 7);
    server.quit();
    site.assert_no_alerts();
}

#[test]
fn a_body_that_is_too_large_ends_a_response_of_http2() {
    // The first request gets the start of a response, and the second one nothing.
    let tried = Arc::new(AtomicUsize::new(0));
    let its = tried.clone();
    let origin = Origin::new(move |mut talk| {
        let mut h2 = H2::new();
        if h2.run(&mut talk, |h2| !h2.asked.is_empty()) {
            if its.fetch_add(1, Ordering::Relaxed) == 0 {
                h2.server.send_head(h2.asked[0], 200, std::iter::empty(), false);
                h2.server.send_body(h2.asked[0], b"start", 16_384, false);
            }
            h2.run(&mut talk, |_| false);
        }
    });
    let (site, port) = (Site::new("", ""), free_port());
    let formats = "log_format its '$status $upstream_status'; client_max_body_size 10;";
    let location = format!(
        "location / {{
            access_log logs/its.log its; proxy_pass http://127.0.0.1:{}; proxy_http_version 2;
            proxy_request_buffering off; proxy_buffering off;
        }}",
        origin.port
    );
    let server = serve_with(&site, port, formats, &location);
    let ask = |number: usize, before: &str| {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n";
        client.write_all(head.as_bytes()).expect("written");
        let mut all = Vec::new();
        while !text(&all).contains(before) {
            let mut some = [0; 1024];
            let length = client.read(&mut some).expect("a response");
            all.extend_from_slice(&some[..length]);
        }
        wait("the request", || if tried.load(Ordering::Relaxed) == number { Ok(()) } else { Err("none") });
        client.write_all(b"6\r\n123456\r\n").expect("written");
        client.read_to_end(&mut all).expect("the end of the connection");
        text(&all)
    };
    let answer = ask(1, "start");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("\r\n0\r\n"), "{answer}");
    assert!(ask(2, "").starts_with("HTTP/1.1 413 "));
    wait("both lines", || {
        let lines = site.read("logs/its.log");
        if lines == "200 200\n413 -\n" { Ok(()) } else { Err(lines) }
    });
    let words = "client intended to send too large chunked body: 5+6 bytes while sending request to upstream";
    assert_eq!(site.log().matches(words).count(), 2, "{}", site.log());
    server.quit();
    site.assert_no_alerts();
}
