//! Several servers with one store: logins, sessions and logouts of OpenID Connect, and revoked tokens.

use crate::many_nodes::Redis;
use crate::support;

use serde_json::{Value, json};
use std::collections::HashMap;
use support::api::{ask, get};
use support::client::Client;
use support::provider::{Provider, base64url, now};
use support::{Running, Site, free_port, wait};

const HOST: &str = "shop.test";

struct Node {
    port: u16,
    site: Site,
}

impl Node {
    fn new(store: &str, http: &str, locations: &str) -> Node {
        let port = free_port();
        let main = format!("daemon off; worker_processes 2; shared_store {store} timeout=300ms;");
        let conf = format!(
            "http {{ access_log off; {http}
                server {{ listen 127.0.0.1:{port}; location /api {{ api write=on; }} {locations} }} }}"
        );
        let site = Site::new(&main, &conf);
        site.write("html/page", "page");
        Node { port, site }
    }

    fn wait_for_store(&self, is_connected: bool) {
        wait("the store", || {
            let all = get(self.port, "/tidegate/1/stores");
            let seen = all.pointer("/0/connected").and_then(Value::as_bool);
            (seen == Some(is_connected)).then_some(()).ok_or_else(|| all.to_string())
        });
    }
}

/// Starts servers, and waits for their store.
fn start(nodes: &[Node]) -> Vec<Running<'_>> {
    let running = nodes.iter().map(|node| node.site.start()).collect();
    nodes.iter().for_each(|node| node.wait_for_store(true));
    running
}

fn restart<'a>(node: &'a Node, running: &mut Vec<Running<'a>>, index: usize) {
    running.remove(index).quit();
    running.insert(index, node.site.start());
    node.wait_for_store(true);
}

fn quit(nodes: &[Node], running: Vec<Running<'_>>) {
    running.into_iter().for_each(Running::quit);
    nodes.iter().for_each(|node| node.site.assert_no_alerts());
}

/// A browser whose requests go to the server that a balancer selects.
#[derive(Clone, Default)]
struct Browser(HashMap<String, String>);

impl Browser {
    /// Returns status, head and body.
    fn get(&mut self, node: &Node, path: &str) -> (u16, String, String) {
        let cookies: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
            cookies.join("; ")
        );
        let answered = Client::connect(node.port).and_then(|mut client| client.ask_for_all(&request));
        let (status, head, body) = answered.unwrap_or_else(|e| panic!("{path}: {e}"));
        for line in head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")) {
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            match line.contains("Max-Age=0") {
                true => drop(self.0.remove(name)),
                false => drop(self.0.insert(name.to_string(), value.to_string())),
            }
        }
        (status, head, body)
    }

    /// Asks one server, and comes back from the provider to another one.
    fn log_in(provider: &Provider, asked: &Node, returned: &Node) -> Browser {
        let mut browser = Browser::default();
        let (status, head, body) = browser.get(asked, "/");
        assert_eq!(status, 302, "{body}");
        let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a location");
        let back = provider.agree(location);
        let (status, head, body) = browser.get(returned, &back);
        assert!(status == 302 && head.contains("NGX_OIDC_SESSION"), "{status} {head} {body} {}", returned.site.log());
        browser
    }

    fn wait_for(&self, node: &Node, status: u16) {
        wait(&format!("{status} on {}", node.port), || match self.clone().get(node, "/") {
            (seen, ..) if seen == status => Ok(()),
            seen => Err(format!("{seen:?} {} {}", get(node.port, "/tidegate/1/stores"), node.site.log())),
        });
    }
}

fn oidc_node(store: &str, provider: &Provider, secret: &str) -> Node {
    let issuer = provider.inner().issuer.clone();
    let http = format!(
        "keyval_zone zone=sessions:1m timeout=8h sync;
         oidc_provider idp {{ issuer {issuer}; client_id client; {secret} session_store sessions;
            logout_uri /logout; frontchannel_logout_uri /front; backchannel_logout_uri /back; }}"
    );
    let locations = "location / { auth_oidc idp; try_files /page =404; add_header X-User $oidc_claim_sub; }";
    Node::new(store, &http, locations)
}

const SECRET: &str = "client_secret \"se cret+\";";

#[test]
fn sessions_and_logouts_are_those_of_all_servers() {
    let Some(redis) = Redis::start() else { return };
    let provider = Provider::start();
    let nodes: Vec<Node> = (0..2).map(|_| oidc_node(&redis.address(), &provider, SECRET)).collect();
    let mut running = start(&nodes);
    // Redirect by one server, return to the other, requests to both.
    let user = Browser::log_in(&provider, &nodes[0], &nodes[1]);
    nodes.iter().for_each(|node| user.wait_for(node, 200));
    // The store has no token.
    let stored = get(nodes[0].port, "/9/http/keyvals/sessions").to_string();
    assert!(stored.len() > 500 && !stored.contains("id_token") && !stored.contains("access-"), "{stored}");
    wait("three records", || {
        let stores = get(nodes[0].port, "/tidegate/1/stores");
        let maps = stores.pointer("/0/maps").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_there = |map: &Value| map["name"] == "keyval:httparea:sessions" && map["records"] == json!(3);
        if maps.iter().any(is_there) { Ok(()) } else { Err(stores.to_string()) }
    });

    // A restarted server has them again.
    restart(&nodes[0], &mut running, 0);
    user.wait_for(&nodes[0], 200);

    // The user logs out, at one server.
    let (status, ..) = user.clone().get(&nodes[0], "/logout");
    assert_eq!((status, user.clone().get(&nodes[0], "/").0), (302, 302));
    user.wait_for(&nodes[1], 302);

    // The provider ends a session in the front channel, at the server that did not begin it.
    let user = Browser::log_in(&provider, &nodes[1], &nodes[0]);
    nodes.iter().for_each(|node| user.wait_for(node, 200));
    let issuer = provider.inner().issuer.clone();
    assert_eq!(Browser::default().get(&nodes[1], &format!("/front?iss={issuer}&sid=sid-1")).0, 200);
    nodes.iter().for_each(|node| user.wait_for(node, 302));

    // And in the back channel.
    provider.inner().claims = |claims| claims["sid"] = "sid-2".into();
    let user = Browser::log_in(&provider, &nodes[0], &nodes[0]);
    nodes.iter().for_each(|node| user.wait_for(node, 200));
    let claims = json!({"iss": issuer, "aud": "client", "iat": now(), "exp": now() + 120, "jti": "one", "sid": "sid-2",
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}}});
    let form = format!("logout_token={}", provider.inner().sign_as("logout+jwt", &claims));
    let head = format!(
        "POST /back HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
        form.len()
    );
    let request = format!("{head}Connection: close\r\n\r\n{form}");
    let (status, body) = Client::connect(nodes[1].port).and_then(|mut client| client.ask(&request)).expect("answered");
    assert_eq!(status, 200, "{body} {}", nodes[1].site.log());
    nodes.iter().for_each(|node| user.wait_for(node, 302));
    quit(&nodes, running);
}

#[test]
fn a_logout_without_the_store_wins_over_a_refresh_of_another_server() {
    let Some(redis) = Redis::start() else { return };
    let provider = Provider::start();
    let nodes: Vec<Node> = (0..2).map(|_| oidc_node(&redis.address(), &provider, SECRET)).collect();
    let running = start(&nodes);
    // The access token has ended when it is issued: each request refreshes it.
    provider.inner().expires_in = 0;
    let user = Browser::log_in(&provider, &nodes[0], &nodes[0]);
    nodes.iter().for_each(|node| user.wait_for(node, 200));

    // The store hangs. One server ends the session, and the other refreshes it afterwards.
    let signal = |name: &str| {
        let pid = redis.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    signal("-STOP");
    nodes.iter().for_each(|node| node.wait_for_store(false));
    let (_, head, _) = user.clone().get(&nodes[0], "/logout");
    assert!(head.contains("/end?"), "{head}");
    assert_eq!(user.clone().get(&nodes[1], "/").0, 200, "it cannot know");
    let late = Browser::log_in(&provider, &nodes[1], &nodes[1]);
    signal("-CONT");
    nodes.iter().for_each(|node| node.wait_for_store(true));
    nodes.iter().for_each(|node| user.wait_for(node, 302));
    nodes.iter().for_each(|node| late.wait_for(node, 200));
    quit(&nodes, running);
}

#[test]
fn one_server_refreshes_a_session_for_all() {
    let Some(redis) = Redis::start() else { return };
    let provider = Provider::start();
    let nodes: Vec<Node> = (0..3).map(|_| oidc_node(&redis.address(), &provider, SECRET)).collect();
    let running = start(&nodes);
    provider.inner().expires_in = 0;
    // Nothing has asked for the session yet.
    let user = Browser::log_in(&provider, &nodes[0], &nodes[0]);
    wait("the session on all servers", || {
        let count = |node: &Node| get(node.port, "/9/http/keyvals/sessions").as_object().map_or(0, |all| all.len());
        nodes.iter().all(|node| count(node) == 3).then_some(()).ok_or("not yet")
    });
    provider.inner().expires_in = 3600;
    std::thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(|| user.clone().get(node, "/").0)).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("answered"), 200);
        }
    });
    assert_eq!(provider.asked("/token"), 2, "one code, one refresh");
    quit(&nodes, running);
}

#[test]
fn shared_sessions_need_a_secret() {
    let provider = Provider::start();
    let issuer = provider.inner().issuer.clone();
    let conf = |zone: &str, more: &str| {
        format!(
            "http {{ {zone} oidc_provider idp {{ issuer {issuer}; client_id client; session_store sessions; {more} }}
                server {{ listen 127.0.0.1:1; location / {{ auth_oidc idp; }} }} }}"
        )
    };
    let (shared, own) = ("keyval_zone zone=sessions:1m timeout=8h sync;", "keyval_zone zone=sessions:1m timeout=8h;");
    let site = Site::new("shared_store redis://127.0.0.1:1;", "");
    site.write("conf/short.key", "too short\n");
    site.write("conf/good.key", &format!("{}\n", "0123456789abcdef".repeat(3)));
    for (zone, more, words) in [
        (shared, "", Some("has no secret to encrypt them")),
        (shared, "session_key short.key;", Some("less than 32 characters")),
        (shared, "session_key none.key;", Some("cannot load session key")),
        (shared, "session_key good.key;", None),
        (shared, SECRET, None),
        (own, "", None),
        (own, "session_key good.key;", None),
    ] {
        site.configure("shared_store redis://127.0.0.1:1;", &conf(zone, more));
        let output = site.run(&["-t"]);
        let said = support::text(&output.stderr);
        assert_eq!(output.status.success(), words.is_none(), "{more}: {said}");
        assert!(words.is_none_or(|words| said.contains(words)), "{more}: {said}");
    }
}

/// A token of HS256 with an id.
fn token(id: &str) -> String {
    let part = |value: Value| base64url(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": "HS256"})), part(json!({"jti": id})));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32]);
    let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", base64url(tag))
}

#[test]
fn a_revoked_token_is_revoked_on_all_servers_also_after_the_store_was_gone() {
    let Some(mut redis) = Redis::start() else { return };
    let keys = json!({"keys": [{"kty": "oct", "k": base64url([7; 32]), "alg": "HS256"}]}).to_string();
    let folder = Site::new("", "");
    folder.write("keys.json", &keys);
    let http = "keyval_zone zone=revoked:1m timeout=1d sync; keyval $jwt_claim_jti $revoked zone=revoked;
        map $revoked $not_revoked { \"\" 1; default 0; }";
    let locations = format!(
        "location / {{ auth_jwt api; auth_jwt_key_file {}; auth_jwt_require $not_revoked; try_files /page =404; }}",
        folder.path("keys.json").display()
    );
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&redis.address(), http, &locations)).collect();
    let mut running = start(&nodes);
    let status = |node: &Node, id: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n", token(id));
        let request = format!("{head}Connection: close\r\n\r\n");
        Client::connect(node.port).and_then(|mut client| client.ask(&request)).expect("an answer").0
    };
    let wait_for = |node: &Node, id: &str, expected: u16| {
        wait(&format!("{expected} for {id} on {}", node.port), || match status(node, id) {
            seen if seen == expected => Ok(()),
            seen => Err(format!("{seen} {}", node.site.log())),
        });
    };
    let revoke = |node: &Node, id: &str| {
        let (status, body) = ask(node.port, "POST", "/9/http/keyvals/revoked", Some(&json!({ id: "1" })));
        assert_eq!(status, 201, "{body}");
    };
    nodes.iter().for_each(|node| assert_eq!([status(node, "a"), status(node, "b")], [200, 200]));
    revoke(&nodes[0], "a");
    assert_eq!(status(&nodes[0], "a"), 401);
    wait_for(&nodes[1], "a", 401);
    assert_eq!(status(&nodes[1], "b"), 200);

    redis.kill();
    nodes.iter().for_each(|node| node.wait_for_store(false));
    revoke(&nodes[1], "b");
    assert_eq!([status(&nodes[0], "b"), status(&nodes[1], "b"), status(&nodes[0], "a")], [200, 401, 401]);
    redis.child = Redis::spawn(&redis.site).expect("Redis");
    nodes.iter().for_each(|node| wait_for(node, "b", 401));
    // A server that starts anew has the list from the others.
    restart(&nodes[0], &mut running, 0);
    for id in ["a", "b"] {
        wait_for(&nodes[0], id, 401);
    }
    quit(&nodes, running);
}
