//! Issuers that several servers share (`sync`): one order for all, challenges that any server answers, a server that dies within its
//! order. pebble is Debian's; skipped with words where it is not installed.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use support::client::Client;
use support::origin::{Origin, ok};
use support::pebble::{Authority, ask};
use support::{Running, Site, free_port, wait, wait_within};

/// Above the lease of an order, and the pause of a server that waits for its turn.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    site: Site,
    http: u16,
    tls: u16,
}

impl Node {
    /// A server of a common issuer. `orders`: it has a certificate of the issuer; otherwise one of its own.
    fn new(store: &str, authority: &Site, port: u16, challenge: &str, http: u16, tls: u16, orders: bool) -> Node {
        let site = Site::new(&format!("daemon off; shared_store {store};"), "");
        for name in ["conf/pebble.crt", "conf/root.crt", "conf/sync.key"] {
            std::fs::copy(authority.path(name), site.path(name)).expect("copied");
        }
        site.certify();
        let certificate = match orders {
            true => {
                "acme_certificate test 127.0.0.1; ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;"
            }
            false => "ssl_certificate a.crt; ssl_certificate_key a.key;",
        };
        let http_area = format!(
            "http {{ resolver 127.0.0.1:1;
                acme_issuer test {{
                    uri https://127.0.0.1:{port}/dir; ssl_trusted_certificate pebble.crt; state_path {};
                    challenge {challenge}; accept_terms_of_service; sync key_file=sync.key;
                }}
                server {{ listen 127.0.0.1:{http}; location / {{ deny all; }} location /api {{ api; }} }}
                server {{ listen 127.0.0.1:{tls} ssl; {certificate} location / {{ return 200 served; }} }} }}",
            site.path("state").display()
        );
        site.configure(&format!("daemon off; shared_store {store};"), &http_area);
        Node { site, http, tls }
    }

    fn orders(&self) -> usize {
        self.site.log().matches("issued a certificate for").count()
    }

    fn wait_for_certificate(&self) {
        wait_within(LEASE_PATIENCE, &format!("the certificate of {}", self.tls), || match ask(&self.site, self.tls) {
            said if said == "0 served" => Ok(()),
            said => Err(format!("{said} {}", self.site.log())),
        });
    }
}

/// Makes the folder and the key of all servers.
fn prepare(site: &Site) {
    // The workers are another user.
    let folder = site.path("store");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    site.write("conf/sync.key", &"0123456789abcdef".repeat(4));
}

/// Looks for a text in all files below a folder.
fn has_text(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).expect("a folder").flatten().any(|entry| match entry.path() {
        path if path.is_dir() => has_text(&path, text),
        path => {
            let bytes = std::fs::read(path).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        }
    })
}

#[test]
fn one_server_orders_any_answers_and_all_serve() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (http, tls) = (free_port(), free_port());
        let site = Site::new("", "");
        prepare(&site);
        let Some(authority) = Authority::start(&site, http, tls) else { return };
        authority.root(&site);
        let store = format!("file:{}", site.path("store").display());
        // The authority comes to a server that orders nothing.
        let answering = Node::new(&store, &site, authority.port, challenge, http, tls, false);
        let new = || Node::new(&store, &site, authority.port, challenge, free_port(), free_port(), true);
        let nodes = [new(), new()];
        let answers = answering.site.start();
        let mut running: Vec<Running> = nodes.iter().map(|node| node.site.start()).collect();
        nodes.iter().for_each(Node::wait_for_certificate);
        let adopted = |node: &Node| usize::from(node.site.log().contains("over from another"));
        wait("the logs", || {
            let (orders, adopted): (usize, usize) =
                (nodes.iter().map(Node::orders).sum(), nodes.iter().map(adopted).sum());
            if (orders, adopted) == (1, 1) { Ok(()) } else { Err(format!("{challenge}: {orders} {adopted}")) }
        });
        // The store has the keys, encrypted.
        assert!(has_text(&site.path("store"), "certificate 127.0.0.1"));
        assert!(!has_text(&site.path("store"), "PRIVATE KEY"));

        // A further server needs no authority, and a restarted one no store.
        let port = authority.port;
        drop(authority);
        let late = Node::new(&store, &site, port, challenge, free_port(), free_port(), true);
        let late_running = late.site.start();
        late.wait_for_certificate();
        assert_eq!(late.orders(), 0);
        late_running.quit();
        running.remove(0).quit();
        let away = std::fs::read_to_string(nodes[0].site.path("conf/nginx.conf")).expect("a configuration");
        nodes[0].site.write("conf/nginx.conf", &away.replace(&store, "redis://127.0.0.1:1"));
        let restarted = nodes[0].site.start();
        nodes[0].wait_for_certificate();
        restarted.quit();
        running.into_iter().for_each(Running::quit);
        answers.quit();
        for node in nodes.iter().chain([&answering, &late]) {
            node.site.assert_no_alerts();
        }
    }
}

#[test]
fn another_server_orders_when_one_dies_within_its_order() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("", "");
    prepare(&site);
    // The first validation gets no answer, later ones that of a server.
    let asked = Arc::new(AtomicU16::new(0));
    let answered_by = Arc::new(AtomicU16::new(0));
    let listener = std::net::TcpListener::bind(("127.0.0.1", http)).expect("the port");
    let (asked_too, answered_by_too) = (asked.clone(), answered_by.clone());
    let _balancer = Origin::on(listener, move |mut talk| {
        let Some(request) = talk.request() else { return };
        asked_too.fetch_add(1, Ordering::SeqCst);
        let path = request.split(' ').nth(1).unwrap_or_default().to_string();
        match answered_by_too.load(Ordering::SeqCst) {
            0 => talk.hang(),
            port => {
                let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let answer = Client::connect(port).and_then(|mut client| client.ask(&request));
                let (_, body) = answer.unwrap_or_default();
                talk.send(&ok(&body));
            }
        }
    });
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    let store = format!("file:{}", site.path("store").display());
    let new = || Node::new(&store, &site, authority.port, "http-01", free_port(), free_port(), true);
    let (first, second) = (new(), new());
    let dying = first.site.start();
    wait("a validation", || if asked.load(Ordering::SeqCst) > 0 { Ok(()) } else { Err(first.site.log()) });
    let running = second.site.start();
    second.site.wait_for_log("another server orders", 1);
    assert_eq!((first.orders(), second.orders()), (0, 0));
    answered_by.store(second.http, Ordering::SeqCst);
    drop(dying);
    second.wait_for_certificate();
    second.site.wait_for_log("issued a certificate for", 1);
    // The first one comes back, and takes the certificate and the account over.
    std::fs::remove_file(first.site.path("logs/nginx.pid")).expect("a pid file");
    let back = first.site.start();
    first.wait_for_certificate();
    assert_eq!((first.orders(), second.orders()), (0, 1), "{}", first.site.log());
    back.quit();
    running.quit();
    second.site.assert_no_alerts();
}

#[test]
fn a_server_without_a_certificate_orders_alone_if_the_store_is_not_there() {
    let (http, tls) = (free_port(), free_port());
    let site = Site::new("", "");
    prepare(&site);
    let Some(authority) = Authority::start(&site, http, tls) else { return };
    authority.root(&site);
    let node = Node::new("redis://127.0.0.1:1", &site, authority.port, "http-01", http, tls, true);
    let running = node.site.start();
    node.wait_for_certificate();
    node.site.wait_for_log("issued a certificate for", 1);
    running.quit();
    node.site.assert_no_alerts();
}

#[test]
fn wrong_lines_are_named() {
    let site = Site::new("", "");
    site.write("conf/short.key", "short");
    let issuer = |line: &str| {
        format!(
            "http {{ resolver 127.0.0.1:1; acme_issuer one {{ uri https://127.0.0.1:1/dir; ssl_verify off; {line} }}
                server {{ listen 127.0.0.1:1; }} }}"
        )
    };
    for (line, is_good, words) in [
        ("sync;", true, "acme_issuer \"one\": \"sync\" has no effect without \"shared_store\""),
        ("sync key_file=none.key;", false, "cannot load key"),
        ("sync key_file=short.key;", false, "less than 32 characters"),
        ("sync on;", false, "invalid parameter \"on\""),
        ("sync; sync;", false, "\"sync\" directive is duplicate"),
    ] {
        site.configure("", &issuer(line));
        let output = site.run(&["-t"]);
        let said = support::text(&output.stderr);
        assert!(output.status.success() == is_good && said.contains(words), "{line}: {said}");
    }
    site.configure("", "http { acme_issuer one { local_authority; sync; } server { listen 127.0.0.1:1; } }");
    let said = support::text(&site.run(&["-t"]).stderr);
    assert!(said.contains("\"sync\" has no meaning beside \"local_authority\""), "{said}");
}
