//! Edge cases of connections: panics, heads in parts, reloads in between, clients that exhaust the limits.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use support::client::{Client, get};
use support::{Site, free_port, private_kb, stop, wait};

/// Reads a response until the peer closes. Returns the status and the body.
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.into()))
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    stream
}

#[test]
fn a_rewritten_uri_below_an_alias_is_an_error_of_its_request_alone() {
    let port = free_port();
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:{port};
         location /static/ {{ alias html/; rewrite ^/static/v\\d+/(.*)$ /$1 break; try_files $uri =404; }}
         location /plain/ {{ alias html/; rewrite ^/plain/v\\d+/(.*)$ /$1 break; }}
         location / {{ return 200 here; }} }} }}"
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    site.write("html/a.js", "a");
    let running = site.start();
    for uri in ["static/v1/a.js", "static/v1/", "plain/v1/a.js", "plain/v1/"] {
        let mut stream = connect(port);
        write!(stream, "GET /{uri} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        // As in nginx, with an alert.
        assert_eq!(answer(&mut stream).0, 500, "{uri}: {}", site.log());
        assert_eq!(get(port), Ok((200, "here".into())), "{uri}");
    }
    let words = "\"alias\" cannot be used in location \"/static/\" where URI was rewritten";
    site.wait_for_log(words, 2);
    assert!(!site.log().contains("panic"), "{}", site.log());
    running.quit();
}

#[test]
fn a_head_is_judged_by_the_configuration_under_which_its_last_byte_came() {
    let (public, admin, gone) = (free_port(), free_port(), free_port());
    let server = |port: u16, words: &str| {
        format!("server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"{words}\"; }} }}")
    };
    let main = "daemon off; worker_processes 1;";
    let all = [server(gone, "gone 1"), server(public, "public 1"), server(admin, "admin 1")];
    let site = Site::new(main, &format!("http {{ {} }}", all.concat()));
    let running = site.start();
    // Cut within the request line, within a field, and before the last byte; new connections and kept ones.
    let cuts = ["G", "GET / HTT", "GET / HTTP/1.1\r\nHo", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r"];
    let whole = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut begun = Vec::new();
    for kept in [false, true] {
        for cut in cuts {
            for (port, words) in [(public, "public 2"), (admin, "admin 2"), (gone, "")] {
                let mut stream = connect(port);
                if kept {
                    let mut client = Client::connect(port).expect("connected");
                    client.get().expect("an answer");
                    stream = client.into_inner();
                }
                stream.write_all(cut.as_bytes()).expect("sent");
                begun.push((stream, cut, words));
            }
        }
    }
    // One head that is too long for being kept beside its connection.
    let long = format!("GET / HTTP/1.1\r\n{}", format!("X: {}\r\n", "x".repeat(7000)).repeat(3));
    let mut in_task = connect(admin);
    in_task.write_all(long.as_bytes()).expect("sent");
    // Changes the order of listeners, removes one and adds one.
    let new = [server(admin, "admin 2"), server(free_port(), "new"), server(public, "public 2")];
    site.configure(main, &format!("http {{ {} }}", new.concat()));
    running.signal("HUP");
    wait("the reload", || match get(public) {
        Ok((200, words)) if words == "public 2" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for (mut stream, cut, words) in begun {
        // A closed listener may have closed the connection.
        let sent = stream.write_all(whole.strip_prefix(cut).expect("a beginning").as_bytes());
        if words.is_empty() {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.is_empty(), "{cut:?}: {}", String::from_utf8_lossy(&rest));
        } else {
            sent.expect("sent");
            assert_eq!(answer(&mut stream), (200, words.into()), "{cut:?}");
        }
    }
    in_task.write_all(b"Host: a\r\nConnection: close\r\n\r\n").expect("sent");
    assert_eq!(answer(&mut in_task), (200, "admin 2".into()));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_head_that_has_begun_costs_little_and_nothing_when_it_is_gone() {
    const CLIENTS: usize = 2000;
    let port = free_port();
    let conf = format!("http {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 here; }} }} }}");
    let site = Site::new("daemon off; worker_processes 1; worker_rlimit_nofile 8192;", &conf);
    site.write(
        "conf/nginx.conf",
        &site.read("conf/nginx.conf").replace("events { }", "events { worker_connections 4000; }"),
    );
    let running = site.start();
    assert_eq!(get(port), Ok((200, "here".into())));
    let worker = running.worker();
    let before = private_kb(worker);
    let mut streams: Vec<_> = (0..CLIENTS).map(|_| connect(port)).collect();
    for piece in ["G", "E", "T / HTTP/1.1\r\nHost: "] {
        for stream in &mut streams {
            stream.write_all(piece.as_bytes()).expect("sent");
        }
    }
    // The last response proves that the thread has read the earlier bytes of the others.
    for stream in streams.iter_mut().rev().take(1) {
        stream.write_all(b"a\r\n\r\n").expect("sent");
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).expect("an answer");
    }
    let each = (private_kb(worker).saturating_sub(before)) * 1024 / CLIENTS as u64;
    assert!(each <= 2048, "{each} bytes for each");
    drop(streams);
    assert_eq!(get(port), Ok((200, "here".into())));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn orders_and_others_are_served_beside_clients_that_never_stop() {
    let port = free_port();
    let conf = |words: &str| {
        format!(
            "http {{ keepalive_requests 100000000; access_log off; server {{ listen 127.0.0.1:{port}; \
             location / {{ return 200 \"{words}\"; }} location /big {{ alias html/big; }} }} }}"
        )
    };
    let main = "daemon off; worker_processes 1;";
    let site = Site::new(main, &conf("one"));
    std::fs::File::create(site.path("html/big")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let running = site.start();
    assert_eq!(get(port), Ok((200, "one".into())));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let busy = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        // An endless download, and an endless pipeline of requests.
        scope.spawn(|| {
            let mut stream = connect(port);
            stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
            let mut buf = vec![0; 1 << 20];
            while busy() && stream.read(&mut buf).is_ok_and(|n| n > 0) {}
        });
        let stream = connect(port);
        let mut reader = stream.try_clone().expect("a copy");
        let busy = &busy;
        scope.spawn(move || {
            let (mut stream, many) = (stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
            while busy() && stream.write_all(many.as_bytes()).is_ok() {}
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        scope.spawn(move || {
            let mut buf = vec![0; 1 << 16];
            while reader.read(&mut buf).is_ok_and(|n| n > 0) {}
        });
        for n in 0..20 {
            let words = format!("answer {n}");
            site.configure(main, &conf(&words));
            running.signal("HUP");
            wait(&words, || match get(port) {
                Ok((200, body)) if body == words => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    running.quit();
    site.assert_no_alerts();
}

/// Silent clients are disconnected in favour of new ones (nginx: `ngx_drain_connections`).
#[test]
fn clients_that_never_spoke_do_not_keep_others_out() {
    let (port, secure) = (free_port(), free_port());
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let site = Site::new("", "");
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    site.write(
        "conf/nginx.conf",
        &format!(
            "error_log logs/error.log warn; daemon off; worker_processes 1; events {{ worker_connections 32; }}
             http {{ ssl_certificate cert.pem; ssl_certificate_key key.pem; client_header_timeout 1h;
             server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl; return 200 here; }} }}"
        ),
    );
    let running = site.start();
    for silent in [port, secure] {
        let _crowd: Vec<TcpStream> = (0..60).map(|_| connect(silent)).collect();
        for _ in 0..5 {
            let mut stream = connect(port);
            write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
            assert_eq!(answer(&mut stream), (200, "here".into()), "{}", site.log());
        }
    }
    // One that has begun to speak is not given up for others.
    let mut begun = connect(port);
    write!(begun, "GET / HTTP/1.1\r\nHost: a\r\n").expect("sent");
    assert_eq!(get(port), Ok((200, "here".into())));
    let crowd: Vec<TcpStream> = (0..60).map(|_| connect(port)).collect();
    assert_eq!(get(port), Ok((200, "here".into())));
    write!(begun, "Connection: close\r\n\r\n").expect("sent");
    assert_eq!(answer(&mut begun), (200, "here".into()));
    drop(crowd);
    site.wait_for_log("32 worker_connections are not enough, reusing connections", 1);
    running.quit();
}

/// A client closes its connection and opens the next one: `limit_conn` has freed its place by then, even if the loop
/// accepts other connections first.
#[test]
fn closed_connections_make_room_for_the_next_ones() {
    let port = free_port();
    let origin = TcpListener::bind("127.0.0.1:0").expect("a listener");
    origin.set_nonblocking(true).expect("a listener that does not wait");
    let accept = |site: &Site| {
        let held = wait("a connection", || origin.accept().map_err(|e| format!("{e}: {}", site.log()))).0;
        held.set_nonblocking(false).expect("a connection that waits");
        held
    };
    let to = origin.local_addr().expect("an address");
    for conf in [
        format!(
            "http {{ limit_conn_zone $server_port zone=one:32k;
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 free; }}
             location /limited {{ limit_conn one 2; proxy_pass http://{to}; }} }} }}"
        ),
        format!(
            "stream {{ limit_conn_zone $server_port zone=one:32k;
             server {{ listen 127.0.0.1:{port}; limit_conn one 2; proxy_pass {to}; }} }}"
        ),
    ] {
        let site = Site::new("daemon off; worker_processes 1;", &conf);
        let running = site.start();
        let ask = |path: &str| {
            let mut client = connect(port);
            // A refused session of stream may be over.
            let _ = write!(client, "GET {path} HTTP/1.0\r\n\r\n");
            client
        };
        let first = [ask("/limited"), ask("/limited")];
        let held = [accept(&site), accept(&site)];
        let mut refused = String::new();
        let _ = ask("/limited").read_to_string(&mut refused);
        assert!(refused.is_empty() || refused.contains(" 503 "), "{refused}");
        site.wait_for_log("limiting connections by zone \"one\"", 1);
        stop(running.worker());
        // The next one of stream finds a place beside this one.
        let other = ask("/");
        drop(first);
        let mut next = ask("/limited");
        support::signal(running.worker(), "CONT");
        drop(held);
        let mut others = Vec::new();
        loop {
            let mut held = accept(&site);
            let mut head = [0; 1024];
            let size = held.read(&mut head).expect("a head");
            if head[..size].starts_with(b"GET /limited") {
                write!(held, "HTTP/1.0 200 OK\r\n\r\nserved").expect("sent");
                break;
            }
            others.push(held);
        }
        assert_eq!(answer(&mut next), (200, "served".into()), "{}", site.log());
        drop(other);
        running.quit();
    }
}

/// Connections are served in order of arrival, over all listeners.
#[test]
fn connections_are_served_in_the_order_in_which_they_came() {
    let (web, one, other) = (free_port(), free_port(), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ open_file_cache max=10; server {{ listen 127.0.0.1:{web}; root html; }} }}
             stream {{ server {{ listen 127.0.0.1:{one}; return $connection; }}
             server {{ listen 127.0.0.1:{other}; return $connection; }} }}"
        ),
    );
    site.write("html/index.html", "a file");
    let running = site.start();
    let worker = running.worker();
    for order in [[one, other, one, other], [other, one, one, other]] {
        get(web).expect("an answer");
        stop(worker);
        // The thread hears of files and of listeners at the same time.
        site.write("html/index.html", "another file");
        let mut clients: Vec<TcpStream> = order.iter().map(|port| connect(*port)).collect();
        support::signal(worker, "CONT");
        let numbers: Vec<u64> = clients
            .iter_mut()
            .map(|client| {
                let mut text = String::new();
                client.read_to_string(&mut text).expect("a number");
                text.parse().expect("a number")
            })
            .collect();
        assert_eq!(numbers.iter().filter(|n| **n < numbers[0]).count(), 0, "{numbers:?}");
        assert!(numbers[0] < numbers[1], "{numbers:?}: the first two came to different listeners");
    }
    running.quit();
}
