//! Misbehaving origins: the client's view, and the isolation of responses from other requests.
//!
//! With `ORACLE=/usr/sbin/nginx` the scripts run against a real nginx, which defines the expected results. Rows with a
//! deliberate difference state the reason.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::origin::{Origin, Talk, ok};
use support::{Site, alive, children, free_port, private_kb, signal, wait, wait_for_rest};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Whole(u16, String),
    /// A head and a part of the body: the connection ends too early, so that the client can tell.
    Part(u16, String),
}

fn whole(status: u16, body: &str) -> Seen {
    Seen::Whole(status, body.into())
}

struct Row {
    name: &'static str,
    act: fn(&mut Talk<'_>),
    seen: Seen,
    /// nginx's result, and the reason for the difference.
    differs: Option<(Seen, &'static str)>,
}

fn row(name: &'static str, act: fn(&mut Talk<'_>), seen: Seen) -> Row {
    Row { name, act, seen, differs: None }
}

fn error(name: &'static str, act: fn(&mut Talk<'_>), status: u16) -> Row {
    row(name, act, Seen::Whole(status, String::new()))
}

fn part(name: &'static str, act: fn(&mut Talk<'_>), body: &str) -> Row {
    row(name, act, Seen::Part(200, body.into()))
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

fn say(talk: &mut Talk<'_>, parts: &[&[u8]]) {
    for part in parts {
        talk.send(part);
    }
}

fn rows() -> Vec<Row> {
    let mut two_lengths = error(
        "two lengths",
        |t| say(t, &[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nbody"]),
        502,
    );
    two_lengths.differs = Some((whole(200, "bod"), "nginx does so from 1.23 on"));
    let mut both_lengths = error(
        "a length and chunks",
        |t| {
            say(
                t,
                &[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"],
            )
        },
        502,
    );
    both_lengths.differs = Some((whole(200, "body"), "nginx does so from 1.23 on"));
    let mut no_number =
        error("a length that is none", |t| say(t, &[b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n0123456789"]), 502);
    no_number.differs = Some((whole(200, "0123456789"), "nginx does so from 1.23 on"));
    let mut no_content = row(
        "a body where none belongs",
        |t| say(t, &[b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc"]),
        whole(204, ""),
    );
    no_content.differs = Some((Seen::Part(204, String::new()), "a 204 has no length"));
    vec![
        error("closes at once", |_| {}, 502),
        error("hangs before the head", |t| t.hang(), 504),
        error("closes within the head", |t| say(t, &[&HEAD[..20]]), 502),
        error(
            "hangs within the head",
            |t| {
                say(t, &[&HEAD[..20]]);
                t.hang();
            },
            504,
        ),
        error(
            "an endless head",
            |t| {
                t.send(b"HTTP/1.1 200 OK\r\n");
                while t.send(b"X-More: and more and more and more\r\n") {}
            },
            502,
        ),
        error(
            "an endless line",
            |t| {
                t.send(b"HTTP/1.1 200 OK\r\nX-More: ");
                while t.send(&[b'x'; 1000]) {}
            },
            502,
        ),
        row("no status line", |t| say(t, &[b"what?\r\n\r\nbody"]), Seen::Part(0, "what?\r\n\r\nbody".into())),
        two_lengths,
        both_lengths,
        no_number,
        row(
            "one byte at a time",
            |t| {
                t.send_slowly(HEAD);
                t.send_slowly(b"0123456789");
            },
            whole(200, "0123456789"),
        ),
        row(
            "chunks one byte at a time",
            |t| {
                t.send_slowly(CHUNKED);
                t.send_slowly(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-T: v\r\n\r\n");
            },
            whole(200, "abcde"),
        ),
        part("less than was announced", |t| say(t, &[HEAD, b"01234"]), "01234"),
        row("more than was announced", |t| say(t, &[HEAD, b"0123456789 and more"]), whole(200, "0123456789")),
        row("a second response", |t| say(t, &[HEAD, b"0123456789", &ok("nobody asked")]), whole(200, "0123456789")),
        part(
            "hangs within the body",
            |t| {
                say(t, &[HEAD, b"01234"]);
                t.hang();
            },
            "01234",
        ),
        part("closes within a chunk", |t| say(t, &[CHUNKED, b"5\r\nabc"]), "abc"),
        part("closes between chunks", |t| say(t, &[CHUNKED, b"3\r\nabc\r\n"]), "abc"),
        part("a broken chunk size", |t| say(t, &[CHUNKED, b"3\r\nabc\r\nzz\r\n"]), "abc"),
        part("a chunk that is too long", |t| say(t, &[CHUNKED, b"3\r\nabcd\r\n0\r\n\r\n"]), "abc"),
        row(
            "bytes behind the last chunk",
            |t| say(t, &[CHUNKED, b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200"]),
            whole(200, "abc"),
        ),
        row("no length at all", |t| say(t, &[b"HTTP/1.1 200 OK\r\n\r\nabc"]), whole(200, "abc")),
        no_content,
        row(
            "interim responses",
            |t| {
                let interim = b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n";
                say(t, &[interim, interim, interim, &ok("abc")]);
            },
            whole(200, "abc"),
        ),
        error("a flood of interim responses", |t| while t.send(b"HTTP/1.1 102 Processing\r\n\r\n") {}, 502),
    ]
}

struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let workers = children(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        workers.into_iter().filter(|w| alive(*w)).for_each(|w| signal(w, "KILL"));
    }
}

fn oracle() -> Option<String> {
    std::env::var("ORACLE").ok()
}

fn serve(site: &Site, http: &str) -> Server {
    site.configure("daemon off; pid logs/nginx.pid;", &format!("http {{ access_log off; {http} }}"));
    let binary = oracle().unwrap_or(support::BINARY.into());
    let mut command = std::process::Command::new(binary);
    command.arg("-p").arg(&site.dir).args(["-c", "conf/nginx.conf"]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts");
    wait("the pid file", || site.pid().map(drop).ok_or("none"));
    Server { child }
}

/// Asks and reads to the end of the connection.
fn ask(port: u16, request: &str) -> Seen {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n").filter(|_| text.starts_with("HTTP/1.1 ")) else {
        return Seen::Part(0, text);
    };
    let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let field = |name: &str| head.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_ascii_lowercase());
    if field("Transfer-Encoding:").is_some() {
        let (mut out, mut rest) = (String::new(), body);
        while let Some((size, after)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap_or(usize::MAX);
            if size == 0 {
                return Seen::Whole(status, out);
            }
            let Some(data) = after.get(..size) else { break };
            out.push_str(data);
            rest = after.get(size + 2..).unwrap_or("");
        }
        return Seen::Part(status, out);
    }
    match field("Content-Length:").and_then(|n| n.parse::<usize>().ok()) {
        // Error pages differ, so only their status is compared.
        Some(n) if n == body.len() && status >= 500 => Seen::Whole(status, String::new()),
        Some(n) if n > body.len() => Seen::Part(status, body.into()),
        _ => Seen::Whole(status, body.into()),
    }
}

/// Of a body that is cut off less may have arrived: what matters is that the client can tell.
fn fits(seen: &Seen, wanted: &Seen) -> bool {
    match (seen, wanted) {
        // nginx may notice before it has sent the head.
        (Seen::Part(0, nothing), Seen::Part(..)) if nothing.is_empty() && oracle().is_some() => true,
        (Seen::Part(status, body), Seen::Part(other, whole)) => status == other && whole.starts_with(body),
        _ => seen == wanted,
    }
}

#[test]
fn clients_see_what_nginx_would_show_them() {
    let rows = rows();
    let origins: Vec<Origin> = rows
        .iter()
        .map(|row| {
            let act = row.act;
            Origin::new(move |mut talk| {
                if talk.request().is_some() {
                    act(&mut talk);
                }
            })
        })
        .collect();
    let (passed_on, seen) = std::sync::mpsc::channel::<()>();
    let seen = std::sync::Mutex::new(seen);
    let resetting = Origin::new(move |mut talk| {
        if talk.request().is_some() {
            say(&mut talk, &[HEAD, b"01234"]);
            // A reset discards unread bytes, so it is sent after the client has read them.
            let _ = seen.lock().expect("the only one").recv_timeout(Duration::from_secs(20));
            talk.reset();
        }
    });
    let site = Site::new("", "");
    let (port, refusing) = (free_port(), free_port());
    let mut locations = format!(
        "location = /refused {{ proxy_pass http://127.0.0.1:{refusing}; }}
         location = /reset {{ proxy_buffering off; proxy_pass http://127.0.0.1:{}; }}",
        resetting.port
    );
    for (index, origin) in origins.iter().enumerate() {
        for (name, how) in [("read", ""), ("unbuffered", "proxy_buffering off;")] {
            locations +=
                &format!("location = /{name}{index} {{ {how} proxy_pass http://127.0.0.1:{}; }}\n", origin.port);
        }
    }
    let _server = serve(
        &site,
        &format!(
            "proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_read_timeout 500ms; proxy_next_upstream off;
             server {{ listen 127.0.0.1:{port}; {locations} }}"
        ),
    );
    let get = |path: &str| ask(port, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    assert_eq!(get("/refused"), Seen::Whole(502, String::new()));
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    client.write_all(b"GET /reset HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let (mut came, mut block) = (Vec::new(), [0; 4096]);
    while !came.ends_with(b"01234") {
        let n = client.read(&mut block).expect("bytes before the reset");
        assert!(n > 0, "closed early: {}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&block[..n]);
    }
    passed_on.send(()).expect("the origin waits");
    // An end or a reset, without further bytes.
    match client.read(&mut block) {
        Ok(0) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("neither an end nor a reset: {other:?}"),
    }
    assert!(came.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&came));
    let mut wrong = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        // Debian's nginx does not know interim responses, and reads a flood of them without end.
        if oracle().is_some() && row.name.contains("interim") {
            continue;
        }
        for kind in ["read", "unbuffered"] {
            let seen = get(&format!("/{kind}{index}"));
            let wanted = match &row.differs {
                Some((theirs, _)) if oracle().is_some() => theirs,
                _ => &row.seen,
            };
            if !fits(&seen, wanted) {
                wrong.push(format!("{} ({kind}): {seen:?} instead of {wanted:?}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!site.log().contains("[alert]"), "{}", site.log());
}

#[test]
fn no_byte_of_one_response_reaches_another_request() {
    // Every response names its request; each connection plays another trick behind some of them.
    let origin = Origin::new(|mut talk| {
        let mut turn = talk.number;
        while let Some(request) = talk.request() {
            let name = request.split(' ').nth(1).unwrap_or("").to_string();
            turn += 1;
            let right = ok(&name);
            let done = match turn % 8 {
                0 => talk.send(&[right, ok("/smuggled")].concat()),
                1 | 4 if oracle().is_some() => talk.send(&right),
                1 => talk.send(&[b"HTTP/1.1 102 Processing\r\n\r\n".to_vec(), right, b"\r\n".to_vec()].concat()),
                2 => talk.send(&[right, b"HTTP/1.1 200 OK\r\n".to_vec()].concat()),
                3 => {
                    let chunked = format!("{:x}\r\n{name}\r\n0\r\n\r\n0\r\n\r\n", name.len());
                    talk.send(&[CHUNKED, chunked.as_bytes()].concat())
                }
                4 => talk.send(&[b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), right].concat()),
                _ => talk.send(&right),
            };
            if !done {
                return;
            }
        }
    });
    let port = free_port();
    let site = Site::new("", "");
    let _server = serve(
        &site,
        &format!(
            "upstream u {{ server 127.0.0.1:{0}; keepalive 16; }} proxy_http_version 1.1; proxy_set_header Connection \"\";
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }}",
            origin.port
        ),
    );
    let clients: Vec<_> = (0..8)
        .map(|client| {
            std::thread::spawn(move || {
                for n in 0..100 {
                    let path = format!("/{client}/{n}/{}", "x".repeat(n * 7));
                    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                    match ask(port, &request) {
                        Seen::Whole(200, body) => assert_eq!(body, path),
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every answer is its own");
    }
}

#[test]
fn an_uninvited_response_is_dropped() {
    let (late, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (its_late, its_go) = (late.clone(), go.clone());
    let origin = Origin::new(move |mut talk| {
        while talk.request().is_some() && talk.send(&ok("invited")) {
            // Unsolicited bytes follow only after the answer has arrived.
            while its_go.swap(0, Ordering::Relaxed) == 0 && !talk.is_over() {
                std::thread::yield_now();
            }
            talk.send(&ok("uninvited"));
            its_late.fetch_add(1, Ordering::Relaxed);
        }
    });
    let port = free_port();
    let site = Site::new("", "");
    let _server = serve(
        &site,
        &format!(
            "upstream u {{ server 127.0.0.1:{}; keepalive 16; }} proxy_http_version 1.1; proxy_set_header Connection \"\";
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }}",
            origin.port
        ),
    );
    for n in 1..=50 {
        let seen = ask(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(seen, whole(200, "invited"), "request {n}");
        go.store(1, Ordering::Relaxed);
        wait("what is late", || if late.load(Ordering::Relaxed) >= n { Ok(()) } else { Err("not yet") });
    }
    assert_eq!(origin.connections(), 50, "none of them was used twice");
}

#[test]
fn memory_is_bounded_between_a_fast_side_and_a_slow_one() {
    const SENT: usize = 256 << 20;
    const GROWTH_KB: u64 = 24 * 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let its_sent = sent.clone();
    let fast = Origin::new(move |mut talk| {
        if talk.request().is_some() {
            talk.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SENT}\r\n\r\n").as_bytes());
            let block = [b'x'; 64 * 1024];
            while talk.send(&block) {
                its_sent.fetch_add(block.len(), Ordering::Relaxed);
            }
        }
    });
    // Reads the head of a request only.
    let slow = Origin::new(|talk| talk.ignore());
    let port = free_port();
    let site = Site::new("", "");
    let server = serve(
        &site,
        &format!(
            "proxy_http_version 1.1; proxy_max_temp_file_size 0; client_max_body_size 0;
             server {{ listen 127.0.0.1:{port};
             location /buffered {{ proxy_pass http://127.0.0.1:{0}; }}
             location /unbuffered {{ proxy_pass http://127.0.0.1:{0}; proxy_buffering off; }}
             location /up {{ proxy_pass http://127.0.0.1:{1}; proxy_request_buffering off; }} }}",
            fast.port, slow.port
        ),
    );
    let worker = wait("a worker", || children(server.child.id()).first().copied().ok_or("none"));
    let before = private_kb(worker);
    let mut readers = Vec::new();
    for path in ["/buffered", "/unbuffered", "/buffered"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        // Reads a little, then stops.
        stream.read_exact(&mut [0; 64 * 1024]).expect("a beginning");
        readers.push(stream);
    }
    let mut writer = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
    write!(writer, "PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: {SENT}\r\n\r\n").expect("sent");
    writer.set_write_timeout(Some(Duration::from_millis(300))).expect("timeout");
    let mut written = 0;
    while let Ok(n) = writer.write(&[b'y'; 64 * 1024]) {
        written += n;
    }
    // Both fast sides stall: nothing more is read from them.
    let standing = wait_for_rest("the origin to be stopped", 20, || sent.load(Ordering::Relaxed));
    let grown = private_kb(worker).saturating_sub(before);
    assert!(written < SENT / 4 && standing < SENT / 2, "{written} up, {standing} down");
    assert!(grown < GROWTH_KB, "{grown} KB more");
}
