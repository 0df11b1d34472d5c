//! Caches over the lives of processes: killed in the middle of writing, started again, folders that others touch.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use support::{Site, free_port, wait};

/// Answers `/NUMBER/LENGTH` with a body that its path alone decides, in pieces; counts requests.
struct Origin {
    port: u16,
    asked: Arc<AtomicU64>,
}

fn body(path: &str) -> Vec<u8> {
    let length: usize = path.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let line = format!("{path} is what this is\n");
    line.bytes().cycle().take(length).collect()
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("address").port();
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = count.clone();
                thread::spawn(move || serve(stream, &count));
            }
        });
        Origin { port, asked }
    }
}

fn serve(stream: TcpStream, count: &AtomicU64) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_string();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok()?;
    }
    count.fetch_add(1, Ordering::Relaxed);
    let body = body(&path);
    let mut stream = reader.into_inner();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    for piece in body.chunks(3000) {
        stream.write_all(piece).ok()?;
    }
    Some(())
}

fn site(port: u16, origin: u16, more: &str) -> Site {
    site_of(2, port, origin, more)
}

fn site_of(threads: usize, port: u16, origin: u16, more: &str) -> Site {
    let rest = format!(
        "http {{ proxy_cache_path cache levels=1:2 keys_zone=C:1m inactive=1h {more};\n\
         server {{ listen 127.0.0.1:{port};\n\
         location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_cache C; proxy_cache_key $uri;\n\
         add_header X-Cache $upstream_cache_status; }} }} }}"
    );
    Site::new(&format!("daemon off; master_process off; worker_processes {threads};"), &rest)
}

/// Cache status and body, or the failure, since the process may be killed at any time.
fn get(port: u16, path: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok()?;
    let end = all.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.lines().find_map(|l| l.strip_prefix("X-Cache: ")).unwrap_or("").to_string();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let length: usize = head.lines().find_map(|l| l.strip_prefix("Content-Length: "))?.parse().ok()?;
    let body = all.split_off(end + 4);
    (body.len() == length).then_some((status, body))
}

fn whole(port: u16, path: &str) -> String {
    let (status, got) = get(port, path).unwrap_or_else(|| panic!("an answer to {path}"));
    assert!(got == body(path), "{path}: another body than the origin's ({status})");
    status
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { out.extend(files(&path)) } else { out.push(path) }
    }
    out
}

const LENGTHS: [usize; 6] = [0, 10, 5000, 60_000, 70_000, 400_000];

#[test]
fn a_kill_in_the_middle_of_writing_tears_nothing() {
    const KILLS: usize = 25;
    let origin = Origin::start();
    for temp in ["use_temp_path=off", "use_temp_path=on"] {
        let port = free_port();
        let site = site(port, origin.port, temp);
        let mut hits = 0;
        for round in 0..KILLS {
            let mut running = site.start();
            wait("an answer", || get(port, "/ready/10").ok_or("none"));
            // Entries of earlier processes are complete, or missing.
            for n in 0..round.min(8) {
                for length in LENGTHS {
                    hits += usize::from(whole(port, &format!("/{}-{n}/{length}", round - n)) == "HIT");
                }
            }
            let done = AtomicU64::new(0);
            thread::scope(|scope| {
                for client in 0..4 {
                    let done = &done;
                    scope.spawn(move || {
                        for n in (0..8).filter(|n| n % 4 == client) {
                            for length in LENGTHS {
                                if get(port, &format!("/{}-{n}/{length}", round + 1)).is_none() {
                                    return;
                                }
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                // Each time at another point of the work.
                let wanted = (round as u64 * 7) % 40;
                wait("the work", || if done.load(Ordering::Relaxed) >= wanted { Ok(()) } else { Err("not yet") });
                running.child.kill().expect("killed");
                running.child.wait().expect("waited");
            });
            drop(running);
            let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
        }
        assert!(hits > KILLS, "only {hits} answers came from files of earlier lives");
        site.assert_no_alerts();
        let log = site.log();
        assert!(!log.contains("[crit]"), "{log}");
        // Once more in peace: all of it, twice.
        let running = site.start();
        wait("an answer", || get(port, "/ready/10").ok_or("none"));
        for n in 0..8 {
            for length in LENGTHS {
                whole(port, &format!("/{KILLS}-{n}/{length}"));
                assert_eq!(whole(port, &format!("/{KILLS}-{n}/{length}")), "HIT");
            }
        }
        running.quit();
    }
}

#[test]
fn files_that_vanish_or_change_are_misses() {
    let origin = Origin::start();
    let port = free_port();
    let site = site(port, origin.port, "use_temp_path=off");
    // Without memory every answer is read from its file.
    let text = site.read("conf/nginx.conf").replace("http {", "http { tidegate_response_memory off;");
    site.write("conf/nginx.conf", &text);
    let running = site.start();
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    let folder = site.path("cache");
    for length in LENGTHS {
        let path = format!("/x/{length}");
        for (damage, log) in [(0, ""), (1, "is t"), (2, "is damaged"), (3, "version mismatch"), (4, "md5 collision")] {
            let before = files(&folder);
            whole(port, &path);
            assert_eq!(whole(port, &path), "HIT", "{path}");
            let new = files(&folder).into_iter().find(|f| !before.contains(f)).expect("a file of its own");
            let bytes = std::fs::read(&new).expect("the file");
            assert!(
                String::from_utf8_lossy(&bytes).contains(&format!("\nKEY: {path}\n")),
                "a key that scripts can find"
            );
            match damage {
                0 => std::fs::remove_file(&new).expect("removed"),
                1 => std::fs::write(&new, &bytes[..bytes.len() - 1]).expect("cut"),
                2 => {
                    let mut bytes = bytes;
                    bytes[60] ^= 1;
                    std::fs::write(&new, bytes).expect("written");
                }
                3 => std::fs::write(&new, [b'x'; 1000]).expect("written"),
                _ => {
                    // Another entry under this name.
                    assert_eq!(whole(port, "/other/7"), "MISS");
                    let other = files(&folder).into_iter().find(|f| !before.contains(f) && *f != new).expect("another");
                    std::fs::copy(&other, &new).expect("copied");
                    std::fs::remove_file(other).expect("removed");
                }
            }
            assert_eq!(whole(port, &path), "MISS", "{path} after {damage}");
            assert_eq!(whole(port, &path), "HIT", "{path} after {damage}");
            assert!(site.log().contains(log), "{log}: {}", site.log());
            for file in files(&folder) {
                std::fs::remove_file(file).expect("removed");
            }
        }
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_index_outlives_the_process_and_a_reload() {
    let origin = Origin::start();
    let port = free_port();
    let site = site(port, origin.port, "");
    let running = site.start();
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    for length in LENGTHS {
        assert_eq!(whole(port, &format!("/x/{length}")), "MISS");
    }
    site.write("cache/README", "not a cache file");
    let asked = origin.asked.load(Ordering::Relaxed);
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    for length in LENGTHS {
        assert_eq!(whole(port, &format!("/x/{length}")), "HIT");
    }
    running.quit();
    let running = site.start();
    site.wait_for_log("http file cache: ", 2);
    for length in LENGTHS {
        assert_eq!(whole(port, &format!("/x/{length}")), "HIT");
    }
    assert_eq!(origin.asked.load(Ordering::Relaxed), asked, "nobody was asked again");
    assert!(site.log().contains("README\" is no cache file, ignored"), "{}", site.log());
    assert_eq!(site.read("cache/README"), "not a cache file");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_client_that_leaves_does_not_end_what_others_will_want() {
    let origin = Origin::start();
    let port = free_port();
    // With one thread the response is stored before the next request. Another thread might fetch it again.
    let site = site_of(1, port, origin.port, "use_temp_path=off");
    let running = site.start();
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    let asked = origin.asked.load(Ordering::Relaxed);
    for n in 0..20 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        write!(stream, "GET /gone-{n}/400000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let mut first = [0; 1];
        stream.read_exact(&mut first).expect("the answer begins");
        drop(stream);
        wait("the whole response in the cache", || {
            let text = site.path("cache");
            let whole = files(&text).iter().filter(|f| f.extension().is_none()).count();
            if whole == n + 2 { Ok(()) } else { Err(format!("{whole} files")) }
        });
        assert_eq!(whole(port, &format!("/gone-{n}/400000")), "HIT");
    }
    assert_eq!(origin.asked.load(Ordering::Relaxed), asked + 20);
    running.quit();
    site.assert_no_alerts();
}

/// Head and body of a stored response leave together only if the body has arrived.
#[test]
fn the_head_of_a_stored_response_does_not_wait_for_a_late_body() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let origin = listener.local_addr().expect("address").port();
    let port = free_port();
    let site = site_of(1, port, origin, "use_temp_path=off");
    let running = site.start();
    let mut client = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a limit");
    write!(client, "GET /late/10 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let (mut upstream, _) = listener.accept().expect("the request");
    write!(upstream, "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 10\r\n\r\n").expect("head");
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).expect("the head arrives before the body");
    }
    upstream.write_all(b"0123456789").expect("body");
    let mut body = String::new();
    client.read_to_string(&mut body).expect("the body");
    assert_eq!(body, "0123456789");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_write_that_fails_costs_the_entry_and_not_the_answer() {
    let origin = Origin::start();
    let port = free_port();
    let site = site(port, origin.port, "use_temp_path=off");
    // A file may have 100 kB: the write that is too much fails as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 200; exec {} -p {}", support::BINARY, site.dir.display());
    let child = Command::new("sh").arg("-c").arg(script).spawn().expect("the shell runs");
    let running = support::Running { site: &site, child };
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    for n in 1..=3 {
        assert_eq!(whole(port, "/large/400000"), "MISS");
        site.wait_for_log("; the response is not stored", n);
        wait("nothing left behind", || match files(&site.path("cache")).len() {
            1 => Ok(()),
            other => Err(other),
        });
    }
    assert_eq!(whole(port, "/small/60000"), "MISS");
    assert_eq!(whole(port, "/small/60000"), "HIT");
    running.quit();
    site.assert_no_alerts();
}

/// A directory in memory, if that is another file system than the one of temporary files.
fn elsewhere() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let (there, here) = (Path::new("/dev/shm"), std::env::temp_dir());
    let differ = there.metadata().ok()?.dev() != here.metadata().ok()?.dev();
    let folder = there.join(format!("tidegate-test-{}", std::process::id()));
    (differ && std::fs::create_dir_all(&folder).is_ok()).then_some(folder)
}

#[test]
fn responses_move_to_another_file_system() {
    let Some(folder) = elsewhere() else {
        testkit::missing_means("/dev/shm is no file system of its own: not tested");
        return;
    };
    let origin = Origin::start();
    let port = free_port();
    let site = site(port, origin.port, "use_temp_path=on");
    let temp = folder.join("temp");
    let text = site.read("conf/nginx.conf");
    let more = format!(
        "server {{ listen 127.0.0.1:{port}; server_name kept;\n\
         location / {{ root html; error_page 404 = @fetch; log_not_found off; }}\n\
         location @fetch {{ proxy_pass http://127.0.0.1:{}; proxy_store {}$uri; }} }} }}",
        origin.port,
        site.path("html").display()
    );
    let text = text.replace("http {", &format!("http {{ proxy_temp_path {};", temp.display()));
    let text = text.trim_end().strip_suffix('}').expect("the end of http").to_string() + &more;
    site.write("conf/nginx.conf", &text);
    let running = site.start();
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    for length in LENGTHS {
        let path = format!("/x/{length}");
        assert_eq!(whole(port, &path), "MISS");
        assert_eq!(whole(port, &path), "HIT");
        for _ in 0..2 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            write!(stream, "GET {path} HTTP/1.1\r\nHost: kept\r\nConnection: close\r\n\r\n").expect("sent");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("an answer");
            assert!(all.ends_with(&body(&path)) && all.starts_with(b"HTTP/1.1 200"), "{path}");
        }
        assert_eq!(std::fs::read(site.path(&format!("html{path}"))).expect("kept"), body(&path));
    }
    assert_eq!(files(&temp), Vec::<PathBuf>::new(), "nothing is left behind");
    running.quit();
    site.assert_no_alerts();
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_small_cache_under_load_keeps_its_limits_and_gives_the_right_bytes() {
    let origin = Origin::start();
    let port = free_port();
    let site = site(port, origin.port, "max_size=500k manager_sleep=1ms purger=on");
    let text = site.read("conf/nginx.conf").replace("keys_zone=C:1m", "keys_zone=C:16k");
    let text = text.replace(
        "proxy_cache_key $uri;",
        "proxy_cache_key $uri; proxy_cache_purge $http_x_purge; proxy_cache_lock on;",
    );
    site.write("conf/nginx.conf", &text);
    let running = site.start();
    wait("an answer", || get(port, "/ready/10").ok_or("none"));
    let hits = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..4_usize {
            let hits = &hits;
            scope.spawn(move || {
                for n in 0..600 {
                    let key = (n * (client + 1) + n / 7) % 100;
                    let path = format!("/{key}/{}", LENGTHS[key % LENGTHS.len()]);
                    hits.fetch_add(u64::from(whole(port, &path) == "HIT"), Ordering::Relaxed);
                    if n % 50 == client {
                        let wild = if n % 100 == client { "/1*" } else { path.as_str() };
                        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
                        write!(stream, "GET {wild} HTTP/1.0\r\nX-Purge: 1\r\n\r\n").expect("sent");
                        let mut answer = String::new();
                        stream.read_to_string(&mut answer).expect("an answer");
                        assert!(answer.starts_with("HTTP/1.1 204") || answer.starts_with("HTTP/1.1 404"), "{answer}");
                    }
                }
            });
        }
    });
    assert!(hits.load(Ordering::Relaxed) > 0);
    let folder = site.path("cache");
    wait("the manager", || {
        let size: u64 = files(&folder).iter().filter_map(|f| Some(f.metadata().ok()?.len())).sum();
        if size <= 500 * 1024 && files(&folder).len() <= 70 { Ok(()) } else { Err(format!("{size} bytes")) }
    });
    running.quit();
    site.assert_no_alerts();
    let log = site.log();
    assert!(!log.contains("[crit]"), "{log}");
}
