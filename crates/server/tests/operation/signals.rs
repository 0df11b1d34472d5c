//! The life of master and worker: every signal, crashes, logs.

use crate::support;

use std::time::Duration;
use support::{Site, alive, children, free_port, signal, text, wait};

const FOREGROUND: &str = "daemon off;";

#[test]
fn quit_and_term_end_everything() {
    for (name, words) in [("QUIT", "shutting down"), ("TERM", "exiting"), ("INT", "exiting")] {
        let site = Site::new("daemon off; worker_processes 2;", "");
        let running = site.start();
        let worker = running.worker();
        running.signal(name);
        assert_eq!(running.ended().code(), Some(0), "{}", site.log());
        assert!(!alive(worker));
        assert!(site.pid().is_none());
        assert!(site.log().contains(words), "{}", site.log());
        assert!(site.log().contains(&format!("worker process {worker} exited with code 0")), "{}", site.log());
        site.assert_no_alerts();
    }
}

#[test]
fn without_a_master_signals_reach_the_one_process() {
    for name in ["QUIT", "TERM", "INT"] {
        let site = Site::new("daemon off; master_process off;", "");
        let running = site.start();
        assert!(children(running.pid()).is_empty());
        running.signal("HUP");
        site.wait_for_log("exited with code 0", 1);
        running.signal(name);
        assert_eq!(running.ended().code(), Some(0));
        assert!(site.pid().is_none());
        site.assert_no_alerts();
    }
}

#[test]
fn signals_sent_by_name() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    running.worker();
    assert!(site.run(&["-s", "reload"]).status.success());
    site.wait_for_log("its work has exited with code 0", 1);
    assert!(site.log().contains("[notice]") && site.log().contains("signal process started"), "{}", site.log());
    assert!(site.run(&["-s", "reopen"]).status.success());
    site.wait_for_log("reopening logs", 3);
    assert!(site.run(&["-s", "quit"]).status.success());
    assert_eq!(running.ended().code(), Some(0));
    let running = site.start();
    assert!(site.run(&["-s", "stop"]).status.success());
    assert_eq!(running.ended().code(), Some(0));
    site.assert_no_alerts();
}

#[test]
fn signals_without_a_meaning_end_no_process() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    let worker = running.worker();
    site.wait_for_log("start worker process ", 1);
    for (number, name) in [(14, "ALRM"), (29, "IO")] {
        for (times, pid) in [(1, running.pid()), (2, worker)] {
            signal(pid, name);
            site.wait_for_log(&format!("signal {number} (SIG{name}) received"), times);
        }
    }
    assert_eq!(running.worker(), worker);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_daemon_detaches_and_writes_its_pid() {
    let site = Site::new("", "");
    let output = site.run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = wait("the pid file", || site.pid().ok_or("none"));
    assert_ne!(std::fs::read_link(format!("/proc/{pid}/fd/0")).ok(), None);
    assert!(site.run(&["-s", "stop"]).status.success());
    wait("the end", || if alive(pid) { Err("alive") } else { Ok(()) });
    assert!(site.pid().is_none());
    site.assert_no_alerts();
}

#[test]
fn a_reload_keeps_the_worker_process() {
    let site = Site::new("daemon off; worker_processes 1;", "");
    let running = site.start();
    let worker = running.worker();
    for (n, threads) in [3, 2, 4].into_iter().enumerate() {
        site.configure(&format!("daemon off; worker_processes {threads};"), "");
        running.signal("HUP");
        site.wait_for_log("its work has exited with code 0", n + 1);
        let named = || {
            let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).expect("tasks");
            let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            tasks.flatten().map(name).filter(|name| name.starts_with("worker ")).count()
        };
        wait("as many threads", || if named() == threads { Ok(()) } else { Err(named()) });
    }
    assert_eq!(running.worker(), worker);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_wrong_configuration_keeps_the_old_one() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    let worker = running.worker();
    site.configure("daemon off; worker_processes none;", "");
    running.signal("HUP");
    let place = site.path("conf/nginx.conf").display().to_string();
    site.wait_for_log(&format!("[emerg] {}#", running.pid()), 1);
    site.wait_for_log(&format!("\"worker_processes\" directive invalid value in {place}:2"), 1);
    assert_eq!(running.worker(), worker);
    site.configure("daemon off; error_log /none/such/log;", "");
    running.signal("HUP");
    site.wait_for_log("open() \"/none/such/log\" failed (2: No such file or directory)", 1);
    site.configure("daemon off; worker_processes 2;", "");
    running.signal("HUP");
    site.wait_for_log("its work has exited with code 0", 1);
    assert_eq!(running.worker(), worker);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn logs_are_reopened() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    let worker = running.worker();
    std::fs::rename(site.path("logs/error.log"), site.path("logs/error.log.1")).expect("renamed");
    running.signal("USR1");
    let old = || site.read("logs/error.log.1");
    let words = format!("{worker}#{worker}: reopening logs");
    wait("the worker's word", || if old().contains(&words) { Ok(()) } else { Err(old()) });
    wait("a new file", || if site.path("logs/error.log").exists() { Ok(()) } else { Err(old()) });
    running.quit();
    assert!(site.log().contains("gracefully shutting down"));
    assert!(!site.read("logs/error.log.1").contains("gracefully shutting down"));
}

#[test]
fn a_crashed_worker_is_started_again_more_and_more_slowly() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    let mut worker = running.worker();
    for pause in [100, 200] {
        signal(worker, "KILL");
        site.wait_for_log(&format!("worker process {worker} exited on signal 9"), 1);
        site.wait_for_log(&format!("the next worker process is started in {pause} ms"), 1);
        let old = worker;
        worker = wait("another worker", || match running.worker() {
            pid if pid == old => Err("the same"),
            pid => Ok(pid),
        });
    }
    assert!(site.log().contains("[alert]"), "a crash is worth one");
    running.quit();
}

#[test]
fn a_worker_that_is_told_to_end_is_replaced_quietly() {
    let site = Site::new(FOREGROUND, "");
    let running = site.start();
    let worker = running.worker();
    signal(worker, "TERM");
    site.wait_for_log(&format!("worker process {worker} exited with code 0"), 1);
    site.wait_for_log("start worker process ", 2);
    assert_ne!(running.worker(), worker);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn an_orphaned_worker_serves_on_and_obeys() {
    let site = Site::new(FOREGROUND, "");
    let mut running = site.start();
    let worker = running.worker();
    running.child.kill().expect("killed");
    running.child.wait().expect("waited");
    std::thread::yield_now();
    assert!(alive(worker));
    signal(worker, "QUIT");
    wait("the worker's end", || if alive(worker) { Err("alive") } else { Ok(()) });
}

#[test]
fn the_workers_environment_user_and_directory() {
    let site = Site::new("", "");
    let dir = site.path("html").display().to_string();
    site.configure(&format!("daemon off; env KEPT; env SET=here; working_directory {dir}; worker_priority 5;"), "");
    let mut command = site.command(&[]);
    command.env("KEPT", "yes").env("DROPPED", "no").env("TZ", "UTC");
    let child = command.stderr(std::process::Stdio::null()).spawn().expect("starts");
    let running = support::Running { site: &site, child };
    wait("the pid file", || site.pid().ok_or("none"));
    let worker = running.worker();
    wait("the directory", || {
        let seen = std::fs::read_link(format!("/proc/{worker}/cwd")).unwrap_or_default();
        if seen == site.path("html") { Ok(()) } else { Err(seen.display().to_string()) }
    });
    let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).expect("stat");
    let nice = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(16)).map(str::to_string);
    let own = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let own: i32 =
        own.rsplit(") ").next().and_then(|r| r.split(' ').nth(16)).and_then(|n| n.parse().ok()).expect("nice");
    if own <= 5 {
        assert_eq!(nice.as_deref(), Some("5"));
    }
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).expect("status");
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    let user = |text: &str| text.lines().find(|l| l.starts_with("Uid:")).map(str::to_string).unwrap_or_default();
    if user(&own).contains("\t0\t") {
        assert!(!user(&status).contains("\t0\t"), "root's worker is not root: {status}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn error_logs_of_several_kinds() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    server.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let port = server.local_addr().expect("address").port();
    let site = Site::new("", "");
    site.configure(
        &format!(
            "daemon off; error_log logs/grave.log crit; error_log memory:32k debug;
             error_log syslog:server=127.0.0.1:{port},tag=SEE,facility=user,nohostname notice;"
        ),
        "",
    );
    let running = site.start();
    running.worker();
    let mut buffer = [0; 2048];
    let length = server.recv(&mut buffer).expect("a message");
    let line = text(&buffer[..length]);
    assert!(line.starts_with("<13>") && line.contains(" SEE: 2") && line.contains(" [notice] "), "{line}");
    running.quit();
    assert_eq!(site.read("logs/grave.log"), "");
    assert!(site.log().contains("[notice]"));
}

#[test]
fn processes_carry_their_names() {
    let port = free_port();
    let conf = format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 here; }} }}");
    let site = Site::new("daemon off; env TIDEGATE_TEST_WORD; worker_shutdown_timeout 1h;", &conf);
    let mut command = site.command(&[]);
    command.env("TIDEGATE_TEST_WORD", "word").env("TIDEGATE_TEST_LONG", "x".repeat(500));
    let mut child = command.spawn().expect("the program starts");
    wait("the pid file", || site.pid().ok_or("none"));
    let title = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    };
    // The pid file is written first.
    let asked = site.dir.display().to_string();
    wait("the master's title", || match title(child.id()) {
        words if words.starts_with("tidegate: master process ") && words.ends_with(&format!("-p {asked}")) => Ok(()),
        words => Err(words),
    });
    let worker = wait("a worker", || support::children(child.id()).first().copied().ok_or("none"));
    wait("its title", || match title(worker) {
        words if words == "tidegate: worker process" => Ok(()),
        words => Err(words),
    });
    // A client with a partial request delays the end.
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\n").expect("sent");
    assert_eq!(support::client::get(port), Ok((200, "here".into())));
    support::signal(child.id(), "QUIT");
    wait("the other title", || match title(worker) {
        words if words == "tidegate: worker process is shutting down" => Ok(()),
        words => Err(words),
    });
    drop(client);
    assert!(child.wait().expect("wait").success());
}

#[test]
fn a_worker_that_does_not_answer_a_reload_is_replaced() {
    let port = free_port();
    let conf = |words: &str| format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 \"{words}\"; }} }}");
    let site = Site::new("daemon off;", &conf("one"));
    let running = site.start();
    let worker = running.worker();
    assert_eq!(support::client::get(port), Ok((200, "one".into())));
    support::stop(worker);
    site.configure("daemon off;", &conf("two"));
    running.signal("HUP");
    site.wait_for_log(&format!("worker process {worker} has not answered a reload"), 1);
    wait("the new configuration", || {
        let children = support::children(running.pid());
        if children.iter().any(|pid| *pid != worker) { Ok(()) } else { Err(format!("{children:?}")) }
    });
    support::signal(worker, "KILL");
    wait("its answer", || match support::client::get(port) {
        Ok((200, words)) if words == "two" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
}

#[test]
fn only_the_owner_can_write_the_files_of_a_daemon() {
    use std::os::unix::fs::PermissionsExt;
    let port = free_port();
    let site = Site::new(
        "worker_processes 1; pid logs/n.pid;",
        &format!("http {{ access_log logs/a.log; server {{ listen 127.0.0.1:{port}; return 200; }} }}"),
    );
    // The umask is reset, whatever the starting process had.
    assert!(site.run(&[]).status.success());
    let pid = wait("the process id", || site.read("logs/n.pid").trim().parse::<u32>());
    for name in ["logs/n.pid", "logs/a.log", "logs/error.log"] {
        let mode = std::fs::metadata(site.path(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode & 0o022, 0, "{name}: {mode:o}");
    }
    signal(pid, "QUIT");
    wait("its end", || if alive(pid) { Err("it is alive") } else { Ok(()) });
}
