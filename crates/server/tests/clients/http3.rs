//! HTTP/3 of whole processes, with a client of our own.

use crate::support;

use std::net::UdpSocket;
use support::http3::{Client, config};
use support::{Site, free_port, wait};

fn site(main: &str, rest: &str) -> Site {
    let site = Site::new(main, rest);
    site.certify();
    site
}

const TLS: &str = "ssl_certificate a.crt; ssl_certificate_key a.key;";

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn requests_of_all_kinds() {
    let port = free_port();
    let rest = format!(
        "http {{ {TLS}
            server {{ listen 127.0.0.1:{port} quic; listen 127.0.0.1:{port} ssl; server_name localhost;
                add_header Alt-Svc 'h3=\":{port}\"';
                location / {{ return 200 \"$http3 $server_protocol $scheme $host $request_method $uri\"; }}
                location /echo {{ proxy_pass http://unix:{{echo}}; }}
                location /file {{ alias {{file}}; }} }}
            server {{ listen 127.0.0.1:{port} quic; server_name off; http3 off; }}
            server {{ listen unix:{{echo}}; client_body_buffer_size 1m; location / {{ return 200 \"$content_length\"; }} }} }}"
    );
    let site = site("daemon off;", "");
    let rest = rest.replace("{echo}", &site.path("echo").display().to_string());
    let rest = rest.replace("{file}", &site.path("file").display().to_string());
    std::fs::write(site.path("file"), body(3_000_000)).expect("written");
    site.configure("daemon off;", &rest);
    let running = site.start();
    let mut client = Client::connect(port, "localhost", &config());
    client.until("the handshake", |client| client.connected.is_some());
    let asked = [client.get("localhost", "/a"), client.get("localhost", "/file"), client.get("localhost", "/b")];
    let answer = client.answer(asked[0]);
    assert_eq!((answer.status, answer.text().as_str()), (200, "h3 HTTP/3.0 https localhost GET /a"));
    assert_eq!(answer.field("alt-svc"), Some(format!("h3=\":{port}\"").as_str()));
    assert!(client.answer(asked[1]).body == body(3_000_000));
    assert_eq!(client.answer(asked[2]).text(), "h3 HTTP/3.0 https localhost GET /b");
    let post =
        [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/echo"), ("x-y", "z")];
    let stream = client.ask(&post, Some(&body(300_000)));
    let answer = client.answer(stream);
    assert_eq!((answer.status, answer.text().as_str()), (200, "300000"));
    // A server of the same certificate that does not speak the protocol, and one of another name.
    let stream = client.get("off", "/");
    assert_eq!(client.answer(stream).status, 421);
    // TCP and UDP of one port are two listeners.
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    client.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_download_outlives_reloads_and_its_connection_does_too() {
    const RELOADS: usize = 20;
    let port = free_port();
    let conf = |words: &str, file: &str| {
        format!(
            "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 '{words}'; }}
                location /slow {{ limit_rate 200k; alias {file}; }} }} }}"
        )
    };
    let site = site("daemon off; worker_processes 2;", "");
    let file = site.path("file").display().to_string();
    std::fs::write(&file, body(600_000)).expect("written");
    site.configure("daemon off; worker_processes 2;", &conf("plan 0", &file));
    let running = site.start();
    let mut client = Client::connect(port, "localhost", &config());
    client.until("the handshake", |client| client.connected.is_some());
    let slow = client.get("localhost", "/slow");
    client.until("its beginning", |client| client.answers.get(&slow).is_some_and(|answer| !answer.body.is_empty()));
    for n in 1..=RELOADS {
        let words = format!("plan {n}");
        site.configure("daemon off; worker_processes 2;", &conf(&words, &file));
        running.signal("HUP");
        // The connection continues under the new plan.
        wait(&words, || {
            let stream = client.get("localhost", "/");
            match client.answer(stream).text() {
                text if text == words => Ok(()),
                text => Err(text),
            }
        });
    }
    let answer = client.answer(slow);
    assert!(answer.body == body(600_000) && client.goaway.is_none());
    client.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn clients_that_move_reach_their_thread() {
    let port = free_port();
    let conf = format!(
        "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 \"$connection\"; }} }} }}"
    );
    let site = site("daemon off; worker_processes 2;", &conf);
    let running = site.start();
    let mut client = Client::connect(port, "localhost", &config());
    client.until("the handshake", |client| client.connected.is_some());
    let stream = client.get("localhost", "/");
    let number = client.answer(stream).text();
    // The kernel spreads addresses over the threads' sockets: half of these reach the other one.
    for _ in 0..16 {
        client.move_on();
        let stream = client.get("localhost", "/");
        assert_eq!(client.answer(stream).text(), number, "on the same connection");
    }
    client.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn requests_have_the_address_that_a_moved_client_has_proven() {
    let port = free_port();
    let conf = format!(
        "error_log logs/error.log info;
        http {{ {TLS} log_format c '$remote_addr $request_uri'; access_log logs/c.log c;
            server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 \"$remote_addr\"; }}
                location /slow {{ limit_rate 40k; alias {{file}}; }} }} }}"
    );
    let site = site("daemon off;", "");
    std::fs::write(site.path("file"), body(100_000)).expect("written");
    site.configure("daemon off;", &conf.replace("{file}", &site.path("file").display().to_string()));
    let running = site.start();
    let mut client = Client::connect(port, "localhost", &config());
    let slow = client.get_when_connected("/slow");
    client.until("its beginning", |client| client.answers.get(&slow).is_some_and(|answer| !answer.body.is_empty()));
    for ip in ["127.0.0.3", "127.0.0.4", "127.0.0.3"] {
        client.move_to(ip);
        // The first requests may arrive before the address is validated.
        wait(ip, || {
            let stream = client.get("localhost", "/");
            match client.answer(stream).text() {
                text if text == ip => Ok(()),
                text => Err(text),
            }
        });
    }
    // A request has one address from its beginning to its end.
    assert!(client.answer(slow).body == body(100_000));
    client.close();
    running.quit();
    let log = std::fs::read_to_string(site.path("logs/c.log")).expect("a log");
    assert!(log.contains("127.0.0.1 /slow\n") && log.contains("127.0.0.4 /\n"), "{log}");
    site.assert_no_alerts();
}

#[test]
fn downloads_outlive_reloads_new_numbers_of_workers_and_a_new_binary() {
    let port = free_port();
    let main = |workers: usize| format!("worker_processes {workers};");
    let site = site(&main(2), "");
    let file = site.path("file").display().to_string();
    std::fs::write(&file, body(1_000_000)).expect("written");
    let conf = |words: &str| {
        format!(
            "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 '{words}'; }}
                location /slow {{ limit_rate 150k; alias {file}; }} }} }}"
        )
    };
    site.configure(&main(2), &conf("start"));
    assert!(site.run(&[]).status.success());
    let old = wait("the pid file", || site.pid().ok_or("none"));
    let config = config();
    // Clients on several ports: the kernel spreads them over the sockets.
    let mut clients: Vec<(Client, u64)> = (0..6)
        .map(|_| {
            let mut client = Client::connect(port, "localhost", &config);
            let slow = client.get_when_connected("/slow");
            client.until("its beginning", |client| client.answers.contains_key(&slow));
            (client, slow)
        })
        .collect();
    let mut others: Vec<(Client, u64)> = Vec::new();
    let mut served = |words: &str, pid: u32| {
        wait(words, || {
            for (client, _) in &mut clients {
                client.step();
            }
            for (client, _) in &mut others {
                client.step();
            }
            let mut client = Client::connect(port, "localhost", &config);
            let stream = client.get_when_connected("/");
            let text = client.answer(stream).text();
            client.close();
            if text == words { Ok(()) } else { Err(format!("{pid}: {text}")) }
        });
        let mut client = Client::connect(port, "localhost", &config);
        let slow = client.get_when_connected("/slow");
        client.until("its beginning", |client| client.answers.contains_key(&slow));
        others.push((client, slow));
    };
    for workers in [4, 1, 3] {
        let words = format!("{workers} workers");
        site.configure(&main(workers), &conf(&words));
        support::signal(old, "HUP");
        served(&words, old);
    }
    site.configure(&main(2), &conf("the new binary"));
    support::signal(old, "USR2");
    let new = wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()));
    support::signal(old, "QUIT");
    served("the new binary", new);
    // A worker process that replaces another one does so as well.
    site.configure(&format!("{} worker_rlimit_nofile 2000;", main(2)), &conf("the next process"));
    support::signal(new, "HUP");
    served("the next process", new);
    for (client, slow) in clients.iter_mut().chain(&mut others) {
        assert!(client.answer(*slow).body == body(1_000_000));
        client.close();
    }
    wait("the old master's end", || if support::alive(old) { Err("alive") } else { Ok(()) });
    support::signal(new, "QUIT");
    wait("the end", || if support::alive(new) { Err("alive") } else { Ok(()) });
    site.assert_no_alerts();
}

#[test]
fn addresses_are_proven_by_a_retry_once() {
    let port = free_port();
    let conf = format!(
        "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; quic_retry on; quic_gso on; return 200 ok; }} }}"
    );
    let site = site("daemon off;", &conf);
    let running = site.start();
    let config = config();
    for (retried, why) in [(true, "nothing proves its address"), (false, "the token of its first connection")] {
        let mut client = Client::connect(port, "localhost", &config);
        client.until("the handshake", |client| client.connected.is_some());
        assert_eq!(client.retried, retried, "{why}");
        let stream = client.get("localhost", "/");
        assert_eq!(client.answer(stream).text(), "ok");
        client.close();
    }
    running.quit();
}

#[test]
fn early_requests_are_marked() {
    let port = free_port();
    let conf = |on: &str| {
        format!(
            "http {{ {TLS} ssl_session_cache shared:SSL:1m; ssl_early_data {on};
                server {{ listen 127.0.0.1:{port} quic; return 200 'early:$ssl_early_data reused:$ssl_session_reused'; }} }}"
        )
    };
    let site = site("daemon off;", &conf("on"));
    let running = site.start();
    let config = config();
    let mut client = Client::connect(port, "localhost", &config);
    client.until("the handshake", |client| client.connected.is_some());
    let stream = client.get("localhost", "/");
    assert_eq!(client.answer(stream).text(), "early: reused:.");
    client.close();
    let mut client = Client::connect(port, "localhost", &config);
    assert!(client.has_early());
    let early = client.get("localhost", "/");
    let answer = client.answer(early);
    assert_eq!((answer.text().as_str(), client.connected), ("early:1 reused:r", Some(true)));
    client.until("the handshake", |client| client.connected.is_some());
    let stream = client.get("localhost", "/");
    assert_eq!(client.answer(stream).text(), "early: reused:r");
    client.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_quit_finishes_requests_and_tells_idle_clients() {
    let port = free_port();
    let site = site("daemon off;", "");
    let file = site.path("file").display().to_string();
    std::fs::write(&file, body(300_000)).expect("written");
    site.configure(
        "daemon off;",
        &format!(
            "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; return 200 ok;
                location /slow {{ limit_rate 200k; alias {file}; }} }} }}"
        )
        .replace("return 200 ok;", "location / { return 200 ok; }"),
    );
    let running = site.start();
    let (mut idle, mut busy) =
        (Client::connect(port, "localhost", &config()), Client::connect(port, "localhost", &config()));
    let stream = idle.get_when_connected("/");
    assert_eq!(idle.answer(stream).text(), "ok");
    let slow = busy.get_when_connected("/slow");
    busy.until("its beginning", |client| client.answers.get(&slow).is_some_and(|answer| !answer.body.is_empty()));
    running.signal("QUIT");
    idle.until("the connection's end", |client| client.lost.is_some());
    assert!(busy.answer(slow).body == body(300_000));
    busy.until("the connection's end", |client| client.lost.is_some());
    assert!(running.ended().success());
    site.assert_no_alerts();
}

#[test]
fn datagrams_of_any_octets_cost_no_one_anything() {
    let port = free_port();
    let conf = format!("http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; return 200 ok; }} }}");
    let site = site("daemon off;", &conf);
    let running = site.start();
    let mut client = Client::connect(port, "localhost", &config());
    let stream = client.get_when_connected("/");
    assert_eq!(client.answer(stream).text(), "ok");
    let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut random = testkit::Random::new(1);
    for n in 0..5000 {
        let mut bytes = random.octets(1 + n % 1300);
        // Short headers, first packets of a known version, and of an unknown one.
        match n % 4 {
            0 => bytes[0] = 0x40,
            1 if bytes.len() > 6 => bytes[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]),
            2 if bytes.len() > 6 => bytes[..6].copy_from_slice(&[0xc0, 1, 2, 3, 4, 8]),
            _ => {}
        }
        let _ = other.send_to(&bytes, ("127.0.0.1", port));
        if n % 500 == 0 {
            let stream = client.get("localhost", "/");
            assert_eq!(client.answer(stream).text(), "ok");
        }
    }
    let mut late = Client::connect(port, "localhost", &config());
    let stream = late.get_when_connected("/");
    assert_eq!(late.answer(stream).text(), "ok");
    client.close();
    late.close();
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn faulty_quic_configurations_are_refused() {
    let port = free_port();
    let check = |listen: &str, more: &str| {
        let rest = format!("http {{ {TLS} server {{ listen 127.0.0.1:{port} {listen}; {more} return 200 ok; }} }}");
        let site = site("", &rest);
        support::text(&site.run(&["-t"]).stderr)
    };
    assert!(check("quic", "").contains("test is successful"));
    for (listen, more, words) in [
        ("quic ssl", "", "\"ssl\" parameter is incompatible with \"quic\""),
        ("quic http2", "", "\"http2\" parameter is incompatible with \"quic\""),
        ("quic proxy_protocol", "", "\"proxy_protocol\" parameter is incompatible with \"quic\""),
        (
            "quic",
            "ssl_protocols TLSv1.2;",
            "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive",
        ),
        ("quic", "quic_host_key a.missing;", "a.missing\" failed"),
    ] {
        let said = check(listen, more);
        assert!(said.contains(words), "{listen} {more}: {said}");
    }
    let site = Site::new("", &format!("http {{ server {{ listen 127.0.0.1:{port} quic; return 200 ok; }} }}"));
    let said = support::text(&site.run(&["-t"]).stderr);
    assert!(said.contains("no \"ssl_certificate\" is defined for the \"listen ... quic\" directive"), "{said}");
}

#[test]
fn explain_lint_and_doctor_know_quic() {
    let port = free_port();
    let conf = |more: &str| {
        format!(
            "http {{ {TLS} server {{ listen 127.0.0.1:{port} quic; listen 127.0.0.1:{port} ssl; server_name localhost; {more}
                location / {{ return 200 \"$http3 $server_protocol\"; }} }} }}"
        )
    };
    let site = site("", &conf(""));
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(support::BINARY);
        let command = command.args(arguments).arg("-p").arg(&site.dir).arg("-c").arg(site.path("conf/nginx.conf"));
        support::text(&command.output().expect("the program runs").stdout)
    };
    let url = format!("https://localhost:{port}/");
    let told = run(&["explain", &url]);
    assert!(told.contains(&format!("on 127.0.0.1:{port} (UDP), not announced here")), "{told}");
    let told = run(&["explain", "--http3", &url]);
    assert!(
        told.contains("content-length: 11") || told.contains("Content-Length: 11"),
        "h3 HTTP/3.0 is the answer: {told}"
    );
    assert!(run(&["lint"]).contains("[quic-not-announced]"));
    let told = run(&["doctor"]);
    assert!(told.contains("UDP receive buffer") && told.contains("UDP segmentation"), "{told}");
    site.configure("", &conf(&format!("add_header Alt-Svc 'h3=\":{port}\"';")));
    let told = run(&["explain", &url]);
    assert!(told.contains("(UDP), announced by Alt-Svc"), "{told}");
    assert!(!run(&["lint"]).contains("[quic-not-announced]"));
}

/// Runs `tidegate bench` with 60 requests; returns its only round.
fn bench(url: &str, arguments: &[&str]) -> serde_json::Value {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", url, "--http3", "-n", "60", "-q", "--json", "-"])
        .args(arguments)
        .output()
        .expect("started");
    let report: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    report["points"][0]["rounds"][0].clone()
}

fn wait_for_lines(site: &Site, words: &str, times: usize) {
    wait(&format!("{times} lines with {words}"), || {
        let log = site.read("logs/h3.log");
        if log.matches(words).count() >= times { Ok(()) } else { Err(log) }
    });
}

#[test]
fn the_load_generator_speaks_http3() {
    let port = free_port();
    let site = site(
        "daemon off;",
        &format!(
            "http {{ {TLS} ssl_session_cache shared:SSL:1m; ssl_early_data on; client_max_body_size 1m;
                log_format l '$server_protocol $request_method $status $bytes_sent early:$ssl_early_data reused:$ssl_session_reused';
                access_log logs/h3.log l;
                server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 hello; }} location /none {{ return 404; }} }} }}"
        ),
    );
    let running = site.start();
    let url = format!("https://localhost:{port}/");
    let round = bench(&url, &["-c", "3", "-m", "5"]);
    assert_eq!((&round["answers"], &round["statuses"]["200"]), (&60.into(), &60.into()), "{round}");
    assert_eq!(round["failures"], serde_json::json!({}), "{round}");
    wait_for_lines(&site, "HTTP/3.0 GET 200", 60);
    let body = site.path("body");
    std::fs::write(&body, "b".repeat(200_000)).expect("written");
    let round =
        bench(&url, &["-c", "2", "-X", "POST", "-b", &format!("@{}", body.display()), "--expect-contains", "hello"]);
    assert_eq!((&round["good"], &round["failures"]), (&60.into(), &serde_json::json!({})), "{round}");
    let round = bench(&format!("{url}none"), &["-c", "1"]);
    assert_eq!(round["statuses"]["404"], 60, "{round}");
    // Resumed connections send their request as early data. One that ends before its new tickets arrive leaves none for
    // the next, which makes a full handshake then.
    let round = bench(&url, &["-c", "1", "--no-keepalive", "--resume", "--early-data"]);
    assert_eq!(round["answers"], 60, "{round}");
    wait_for_lines(&site, "early:1 reused:r", 20);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn the_load_generator_repeats_what_a_server_has_not_processed() {
    let port = free_port();
    let site = site(
        "daemon off;",
        &format!(
            "http {{ {TLS} keepalive_requests 7;
                server {{ listen 127.0.0.1:{port} quic; location / {{ return 200 hello; }} }} }}"
        ),
    );
    let running = site.start();
    let round = bench(&format!("https://localhost:{port}/"), &["-c", "2", "-m", "5"]);
    assert_eq!((&round["answers"], &round["failures"]), (&60.into(), &serde_json::json!({})), "{round}");
    running.quit();
    site.assert_no_alerts();
}
