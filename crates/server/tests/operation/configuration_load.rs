//! A thousand changes by the API under load, of servers and of whole configurations: no request is lost.

use crate::support;

use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Site, descriptors, free_port, wait};

const CHANGES: u64 = 1000;

fn conf(port: u16, header: u64) -> String {
    format!(
        "error_log logs/error.log notice; daemon off; worker_processes 2; user root;\nevents {{ }}\nhttp {{\n\
         upstream app {{ zone app 256k; state app.servers; keepalive 8; }}\n\
         server {{ listen 127.0.0.1:{port}; add_header X-Generation {header} always;\n\
         location /api {{ api write=on config=write keep=3; }}\n\
         location / {{ proxy_pass http://app; }} }} }}\n"
    )
}

fn ask(port: u16, method: &str, path: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let head = format!(
        "{method} /api{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn servers(port: u16) -> Vec<(u64, String)> {
    let (_, all) = ask(port, "GET", "/9/http/upstreams/app/servers", "");
    let one = |server: &Value| (server["id"].as_u64().expect("id"), server["server"].as_str().expect("server").into());
    all.as_array().expect("a list").iter().map(one).collect()
}

/// Sends requests until told to stop. Returns the first failure.
fn load(port: u16, stop: &AtomicBool, served: &AtomicU64, keep: bool) -> Result<(), String> {
    let mut client = Client::connect(port)?;
    while !stop.load(Ordering::Relaxed) {
        if client.closing || !keep {
            client = Client::connect(port)?;
        }
        let (status, body) = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        if status != 200 || body != "from behind" {
            return Err(format!("{status} {body}"));
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn a_thousand_changes_under_load_lose_no_request() {
    let port = free_port();
    let origins: Vec<Origin> = (0..3).map(|_| Origin::answering(|_| ok("from behind"))).collect();
    let address = |n: usize| format!("127.0.0.1:{}", origins[n].port);
    let site = Site::new("", "");
    site.write("conf/nginx.conf", &conf(port, 0));
    site.write("app.servers", &format!("server {};\n", address(0)));
    let running = site.start();
    let worker = running.worker();
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut configurations, mut changes) = (0, 0);
    let mut early = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|n| {
                scope.spawn({
                    let (stop, served) = (&stop, &served);
                    move || load(port, stop, served, n % 2 == 0)
                })
            })
            .collect();
        let mut dice = 11_u64;
        for n in 1..=CHANGES {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 40 & 1 == 0 {
                let (status, said) = ask(port, "POST", "/tidegate/1/config", &conf(port, n));
                assert_eq!(status, 200, "{said}");
                configurations += 1;
                // In force when it is answered, on every thread.
                for _ in 0..2 {
                    let head = Client::connect(port)
                        .and_then(|mut client| client.ask_for_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
                        .expect("an answer");
                    assert!(head.1.contains(&format!("X-Generation: {n}\n")), "{n}: {}", head.1);
                }
            } else {
                let present = servers(port);
                let one = address(1 + (dice >> 50) as usize % 2);
                let (status, said) = match present.iter().find(|(_, known)| *known == one) {
                    Some((id, _)) => ask(port, "DELETE", &format!("/9/http/upstreams/app/servers/{id}"), ""),
                    None => ask(port, "POST", "/9/http/upstreams/app/servers/", &json!({"server": one}).to_string()),
                };
                assert!(matches!(status, 200 | 201), "{said}");
                changes += 1;
            }
            if n == CHANGES / 4 {
                early = descriptors(running.pid());
            }
            if clients.iter().any(|client| client.is_finished()) {
                break;
            }
        }
        wait("some load", || if served.load(Ordering::Relaxed) > 100 { Ok(()) } else { Err("too few requests") });
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic").expect("every request is answered");
        }
    });
    assert_eq!(configurations + changes, CHANGES);
    assert_eq!(running.worker(), worker, "one process all along");
    let requests = served.load(Ordering::Relaxed);
    println!("{requests} requests over {configurations} configurations and {changes} changes of servers");
    assert!(descriptors(running.pid()) <= early + 2, "the master leaks descriptors");
    assert_eq!(std::fs::read_dir(site.path("conf/.tidegate")).expect("entries").count(), 3);
    let before = servers(port);
    running.quit();
    let running = site.start();
    wait("the servers", || {
        let now: Vec<String> = servers(port).into_iter().map(|(_, name)| name).collect();
        let want: Vec<String> = before.iter().map(|(_, name)| name.clone()).collect();
        if now == want { Ok(()) } else { Err(format!("{now:?} {want:?}")) }
    });
    running.quit();
    site.assert_no_alerts();
}
