//! A root master with a non-root worker: root's files and ports work through every signal. Needs root.

use crate::support;

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use support::client::{Client, get};
use support::{Running, Site, children, free_port, signal, wait};

/// Tells whether the tests can run; prints a notice otherwise.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testkit::missing_means("only root can give privileges up");
    }
    root
}

/// The user that has no rights, and the user's group, which is called otherwise elsewhere.
fn nobody() -> String {
    let group = Command::new("id").args(["-gn", "nobody"]).output().expect("id runs");
    format!("user nobody {};", support::text(&group.stdout).trim())
}

/// Real, effective, saved user of a process.
fn users(pid: u32) -> Vec<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap_or_default();
    line.split_whitespace().skip(1).take(3).map(str::to_string).collect()
}

/// Restricts files to root; the site itself is readable.
fn close(site: &Site, names: &[&str]) {
    std::fs::set_permissions(&site.dir, std::fs::Permissions::from_mode(0o755)).expect("open");
    for name in names {
        let mode = if site.path(name).is_dir() { 0o700 } else { 0o600 };
        std::fs::set_permissions(site.path(name), std::fs::Permissions::from_mode(mode)).expect("closed");
    }
}

fn wait_for(port: u16, words: &str) {
    wait(words, || match get(port) {
        Ok((200, body)) if body == words => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn files_of_root_outlive_reloads_and_reopenings() {
    if !is_root() {
        return;
    }
    let (port, other) = (free_port(), free_port());
    let main = &format!("daemon off; {} worker_processes 2; pid logs/own/nginx.pid;", nobody());
    let http = |words: &str, more: &str| {
        format!(
            "http {{ log_format path $request_uri; access_log logs/access.log path; {more}
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"{words}\"; }}
                       location /body {{ client_body_in_file_only clean; proxy_pass http://127.0.0.1:{port}; }} }} }}"
        )
    };
    let site = Site::new(main, &http("one", ""));
    std::fs::create_dir(site.path("logs/own")).expect("a folder");
    // Its configuration, its logs and its pid file are in folders that the worker may not even enter.
    close(&site, &["conf", "conf/nginx.conf", "logs", "logs/own"]);
    let child = site.command(&[]).stderr(Stdio::null()).spawn().expect("starts");
    let running = Running { site: &site, child };
    let pid = || site.read("logs/own/nginx.pid");
    wait("the pid file", || if pid() == format!("{}\n", running.pid()) { Ok(()) } else { Err(pid()) });
    wait_for(port, "one");
    let worker = running.worker();
    let unprivileged = users(worker);
    assert!(unprivileged.iter().all(|id| id != "0") && unprivileged.len() == 3, "{unprivileged:?}");
    assert_eq!(users(running.pid()), ["0"; 3]);

    // HUP: what the worker could not read by itself, a log that it could not make, an address that is new.
    let server =
        format!("server {{ listen 127.0.0.1:{other}; access_log logs/own/other.log path; return 200 other; }}");
    site.write(
        "conf/nginx.conf",
        &format!("error_log logs/error.log info;\n{main}\nevents {{ }}\n{}\n", http("two", &server)),
    );
    running.signal("HUP");
    wait_for(port, "two");
    wait_for(other, "other");
    assert_eq!(running.worker(), worker, "{}", site.log());
    assert_eq!(users(worker), unprivileged);
    wait("its log", || {
        let log = site.read("logs/own/other.log");
        if log.contains("/\n") { Ok(()) } else { Err(log) }
    });

    // USR1: reopens logs in places where only root can create them.
    for name in ["logs/access.log", "logs/own/other.log", "logs/error.log"] {
        std::fs::rename(site.path(name), site.path(&format!("{name}.1"))).expect("renamed");
    }
    running.signal("USR1");
    wait("the new logs", || {
        wait_for(port, "two");
        wait_for(other, "other");
        let logs = [site.read("logs/access.log"), site.read("logs/own/other.log")];
        if logs.iter().all(|log| log.contains("/\n")) { Ok(()) } else { Err(logs.join("")) }
    });
    wait("the error log", || if site.path("logs/error.log").exists() { Ok(()) } else { Err("none") });

    // After another HUP and a crash, the new worker starts as root and drops privileges.
    site.write(
        "conf/nginx.conf",
        &format!("error_log logs/error.log info;\n{main}\nevents {{ }}\n{}\n", http("three", &server)),
    );
    running.signal("HUP");
    wait_for(port, "three");
    signal(worker, "KILL");
    let next = wait("another worker", || match children(running.pid()).first() {
        Some(next) if *next != worker => Ok(*next),
        other => Err(format!("{other:?}")),
    });
    wait_for(port, "three");
    assert_eq!(users(next), unprivileged);
    let meta = std::fs::metadata(site.path("logs/own/nginx.pid")).expect("the pid file");
    assert_eq!(meta.uid(), 0);

    running.signal("QUIT");
    assert!(running.ended().success(), "{}", site.log());
    assert!(!site.path("logs/own/nginx.pid").exists(), "root's pid file is removed");
    let said = [site.read("logs/error.log.1"), site.log()].concat();
    assert!(!said.contains("[emerg]") && !said.contains("Permission denied"), "{said}");
}

/// Without `listen` the port is 80 for root, also after a reload in a worker that is no longer root. The server runs in
/// its own network namespace.
#[test]
fn the_port_of_a_server_without_one_is_roots_after_a_reload() {
    if !is_root() {
        return;
    }
    const ALONE: &str = "ip link set lo up && exec \"$@\"";
    let alone = Command::new("unshare").args(["-n", "sh", "-c", ALONE, "sh", "true"]).stderr(Stdio::null()).status();
    if !alone.is_ok_and(|status| status.success()) {
        testkit::missing_means("a network of one's own is not to be had here");
        return;
    }
    let site = Site::new(&format!("daemon off; {}", nobody()), "http { server { return 200 here; } }");
    close(&site, &[]);
    let mut command = Command::new("unshare");
    command
        .args(["-n", "sh", "-c", ALONE, "sh", support::BINARY, "-p"])
        .arg(&site.dir)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let running = Running { site: &site, child: command.spawn().expect("starts") };
    wait("the pid file", || site.pid().ok_or("none"));
    let worker = running.worker();
    wait("a worker that is not root", || match users(worker) {
        ids if ids.iter().all(|id| id != "0") => Ok(()),
        ids => Err(format!("{ids:?}")),
    });
    // A thread that is in the server's network.
    let network = std::fs::File::open(format!("/proc/{worker}/ns/net")).expect("its network");
    let ask = || {
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(network.as_fd(), kind).expect("in its network");
                get(80)
            });
            answer.join().expect("a client")
        })
    };
    for times in 1..=2 {
        assert_eq!(ask(), Ok((200, "here".into())), "{}", site.log());
        running.signal("HUP");
        site.wait_for_log("its work has exited with code 0", times);
    }
    assert_eq!(ask(), Ok((200, "here".into())), "{}", site.log());
    assert_eq!(running.worker(), worker);
    running.quit();
    let log = site.log();
    assert!(!log.contains("[emerg]") && !log.contains("[error]") && !log.contains("[alert]"), "{log}");
}

#[test]
fn files_exist_without_the_permission_to_read_them() {
    if !is_root() {
        return;
    }
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; root html; index script.php;
             location /text {{ try_files $uri =404; }}
             location /coded {{ gzip_static on; gzip_vary on; }}
             location /closed/ {{ try_files $uri /other; }}
             location /other {{ return 200 other; }}
             location ~ \\.php$ {{ try_files $uri =404; empty_gif; }} }} }}"
    );
    let site = Site::new(&format!("daemon off; {}", nobody()), &http);
    std::fs::create_dir_all(site.path("html/closed")).expect("folders");
    for name in ["html/text", "html/script.php", "html/closed/text", "html/coded", "html/coded.gz"] {
        site.write(name, "text");
    }
    close(&site, &["html/text", "html/script.php", "html/closed", "html/coded.gz"]);
    let running = site.start();
    let status = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        wait(path, || Client::connect(port)?.ask_for_head(&request)).0
    };
    // Another program reads scripts, as another user.
    assert_eq!(["/script.php", "/", "/text", "/closed/text", "/coded"].map(status), [200, 200, 403, 200, 200]);
    running.quit();
    let log = site.log();
    for (level, call, name) in
        [("[error]", "open()", "text"), ("[crit]", "stat()", "closed/text"), ("[error]", "open()", "coded.gz")]
    {
        let words =
            format!("{call} \"{}\" failed (13: Permission denied), client", site.path("html").join(name).display());
        assert!(log.lines().any(|line| line.contains(level) && line.contains(&words)), "{words}: {log}");
    }
}

/// Starts the program where an empty file system hides a folder. `None` without the right to mount.
fn start_without<'a>(folder: &str, site: &'a Site) -> Option<Running<'a>> {
    let mount = format!("mount -t tmpfs none {folder}");
    let prepared = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
    if !prepared.is_ok_and(|output| output.status.success()) {
        testkit::missing_means("no mount namespace can be made");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\""), support::BINARY, "-p"]);
    let child = command.arg(&site.dir).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    Some(Running { site, child })
}

#[test]
fn a_chroot_without_proc_has_workers() {
    let port = free_port();
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 here; }} }}");
    let site = Site::new("daemon off;", &http);
    let Some(running) = start_without("/proc", &site) else { return };
    wait_for(port, "here");
    let worker = running.worker();
    site.configure("daemon off; worker_priority 5;", &http.replace("here", "there"));
    running.signal("HUP");
    wait_for(port, "there");
    site.wait_for_log(&format!("worker process {worker} exited with code 0"), 1);
    running.quit();
}

#[test]
fn a_daemon_without_devices_names_what_it_lacks() {
    let site = Site::new("daemon on;", "");
    let Some(running) = start_without("/dev", &site) else { return };
    site.wait_for_log("[emerg]", 1);
    assert!(site.log().contains("open(\"/dev/null\") failed (2: No such file or directory)"), "{}", site.log());
    running.ended();
}
