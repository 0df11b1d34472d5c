//! Reloads under load: no request is lost, nothing leaks, addresses are added and removed.

use crate::support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use support::client::{Client, get};
use support::{Site, descriptors, free_port, private_kb, wait};

fn answering(ports: &[u16], words: &str) -> String {
    let listen: String = ports.iter().map(|port| format!("listen 127.0.0.1:{port}; ")).collect();
    format!("http {{ server {{ {listen} location / {{ return 200 \"{words}\"; }} }} }}")
}

fn wait_for_answer(port: u16, words: &str) {
    wait(words, || match get(port) {
        Ok((200, body)) if body == words => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// A client that sends requests until told to stop. Returns the first failure.
fn load(port: u16, stop: &AtomicBool, served: &AtomicU64, keep: bool) -> Result<(), String> {
    let mut kept = Client::connect(port)?;
    while !stop.load(Ordering::Relaxed) {
        if kept.closing {
            kept = Client::connect(port)?;
        }
        let (status, body) = if keep { kept.get()? } else { get(port)? };
        if status != 200 || !body.starts_with("answer ") {
            return Err(format!("{status} {body}"));
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn a_thousand_reloads_under_load_lose_and_leak_nothing() {
    const RELOADS: usize = 1000;
    const SETTLED: usize = 100;
    let (port, other) = (free_port(), free_port());
    let main = "daemon off; worker_processes 2;";
    let site = Site::new(main, &answering(&[port], "answer 0"));
    let running = site.start();
    let worker = running.worker();
    wait_for_answer(port, "answer 0");
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut early = (0, 0, 0, 0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn({
                    let (stop, served) = (&stop, &served);
                    move || load(port, stop, served, n % 2 == 0)
                })
            })
            .collect();
        for n in 1..=RELOADS {
            let words = format!("answer {n}");
            // Every tenth configuration has another address, which the next one gives up.
            let ports = if n % 10 == 0 { vec![port, other] } else { vec![port] };
            site.configure(main, &answering(&ports, &words));
            running.signal("HUP");
            wait_for_answer(port, &words);
            if n == SETTLED {
                early = measure(running.pid(), worker);
            }
            if clients.iter().any(|client| client.is_finished()) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic").expect("every request is answered");
        }
    });
    assert_eq!(running.worker(), worker, "one process all along: {}", site.log());
    site.wait_for_log("its work has exited with code 0", RELOADS);
    let late = wait("the descriptors of the beginning", || {
        let late = measure(running.pid(), worker);
        // The load's own connections are closed by now.
        if late.0 <= early.0 && late.1 <= early.1 { Ok(late) } else { Err(format!("{early:?} {late:?}")) }
    });
    let requests = served.load(Ordering::Relaxed);
    println!(
        "{requests} requests over {RELOADS} reloads; descriptors and kB of master and worker {early:?} -> {late:?}"
    );
    assert!(late.2 < early.2 + 4096, "the master grew: {early:?} {late:?}");
    assert!(late.3 < early.3 + 6144, "the worker grew: {early:?} {late:?}");
    running.quit();
    site.assert_no_alerts();
}

/// Descriptors and resident kilobytes of master and worker.
fn measure(master: u32, worker: u32) -> (usize, usize, u64, u64) {
    (descriptors(master), descriptors(worker), private_kb(master), private_kb(worker))
}

#[test]
fn addresses_come_and_go() {
    let (one, two) = (free_port(), free_port());
    let site = Site::new("daemon off; worker_processes 2;", &answering(&[one], "a"));
    let running = site.start();
    wait_for_answer(one, "a");
    site.configure("daemon off; worker_processes 2;", &answering(&[one, two], "b"));
    running.signal("HUP");
    wait_for_answer(two, "b");
    wait_for_answer(one, "b");
    site.configure("daemon off; worker_processes 1;", &answering(&[two], "c"));
    running.signal("HUP");
    wait_for_answer(two, "c");
    wait("the old address to be free", || match std::net::TcpListener::bind(("127.0.0.1", one)) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn more_sockets_than_a_soft_limit_allows() {
    let site = Site::new("", "");
    let socket = |n: usize| format!("listen unix:{}/s{n}; ", site.dir.display());
    let server = |from: usize, to: usize, words: &str| {
        let listen: String = (from..to).map(socket).collect();
        let http = format!("http {{ server {{ {listen} location / {{ return 200 {words}; }} }} }}");
        let main = "daemon off; worker_processes 3; error_log logs/error.log info;";
        site.write("conf/nginx.conf", &format!("{main} events {{ worker_connections 2000; }} {http}"));
    };
    let answers = |n: usize| std::os::unix::net::UnixStream::connect(site.path(&format!("s{n}"))).is_ok();
    server(0, 10, "old");
    let mut command = std::process::Command::new("sh");
    let words = format!("ulimit -S -n 128; exec {} -p {}", support::BINARY, site.dir.display());
    let child = command.args(["-c", &words]).spawn().expect("starts");
    let running = support::Running { site: &site, child };
    wait("the pid file", || site.pid().ok_or("none"));
    // 1,200 descriptors travel to the worker, in several packets.
    server(0, 400, "new");
    running.signal("HUP");
    site.wait_for_log("its work has exited with code 0", 1);
    assert!((0..400).all(answers));
    server(399, 400, "new");
    running.signal("HUP");
    site.wait_for_log("its work has exited with code 0", 2);
    wait("one socket", || if (0..400).filter(|n| answers(*n)).eq([399]) { Ok(()) } else { Err(site.log()) });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_kept_connection_sees_the_new_configuration() {
    let port = free_port();
    let site = Site::new("daemon off;", &answering(&[port], "old"));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(client.get(), Ok((200, "old".into())));
    site.configure("daemon off;", &answering(&[port], "new"));
    running.signal("HUP");
    wait("the new answer", || match client.get() {
        Ok((200, body)) if body == "new" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
}

#[test]
fn a_shutdown_timeout_ends_older_connections() {
    let port = free_port();
    let main = "daemon off; worker_processes 2; worker_shutdown_timeout 50ms;";
    let site = Site::new(main, &answering(&[port], "old"));
    let running = site.start();
    wait_for_answer(port, "old");
    let (mut kept, mut silent) = (Client::connect(port).expect("connected"), Client::connect(port).expect("connected"));
    assert_eq!(kept.get(), Ok((200, "old".into())));
    site.configure(main, &answering(&[port], "new"));
    running.signal("HUP");
    assert!(kept.is_closed());
    assert!(silent.is_closed());
    let mut later = Client::connect(port).expect("connected");
    wait("the new answer", || match later.get() {
        Ok((200, body)) if body == "new" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn settings_of_a_process_need_a_new_process() {
    let port = free_port();
    let site = Site::new("daemon off;", &answering(&[port], "old"));
    let running = site.start();
    wait_for_answer(port, "old");
    let first = running.worker();
    site.configure("daemon off; worker_priority 5; env X=1;", &answering(&[port], "new"));
    running.signal("HUP");
    wait_for_answer(port, "new");
    site.wait_for_log(&format!("worker process {first} exited with code 0"), 1);
    assert_ne!(running.worker(), first);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_taken_address_keeps_the_old_configuration() {
    let port = free_port();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let foreign = taken.local_addr().expect("address").port();
    let site = Site::new("daemon off;", &answering(&[port], "old"));
    let running = site.start();
    wait_for_answer(port, "old");
    site.configure("daemon off;", &answering(&[port, foreign], "new"));
    running.signal("HUP");
    site.wait_for_log("still could not bind()", 1);
    let words =
        format!("[emerg] {0}#{0}: bind() to 127.0.0.1:{foreign} failed (98: Address already in use)", running.pid());
    assert_eq!(site.log().matches(&words).count(), 5, "{}", site.log());
    wait_for_answer(port, "old");
    drop(taken);
    running.signal("HUP");
    wait_for_answer(foreign, "new");
    running.quit();
}

#[test]
fn a_server_that_cannot_bind_does_not_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = taken.local_addr().expect("address").port();
    let site = Site::new("daemon off; worker_processes 2;", &answering(&[port], "x"));
    let output = site.run(&[]);
    let words = support::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    let line = format!("tidegate: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)\n");
    assert_eq!(words, format!("{}tidegate: [emerg] still could not bind()\n", line.repeat(5)));
    assert!(site.pid().is_none());
    assert!(site.run(&["-t"]).status.success(), "as in nginx, -t does not mind an address in use");
}

#[test]
fn a_crash_loses_no_connection_that_waits() {
    let port = free_port();
    let site = Site::new("daemon off; worker_processes 2;", &answering(&[port], "x"));
    let running = site.start();
    wait_for_answer(port, "x");
    support::signal(running.worker(), "KILL");
    // The sockets stay open in the master: the request waits for the next worker.
    assert_eq!(get(port), Ok((200, "x".into())));
    running.quit();
}

#[test]
fn unix_sockets_appear_and_disappear() {
    let site = Site::new("", "");
    let path = site.path("socket");
    let http = |name: &str| {
        let socket = site.path(name).display().to_string();
        format!("http {{ server {{ listen unix:{socket}; location / {{ return 200 x; }} }} }}")
    };
    site.configure("daemon off; worker_processes 2;", &http("socket"));
    // A file that a killed server left behind.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let running = site.start();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("it exists").permissions());
    assert_eq!(mode & 0o777, 0o666);
    std::os::unix::net::UnixStream::connect(&path).expect("connected");
    site.configure("daemon off; worker_processes 2;", &http("other"));
    running.signal("HUP");
    wait("the new socket only", || {
        if support::exists(&site.path("other")) && !support::exists(&path) { Ok(()) } else { Err(site.log()) }
    });
    running.quit();
    assert!(!support::exists(&site.path("other")));
    site.assert_no_alerts();
}

#[test]
fn without_workers_connections_wait_for_a_reload_with_some() {
    let port = free_port();
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 here; }} }} }}");
    let site = Site::new("daemon off; worker_processes 0;", &http);
    let running = site.start();
    let early = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the socket is there");
    site.configure("daemon off; worker_processes 2;", &http);
    running.signal("HUP");
    wait_for_answer(port, "here");
    // Clients that connected before the workers started are served.
    let mut early = Client::of(early).expect("set up");
    assert_eq!(early.get().expect("answered"), (200, "here".into()));
    running.quit();
}

#[test]
fn a_worker_that_cannot_start_keeps_the_old_one() {
    let port = free_port();
    let site = Site::new("daemon off;", &answering(&[port], "old"));
    let kept = site.path("kept.sock").display().to_string();
    let two = |words: &str, path: &str| {
        let http = answering(&[port], words);
        http.replace("listen ", &format!("listen unix:{path}; listen "))
    };
    site.configure("daemon off;", &two("old", &kept));
    let running = site.start();
    wait_for_answer(port, "old");
    let first = running.worker();
    let refused = site.path("refused.sock").display().to_string();
    site.configure("daemon off; working_directory /none/such; pid logs/other.pid;", &two("new", &refused));
    running.signal("HUP");
    site.wait_for_log("the new worker process ended before it served, the old configuration stays", 1);
    wait_for_answer(port, "old");
    wait("the pid file", || if site.path("logs/other.pid").exists() { Err("the new one") } else { Ok(()) });
    assert_eq!(site.pid(), Some(running.pid()));
    assert_eq!(running.worker(), first);
    std::os::unix::net::UnixStream::connect(&kept).expect("its address stays");
    assert!(!support::exists(std::path::Path::new(&refused)));
    // The next reload starts from the restored configuration.
    site.configure("daemon off;", &answering(&[port], "in place"));
    running.signal("HUP");
    wait_for_answer(port, "in place");
    assert_eq!(running.worker(), first);
    let folder = site.path("html").display().to_string();
    site.configure(&format!("daemon off; working_directory {folder};"), &answering(&[port], "new"));
    running.signal("HUP");
    wait_for_answer(port, "new");
    site.wait_for_log(&format!("worker process {first} exited with code 0"), 1);
    running.quit();
}

#[test]
fn files_that_are_no_sockets_stay() {
    let site = Site::new("", "");
    let path = site.path("precious");
    let server = format!("http {{ server {{ listen unix:{}; }} }}", path.display());
    site.configure("daemon off;", &server);
    site.write("precious", "text");
    assert!(site.run(&["-t"]).status.success(), "as in nginx, -t does not mind an address in use");
    assert_eq!(site.read("precious"), "text");
    let output = site.run(&[]);
    let words = support::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("failed (98: Address already in use)"), "{words}");
    assert_eq!(site.read("precious"), "text");
    // A test also leaves the socket of a server that has ended.
    std::fs::remove_file(&path).expect("removed");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    assert!(site.run(&["-t"]).status.success());
    assert!(support::exists(&path));
}
