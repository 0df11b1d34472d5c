//! Changing the binary while it serves: USR2, WINCH, HUP and the ways back.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::client::get;
use support::{Site, alive, children, exists, free_port, signal, wait};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a daemon; its master's pid.
fn daemon(site: &Site) -> u32 {
    assert!(site.run(&[]).status.success());
    wait("the pid file", || site.pid().ok_or("none"))
}

fn old_pid(site: &Site) -> Option<u32> {
    site.read("logs/nginx.pid.oldbin").strip_suffix('\n')?.parse().ok()
}

fn new_master(site: &Site, old: u32) -> u32 {
    wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()))
}

fn gone(pid: u32) {
    wait("its end", || if alive(pid) { Err("alive") } else { Ok(()) });
}

#[test]
fn the_old_master_leaves() {
    let site = Site::new("", "");
    let old = daemon(&site);
    signal(old, "USR2");
    let new = new_master(&site, old);
    assert_eq!(old_pid(&site), Some(old));
    signal(old, "QUIT");
    gone(old);
    assert_eq!((site.pid(), old_pid(&site)), (Some(new), None));
    // The heir may be followed in turn.
    signal(new, "USR2");
    let third = new_master(&site, new);
    signal(new, "QUIT");
    gone(new);
    signal(third, "TERM");
    gone(third);
    assert!(site.pid().is_none());
    site.assert_no_alerts();
}

#[test]
fn the_new_master_leaves() {
    let site = Site::new("", "");
    let old = daemon(&site);
    signal(old, "USR2");
    let new = new_master(&site, old);
    signal(old, "WINCH");
    wait("no worker of the old master", || {
        let left: Vec<u32> = children(old).into_iter().filter(|pid| *pid != new).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(alive(old));
    signal(new, "TERM");
    gone(new);
    wait("the old pid file again", || if site.pid() == Some(old) { Ok(()) } else { Err(site.log()) });
    wait("a worker of the old master", || children(old).first().copied().ok_or_else(|| site.log()));
    assert_eq!(old_pid(&site), None);
    signal(old, "QUIT");
    gone(old);
    site.assert_no_alerts();
}

/// Runs `-s upgrade`; returns whether it succeeded, and its message.
fn upgrade(site: &Site) -> (bool, String) {
    let output = site.run(&["-s", "upgrade"]);
    (output.status.success(), support::text(&output.stderr))
}

#[test]
fn one_command_upgrades() {
    let site = Site::new("", "");
    let old = daemon(&site);
    let (is_ok, words) = upgrade(&site);
    assert!(is_ok, "{words}");
    let new = site.pid().expect("a pid file");
    assert!(new != old && words.contains(&format!("the master process {new} has followed {old}")), "{words}");
    gone(old);
    assert_eq!(old_pid(&site), None);
    signal(new, "QUIT");
    gone(new);
    site.assert_no_alerts();
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_binary() {
    let port = free_port();
    let site = Site::new("", "");
    site.configure("", &format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 old; }} }}"));
    let old = daemon(&site);
    // Only a start fails, not the reading of the configuration that finds the pid file.
    site.write("taken", "");
    site.configure("", &format!("http {{ server {{ listen 127.0.0.1:{port}; access_log taken/below.log; }} }}"));
    let (is_ok, words) = upgrade(&site);
    assert!(!is_ok && words.contains("the old one serves on; the error log has the reason"), "{words}");
    assert_eq!((site.pid(), old_pid(&site)), (Some(old), None));
    assert_eq!(get(port), Ok((200, "old".into())));
    signal(old, "QUIT");
    gone(old);
}

#[test]
fn a_supervised_master_is_followed() {
    let site = Site::new("daemon off;", "");
    let path = site.path("notify");
    let supervisor = UnixDatagram::bind(&path).expect("bind");
    supervisor.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let next = || {
        let mut buffer = [0; 200];
        let length = supervisor.recv(&mut buffer).expect("a message");
        support::text(&buffer[..length])
    };
    let mut child = site.command(&[]).env("NOTIFY_SOCKET", &path).spawn().expect("starts");
    let old = child.id();
    assert_eq!(next(), format!("READY=1\nMAINPID={old}"));
    // The second upgrade is one of a master whose parent has ended.
    let (is_ok, words) = upgrade(&site);
    assert!(is_ok, "{words}");
    let second = site.pid().expect("a pid file");
    assert_eq!(next(), format!("MAINPID={second}"));
    assert!(child.wait().expect("ends").success());
    let (is_ok, words) = upgrade(&site);
    assert!(is_ok, "{words}");
    let third = site.pid().expect("a pid file");
    assert_eq!(next(), format!("MAINPID={third}"));
    gone(second);
    signal(third, "QUIT");
    assert_eq!(next(), "STOPPING=1");
    gone(third);
    site.assert_no_alerts();
}

#[test]
fn a_master_in_the_foreground_is_not_upgraded() {
    let site = Site::new("daemon off;", "");
    let running = site.start();
    let (is_ok, words) = upgrade(&site);
    assert!(!is_ok && words.contains("the new binary was not started"), "{words}");
    site.wait_for_log("the changing binary signal is ignored", 1);
    running.quit();
}

#[test]
fn a_second_new_binary_is_refused() {
    let site = Site::new("", "");
    let old = daemon(&site);
    signal(old, "USR2");
    let new = new_master(&site, old);
    signal(old, "USR2");
    site.wait_for_log("the changing binary signal is ignored", 1);
    signal(new, "USR2");
    site.wait_for_log("the changing binary signal is ignored", 2);
    signal(new, "QUIT");
    gone(new);
    signal(old, "QUIT");
    gone(old);
    site.assert_no_alerts();
}

#[test]
fn no_request_is_lost_and_sockets_survive() {
    let port = free_port();
    let site = Site::new("", "");
    let socket = site.path("socket");
    let server = |words: &str| {
        let listen = format!("listen 127.0.0.1:{port}; listen unix:{};", socket.display());
        format!("http {{ server {{ {listen} location / {{ return 200 {words}; }} }} }}")
    };
    site.configure("worker_processes 2;", &server("old"));
    let old = daemon(&site);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (status, _) = get(port)?;
                assert_eq!(status, 200);
            }
            Ok::<(), String>(())
        });
        site.configure("worker_processes 3;", &server("new"));
        signal(old, "USR2");
        let new = new_master(&site, old);
        wait("an answer of the new binary", || match get(port) {
            Ok((200, body)) if body == "new" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        signal(old, "QUIT");
        gone(old);
        assert!(exists(&socket), "the old master leaves the socket to the new one");
        std::os::unix::net::UnixStream::connect(&socket).expect("connected");
        stop.store(true, Ordering::Relaxed);
        load.join().expect("no panic").expect("every request is answered");
        signal(new, "QUIT");
        gone(new);
    });
    assert!(!exists(&socket));
    site.assert_no_alerts();
}

#[test]
fn a_server_that_shuts_down_starts_no_new_binary() {
    let port = free_port();
    // An application that does not answer until it ends.
    let application = TcpListener::bind("127.0.0.1:0").expect("bind");
    let server = application.local_addr().expect("address");
    let location = format!("location / {{ proxy_pass http://{server}; }}");
    let site = Site::new("", &format!("http {{ server {{ listen 127.0.0.1:{port}; {location} }} }}"));
    let master = daemon(&site);
    let mut client = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let asked = application.accept().expect("asked");
    signal(master, "QUIT");
    site.wait_for_log("gracefully shutting down", 1);
    signal(master, "USR2");
    site.wait_for_log("the changing binary signal is ignored: the server is shutting down", 1);
    assert!(old_pid(&site).is_none());
    drop((asked, application));
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    gone(master);
    assert!(site.pid().is_none());
}

/// Copies the UDP sockets of a process; empty without the right to do so.
fn udp_sockets(pid: u32) -> Vec<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid_of = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pid_of(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).expect("a process");
    let numbers = 0..200;
    let copies = numbers.filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok());
    let is_udp = |fd: &OwnedFd| {
        let protocol = rustix::net::sockopt::socket_protocol(fd);
        protocol.is_ok_and(|protocol| protocol == Some(rustix::net::ipproto::UDP))
    };
    copies.filter(is_udp).collect()
}

#[test]
fn another_program_gets_datagrams_without_messages() {
    let port = free_port();
    let main = format!("stream {{ server {{ listen 127.0.0.1:{port} udp; return x; }} }}");
    let site = Site::new("", &main);
    let program = site.path("program");
    std::os::unix::fs::symlink(support::BINARY, &program).expect("a link");
    assert!(Command::new(&program).arg("-p").arg(&site.dir).status().expect("it runs").success());
    let master = wait("the pid file", || site.pid().ok_or("none"));
    let sockets = udp_sockets(master);
    if sockets.is_empty() {
        testkit::missing_means("descriptors of other processes cannot be copied");
        signal(master, "TERM");
        return gone(master);
    }
    let wait_for = |wanted: bool| {
        let has = |socket: &OwnedFd| rustix::net::sockopt::ip_recvtos(socket).expect("asked") == wanted;
        wait("the messages", || sockets.iter().all(has).then_some(()).ok_or("the other state"));
    };
    wait_for(true);
    // Stands for nginx, which drops datagrams with messages that it does not expect.
    std::fs::remove_file(&program).expect("removed");
    site.write("program", "#!/bin/sh\nexec sleep 100\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    signal(master, "USR2");
    site.wait_for_log("start new binary process ", 1);
    wait_for(false);
    let log = site.log();
    let number = log.split("start new binary process ").nth(1).and_then(|rest| rest.lines().next()).expect("its pid");
    signal(number.parse().expect("a number"), "KILL");
    wait_for(true);
    signal(master, "TERM");
    gone(master);
}
