//! Faults of disks, files and limits: each causes a correct response or a clear log line, and the server continues.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::client::{Client, get};
use support::{Site, children, descriptors, free_port, wait};

const BIG: usize = 24 << 20;

fn ask(client: &mut Client, target: &str) -> (u16, String) {
    client.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).expect("answered")
}

/// Asks for a file and reads no more than the beginning of the answer.
fn begin(port: u16, target: &str) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream
        .write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("sent");
    let mut start = vec![0; 1000];
    stream.read_exact(&mut start).expect("the beginning");
    (stream, start)
}

/// The body of an answer that was begun; it may end with a reset.
fn finish((mut stream, mut all): (TcpStream, Vec<u8>)) -> Vec<u8> {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(&buffer[..n]);
    }
    let head = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
    assert!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all[..head]));
    all.split_off(head + 4)
}

#[test]
fn files_that_change_while_they_are_sent() {
    let port = free_port();
    let location = |way: &str| format!("location /{way}/ {{ alias DIR/html/; sendfile {way}; }}");
    let site = Site::new("daemon off;", "");
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; {} {} }} }}", location("on"), location("off"));
    site.configure("daemon off;", &http.replace("DIR", &site.dir.display().to_string()));
    let running = site.start();
    for way in ["on", "off"] {
        // Each file has its own byte, to detect mixed-up contents.
        for (name, byte) in [("cut", b'c'), ("replaced", b'o'), ("removed", b'r')] {
            std::fs::write(site.path(&format!("html/{name}")), vec![byte; BIG]).expect("written");
        }
        let [cut, replaced, removed] =
            ["cut", "replaced", "removed"].map(|name| begin(port, &format!("/{way}/{name}")));
        let file = std::fs::File::options().write(true).open(site.path("html/cut")).expect("open");
        file.set_len(4096).expect("truncated");
        std::fs::write(site.path("html/new"), vec![b'n'; BIG]).expect("written");
        std::fs::rename(site.path("html/new"), site.path("html/replaced")).expect("renamed");
        std::fs::remove_file(site.path("html/removed")).expect("removed");

        // The kernel may send zeros for a truncated file, but no other contents.
        let body = finish(cut);
        let own = body.iter().all(|b| *b == b'c' || (*b == 0 && way == "on"));
        assert!(body.len() < BIG && own, "{way}: {} bytes of a cut file", body.len());
        for (stream, byte) in [(replaced, b'o'), (removed, b'r')] {
            let body = finish(stream);
            assert!(body.len() == BIG && body.iter().all(|b| *b == byte), "{way}: {} bytes", body.len());
        }
        let mut client = Client::connect(port).expect("connected");
        assert_eq!(ask(&mut client, &format!("/{way}/removed")).0, 404);
        assert_eq!(ask(&mut client, &format!("/{way}/cut")).1, "c".repeat(4096));
        assert!(finish(begin(port, &format!("/{way}/replaced"))).iter().all(|b| *b == b'n'));
    }
    site.assert_no_alerts();
    running.quit();
}

#[test]
fn unreadable_paths_have_nginxs_answers() {
    let port = free_port();
    let site = Site::new("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}"));
    site.write("html/secret", "secret");
    std::fs::set_permissions(site.path("html/secret"), std::fs::Permissions::from_mode(0o000)).expect("chmod");
    symlink("loop", site.path("html/loop")).expect("a link");
    symlink("/dev/zero", site.path("html/device")).expect("a link");
    assert!(Command::new("mkfifo").arg(site.path("html/fifo")).status().expect("mkfifo runs").success());
    let _socket = std::os::unix::net::UnixListener::bind(site.path("html/socket")).expect("a socket");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    // None of them may block the server; each is requested twice, to include the cache.
    for _ in 0..2 {
        for (target, status) in [
            ("/secret", 403),
            ("/loop", 403),
            ("/device", 404),
            ("/fifo", 404),
            ("/socket", 404),
            ("/none", 404),
            ("/secret/below", 404),
        ] {
            assert_eq!(ask(&mut client, target).0, status, "{target}: {}", site.log());
        }
    }
    let log = site.log();
    for words in ["secret\" failed (13: Permission denied)", "loop\" failed (40: ", "fifo\" is not a regular file"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    site.assert_no_alerts();
    running.quit();
}

#[test]
fn a_full_disk_stops_no_request() {
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port};
           location /now/ {{ access_log /dev/full; return 200 fine; }}
           location /later/ {{ access_log /dev/full combined buffer=4k; return 200 fine; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for n in 0..200 {
        for folder in ["now", "later"] {
            assert_eq!(ask(&mut client, &format!("/{folder}/{n}")), (200, "fine".to_string()));
        }
    }
    site.wait_for_log("\"/dev/full\" failed (28: No space left on device)", 1);
    running.quit();
}

#[test]
fn no_descriptors_left() {
    let port = free_port();
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}");
    let site = Site::new("daemon off; worker_rlimit_nofile 40;", &http);
    site.write("html/index.html", "here");
    let running = site.start();
    let mut first = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut first, "/"), (200, "here".into()));
    let crowd: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("queued")).collect();
    site.wait_for_log("accept4() failed (24: Too many open files)", 1);
    drop(crowd);
    wait("an answer", || match get(port) {
        Ok((200, body)) if body == "here" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
}

#[test]
fn a_killed_worker_comes_back_under_load() {
    let port = free_port();
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 whole; }} }}");
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut whole = 0;
                    while !done.load(Ordering::Relaxed) {
                        // A truncated response is correct; other bytes are not.
                        if let Ok(answer) = get(port) {
                            assert_eq!(answer, (200, "whole".to_string()));
                            whole += 1;
                        }
                    }
                    whole
                })
            })
            .collect();
        for _ in 0..3 {
            let worker = running.worker();
            support::signal(worker, "KILL");
            let next = wait("another worker", || match children(running.pid()).first() {
                Some(next) if *next != worker => Ok(*next),
                _ => Err("none"),
            });
            wait("an answer", || get(port).map_err(|e| e.to_string()));
            assert!(descriptors(next) > 0);
        }
        done.store(true, Ordering::Relaxed);
        let whole: usize = clients.into_iter().map(|c| c.join().expect("a client")).sum();
        assert!(whole > 0);
    });
    assert_eq!(site.log().matches("exited on signal 9").count(), 3, "{}", site.log());
    running.quit();
}

#[test]
fn addresses_of_64_kilobytes() {
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; return 200 $request_length; }}
           server {{ listen 127.0.0.1:{port} ; server_name large; large_client_header_buffers 4 128k; }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let long = "x".repeat(64 << 10);
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(ask(&mut client, &format!("/{long}")).0, 414);
    let http = http.replace("return 200", "large_client_header_buffers 4 128k; return 200");
    site.configure("daemon off;", &http);
    running.signal("HUP");
    site.wait_for_log("is no longer used", 1);
    let mut client = Client::connect(port).expect("connected");
    for target in [
        format!("/{long}"),
        format!("/?{long}"),
        format!("/{}", "%41".repeat(20_000)),
        format!("/{}", "a/../".repeat(12_000)),
    ] {
        let (status, length) = ask(&mut client, &target);
        assert_eq!((status, length.parse::<usize>().ok()), (200, Some(target.len() + 34)), "{} bytes", target.len());
    }
    site.assert_no_alerts();
    running.quit();
}
