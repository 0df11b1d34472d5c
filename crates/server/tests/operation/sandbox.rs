//! Confinement: what master and worker cannot do, what goes on working, and reloads that need more than a worker has.

use crate::support;

use std::process::Stdio;
use support::client::{Client, get};
use support::{Running, Site, children, free_port, text, wait};

const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// Version of the kernel's Landlock, and a notice where rules cannot be enforced.
fn landlock() -> u32 {
    let version = sandbox::landlock_version();
    if version < sandbox::LANDLOCK_PORTS {
        testkit::missing_means(&format!("Landlock {version} of this kernel has no rules for ports"));
    }
    version
}

fn has_filters() -> bool {
    let has = sandbox::has_filters();
    if !has {
        testkit::missing_means("this kernel does not filter system calls");
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

fn threads(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn field(pid: u32, thread: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().to_string()
}

#[test]
fn no_process_escapes() {
    if !has_filters() || cfg!(not(debug_assertions)) {
        return;
    }
    let version = landlock();
    let ports = [free_port(), free_port()];
    let port = ports[0];
    // The second configuration names keys by a variable, so that the key process may open files of that folder.
    for (name, opens) in [("localhost", false), ("$ssl_server_name", true)] {
        let site = Site::new(
            "daemon off; user root root; sandbox strict; ssl_key_isolation on;",
            &format!(
                "http {{ server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{} ssl; location /metrics {{ metrics; }}
                 ssl_certificate keys/{name}.crt; ssl_certificate_key keys/{name}.key; }} }}",
                ports[1]
            ),
        );
        std::fs::create_dir(site.path("conf/keys")).expect("a folder");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        site.write("conf/keys/localhost.crt", &made.cert.pem());
        site.write("conf/keys/localhost.key", &made.signing_key.serialize_pem());
        site.write("html/index.html", "served");
        assert_no_escape(&site, port, version, opens);
    }
}

fn assert_no_escape(site: &Site, port: u16, version: u32, opens: bool) {
    let running = start(site, "probe");
    site.wait_for_log("sandbox probe of the worker thread: create:", 1);
    site.wait_for_log("sandbox probe of the key thread: create:", 1);
    let log = site.log();
    let confined = ["worker", "worker thread", "key process", "key thread"];
    for process in ["master"].iter().chain(&confined) {
        for what in [
            "Ptrace",
            "ReadProcess",
            "UserNamespace",
            "MountNamespace",
            "CloneNamespace",
            "JoinNamespace",
            "Mount",
            "IoUring",
            "Bpf",
            "Keyring",
            "PageFaults",
            "Counters",
            "TakeDescriptor",
        ] {
            assert_eq!(result(&log, process, what), EPERM, "{process}: {what}");
        }
    }
    for process in confined {
        for what in ["Execve", "Fork", "Signal", "RawSocket", "Spawn"] {
            assert_eq!(result(&log, process, what), EPERM, "{process}: {what}");
        }
        // A worker fails to bind the address, or to listen on it.
        assert!([EPERM, EACCES].contains(&result(&log, process, "listen")), "{process}");
        let files = match process.starts_with("key") {
            // Without files of variables it opens nothing; it never creates anything.
            true if opens => (version >= sandbox::LANDLOCK_FILES).then_some(EACCES),
            true => Some(EPERM),
            false => (version >= sandbox::LANDLOCK_FILES).then_some(EACCES),
        };
        if let Some(number) = files {
            for what in ["/etc/shadow", "/root"] {
                assert_eq!(result(&log, process, what), number, "{process}: {what}");
            }
            let number = if process.starts_with("key") { EPERM } else { EACCES };
            for what in ["create /root/x", "create"] {
                assert_eq!(result(&log, process, what), number, "{process}: {what}");
            }
        }
    }
    for process in ["key process", "key thread"] {
        assert_eq!(result(&log, process, "connect"), EPERM, "{process}");
    }
    if version >= sandbox::LANDLOCK_PORTS {
        for process in ["worker", "worker thread"] {
            assert_eq!(result(&log, process, "connect"), EACCES, "{process}");
        }
    }
    assert_eq!(get(port).expect("an answer"), (200, "served".to_string()));
    site.wait_for_log("sandbox: refused system call ptrace", 1);
    // The key process and the worker process, with all their threads.
    let processes = children(running.pid());
    assert_eq!(processes.len(), 2);
    for pid in processes.into_iter().chain([running.pid()]) {
        for thread in threads(pid) {
            assert_eq!(field(pid, thread, "NoNewPrivs"), "1");
            assert_eq!(field(pid, thread, "Seccomp"), "2");
        }
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
        testkit::missing_means("only root has capabilities to give up");
        return;
    }
    let site = Site::new("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{}; }} }}", free_port()));
    let running = site.start();
    site.wait_for_log("sandbox: system calls", 1);
    let worker = running.worker();
    wait("the capabilities", || match field(worker, worker, "CapPrm") {
        sets if sets.trim_start_matches('0').is_empty() && field(worker, worker, "CapEff") == sets => Ok(()),
        sets => Err(sets),
    });
    // CAP_SYS_ADMIN (21) and CAP_SYS_PTRACE (19) are gone in the master.
    let bounding = u64::from_str_radix(&field(running.pid(), running.pid(), "CapBnd"), 16).expect("a number");
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
