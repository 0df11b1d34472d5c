//! The API of nginx's commercial edition: changes of servers of groups, durability, and synchronization by its client.

use crate::support;

use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use support::api::{address, ask, ask_with, code, everything, generation_of, get, servers};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port, signal, wait};

#[test]
fn servers_of_several_groups_are_replaced_together_or_not_at_all() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "");
    let running = site.start();
    let path = "/tidegate/1/upstreams";
    let texts = |group: &str| -> Vec<String> { servers(port, group).into_iter().map(|(_, text)| text).collect() };
    let groups = ["/9/http/upstreams/app", "/9/http/upstreams/hashed", "/9/stream/upstreams/tcp"];
    let before = groups.map(texts);
    let put = |path: &str, value: &serde_json::Value| {
        let answer = ask(port, "PUT", path, Some(value));
        let (status, code) = code(&answer);
        (status, code.to_string())
    };
    let one = |port: u16| json!([{"server": format!("127.0.0.1:{port}")}]);
    for (wrong, code) in [
        (json!({"http": {"app": one(7), "hashed": [{"server": "127.0.0.1:8", "weight": 0}]}}), "UpstreamBadWeight"),
        (json!({"http": {"app": one(7), "none": one(8)}}), "UpstreamNotFound"),
        (json!({"http": {"app": one(7), "fixed": one(8)}}), "UpstreamStatic"),
        (json!({"http": {"app": one(7)}, "mail": {}}), "UpstreamConfFormatError"),
        (json!({"http": {"app": {}}}), "UpstreamConfFormatError"),
        (json!([]), "UpstreamConfFormatError"),
    ] {
        assert_eq!(put(path, &wrong).1, code, "{wrong}");
        assert_eq!(groups.map(texts), before, "{wrong}");
    }
    let all = json!({"http": {"app": one(7), "hashed": one(8)}, "stream": {"tcp": one(9)}});
    assert_eq!(put(&format!("{path}?dry_run"), &all), (204, String::new()));
    assert_eq!(groups.map(texts), before, "a rehearsal");
    assert_eq!(put(path, &all), (204, String::new()));
    assert_eq!(groups.map(texts), [["127.0.0.1:7"], ["127.0.0.1:8"], ["127.0.0.1:9"]]);
    assert_eq!(code(&ask(port, "GET", path, None)), (405, "MethodDisabled"));
    running.quit();
}

#[test]
fn servers_are_added_changed_drained_and_removed() {
    let (port, stream_port) = (free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = everything(port, stream_port, &address(&origin), "");
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let path = format!("{group}/servers/");
    let before = servers(port, group);
    let (status, added) = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2", "weight": 3, "down": true})));
    let id = added["id"].as_u64().expect("an id");
    assert_eq!((status, &added["fail_timeout"], &added["weight"]), (201, &json!("10s"), &json!(3)), "{added}");
    assert!(before.iter().all(|(known, _)| *known != id));
    let one = format!("{path}{id}/");
    let (status, changed) = ask(
        port,
        "PATCH",
        &one,
        Some(
            &json!({"weight": 7, "fail_timeout": "3s", "slow_start": "1500ms", "down": false, "drain": true, "route": "r"}),
        ),
    );
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (&changed["weight"], &changed["fail_timeout"], &changed["slow_start"], &changed["drain"], &changed["route"]),
        (&json!(7), &json!("3s"), &json!("1500ms"), &json!(true), &json!("r"))
    );
    assert_eq!(get(port, &one), changed);
    let peers = get(port, group);
    let peer = peers["peers"].as_array().expect("peers").iter().find(|peer| peer["id"] == json!(id)).expect("it");
    assert_eq!((&peer["state"], &peer["weight"]), (&json!("draining"), &json!(7)));
    // An address may change, and the id stays.
    assert_eq!(ask(port, "PATCH", &one, Some(&json!({"server": "127.0.0.1"}))).1["server"], json!("127.0.0.1:80"));
    let (status, left) = ask(port, "DELETE", &one, None);
    assert_eq!((status, left.as_array().map(Vec::len)), (200, Some(before.len())));
    assert_eq!(servers(port, group), before);
    let (_, again) = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2", "down": true})));
    assert_ne!(again["id"], json!(id), "ids are not used twice");
    // Replaces the whole list: rehearsed, rejected, done.
    let list = json!([{"server": address(&origin), "weight": 9}, {"server": "127.0.0.1:3", "down": true}]);
    assert_eq!(ask(port, "PUT", &format!("{path}?dry_run=1"), Some(&list)).1.as_array().map(Vec::len), Some(2));
    assert_eq!(servers(port, group).len(), before.len() + 1);
    let stale = ask_with(port, "PUT", &path, "If-Match: \"0\"\r\n", Some(&list));
    assert_eq!(code(&stale), (412, "PreconditionFailed"));
    let current = format!("If-Match: {}\r\n", generation_of(port, &path));
    let dry = ask_with(port, "PUT", &format!("{path}?dry_run"), &current, Some(&list));
    assert_eq!((dry.0, servers(port, group).len()), (200, before.len() + 1));
    let (status, done) = ask_with(port, "PUT", &path, &current, Some(&list));
    assert_eq!((status, &done[0]["id"], &done[0]["weight"]), (200, &json!(before[0].0), &json!(9)), "{done}");
    let wrong = json!([{"server": "127.0.0.1:4"}, {"server": "127.0.0.1:5", "weight": 0}]);
    assert_eq!(code(&ask(port, "PUT", &path, Some(&wrong))), (400, "UpstreamBadWeight"));
    assert_eq!(servers(port, group).len(), 2, "all or nothing");
    // A reload: what the API added stays, the file's lines are as written.
    running.signal("HUP");
    let all = wait("the lines of the file", || {
        let all = servers(port, group);
        if all.len() == 3 { Ok(all) } else { Err(format!("{all:?}")) }
    });
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    assert!(texts.contains(&"127.0.0.1:3") && texts.contains(&"127.0.0.1:1"), "{texts:?}");
    assert_eq!(get(port, &format!("{path}{}", before[0].0))["weight"], json!(1));
    // The stream area has its own.
    let (status, tcp) = ask(
        port,
        "POST",
        "/9/stream/upstreams/tcp/servers/",
        Some(&json!({"server": "127.0.0.1:2", "slow_start": "0s", "max_conns": 5})),
    );
    assert_eq!((status, &tcp["max_conns"]), (201, &json!(5)), "{tcp}");
    assert_eq!(servers(port, "/9/stream/upstreams/tcp").len(), 2);
    running.quit();
    site.assert_no_alerts();
}

fn with_state(port: u16, main: &str) -> Site {
    let conf = format!(
        "http {{
            upstream app {{ zone app 64k; state app.servers; }}
            server {{
                listen 127.0.0.1:{port};
                location /api {{ api write=on; }}
                location / {{ proxy_pass http://app; proxy_read_timeout 20s; }}
            }}
        }}"
    );
    Site::new(main, &conf)
}

fn crash(site: &Site, running: &Running<'_>) {
    let old = running.worker();
    signal(old, "KILL");
    wait("another worker", || if running.worker() == old { Err("the old one") } else { Ok(()) });
    let _ = site;
}

#[test]
fn a_state_file_survives_reload_crash_and_restart() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let site = with_state(port, "user root; daemon off; worker_processes 2;");
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let path = format!("{group}/servers/");
    let fetch = || {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        Client::connect(port).and_then(|mut c| c.ask(request)).map(|(status, _)| status)
    };
    assert_eq!(fetch().expect("an answer"), 502, "no server yet");
    assert_eq!(servers(port, group), []);
    let mut tags = vec![generation_of(port, &path)];
    assert_eq!(ask(port, "POST", &path, Some(&json!({"server": address(&origin), "weight": 2}))).0, 201);
    // It is on the disk and in force before the answer.
    assert_eq!(site.read("app.servers"), format!("server {} weight=2;\n", address(&origin)));
    assert_eq!(fetch().expect("an answer"), 200);
    let id = servers(port, group)[0].0;
    tags.push(generation_of(port, &path));
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    assert_eq!(servers(port, group), [(id, address(&origin))], "a reload keeps servers and ids");
    // A change after the reload is durable, too, and survives a crash of the worker.
    assert_eq!(ask(port, "PATCH", &format!("{path}{id}"), Some(&json!({"max_conns": 5}))).0, 200);
    tags.push(generation_of(port, &path));
    crash(&site, &running);
    wait("the server again", || match fetch() {
        Ok(200) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get(port, &path)[0]["max_conns"], json!(5));
    assert_eq!(get(port, "/9/processes")["respawned"], json!(1));
    running.quit();
    let running = site.start();
    assert_eq!(fetch().expect("an answer"), 200);
    assert_eq!(get(port, &path)[0]["max_conns"], json!(5));
    let tag = generation_of(port, &path);
    assert!(!tags.contains(&tag), "a tag of another process: {tag}");
    // A file that cannot be replaced: no change is made.
    std::fs::remove_file(site.path("app.servers")).expect("removed");
    std::fs::create_dir_all(site.path("app.servers/x")).expect("a folder");
    let failed = ask(port, "POST", &path, Some(&json!({"server": "127.0.0.1:2"})));
    assert_eq!(code(&failed), (500, "InternalError"), "{}", failed.1);
    assert_eq!(servers(port, group).len(), 1);
    running.quit();
    std::fs::remove_dir_all(site.path("app.servers")).expect("removed");
    site.write("app.servers", "server 127.0.0.1:1;\nlisten 80;\n");
    let output = site.run(&["-t"]);
    let words = support::text(&output.stderr);
    assert!(!output.status.success() && words.contains("app.servers:2"), "{words}");
}

/// A server that is removed finishes its requests, and counts as a zombie until then.
#[test]
fn removed_servers_finish_their_requests() {
    let port = free_port();
    let gate = Arc::new(Mutex::new(()));
    let passed = gate.clone();
    let origin = Origin::answering(move |_| {
        drop(passed.lock().unwrap_or_else(PoisonError::into_inner));
        ok("late")
    });
    // Dropped before the origin, which waits for its requests.
    let closed = gate.lock().expect("an unpoisoned lock");
    let site = with_state(port, "user root; daemon off; worker_processes 1;");
    site.write("app.servers", &format!("server {};\n", address(&origin)));
    let running = site.start();
    let group = "/9/http/upstreams/app";
    let client = std::thread::spawn(move || {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        Client::connect(port).and_then(|mut c| c.ask(request)).expect("an answer")
    });
    wait("the request", || {
        let app = get(port, group);
        if app.pointer("/peers/0/active") == Some(&json!(1)) { Ok(()) } else { Err(app.to_string()) }
    });
    let id = servers(port, group)[0].0;
    assert_eq!(ask(port, "DELETE", &format!("{group}/servers/{id}"), None), (200, json!([])));
    let app = get(port, group);
    assert_eq!((&app["zombies"], &app["peers"]), (&json!(1), &json!([])));
    drop(closed);
    assert_eq!(client.join().expect("the client"), (200, "late".into()));
    wait("the zombie's end", || {
        let app = get(port, group);
        if app["zombies"] == json!(0) { Ok(()) } else { Err(app.to_string()) }
    });
    running.quit();
    site.assert_no_alerts();
}

/// As a client that synchronizes servers with a cloud's list: reads, adds, removes, all under load.
#[test]
fn synchronizing_servers_loses_no_request() {
    const CHANGES: u64 = 200;
    let port = free_port();
    let origins: Vec<Origin> = (0..4).map(|_| Origin::answering(|_| ok("from behind"))).collect();
    let site = with_state(port, "user root; daemon off; worker_processes 2;");
    site.write("app.servers", &format!("server {};\n", address(&origins[0])));
    let running = site.start();
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (over, served) = (over.clone(), served.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(port).expect("connects");
                while !over.load(Ordering::Acquire) {
                    let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
                    assert_eq!(answer.0, 200);
                    served.fetch_add(1, Ordering::AcqRel);
                    // (After `keepalive_requests`.)
                    if client.closing {
                        client = Client::connect(port).expect("connects");
                    }
                }
            })
        })
        .collect();
    let group = "/9/http/upstreams/app";
    let mut dice = 7_u64;
    for _ in 0..CHANGES {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The target list: the first origin stays, others change.
        let wanted: Vec<String> = origins
            .iter()
            .enumerate()
            .filter(|(index, _)| *index == 0 || dice >> (20 + index) & 1 == 1)
            .map(|(_, origin)| address(origin))
            .collect();
        let present = servers(port, group);
        for server in wanted.iter().filter(|server| present.iter().all(|(_, known)| known != *server)) {
            let body = json!({"server": server, "max_fails": 1, "fail_timeout": "10s", "slow_start": "0s"});
            assert_eq!(ask(port, "POST", &format!("{group}/servers/"), Some(&body)).0, 201);
        }
        for (id, _) in present.iter().filter(|(_, known)| !wanted.contains(known)) {
            assert_eq!(ask(port, "DELETE", &format!("{group}/servers/{id}"), None).0, 200);
        }
        let mut now: Vec<String> = servers(port, group).into_iter().map(|(_, server)| server).collect();
        now.sort();
        let mut wanted = wanted;
        wanted.sort();
        assert_eq!(now, wanted);
    }
    wait("some load", || if served.load(Ordering::Acquire) > 100 { Ok(()) } else { Err("too few requests") });
    over.store(true, Ordering::Release);
    for client in clients {
        client.join().expect("no request was lost");
    }
    running.quit();
    site.assert_no_alerts();
}
