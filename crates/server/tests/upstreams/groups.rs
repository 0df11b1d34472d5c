//! Upstream groups with changing servers: health checks, names, failures.

use crate::support;

use http_types::TakenLines;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;
use support::client::Client;
use support::origin::{NameServer, Origin, ok};
use support::{Site, free_port, pace, wait};

/// An origin with a changeable status for `/health`; other paths return its name.
fn patient(name: &'static str) -> (Origin, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let its = status.clone();
    let origin = Origin::answering(move |request| {
        if request.starts_with("GET /health ") {
            let status = its.load(Ordering::Relaxed);
            format!("HTTP/1.1 {status} X\r\nX-Load: 1\r\nContent-Length: 7\r\n\r\nfeeling").into_bytes()
        } else {
            ok(name)
        }
    });
    (origin, status)
}

fn ask(port: u16, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    Client::connect(port).and_then(|mut c| c.ask(&request)).unwrap_or_else(|e| (0, e))
}

/// Returns the names of the answering servers.
fn who(port: u16, path: &str, requests: usize) -> Vec<String> {
    let mut all: Vec<String> = (0..requests).map(|_| ask(port, path).1).collect();
    all.sort();
    all.dedup();
    all
}

fn wait_for(port: u16, path: &str, wanted: &[&str]) {
    wait(&format!("{wanted:?}"), || {
        let seen = who(port, path, 6);
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

#[test]
fn servers_that_fail_their_checks_are_left_out_until_they_pass() {
    let ((a, a_status), (b, b_status)) = (patient("a"), patient("b"));
    let port = free_port();
    let check = "health_check uri=/health interval=20ms jitter=5ms fails=2 passes=2 match=well;";
    let conf = |check: &str| {
        format!(
            "http {{ match well {{ status 200; header X-Load != 9; body ~ \"feel\"; require $upstream_http_x_load; }}
             upstream u {{ zone u 64k; server 127.0.0.1:{}; server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; {check} }} }} }}",
            a.port, b.port
        )
    };
    let site = Site::new("daemon off; worker_processes 2;", &conf(check));
    let running = site.start();
    wait_for(port, "/", &["a", "b"]);
    b_status.store(500, Ordering::Relaxed);
    wait_for(port, "/", &["a"]);
    let words = format!("health check: 127.0.0.1:{} of upstream \"u\" is unhealthy: status 500", b.port);
    site.wait_for_log(&words, 1);
    // A reload keeps the state.
    running.signal("HUP");
    site.wait_for_log("configuration 1 is no longer used", 1);
    assert_eq!(who(port, "/", 10), ["a"]);
    a_status.store(500, Ordering::Relaxed);
    wait("nobody", || if ask(port, "/").0 == 502 { Ok(()) } else { Err("somebody") });
    b_status.store(200, Ordering::Relaxed);
    wait_for(port, "/", &["b"]);
    // Without the check both receive requests.
    site.configure("daemon off;", &conf(""));
    running.signal("HUP");
    wait_for(port, "/", &["a", "b"]);
    running.quit();
    site.assert_no_alerts();
}

/// A call for the service `a.B`.
const CALL: &[u8] = b"\0\0\0\0\x05\x0a\x03a.B";

/// A gRPC server of a name, with changeable replies to the Health Checking Protocol: a serving status, or from 100 on a
/// gRPC status.
fn grpc(name: &'static str) -> (Origin, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(1));
    let its = status.clone();
    let origin = Origin::new(move |mut talk| {
        let mut server = wire_h2::Server::new(wire_h2::ServerLimits::default());
        let mut checks: Vec<(http_types::StreamId, Vec<u8>)> = Vec::new();
        loop {
            let out = server.output().to_vec();
            server.advance(out.len());
            if !talk.send(&out) {
                return;
            }
            let Some(bytes) = talk.some() else { return };
            if server.receive(&bytes).is_err() {
                return;
            }
            let kind = (&b"content-type"[..], &b"application/grpc"[..]);
            while let Some(event) = server.poll_event() {
                if let http_types::Event::Head { stream, list, .. } = event {
                    if list.iter().any(|row| row == (&b":path"[..], &b"/grpc.health.v1.Health/Check"[..])) {
                        for row in [kind, (&b"te"[..], &b"trailers"[..]), (b"x-check", b"set")] {
                            assert!(list.iter().any(|known| known == row), "{row:?}");
                        }
                        checks.push((stream, Vec::new()));
                    } else {
                        server.send_head(stream as u32, 200, [kind].into_iter(), false);
                        server.send_body(stream as u32, name.as_bytes(), 16_384, true);
                    }
                }
            }
            checks.retain_mut(|(stream, message)| {
                while let TakenLines::Bytes(bytes) = server.take_body(*stream as u32) {
                    message.extend_from_slice(&bytes);
                }
                if message.len() < CALL.len() {
                    return true;
                }
                assert_eq!(message, CALL);
                let (stream, status) = (*stream as u32, its.load(Ordering::Relaxed));
                if let Some(code) = status.checked_sub(100) {
                    let code = code.to_string();
                    let fields = [kind, (&b"grpc-status"[..], code.as_bytes())];
                    server.send_head(stream, 200, fields.into_iter(), true);
                } else {
                    server.send_head(stream, 200, [kind].into_iter(), false);
                    server.send_body(stream, &[0, 0, 0, 0, 2, 8, status as u8], 16_384, false);
                    server.send_trailers(stream, [(&b"grpc-status"[..], &b"0"[..])].into_iter());
                }
                false
            });
        }
    });
    (origin, status)
}

#[test]
fn servers_of_grpc_are_checked_by_its_protocol() {
    for keepalive in ["", "keepalive_time=1m"] {
        let ((a, _), (b, b_status)) = (grpc("a"), grpc("b"));
        let port = free_port();
        let site = Site::new(
            "daemon off; worker_processes 2;",
            &format!(
                "http {{ upstream u {{ zone u 64k; server 127.0.0.1:{}; server 127.0.0.1:{}; }}
                 server {{ listen 127.0.0.1:{port}; location / {{ grpc_pass grpc://u; grpc_set_header X-Check set;
                 health_check interval=20ms mandatory {keepalive} type=grpc grpc_service=a.B grpc_status=12; }} }} }}",
                a.port, b.port
            ),
        );
        let running = site.start();
        wait_for(port, "/", &["a", "b"]);
        let unhealthy = format!("health check: 127.0.0.1:{} of upstream \"u\" is unhealthy", b.port);
        for (status, wanted) in [(2, "serving status NOT_SERVING"), (114, "gRPC status 14")] {
            b_status.store(status, Ordering::Relaxed);
            site.wait_for_log(&format!("{unhealthy}: {wanted}"), 1);
            wait_for(port, "/", &["a"]);
            b_status.store(1, Ordering::Relaxed);
            wait_for(port, "/", &["a", "b"]);
        }
        // UNIMPLEMENTED is accepted: with the status before, the server would be left out.
        b_status.store(105, Ordering::Relaxed);
        wait_for(port, "/", &["a"]);
        b_status.store(112, Ordering::Relaxed);
        wait_for(port, "/", &["a", "b"]);
        running.quit();
        site.assert_no_alerts();
    }
}

/// Its octets come faster than one in `proxy_read_timeout`, and without an end.
#[test]
fn a_server_that_drips_its_response_fails_its_check() {
    let drip = Origin::new(|mut talk| {
        if talk.request().is_some() && talk.send(b"HTTP/1.1 200 OK\r\nX-Drip: ") {
            while talk.send(b"x") {
                pace(Duration::from_millis(20));
            }
        }
    });
    let conf = format!(
        "http {{ upstream u {{ zone u 64k; server 127.0.0.1:{}; }}
         server {{ listen 127.0.0.1:{}; proxy_read_timeout 200ms;
             location / {{ proxy_pass http://u; health_check interval=20ms; }} }} }}",
        drip.port,
        free_port()
    );
    let site = Site::new("daemon off;", &conf);
    let running = site.start();
    site.wait_for_log(&format!("health check: 127.0.0.1:{} of upstream \"u\" is unhealthy: ", drip.port), 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn mandatory_checks_come_before_the_first_request() {
    let (a, a_status) = patient("a");
    a_status.store(503, Ordering::Relaxed);
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ upstream u {{ zone u 64k; server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u;
             health_check uri=/health interval=20ms mandatory persistent keepalive_time=1m; }} }} }}",
            a.port
        ),
    );
    let running = site.start();
    assert_eq!(ask(port, "/").0, 502);
    site.wait_for_log("is unhealthy: status 503", 1);
    a_status.store(204, Ordering::Relaxed);
    wait_for(port, "/", &["a"]);
    running.quit();
}

#[test]
fn names_are_resolved_again_while_requests_run() {
    let name_server = NameServer::new();
    let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin_port = first.local_addr().unwrap().port();
    let _a = Origin::on(first, |mut talk| while talk.request().is_some() && talk.send(&ok("a")) {});
    let second = std::net::TcpListener::bind(("127.0.0.2", origin_port)).unwrap();
    let _b = Origin::on(second, |mut talk| while talk.request().is_some() && talk.send(&ok("b")) {});
    let port = free_port();
    let site = Site::new(
        "daemon off; worker_processes 2;",
        &format!(
            "http {{ resolver 127.0.0.1:{}; resolver_timeout 1s;
             upstream u {{ zone u 64k; server app.test:{origin_port} resolve max_fails=0; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }} }}",
            name_server.port
        ),
    );
    let running = site.start();
    site.wait_for_log("app.test could not be resolved (3: Host not found)", 1);
    assert_eq!(ask(port, "/").0, 502, "nobody of that name yet");
    let (one, two) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
    name_server.set("app.test", &[one]);
    // An unknown name is resolved again after ten seconds; a reload resolves it at once.
    running.signal("HUP");
    wait_for(port, "/", &["a"]);
    name_server.set("app.test", &[one, two]);
    wait_for(port, "/", &["a", "b"]);
    name_server.set("app.test", &[two]);
    wait_for(port, "/", &["b"]);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn servers_that_stand_out_by_errors_are_put_aside_and_retries_are_budgeted() {
    let failing = Origin::answering(|_| b"HTTP/1.1 500 Broken\r\nContent-Length: 6\r\n\r\nbroken".to_vec());
    let (fine, _) = patient("fine");
    let hits = Arc::new(AtomicUsize::new(0));
    let its_hits = hits.clone();
    let dying = Origin::answering(move |_| {
        its_hits.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ upstream u {{ server 127.0.0.1:{0}; server 127.0.0.1:{1}; server 127.0.0.1:{1}; outlier_ejection errors=3 time=1h; }}
             upstream dying {{ server 127.0.0.1:{2} max_fails=0; server 127.0.0.1:{2} max_fails=0; retry_budget 10% least=1; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }}
             location /dying {{ proxy_pass http://dying; }} }} }}",
            failing.port, fine.port, dying.port
        ),
    );
    let running = site.start();
    let answers: Vec<u16> = (0..30).map(|_| ask(port, "/").0).collect();
    assert_eq!(answers.iter().filter(|status| **status == 500).count(), 3, "{answers:?}");
    site.wait_for_log("is put aside for 3600 s after 3 errors", 1);
    for _ in 0..40 {
        assert_eq!(ask(port, "/dying").0, 502);
    }
    let hits = hits.load(Ordering::Relaxed);
    assert!((50..=60).contains(&hits), "40 requests and ten retries, or a few more in another ten seconds: {hits}");
    site.wait_for_log("the retry budget of upstream \"dying\" is used up", 1);
    running.quit();
}

#[test]
fn requests_wait_in_the_queue_of_a_busy_group() {
    let origin = Origin::answering(|_| {
        std::thread::yield_now();
        ok("done")
    });
    let port = free_port();
    let site = Site::new(
        "daemon off; worker_processes 2;",
        &format!(
            "http {{ upstream u {{ zone u 64k; server 127.0.0.1:{}  max_conns=1; queue 50 timeout=20s; keepalive 0; }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }} }}",
            origin.port
        ),
    );
    let running = site.start();
    let clients: Vec<_> = (0..20).map(|_| std::thread::spawn(move || ask(port, "/"))).collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), (200, "done".to_string()));
    }
    running.quit();
}

#[test]
fn threads_take_turns_together_in_a_zone_and_each_by_itself_without() {
    let ((a, _), (b, _)) = (patient("a"), patient("b"));
    let (together, apart) = (free_port(), free_port());
    let servers = format!("server 127.0.0.1:{} weight=2; server 127.0.0.1:{};", a.port, b.port);
    let site = Site::new(
        "daemon off; worker_processes 4;",
        &format!(
            "http {{ upstream together {{ zone z 64k; {servers} }} upstream apart {{ {servers} }}
             server {{ listen 127.0.0.1:{together}; location / {{ proxy_pass http://together; }} }}
             server {{ listen 127.0.0.1:{apart}; location / {{ proxy_pass http://apart; }} }} }}",
        ),
    );
    let running = site.start();
    // Round robin in a group with a zone continues across threads.
    let answers: String = (0..60).map(|_| ask(together, "/").1).collect();
    assert_eq!(answers, "aba".repeat(20));
    // Without, each of the four threads is less than one request away from two of three.
    let count = (0..60).filter(|_| ask(apart, "/").1 == "a").count();
    assert!((36..=44).contains(&count), "{count} of 60");
    running.quit();
}

#[test]
fn groups_that_cannot_be_are_refused_in_words() {
    let site = Site::new("", "");
    let port = free_port();
    for (upstream, location, wanted) in [
        ("server a.invalid resolve;", "", "resolving names at run time requires upstream \"u\" to be in shared memory"),
        (
            "zone z 1m; server a.invalid resolve;",
            "",
            "no resolver defined to resolve names at run time in upstream \"u\"",
        ),
        ("server 127.0.0.1 service=http;", "", "service upstream \"127.0.0.1\" requires \"resolve\" parameter"),
        ("server a:80 resolve service=http;", "", "service upstream \"a:80\" may not have port"),
        ("server 127.0.0.1 resolve service=http;", "", "service upstream \"127.0.0.1\" requires domain name"),
        ("server 127.0.0.1; ntlm on;", "", "invalid number of arguments in \"ntlm\" directive"),
        ("zone z 64k; server 127.0.0.1; state u.state;", "", "\"server\" and \"state\" directives cannot stand in one"),
        ("state u.state;", "", "\"state\" requires the upstream to be in shared memory"),
        ("hash $uri; server 127.0.0.1 backup; server 127.0.0.2;", "", "does not support parameter \"backup\""),
        ("random; server 127.0.0.1 slow_start=1s;", "", "does not support parameter \"slow_start=1s\""),
        ("server 127.0.0.1 backup;", "", "no servers in upstream \"u\""),
        ("server 127.0.0.1; sticky cookie;", "", "invalid number of arguments in \"sticky\" directive"),
        ("server 127.0.0.1; sticky cookie a samesite=maybe;", "", "invalid \"samesite\" parameter value"),
        ("server 127.0.0.1; sticky learn lookup=$arg_a zone=z:1m;", "", "\"create\" parameter is not specified"),
        ("server 127.0.0.1; outlier_ejection errors=0;", "", "with \"errors\" and \"rate\" off"),
        ("server 127.0.0.1; retry_budget 300%;", "", "invalid parameter \"300%\""),
        ("server 127.0.0.1; queue 0;", "", "invalid value \"0\""),
        ("server 127.0.0.1; least_time header sideways;", "", "invalid parameter \"sideways\""),
        ("server 127.0.0.1 route=;", "", "route is empty"),
        ("server 127.0.0.1; resolver 127.0.0.1 status_zone=;", "", "invalid parameter: status_zone="),
        ("server 127.0.0.1;", "health_check match=none;", "unknown match \"none\""),
        ("server 127.0.0.1;", "health_check type=udp;", "health checks of type \"udp\" are not supported"),
        ("server 127.0.0.1;", "health_check uri=/a type=grpc;", "\"type=grpc\" is incompatible with \"uri\" and"),
        ("server 127.0.0.1;", "health_check type=grpc match=a;", "\"type=grpc\" is incompatible with \"uri\" and"),
        ("server 127.0.0.1;", "health_check grpc_status=12 type=grpc;", "invalid parameter \"grpc_status=12\""),
        ("server 127.0.0.1;", "health_check type=grpc grpc_status=0;", "invalid parameter \"grpc_status=0\""),
        ("server 127.0.0.1;", "health_check type=grpc grpc_service=;", "invalid parameter \"grpc_service=\""),
        ("server 127.0.0.1;", "health_check type=grpc mandatory;", "invalid parameter \"mandatory\""),
        ("server 127.0.0.1;", "health_check persistent;", "\"persistent\" requires \"mandatory\""),
        ("server 127.0.0.1;", "health_check fails=0;", "invalid parameter \"fails=0\""),
        ("server 127.0.0.1:1-5;", "", "invalid port in upstream \"127.0.0.1:1-5\""),
        ("server 127.0.0.1;", "proxy_buffers 1 4k;", "there must be at least 2 \"proxy_buffers\""),
        (
            "server 127.0.0.1;",
            "proxy_busy_buffers_size 1k;",
            "\"proxy_busy_buffers_size\" must be equal to or greater than",
        ),
        (
            "server 127.0.0.1;",
            "proxy_busy_buffers_size 64k;",
            "\"proxy_busy_buffers_size\" must be less than the size of",
        ),
        ("server 127.0.0.1;", "proxy_temp_file_write_size 1k;", "\"proxy_temp_file_write_size\" must be equal to or"),
        ("server 127.0.0.1;", "proxy_max_temp_file_size 1k;", "\"proxy_max_temp_file_size\" must be equal to zero"),
        ("server 127.0.0.1;", "proxy_redirect off; proxy_redirect a b;", "\"proxy_redirect\" directive is duplicate"),
        ("server 127.0.0.1;", "if ($arg_a) { proxy_pass http://u:81; }", "upstream \"u\" may not have port 81"),
    ] {
        site.configure(
            "",
            &format!(
                "http {{ upstream u {{ {upstream} }}
                 server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; {location} }} }} }}"
            ),
        );
        let tested = site.run(&["-t"]);
        let words = support::text(&tested.stderr);
        assert!(!tested.status.success() && words.contains(wanted), "{upstream} {location}: {words}");
    }
    // Questionable groups are accepted with a warning.
    for (upstream, location, wanted) in [
        (
            "server 127.0.0.1;",
            "set $u u; proxy_pass http://$u; health_check;",
            "[warn] \"health_check\" in location \"/\" has no group of servers to check",
        ),
        (
            "server 127.0.0.1;",
            "proxy_pass http://u; health_check type=grpc;",
            "[warn] \"health_check\" with \"type=grpc\" in location \"/\" does not check the servers of \"proxy_pass\"",
        ),
        ("server 127.0.0.1; least_conn; ip_hash;", "proxy_pass http://u;", "[warn] load balancing method redefined"),
        (
            "server 127.0.0.1; sticky cookie a; random;",
            "proxy_pass http://u;",
            "[warn] load balancing method redefined",
        ),
        (
            "server a.invalid;",
            "proxy_pass http://u;",
            "[warn] host not found in upstream \"u\": \"a.invalid\" is down until it resolves",
        ),
    ] {
        let server = format!("server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}");
        site.configure("", &format!("http {{ upstream u {{ {upstream} }} {server} }}"));
        let tested = site.run(&["-t"]);
        let words = support::text(&tested.stderr);
        assert!(tested.status.success() && words.contains(wanted), "{upstream}: {words}");
    }
    // Each further method gets a warning, also if it is repeated.
    let upstream = "upstream u { server 127.0.0.1:1; hash a; hash b; random; random two; least_conn; }";
    let server = format!("server {{ listen 127.0.0.1:{port}; PASS }}");
    let http = format!("http {{ {upstream} {} }}", server.replace("PASS", "location / { proxy_pass http://u; }"));
    let stream = format!("stream {{ {upstream} {} }}", server.replace("PASS", "proxy_pass u;"));
    for area in [http, stream] {
        site.configure("", &area);
        let tested = site.run(&["-t"]);
        let words = support::text(&tested.stderr);
        let warnings = words.matches("[warn] load balancing method redefined").count();
        assert!(tested.status.success() && warnings == 4, "{area}: {words}");
    }
}

/// A server that has few connections, such as PHP's processes, must not wait for requests that cannot come any more.
#[test]
fn a_reload_closes_idle_connections_that_only_the_old_configuration_used() {
    let (ended, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (its_ended, its_open) = (ended.clone(), is_open.clone());
    let own = Origin::new(move |mut talk| {
        while let Some(request) = talk.request() {
            while request.starts_with("GET /own/held ") && its_open.load(Ordering::Relaxed) == 0 && !talk.is_over() {
                std::thread::yield_now();
            }
            talk.send(&ok("own"));
        }
        its_ended.fetch_add(usize::from(!talk.is_over()), Ordering::Relaxed);
    });
    let shared = Origin::answering(|_| ok("shared"));
    let port = free_port();
    let conf = format!(
        "http {{ upstream own {{ server 127.0.0.1:{}; keepalive_timeout 1h; }}
         upstream shared {{ server 127.0.0.1:{}; keepalive 4; keepalive_timeout 1h; }}
         server {{ listen 127.0.0.1:{port}; location /own/ {{ proxy_pass http://own; }} location / {{ proxy_pass http://shared; }} }} }}",
        own.port, shared.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    let all = |path: &str| assert_eq!(ask(port, path).0, 200, "{path}");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| ask(port, "/own/held"));
        wait("the held request", || (own.connections() == 1).then_some(()).ok_or("none"));
        ["/own/", "/own/", "/", "/"].into_iter().for_each(all);
        assert_eq!((own.connections(), shared.connections(), ended.load(Ordering::Relaxed)), (2, 1, 0));
        running.signal("HUP");
        // The old configuration still serves a request.
        wait("the end of the idle connection", || (ended.load(Ordering::Relaxed) == 1).then_some(()).ok_or("none"));
        ["/own/", "/own/", "/"].into_iter().for_each(all);
        assert_eq!((own.connections(), shared.connections()), (3, 1), "a shared pool outlives the reload");
        is_open.store(1, Ordering::Relaxed);
        assert_eq!(held.join().expect("a thread").0, 200);
    });
    wait("the end of the held connection", || (ended.load(Ordering::Relaxed) == 2).then_some(()).ok_or("none"));
    all("/own/");
    assert_eq!(own.connections(), 3);
    running.quit();
}

/// Sends a request without a body over a connection of its own; returns everything that comes.
fn raw(port: u16, request: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut came = String::new();
    stream.read_to_string(&mut came).expect("an end");
    came
}

#[test]
fn keepalive_limits_the_idle_connections_of_all_locations_together() {
    let origin = Origin::answering(|_| ok("one"));
    let port = free_port();
    let conf = format!(
        "http {{ upstream one {{ server 127.0.0.1:{}; keepalive 1 local; keepalive_timeout 1h; }}
         server {{ listen 127.0.0.1:{port};
             location /a {{ proxy_pass http://one; }} location /b {{ proxy_pass http://one; }} }} }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    for (path, connections) in [("/a", 1), ("/a", 1), ("/b", 2), ("/b", 2), ("/a", 3)] {
        assert_eq!(ask(port, path).0, 200);
        assert_eq!(origin.connections(), connections, "{path}");
    }
    running.quit();
}

#[test]
fn responses_to_head_are_only_heads() {
    // With `proxy_method GET` the server sends a body.
    let origin = Origin::answering(|request| match request.starts_with("HEAD ") {
        true => b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n".to_vec(),
        false => ok("one"),
    });
    let port = free_port();
    let conf = format!(
        "http {{ upstream one {{ server 127.0.0.1:{}; keepalive_timeout 1h; }}
         log_format said '$request_uri $upstream_status $upstream_response_length';
         access_log logs/said.log said;
         server {{ listen 127.0.0.1:{port};
             location /limited {{ proxy_pass http://one; proxy_limit_rate 100k; }}
             location /get {{ proxy_pass http://one; proxy_method GET; }} }} }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    // A limit of the rate does not cost the connection.
    for request in ["HEAD /limited", "HEAD /limited", "GET /limited"] {
        assert!(raw(port, request).starts_with("HTTP/1.1 200 "), "{request}");
        assert_eq!(origin.connections(), 1, "{request}");
    }
    let came = raw(port, "HEAD /get");
    assert!(came.starts_with("HTTP/1.1 200 ") && came.ends_with("\r\n\r\n"), "{came}");
    running.quit();
    let log = site.read("logs/said.log");
    assert_eq!(log, "/limited 200 0\n/limited 200 0\n/limited 200 3\n/get 200 0\n");
}
