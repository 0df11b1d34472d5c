//! `examples/many-nodes`: its command starts all, its requests do what README.md says, and nothing stays behind.

use crate::support;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::client::Client;
use support::dns::{A, query, read};
use support::{BINARY, Site, children, free_port, signal, wait};

/// The address of a node, 1 to 3.
fn node_address(node: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, 10 + node])
}

/// The example with ports of its own, running.
struct Example {
    child: Child,
    _site: Site,
    port: u16,
    dns: u16,
}

impl Example {
    fn start() -> Option<Example> {
        if Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .spawn()
            .and_then(|mut one| one.wait())
            .is_err()
        {
            testkit::missing_peer("redis-server");
            return None;
        }
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/many-nodes");
        let site = Site::new("", "");
        let (port, owner, dns, store) = (free_port(), free_port(), free_port(), free_port());
        for entry in std::fs::read_dir(&source).expect("the example").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("a text");
            let ports = [("8080", port), ("8081", owner), ("8053", dns), ("8379", store)];
            let text = ports.iter().fold(text, |text, (from, to)| cases::replace_address(&text, from, &to.to_string()));
            std::fs::write(site.path(&entry.file_name().to_string_lossy()), text).expect("a copy");
        }
        let child = Command::new("sh").arg(site.path("run")).env("TIDEGATE", BINARY).stderr(Stdio::null()).spawn();
        Some(Example { child: child.expect("sh"), _site: site, port, dns })
    }

    /// Asks a node, 1 to 3; returns status, head and body.
    fn ask(&self, node: u8, method: &str, path: &str, body: &str) -> Result<(u16, String, String), String> {
        let stream = std::net::TcpStream::connect((node_address(node), self.port)).map_err(|e| e.to_string())?;
        let length = body.len();
        let fields = format!("Host: a\r\nConnection: close\r\nContent-Length: {length}\r\n");
        Client::of(stream)?.ask_for_all(&format!("{method} {path} HTTP/1.1\r\n{fields}\r\n{body}"))
    }

    fn expect(&self, node: u8, path: &str, wanted: &str) {
        wait(&format!("{path} of node {node}"), || match self.ask(node, "GET", path, "") {
            Ok((200, head, body)) if head.contains(wanted) || body.contains(wanted) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    fn names(&self, node: u8, subnet: Option<([u8; 4], u8)>) -> Result<Vec<String>, String> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        socket.connect((node_address(node), self.dns)).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).map_err(|e| e.to_string())?;
        socket.send(&query(1, "www.example.test", A, subnet)).map_err(|e| e.to_string())?;
        let mut buf = [0; 1500];
        let length = socket.recv(&mut buf).map_err(|e| e.to_string())?;
        Ok(read(&buf[..length]).addresses())
    }

    fn wait_for_names(&self, node: u8, subnet: Option<([u8; 4], u8)>, wanted: &[&str]) {
        wait(&format!("{wanted:?}"), || match self.names(node, subnet) {
            Ok(seen) if seen == wanted => Ok(()),
            seen => Err(format!("{seen:?}")),
        });
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

#[test]
fn the_example_of_many_nodes_does_what_its_text_says() {
    let Some(mut example) = Example::start() else { return };
    for node in 1..=3 {
        example.expect(node, "/", &format!("node 127.0.0.1{node}"));
    }
    // A pair. The store connects in its time; the answer to a change comes before that.
    let (status, ..) =
        example.ask(1, "POST", "/api/9/http/keyvals/words", "{\"/words/tide\": \"high\"}").expect("an answer");
    assert_eq!(status, 201);
    for node in [3, 2, 1] {
        example.expect(node, "/words/tide", "high");
    }
    // A limit: what the first node has admitted, the others do not admit again. Each of them alone would admit six.
    let passed = |node: u8| {
        let mut count = 0;
        wait("a refusal", || match example.ask(node, "GET", "/limited", "").expect("an answer").0 {
            429 => Ok(()),
            status => {
                assert_eq!(status, 200);
                count += 1;
                Err(count.to_string())
            }
        });
        count
    };
    let counts = [passed(1), passed(2), passed(3)];
    assert!((5..=8).contains(&counts[0]) && counts[1] + counts[2] < 12, "{counts:?}");
    // A cache of three parts, and a purge of all.
    let cached = |node: u8| {
        let (status, head, _) = example.ask(node, "GET", "/pages/1", "").expect("an answer");
        assert_eq!(status, 200, "{head}");
        head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default().to_string()
    };
    assert_eq!([cached(1), cached(2), cached(3)], ["MISS", "HIT", "HIT"]);
    assert_eq!(example.ask(3, "PURGE", "/pages/1", "").expect("an answer").0, 204);
    assert_eq!([cached(2), cached(1)], ["MISS", "HIT"]);
    // Names.
    let east = Some(([198, 51, 100, 0], 24));
    example.wait_for_names(1, None, &["127.0.0.11", "127.0.0.12"]);
    example.wait_for_names(2, east, &["127.0.0.13"]);
    // The third node goes: the masters are children of the shell, in their order, behind Redis and the applications.
    let all = children(example.child.id());
    assert_eq!(all.len(), 5, "Redis, the applications, three nodes");
    signal(all[4], "TERM");
    example.wait_for_names(1, east, &["127.0.0.11", "127.0.0.12"]);
    for page in 0..20 {
        let (status, head, _) = example.ask(1, "GET", &format!("/pages/{page}"), "").expect("an answer");
        assert_eq!(status, 200, "{head}");
    }
    signal(example.child.id(), "TERM");
    wait("the end", || example.child.try_wait().expect("wait").ok_or("it runs"));
    for pid in all {
        wait("the end of all", || if support::alive(pid) { Err(pid.to_string()) } else { Ok(()) });
    }
}
