//! A cache of many nodes: each key belongs to one of them, by consistent hashing, and survives the loss of another.

use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Running, Site, free_port};

const PAGES: usize = 60;

/// A node's ports: for clients, and for the other nodes.
#[derive(Clone, Copy)]
struct Ports {
    front: u16,
    owner: u16,
}

fn site(own: Ports, all: &[Ports], origin: &str) -> Site {
    let peers: String =
        all.iter().map(|node| format!("server 127.0.0.1:{} max_fails=1 fail_timeout=1h;", node.owner)).collect();
    let rest = format!(
        "http {{
            access_log off;
            proxy_cache_path cache keys_zone=pages:1m;
            upstream peers {{ hash $request_uri consistent; {peers} }}
            server {{
                listen 127.0.0.1:{};
                location / {{
                    if ($http_cdn_loop ~ nodes) {{ return 508; }}
                    proxy_pass http://peers;
                    proxy_set_header CDN-Loop nodes;
                    proxy_connect_timeout 1s;
                    proxy_next_upstream error timeout;
                }}
            }}
            server {{
                listen 127.0.0.1:{};
                location / {{
                    proxy_pass http://{origin};
                    proxy_set_header CDN-Loop nodes;
                    proxy_cache pages; proxy_cache_key $request_uri; proxy_cache_valid 200 1h;
                    add_header X-Cache $upstream_cache_status;
                    add_header X-Owner $server_port;
                }}
            }}
        }}",
        own.front, own.owner
    );
    Site::new("daemon off; worker_processes 1;", &rest)
}

/// Asks a node for a page; returns the status, the owner's port, and the state of the cache.
fn ask(node: Ports, page: usize, more: &str) -> (u16, String, String) {
    let mut client = Client::connect(node.front).expect("a connection");
    let request = format!("GET /page/{page} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let (status, head, _) = client.ask_for_all(&request).expect("an answer");
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_string()
    };
    (status, field("X-Owner:"), field("X-Cache:"))
}

#[test]
fn each_page_is_stored_once_and_a_lost_node_costs_its_pages_only() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = Origin::answering(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        ok("page")
    });
    let ports: Vec<Ports> = (0..3).map(|_| Ports { front: free_port(), owner: free_port() }).collect();
    let address = support::api::address(&origin);
    let sites: Vec<Site> = ports.iter().map(|own| site(*own, &ports, &address)).collect();
    let mut running: Vec<Running> = sites.iter().map(Site::start).collect();

    let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for page in 0..PAGES {
        let first = ask(ports[page % 3], page, "");
        assert_eq!((first.0, first.2.as_str()), (200, "MISS"), "{page}");
        for node in &ports {
            assert_eq!(ask(*node, page, ""), (200, first.1.clone(), "HIT".into()), "{page}");
        }
        owners.entry(first.1).or_default().push(page);
    }
    assert_eq!(asked.load(Ordering::SeqCst), PAGES, "each page was fetched once");
    assert_eq!(owners.len(), 3, "{owners:?}");
    assert_eq!(ask(ports[0], 0, "CDN-Loop: nodes\r\n").0, 508, "no circles");

    // Of the node that is lost, the others fetch the pages anew; those of the others stay where they are.
    drop(running.remove(2));
    let lost = owners.remove(&ports[2].owner.to_string()).expect("it had pages");
    for page in 0..PAGES {
        for node in &ports[..2] {
            let (status, owner, state) = ask(*node, page, "");
            assert_eq!(status, 200, "{page}");
            match owners.values().flatten().any(|known| *known == page) {
                true => assert!(owners[&owner].contains(&page) && state == "HIT", "{page}: {owner} {state}"),
                false => assert_ne!(owner, ports[2].owner.to_string(), "{page}"),
            }
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), PAGES + lost.len(), "the lost node's pages were fetched once more");
    drop(running);
    sites[..2].iter().for_each(Site::assert_no_alerts);
}
