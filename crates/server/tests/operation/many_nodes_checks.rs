//! Several servers with one store: health checks (`health_check ... sync`).

use crate::many_nodes::Redis;
use crate::support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::api::get;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port, text, wait, wait_within};

/// Probes of one node in a row, where another one would probe as often.
const IN_A_ROW: usize = 4;
/// Nodes that have begun in one moment part by their jitter.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(store: &str, number: usize, origin: u16) -> (u16, Site) {
    let port = free_port();
    let http = format!(
        "http {{ access_log off;
            upstream app {{ zone app 64k; server 127.0.0.1:{origin}; }}
            server {{ listen 127.0.0.1:{port};
                location /api {{ api; }}
                location / {{ proxy_pass http://app; proxy_set_header X-Node {number};
                    health_check interval=1s jitter=100ms sync; }} }} }}"
    );
    (port, Site::new(&format!("daemon off; shared_store {store} timeout=300ms;"), &http))
}

fn wait_for_store(port: u16, is_connected: bool) {
    wait("the store", || {
        let all = get(port, "/tidegate/1/stores");
        let seen = all.pointer("/0/connected").and_then(serde_json::Value::as_bool);
        (seen == Some(is_connected)).then_some(()).ok_or_else(|| all.to_string())
    });
}

#[test]
fn one_node_probes_for_all_and_each_finds_failures_itself() {
    let Some(mut redis) = Redis::start() else { return };
    let (probes, is_well) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let (noted, answers) = (probes.clone(), is_well.clone());
    let origin = Origin::answering(move |request| {
        let node = request.lines().find_map(|line| line.strip_prefix("X-Node: ")).unwrap_or_default();
        noted.lock().expect("not poisoned").push(node.to_string());
        match answers.load(Ordering::SeqCst) {
            true => ok("well"),
            false => b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        }
    });
    let nodes: Vec<(u16, Site)> = (0..2).map(|number| node(&redis.address(), number, origin.port)).collect();
    let running: Vec<Running> = nodes.iter().map(|(_, site)| site.start()).collect();
    nodes.iter().for_each(|(port, _)| wait_for_store(*port, true));
    let forget = || probes.lock().expect("not poisoned").clear();
    let wait_for_one = || {
        wait_within(PATIENCE, "one node that probes for both", || {
            let probes = probes.lock().expect("not poisoned");
            let has_one = probes.windows(IN_A_ROW).any(|row| row.iter().all(|node| *node == row[0]));
            if has_one { Ok(()) } else { Err(format!("{probes:?}")) }
        });
    };
    let wait_for_both = || {
        wait("probes of both nodes", || {
            let probes = probes.lock().expect("not poisoned");
            let of = |node: &str| probes.iter().filter(|seen| *seen == node).count();
            if of("0") > 2 && of("1") > 2 { Ok(()) } else { Err(format!("{probes:?}")) }
        });
    };
    wait_for_one();

    // The server fails: both nodes find out by probes of their own.
    forget();
    is_well.store(false, Ordering::SeqCst);
    nodes.iter().for_each(|(_, site)| site.wait_for_log("is unhealthy", 1));
    wait_for_both();
    is_well.store(true, Ordering::SeqCst);
    nodes.iter().for_each(|(_, site)| site.wait_for_log("is healthy", 1));

    // Without the store each node probes.
    redis.kill();
    nodes.iter().for_each(|(port, _)| wait_for_store(*port, false));
    forget();
    wait_for_both();
    redis.child = Redis::spawn(&redis.site).expect("Redis");
    nodes.iter().for_each(|(port, _)| wait_for_store(*port, true));
    forget();
    wait_for_one();
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|(_, site)| site.assert_no_alerts());
}

#[test]
fn shared_checks_without_a_store_are_named() {
    let site = Site::new(
        "",
        "http { upstream app { zone app 64k; server 127.0.0.1:1; }
            server { listen 127.0.0.1:1; location / { proxy_pass http://app; health_check sync; } } }
         stream { upstream app { zone streams 64k; server 127.0.0.1:1; }
            server { listen 127.0.0.1:2; proxy_pass app; health_check sync; } }",
    );
    let output = site.run(&["-t"]);
    let said = text(&output.stderr);
    let words = "upstream \"app\": \"sync\" of \"health_check\" has no effect without \"shared_store\"";
    assert!(output.status.success() && said.matches(words).count() == 2, "{said}");
}
