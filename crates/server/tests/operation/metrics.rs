//! Metrics: every request is answered or discarded, and ended objects are not counted; over HTTP/1 and HTTP/2, with
//! malformed heads, aborting clients, failing servers, and reloads.

use crate::support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use support::client::Client;
use support::http2::Client as Http2;
use support::origin::{NameServer, Origin, ok};
use support::{Site, free_port, wait};

type Samples = BTreeMap<String, u64>;

/// Every sample by its name and labels. (Times are not looked at here.)
fn samples(port: u16) -> Samples {
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(request)).expect("the page");
    assert_eq!(status, 200);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, n)| Some((name.into(), n.parse().ok()?)))
        .collect()
}

fn sum(all: &Samples, name: &str) -> u64 {
    let is_it = |known: &str| known.split('{').next() == Some(name);
    assert!(all.keys().any(|known| is_it(known)), "there is no {name}: {all:#?}");
    all.iter().filter(|(known, _)| is_it(known)).map(|(_, n)| n).sum()
}

fn of(all: &Samples, name: &str) -> u64 {
    *all.get(name).unwrap_or_else(|| panic!("there is no {name}: {all:#?}"))
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const REQUESTS: &[&str] = &[
    "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /file HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /moved HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /up HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /down HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhe",
    "GET /hello HTTP/1.0\r\n\r\n",
    "GET /hello\r\n",
    "GET /hello HTTP/1.1\r\n\r\n",
    "GET /../.. HTTP/1.1\r\nHost: a\r\n\r\n",
    "nonsense\r\n\r\n",
    "GET /hel",
    "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n",
];

fn address(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port)
}

fn site(port: u16, up: &str, more: &str) -> Site {
    let conf = format!(
        "http {{
            upstream good {{ zone good 64k; server {up}; }}
            upstream bad {{ zone bad 64k; server 127.0.0.1:1; server {up}; }}
            server {{
                listen 127.0.0.1:{port}; http2 on; root html; status_zone all; client_header_timeout 2s; {more}
                location = /metrics {{ status_zone off; metrics; }}
                location /hello {{ return 200 hello; }}
                location /moved {{ return 301 /hello; }}
                location /drop {{ return 444; }}
                location /up {{ proxy_pass http://good; }}
                location /down {{ proxy_pass http://bad; }}
                location /slow {{ limit_rate 1500; alias html/file; }}
            }}
        }}"
    );
    let site = Site::new("daemon off; worker_processes 2;", &conf);
    site.write("html/file", &"x".repeat(2000));
    site
}

/// As in nginx, and as the access log has it.
#[test]
fn an_incomplete_head_is_a_discarded_request() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site(port, &address(&origin), "");
    let running = site.start();
    let discarded = |all: &_| sum(all, "tidegate_http_discarded_total");
    let before = discarded(&samples(port));
    for bytes in ["GET /", "GET / HTTP/1.1\r\nHost: a\r\nX:"] {
        TcpStream::connect(("127.0.0.1", port)).and_then(|mut c| c.write_all(bytes.as_bytes())).expect("sent");
    }
    // No head begins with the end of a connection.
    drop(TcpStream::connect(("127.0.0.1", port)).expect("connects"));
    let all = wait("both requests", || {
        let all = samples(port);
        let (active, now) = (sum(&all, "tidegate_connections_active"), discarded(&all));
        if now >= before + 2 && active == 1 { Ok(all) } else { Err(format!("{now} discarded, {active} active")) }
    });
    assert_eq!(discarded(&all), before + 2);
    let ended = sum(&all, "tidegate_http_responses_total") + discarded(&all);
    assert_eq!(sum(&all, "tidegate_http_requests_total"), ended + 1, "and the scrape: {all:#?}");
    let zone = "{server_zone=\"all\"}";
    assert_eq!(of(&all, &format!("tidegate_server_zone_requests_total{zone}")), ended + 1);
    running.quit();
}

#[test]
fn every_request_is_answered_or_discarded() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site(port, &address(&origin), "");
    let running = site.start();
    let before = samples(port);
    let mut dice = Dice(7);
    for round in 0..60 {
        // Concurrent requests, of which the client reads some, one or no response.
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        let text: String = (0..=dice.below(4)).map(|_| REQUESTS[dice.below(REQUESTS.len() as u64) as usize]).collect();
        stream.write_all(text.as_bytes()).expect("sent");
        if dice.below(2) == 0 {
            let _ = Client::of(stream).and_then(|mut client| client.ask(""));
        }
        if round % 10 == 0 {
            let mut client = Http2::connect(port);
            client.ask(1, "/hello");
            client.ask(3, "/up");
            client.ask(5, "/drop");
            client.ask(7, "/slow");
            assert_eq!(client.answer(1).0, "200");
        }
        if round == 30 {
            running.signal("HUP");
        }
    }
    let all = wait("all clients gone", || {
        let all = samples(port);
        let busy = sum(&all, "tidegate_connections_reading") + sum(&all, "tidegate_connections_writing");
        let active = sum(&all, "tidegate_connections_active");
        if busy == 1 && active == 1 { Ok(all) } else { Err(format!("{active} active, {busy} busy")) }
    });
    let requests = sum(&all, "tidegate_http_requests_total");
    let ended = sum(&all, "tidegate_http_responses_total") + sum(&all, "tidegate_http_discarded_total");
    // The scraping request is still active.
    assert_eq!((requests, sum(&all, "tidegate_panics_total")), (ended + 1, 0), "{all:#?}");
    assert_eq!(of(&all, "tidegate_connections_waiting"), 0);
    for class in ["2xx", "3xx", "4xx"] {
        assert!(of(&all, &format!("tidegate_http_responses_total{{class=\"{class}\"}}")) > 0, "{class}: {all:#?}");
    }
    for version in ["0.9", "1.0", "1.1", "2"] {
        assert!(of(&all, &format!("tidegate_http_requests_total{{version=\"{version}\"}}")) > 0, "{version}: {all:#?}");
    }
    // The server's zone has equal counts, and the reload lost none.
    let zone = "{server_zone=\"all\"}";
    assert_eq!(of(&all, &format!("tidegate_server_zone_requests_total{zone}")), requests);
    assert_eq!(of(&all, &format!("tidegate_server_zone_processing{zone}")), 1);
    assert_eq!(
        sum(&all, "tidegate_server_zone_responses_total") + sum(&all, "tidegate_server_zone_discarded_total"),
        ended
    );
    for kind in ["sent", "received"] {
        let bytes = of(&all, &format!("tidegate_http_{kind}_bytes_total"));
        assert!(bytes > 0);
        assert_eq!(of(&all, &format!("tidegate_server_zone_{kind}_bytes_total{zone}")), bytes, "{kind}");
    }
    let tasks = |all: &Samples| sum(all, "tidegate_tasks_started_total");
    assert!(tasks(&all) > tasks(&before) + 20);
    assert!(sum(&all, "tidegate_tasks_active") < sum(&before, "tidegate_tasks_active") + 10, "{all:#?}");
    assert!(sum(&all, "tidegate_loop_turns_total") > sum(&before, "tidegate_loop_turns_total"));
    assert!(sum(&all, "tidegate_file_cache_files") > 0);
    // Each try is one of a server's, and those of the dead one are failures.
    assert_eq!(sum(&all, "tidegate_upstream_requests_total"), sum(&all, "tidegate_upstream_peer_requests_total"));
    assert_eq!(sum(&all, "tidegate_upstream_peer_active"), 0, "{all:#?}");
    let dead = "{upstream=\"bad\",peer=\"127.0.0.1:1\"}";
    let tries = of(&all, &format!("tidegate_upstream_peer_requests_total{dead}"));
    assert!(tries > 0, "{all:#?}");
    // A client that leaves while its connection to the server is refused ends the try before it fails.
    let fails = of(&all, &format!("tidegate_upstream_peer_fails_total{dead}"));
    assert!((1..=tries).contains(&fails), "{fails} of {tries} tries failed");
    // A client that leaves between a failed try and the next one ends its request without a retry.
    let retries = of(&all, "tidegate_upstream_retries_total");
    assert!((1..=tries).contains(&retries), "{retries} retries, {tries} failed tries");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_zone_keeps_its_counts_while_a_configuration_has_it() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site(port, &address(&origin), "");
    let running = site.start();
    let zone = "tidegate_server_zone_requests_total{server_zone=\"all\"}";
    let before = of(&samples(port), zone);
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    assert!(of(&samples(port), zone) > before);
    let conf = site.read("conf/nginx.conf");
    site.write("conf/nginx.conf", &conf.replace("status_zone all;", ""));
    running.signal("HUP");
    wait("the zone gone", || {
        let all = samples(port);
        if all.keys().any(|name| name.starts_with("tidegate_server_zone")) { Err("it is there") } else { Ok(()) }
    });
    site.write("conf/nginx.conf", &conf);
    running.signal("HUP");
    let again = wait("the zone back", || samples(port).get(zone).copied().ok_or("it is not there"));
    assert!(again <= 2, "a new zone begins at nothing: {again}");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn caches_limits_and_resolvers() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let names = NameServer::new();
    names.set("known.example", &[[127, 0, 0, 1].into()]);
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m max_size=1m;
            limit_req_zone $arg_key zone=rate:32k rate=1r/m;
            limit_conn_zone $arg_key zone=number:32k;
            resolver {} ipv6=off status_zone=asked;
            server {{
                listen 127.0.0.1:{port}; root html;
                location = /metrics {{ metrics; }}
                location /cached {{
                    proxy_cache store; proxy_cache_valid 1h; proxy_cache_bypass $arg_no; proxy_pass http://{};
                }}
                location /limited {{ limit_req zone=rate; limit_conn number 9; alias html/file; }}
                location /dry {{ limit_req zone=rate; limit_req_dry_run on; alias html/file; }}
                location ~ /name/(.*) {{ proxy_pass http://$1:{}/; }}
            }}
        }}",
        format_args!("127.0.0.1:{}", names.port),
        format_args!("127.0.0.1:{}", origin.port),
        origin.port,
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    site.write("html/file", "hello");
    let running = site.start();
    let mut client = Client::connect(port).expect("connects");
    let mut ask = |target: &str| {
        client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).map(|(status, _)| status).expect(target)
    };
    let asked = ["/cached", "/cached", "/cached", "/cached?no=1", "/limited?key=a", "/limited?key=a", "/dry?key=a"];
    assert_eq!(asked.map(&mut ask), [200, 200, 200, 200, 200, 503, 200]);
    assert_eq!(["/name/known.example", "/name/other.example"].map(&mut ask), [200, 502]);
    let all = samples(port);
    for (name, value) in [
        ("tidegate_cache_responses_total{status=\"miss\"}", 1),
        ("tidegate_cache_responses_total{status=\"hit\"}", 2),
        ("tidegate_cache_responses_total{status=\"bypass\"}", 1),
        ("tidegate_cache_zone_responses_total{cache=\"store\",status=\"hit\"}", 2),
        ("tidegate_cache_zone_entries{cache=\"store\"}", 2),
        ("tidegate_cache_zone_size_limit_bytes{cache=\"store\"}", 1 << 20),
        ("tidegate_limit_req_requests_total{verdict=\"passed\"}", 1),
        ("tidegate_limit_req_zone_requests_total{zone=\"rate\",verdict=\"rejected\"}", 1),
        ("tidegate_limit_req_zone_requests_total{zone=\"rate\",verdict=\"rejected_dry_run\"}", 1),
        ("tidegate_limit_conn_zone_requests_total{zone=\"number\",verdict=\"passed\"}", 1),
        ("tidegate_resolver_zone_requests_total{resolver=\"asked\",kind=\"name\"}", 2),
        ("tidegate_resolver_zone_responses_total{resolver=\"asked\",code=\"noerror\"}", 1),
        ("tidegate_resolver_zone_responses_total{resolver=\"asked\",code=\"nxdomain\"}", 1),
        ("tidegate_resolver_responses_total{code=\"nxdomain\"}", 1),
        ("tidegate_tls_handshakes_total{area=\"http\"}", 0),
    ] {
        assert_eq!(of(&all, name), value, "{name}: {all:#?}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn streams_and_handshakes() {
    let (port, secure, stream) = (free_port(), free_port(), free_port());
    let conf = format!(
        "http {{ server {{
            listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem;
            location = /metrics {{ metrics; }}
        }} }}
        stream {{ server {{ listen 127.0.0.1:{stream}; status_zone front; return hello; }} }}"
    );
    let site = Site::new("daemon off; worker_processes 2;", &conf);
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    let running = site.start();
    for _ in 0..3 {
        let mut text = String::new();
        let mut client = TcpStream::connect(("127.0.0.1", stream)).expect("connects");
        client.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello");
    }
    // A record that is no ClientHello.
    let mut client = TcpStream::connect(("127.0.0.1", secure)).expect("connects");
    client.write_all(b"\x16\x03\x01\x00\x05nonse").expect("sent");
    let _ = client.read_to_end(&mut Vec::new());
    let url = format!("https://127.0.0.1:{secure}/metrics");
    let handshakes = match Command::new("curl").args(["-sk", "-o", "/dev/null", &url]).status() {
        Ok(status) => {
            assert!(status.success());
            1
        }
        Err(_) => {
            testkit::missing_peer("there is no curl: a handshake that is made is not looked at");
            0
        }
    };
    let all = wait("the sessions over", || {
        let all = samples(port);
        if sum(&all, "tidegate_stream_sessions_active") == 0 { Ok(all) } else { Err("they are there") }
    });
    for (name, value) in [
        ("tidegate_connections_handled_total{area=\"stream\"}", 3),
        ("tidegate_stream_sessions_total{class=\"2xx\"}", 3),
        ("tidegate_stream_zone_connections_total{server_zone=\"front\"}", 3),
        ("tidegate_stream_zone_sessions_total{server_zone=\"front\",class=\"2xx\"}", 3),
        ("tidegate_stream_zone_sent_bytes_total{server_zone=\"front\"}", 15),
        ("tidegate_stream_zone_processing{server_zone=\"front\"}", 0),
        ("tidegate_tls_handshakes_total{area=\"http\"}", handshakes),
        ("tidegate_tls_handshakes_failed_total{area=\"http\"}", 1),
        ("tidegate_tls_session_reuses_total{area=\"http\"}", 0),
        ("tidegate_mail_sessions_active", 0),
    ] {
        assert_eq!(of(&all, name), value, "{name}: {all:#?}");
    }
    running.quit();
    site.assert_no_alerts();
}

/// Reports an upload in progress, and one whose client disconnected.
#[test]
fn an_upload_that_goes_on_is_told() {
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ access_log off; upload_progress up 64k; server {{ listen 127.0.0.1:{port};\n\
             location /up {{ track_uploads up 30s; proxy_pass http://127.0.0.1:{port}/sink; }}\n\
             location /sink {{ return 200 taken; }} location /told {{ report_uploads up; upload_progress_json_output; }} }} }}"
        ),
    );
    let running = site.start();
    let told = |id: &str| {
        let request = format!("GET /told?X-Progress-ID={id} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        Client::connect(port).and_then(|mut client| client.ask(&request)).expect("an answer").1
    };
    let until = |id: &str, words: &str| {
        wait(words, || match told(id) {
            text if text.contains(words) => Ok(()),
            text => Err(text),
        });
    };
    let begin = |id: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let head = format!("POST /up?X-Progress-ID={id} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
        stream.write_all(head.as_bytes()).expect("written");
        until(id, "{ \"state\" : \"uploading\", \"received\" : 5, \"size\" : 10 }");
        stream
    };
    let mut whole = begin("one");
    whole.write_all(b"67890").expect("written");
    until("one", "{ \"state\" : \"done\" }");
    drop(begin("two"));
    until("two", "\"state\" : \"");
    wait("the end of an upload that is left", || match told("two") {
        text if text.contains("uploading") => Err(text),
        text if text.contains("done") || text.contains("error") => Ok(()),
        text => Err(text),
    });
    running.quit();
    site.assert_no_alerts();
}

/// Prometheus' own checker reads the page of a server whose objects all have samples.
#[test]
fn promtool_has_no_complaint() {
    let (origin, port) = (Origin::answering(|_| ok("hello")), free_port());
    let site = site(port, &address(&origin), "");
    let running = site.start();
    for request in [REQUESTS[0], REQUESTS[3], REQUESTS[6]] {
        Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer");
    }
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (_, text) = Client::connect(port).and_then(|mut c| c.ask(request)).expect("the page");
    running.quit();
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = started else {
        testkit::missing_peer("promtool is not installed");
        return;
    };
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("written");
    let output = promtool.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}{}", support::text(&output.stdout), support::text(&output.stderr));
}
