//! Confinement: what master and worker cannot do, what goes on working, and reloads that need more than a worker has.

mod support;

use std::process::Stdio;
use support::client::{Client, get};
use support::{Running, Site, free_port, text, wait};

const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// Version of the kernel's Landlock, and a notice where rules cannot be enforced.
fn landlock() -> u32 {
    let version = sandbox::landlock_version();
    if version < sandbox::LANDLOCK_PORTS {
        eprintln!("skipped in part: Landlock {version} of this kernel has no rules for ports");
    }
    version
}

fn has_filters() -> bool {
    let has = sandbox::has_filters();
    if !has {
        eprintln!("skipped: this kernel does not filter system calls");
    }
    has
}

fn start<'a>(site: &'a Site, environment: &str) -> Running<'a> {
    let mut command = site.command(&[]);
    command.env("TIDEGATE_SANDBOX", environment).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the program starts");
    let running = Running { site, child };
    wait("the pid file", || site.pid().ok_or_else(|| site.log()));
    running
}

/// Result of an attempt in the log: the error number, 0 for success.
fn result(log: &str, process: &str, what: &str) -> i32 {
    let start = format!("sandbox probe of the {process}: {what}: ");
    let rest = log.split_once(&start).unwrap_or_else(|| panic!("no \"{start}\" in {log}")).1;
    rest.split(';').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn field(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().to_string()
}

#[test]
fn no_process_escapes() {
    if !has_filters() || cfg!(not(debug_assertions)) {
        return;
    }
    let version = landlock();
    let port = free_port();
    let site = Site::new(
        "daemon off; user root root; sandbox strict;",
        &format!("http {{ server {{ listen 127.0.0.1:{port}; location /metrics {{ metrics; }} }} }}"),
    );
    site.write("html/index.html", "served");
    let running = start(&site, "probe");
    site.wait_for_log("sandbox probe of the worker: create:", 1);
    let log = site.log();
    for process in ["master", "worker"] {
        for what in ["Ptrace", "ReadProcess", "UserNamespace", "MountNamespace", "IoUring", "Bpf", "Keyring"] {
            assert_eq!(result(&log, process, what), EPERM, "{process}: {what}");
        }
    }
    for what in ["Execve", "Fork", "RawSocket", "Spawn"] {
        assert_eq!(result(&log, "worker", what), EPERM, "{what}");
    }
    if version >= sandbox::LANDLOCK_FILES {
        for what in ["/etc/shadow", "/root", "create /root/x", "create"] {
            assert_eq!(result(&log, "worker", what), EACCES, "{what}");
        }
    }
    if version >= sandbox::LANDLOCK_PORTS {
        assert_eq!(result(&log, "worker", "connect"), EACCES);
    }
    assert_eq!(get(port).expect("an answer"), (200, "served".to_string()));
    site.wait_for_log("sandbox: refused system call ptrace", 1);
    let worker = running.worker();
    for pid in [running.pid(), worker] {
        assert_eq!(field(pid, "NoNewPrivs"), "1");
        assert_eq!(field(pid, "Seccomp"), "2");
    }
    wait("the metrics", || {
        let metrics = Client::connect(port)?.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?.1;
        let refused = metrics.lines().find_map(|line| line.strip_prefix("tidegate_sandbox_refused_calls_total "));
        let counted = refused.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 5);
        let enforced = metrics.contains("tidegate_sandbox{layer=\"calls\"} 1");
        if counted && enforced { Ok(()) } else { Err(metrics) }
    });
    running.quit();
}

#[test]
fn a_worker_has_no_capabilities() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has capabilities to give up");
        return;
    }
    let site = Site::new("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{}; }} }}", free_port()));
    let running = site.start();
    site.wait_for_log("sandbox: system calls", 1);
    let worker = running.worker();
    wait("the capabilities", || match field(worker, "CapPrm") {
        sets if sets.trim_start_matches('0').is_empty() && field(worker, "CapEff") == sets => Ok(()),
        sets => Err(sets),
    });
    // CAP_SYS_ADMIN (21) and CAP_SYS_PTRACE (19) are gone in the master.
    let bounding = u64::from_str_radix(&field(running.pid(), "CapBnd"), 16).expect("a number");
    assert_eq!(bounding & (1 << 21 | 1 << 19), 0, "{bounding:x}");
    running.quit();
}

/// A new cache is outside of the rules of the worker: another one takes over, and no request is lost.
#[test]
fn a_reload_that_needs_more_gets_another_worker() {
    if landlock() < sandbox::LANDLOCK_FILES {
        return;
    }
    let port = free_port();
    let elsewhere = std::env::temp_dir().join(format!("tidegate-sandbox-elsewhere-{}", std::process::id()));
    let cache = elsewhere.join("deep/cache");
    std::fs::create_dir_all(&cache).expect("a folder");
    let http = |more: &str| {
        format!(
            "http {{ {more} server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{port}/in; }}
             location /in {{ return 200 served; }} }} }}"
        )
    };
    let main = "daemon off; sandbox strict; user root root;";
    let site = Site::new(main, &http(""));
    let running = site.start();
    wait("an answer", || match get(port) {
        Ok((200, _)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let first = running.worker();
    running.signal("HUP");
    site.wait_for_log("configuration 1 is no longer used", 1);
    assert_eq!(running.worker(), first, "the rules suffice: {}", site.log());

    let path = cache.display();
    site.configure(
        main,
        &http(&format!("proxy_cache_path {path} keys_zone=a:1m; proxy_cache a; proxy_cache_valid 1m;")),
    );
    running.signal("HUP");
    site.wait_for_log("sandbox: the configuration needs more", 1);
    let mut lost = 0;
    wait("another worker", || {
        lost += usize::from(!matches!(get(port), Ok((200, _))));
        (running.worker() != first).then_some(()).ok_or("the first one")
    });
    assert_eq!(lost, 0, "{}", site.log());
    wait("a stored response", || {
        let _ = get(port);
        let files = std::fs::read_dir(&cache).map_or(0, |entries| entries.count());
        if files > 0 { Ok(()) } else { Err(site.log()) }
    });
    running.quit();
    site.assert_no_alerts();
    std::fs::remove_dir_all(&elsewhere).expect("removed");
}

#[test]
fn the_test_of_a_configuration_explains_the_rules() {
    let port = free_port();
    let server = format!("server {{ listen 127.0.0.1:{port}; root $arg_x; location / {{ proxy_pass http://a; }} }}");
    let site = Site::new("sandbox strict;", &format!("http {{ upstream a {{ server 127.0.0.1:8080; }} {server} }}"));
    let words = text(&site.run(&["-t", "--explain"]).stderr);
    for part in [
        "read / (root $arg_x)",
        "begins with a variable: workers may read everything",
        "connect to TCP ports 80 8080",
        "bind no TCP port",
        "starts a new worker process",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    site.configure("sandbox off;", &format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}"));
    assert!(text(&site.run(&["-t", "--explain"]).stderr).contains("sandbox: off"));
    assert!(!text(&site.run(&["-t"]).stderr).contains("sandbox"));
    site.configure("sandbox maybe;", "http { }");
    assert!(text(&site.run(&["-t"]).stderr).contains("invalid value \"maybe\""));
}
