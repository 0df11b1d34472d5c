//! Health checks of stream groups over real sockets.

use crate::support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Site, free_port, text, wait};

/// Longer than any step takes; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(15);

/// Answers `PING` as long as it is well, and other texts with its name.
fn server(name: &'static str) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let well = Arc::new(AtomicBool::new(true));
    let its = well.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buf = [0; 64];
            let n = stream.read(&mut buf).unwrap_or(0);
            let answer = match (buf.starts_with(b"PING\r\n"), its.load(Ordering::Relaxed)) {
                (true, true) => "banner\r\n+PONG\r\n",
                (true, false) => "-LOADING\r\n",
                _ if n > 0 => name,
                _ => "",
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, well)
}

fn ask(port: u16, words: &str) -> String {
    let mut stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut answer = Vec::new();
    let _ = stream.write_all(words.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    text(&answer)
}

/// Waits until these servers answer.
fn wait_for(port: u16, wanted: &[&str]) {
    wait(&format!("{wanted:?}"), || {
        let mut seen: Vec<String> = (0..6).map(|_| ask(port, "who\r\n")).collect();
        seen.sort();
        seen.dedup();
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

#[test]
fn servers_whose_answer_does_not_match_are_left_out_until_it_does() {
    let ((a, a_well), (b, b_well)) = (server("a"), server("b"));
    let port = free_port();
    let conf = |check: &str| {
        format!(
            "stream {{ match ping {{ send \"PING\\r\\n\"; expect ~ \"\\+PONG\"; }}
             upstream u {{ zone u 64k; server 127.0.0.1:{a}; server 127.0.0.1:{b}; }}
             server {{ listen 127.0.0.1:{port}; proxy_pass u; {check} }} }}"
        )
    };
    let site = Site::new("daemon off;", &conf("health_check interval=20ms jitter=5ms fails=2 passes=2 match=ping;"));
    let running = site.start();
    wait_for(port, &["a", "b"]);
    b_well.store(false, Ordering::Relaxed);
    wait_for(port, &["a"]);
    site.wait_for_log(&format!("health check: 127.0.0.1:{b} of upstream \"u\" is unhealthy: unexpected answer"), 1);
    a_well.store(false, Ordering::Relaxed);
    site.wait_for_log(&format!("health check: 127.0.0.1:{a} of upstream \"u\" is unhealthy: unexpected answer"), 1);
    wait_for(port, &[""]);
    b_well.store(true, Ordering::Relaxed);
    wait_for(port, &["b"]);
    // Without the check both have sessions.
    site.configure("daemon off;", &conf(""));
    running.signal("HUP");
    wait_for(port, &["a", "b"]);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_check_connects_over_tls_if_sessions_do() {
    let (port, refused, tls) = (free_port(), free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ server {{ listen 127.0.0.1:{tls} ssl proxy_protocol; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 \"$ssl_server_name $proxy_protocol_addr\"; }} }}
             stream {{ match web {{ send \"GET / HTTP/1.0\\r\\n\\r\\n\"; expect \"200 OK\"; }}
             proxy_ssl_name localhost; proxy_ssl_server_name on; proxy_ssl_trusted_certificate a.crt;
             upstream u {{ zone u 64k; server 127.0.0.1:{tls}; }}
             upstream v {{ zone v 64k; server 127.0.0.1:{tls}; }}
             server {{ listen 127.0.0.1:{port}; proxy_pass u; proxy_protocol on; proxy_ssl on; proxy_ssl_verify on;
                health_check interval=20ms mandatory match=web; }}
             server {{ listen 127.0.0.1:{refused}; proxy_pass v; proxy_protocol on; proxy_ssl on; proxy_ssl_verify on;
                proxy_ssl_name other; health_check interval=20ms; }} }}"
        ),
    );
    site.certify();
    let running = site.start();
    wait("a checked server", || match ask(port, "GET / HTTP/1.0\r\n\r\n") {
        answer if answer.ends_with("localhost 127.0.0.1") => Ok(()),
        other => Err(other),
    });
    site.wait_for_log(&format!("health check: 127.0.0.1:{tls} of upstream \"u\" is healthy"), 1);
    let words = format!(
        "health check: 127.0.0.1:{tls} of upstream \"v\" is unhealthy: upstream SSL certificate does not match \"other\""
    );
    site.wait_for_log(&words, 1);
    assert_eq!(ask(refused, "GET / HTTP/1.0\r\n\r\n"), "");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn datagrams_check_servers() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let open = socket.local_addr().expect("address").port();
    std::thread::spawn(move || {
        let mut buf = [0; 64];
        while let Ok((n, peer)) = socket.recv_from(&mut buf) {
            let answer: &[u8] = if buf.starts_with(b"\x01ping") { b"\x02pong" } else { &buf[..n] };
            let _ = socket.send_to(answer, peer);
        }
    });
    let (first, second, third, closed) = (free_port(), free_port(), free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "stream {{ match pong {{ send \\x01ping; expect \\x02pong; }}
             match never {{ expect never; }}
             health_check_timeout 200ms;
             upstream u {{ zone u 64k; server 127.0.0.1:{open}; }}
             upstream v {{ zone v 64k; server 127.0.0.1:{closed}; }}
             upstream w {{ zone w 64k; server 127.0.0.1:{open}; }}
             server {{ listen 127.0.0.1:{first} udp; proxy_pass u; health_check interval=20ms mandatory udp match=pong; }}
             server {{ listen 127.0.0.1:{second} udp; proxy_pass v; health_check interval=20ms mandatory udp; }}
             server {{ listen 127.0.0.1:{third} udp; proxy_pass w; health_check interval=20ms udp match=never; }} }}"
        ),
    );
    let running = site.start();
    site.wait_for_log(&format!("health check: 127.0.0.1:{open} of upstream \"u\" is healthy"), 1);
    let refused = "unhealthy: recv() failed (111: Connection refused)";
    site.wait_for_log(&format!("health check: 127.0.0.1:{closed} of upstream \"v\" is {refused}"), 1);
    site.wait_for_log(&format!("health check: 127.0.0.1:{open} of upstream \"w\" is unhealthy: timed out"), 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn faulty_checks_are_refused_at_the_test() {
    let site = Site::new("", "");
    for (block, check, wanted) in [
        ("", "health_check match=none;", "unknown match \"none\""),
        ("", "health_check persistent;", "\"persistent\" requires \"mandatory\""),
        ("", "health_check fails=0;", "invalid parameter \"fails=0\""),
        ("", "health_check uri=/;", "invalid parameter \"uri=/\""),
        ("", "health_check udp=1;", "invalid parameter \"udp=1\""),
        ("match a { status 200; }", "", "invalid test of a health check"),
        ("match a { } match a { }", "", "duplicate match \"a\""),
        ("match a { expect ~ \"(\"; }", "", "pcre2_compile() failed"),
    ] {
        let server = format!("server {{ listen 127.0.0.1:1; proxy_pass u; {check} }}");
        site.configure("", &format!("stream {{ {block} upstream u {{ zone u 64k; server 127.0.0.1:1; }} {server} }}"));
        let tested = site.run(&["-t"]);
        let words = text(&tested.stderr);
        assert!(!tested.status.success() && words.contains(wanted), "{block} {check}: {words}");
    }
    let server = "server { listen 127.0.0.1:1; set $u 127.0.0.1:2; proxy_pass $u; health_check; }";
    site.configure("", &format!("stream {{ {server} }}"));
    let tested = site.run(&["-t"]);
    let words = text(&tested.stderr);
    let wanted = "[warn] \"health_check\" in a stream server has no group of servers to check";
    assert!(tested.status.success() && words.contains(wanted), "{words}");
}
