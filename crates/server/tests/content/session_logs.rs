//! `session_log`: one line for the requests of a session.

use crate::support;

use support::client::Client;
use support::{Site, free_port, wait};

fn get(port: u16, path: &str, fields: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    Client::connect(port).and_then(|mut client| client.ask(&request)).expect("an answer")
}

#[test]
fn requests_of_a_session_are_one_line() {
    let port = free_port();
    let site = Site::new("", "");
    let conf = |session_log: &str| {
        format!(
            "http {{ session_log_format short '$arg_n \"$http_x_own\" $body_bytes_sent.' ' ${{body_bytes_sent}}';
             session_log_zone logs/sessions.log zone=a:1m format=short timeout=1h md5=$arg_s;
             session_log_zone logs/ids.log zone=b:32k format=short timeout=200ms id=$arg_id;
             session_log_zone logs/combined.log zone=c:32k;
             server {{ listen 127.0.0.1:{port}; {session_log}
                 location / {{ return 200 \"$session_log_id\"; }}
                 location /more/ {{ return 200 0123456789; }}
                 location /off {{ session_log off; return 200 \"[$session_log_id]\"; }}
                 location /ids {{ session_log b; session_log c; return 200 \"$session_log_id\"; }} }} }}"
        )
    };
    site.configure("daemon off; worker_processes 1;", &conf("session_log a;"));
    let running = site.start();
    // With one thread, a request is logged before the next one. MD5 of "x".
    assert_eq!(get(port, "/?n=1&s=x", "X-Own: a\"b\r\n").1, "9dd4e461268c8034f5c8564e155c67a6");
    assert_eq!(get(port, "/more/?n=2&s=x", "").1, "0123456789");
    assert_eq!(get(port, "/more/?n=3&s=y", "").1, "0123456789");
    assert_eq!(get(port, "/off?n=4&s=x", "").1, "[]");
    // A reload keeps the sessions.
    running.signal("HUP");
    site.wait_for_log("configuration 1 is no longer used", 1);
    assert_eq!(get(port, "/more/?n=5&s=x", "").1, "0123456789");
    let given = "0123456789ABCDEF0123456789abcdef";
    assert_eq!(get(port, &format!("/ids?n=6&id={given}"), "").1, given.to_ascii_lowercase());
    assert_ne!(get(port, "/ids?n=7&id=x", "").1, given.to_ascii_lowercase());
    // The timeout of the second zone ends its sessions.
    wait("two sessions", || {
        let log = site.read("logs/ids.log");
        if log.lines().count() == 2 { Ok(()) } else { Err(log) }
    });
    let ids = site.read("logs/ids.log");
    assert_eq!(ids, "6 \"-\" 32. 32\n7 \"-\" 32. 32\n");
    assert_eq!(site.read("logs/sessions.log"), "");
    running.quit();
    // The end of the process ends all sessions, in the order of their last requests.
    assert_eq!(site.read("logs/sessions.log"), "3 \"-\" 10. 10\n1 \"a\\x22b\" 52. 52\n");
    let combined = site.read("logs/combined.log");
    assert!(
        combined.starts_with("127.0.0.1 - - [")
            && combined
                .ends_with("] \"GET /ids?n=6&id=0123456789ABCDEF0123456789abcdef HTTP/1.1\" 200 64 \"-\" \"-\"\n"),
        "{combined}"
    );
    site.assert_no_alerts();
}

#[test]
fn sessions_end_with_their_zone() {
    let port = free_port();
    let site = Site::new("", "");
    let conf = |zone: &str, log: &str| {
        format!("http {{ {zone} server {{ listen 127.0.0.1:{port}; {log} location / {{ return 200 0123456789; }} }} }}")
    };
    let zone =
        "session_log_format f '$request_uri $body_bytes_sent'; session_log_zone s.log zone=a:1m timeout=1h format=f;";
    site.configure("daemon off;", &conf(zone, "session_log a;"));
    let running = site.start();
    assert_eq!(get(port, "/a", "").0, 200);
    assert_eq!(get(port, "/b", "").0, 200);
    site.configure("daemon off;", &conf("", ""));
    running.signal("HUP");
    wait("the session", || {
        let log = site.read("s.log");
        if log == "/a 20\n" { Ok(()) } else { Err(log) }
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn lines_are_checked() {
    let site = Site::new("", "");
    let zone = "session_log_zone logs/s.log zone=a:32k";
    for (http, server, wanted) in [
        (format!("{zone} format=none;"), "", "unknown session log format \"none\""),
        (format!("{zone} timeout=0;"), "", "invalid parameter \"timeout=0\""),
        (format!("{zone} x=1;"), "", "invalid parameter \"x=1\""),
        (
            "session_log_zone logs/s.log format=combined;".into(),
            "",
            "\"session_log_zone\" must have \"zone\" parameter",
        ),
        ("session_log_zone logs/s.log zone=a:1k;".into(), "", "zone \"zone=a:1k\" is too small"),
        (format!("{zone}; {zone};"), "", "session_log_zone \"a\" is already declared"),
        ("session_log_format combined x;".into(), "", "duplicate \"session_log_format\" name \"combined\""),
        (String::new(), "session_log a;", "zero size shared memory zone \"a\""),
    ] {
        site.configure("", &format!("http {{ {http} server {{ listen 127.0.0.1:1; {server} }} }}"));
        let tested = site.run(&["-t"]);
        let words = support::text(&tested.stderr);
        assert!(!tested.status.success() && words.contains(wanted), "{http} {server}: {words}");
    }
}
