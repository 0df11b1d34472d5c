//! Two servers and Redis, one of them behind a proxy that stalls, cuts and reorders: purges and pairs converge, and a limit holds.

use crate::support;

use super::many_nodes::Redis;
use serde_json::{Value, json};
use support::api::{ask, get};
use support::client::Client;
use support::origin::Origin;
use support::{Running, Site, free_port, wait};
use testkit::fault_proxy::{Direction, FaultProxy, LinkKind};

struct Node {
    port: u16,
    site: Site,
}

impl Node {
    fn new(store: u16, origin: u16) -> Node {
        let port = free_port();
        let main = format!("daemon off; worker_processes 2; shared_store redis://127.0.0.1:{store} timeout=300ms;");
        let conf = format!(
            "http {{
                access_log off;
                keyval_zone zone=pairs:64k timeout=1h sync;
                keyval $arg_key $pair zone=pairs;
                limit_req_zone $arg_key zone=rate:64k rate=1r/m sync;
                proxy_cache_path cache keys_zone=pages:1m inactive=1h sync;
                server {{
                    listen 127.0.0.1:{port};
                    location /api {{ api write=on; }}
                    location = /pair {{ return 200 \"$pair\"; }}
                    location = /limited {{
                        limit_req zone=rate burst=15 nodelay; limit_req_status 429;
                        root .; try_files /none =204;
                    }}
                    location / {{
                        proxy_pass http://127.0.0.1:{origin};
                        proxy_cache pages; proxy_cache_key $uri; proxy_cache_valid 1h;
                        proxy_cache_tags $upstream_http_cache_tag;
                        add_header X-Cache $upstream_cache_status;
                    }}
                }}
            }}"
        );
        Node { port, site: Site::new(&main, &conf) }
    }

    /// Status, cache status and body.
    fn get(&self, path: &str) -> (u16, String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (status, head, body) =
            Client::connect(self.port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer");
        let cache = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default();
        (status, cache.trim().to_string(), body)
    }

    fn delete(&self, query: &str) {
        let (status, body) = ask(self.port, "DELETE", &format!("/tidegate/1/caches/pages?{query}"), None);
        assert_eq!(status, 204, "{body}");
    }

    fn wait_for(&self, path: &str, wanted: &str) {
        wait(&format!("{wanted} for {path}"), || match self.get(path) {
            (200, cache, body) if cache == wanted || body == wanted => Ok(()),
            seen => Err(format!("{seen:?}; {}; {}", get(self.port, "/tidegate/1/stores"), self.site.log())),
        });
    }

    fn store(&self, pointer: &str) -> Value {
        get(self.port, "/tidegate/1/stores").pointer(pointer).cloned().unwrap_or_default()
    }

    fn wait_for_store(&self, pointer: &str, wanted: &Value) {
        wait(&format!("{pointer}: {wanted}"), || match self.store(pointer) {
            seen if seen == *wanted => Ok(()),
            seen => Err(seen.to_string()),
        });
    }
}

#[test]
fn purges_and_pairs_converge_and_a_limit_holds_behind_a_proxy_that_reorders() {
    let store = free_port();
    let Some(_redis) = Redis::on_port(store) else { return };
    let origin = Origin::answering(|request| {
        let tag = request.split([' ', '/']).nth(2).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Tag: {tag}\r\n\r\nok").into_bytes()
    });
    let proxy = FaultProxy::start(store);
    let nodes = [Node::new(store, origin.port), Node::new(proxy.port(), origin.port)];
    let running = nodes.each_ref().map(|node| node.site.start());
    nodes.iter().for_each(|node| node.wait_for_store("/0/nodes", &json!(2)));
    let [near, far] = &nodes;
    let fill = || {
        for (node, path) in nodes.iter().flat_map(|node| ["/a/1", "/b/1", "/c/1"].map(|path| (node, path))) {
            node.wait_for(path, "HIT");
        }
    };
    let set = |node: &Node, method: &str, value: &str| {
        let (status, body) = ask(node.port, method, "/9/http/keyvals/pairs", Some(&json!({ "k": value })));
        assert!(status < 300, "{status} {body}");
    };

    // A change of the far server is answered before it hears of an older one, and of a purge.
    fill();
    set(near, "POST", "0");
    far.wait_for("/pair?key=k", "0");
    proxy.hold(LinkKind::Subscription, Direction::ToClient);
    near.delete("tag=a");
    set(near, "PATCH", "1");
    near.wait_for_store("/0/records/pending", &json!(0));
    set(far, "PATCH", "2");
    near.wait_for("/pair?key=k", "2");
    assert_eq!(far.get("/a/1").1, "HIT");
    proxy.release(LinkKind::Subscription, Direction::ToClient);
    far.wait_for("/a/1", "MISS");
    assert_eq!((far.get("/pair?key=k").2, far.get("/b/1").1), ("2".into(), "HIT".into()));

    // A message that is cut in its middle, and a server whose writes are not answered.
    fill();
    proxy.cut_after(LinkKind::Subscription, 30);
    near.delete("tag=b");
    far.wait_for("/b/1", "MISS");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(far.get("/c/1").1, "HIT");
    far.wait_for_store("/0/connected", &json!(true));
    fill();
    proxy.hold(LinkKind::Commands, Direction::ToClient);
    far.delete("tag=c");
    set(far, "PATCH", "3");
    far.wait_for_store("/0/connected", &json!(false));
    proxy.heal();
    near.wait_for("/c/1", "MISS");
    near.wait_for("/pair?key=k", "3");

    // Single bytes, and one stall of each direction: the burst and one, as many a server on credit, and a part while it is apart.
    far.wait_for_store("/0/connected", &json!(true));
    proxy.set_piece(1);
    let mut admitted = 0;
    let mut pass = |rounds: usize| {
        for node in nodes.iter().cycle().take(2 * rounds) {
            match node.get("/limited?key=a").0 {
                204 => admitted += 1,
                status => assert_eq!(status, 429),
            }
        }
        admitted
    };
    pass(3);
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.hold(LinkKind::Commands, direction);
        set(far, "PATCH", "4");
        pass(10);
        far.wait_for_store("/0/connected", &json!(false));
        pass(20);
        proxy.release(LinkKind::Commands, direction);
        far.wait_for_store("/0/connected", &json!(true));
    }
    let all = pass(40);
    assert!((1..=3 * 16 + 16 + 2).contains(&all), "{all}");
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}
