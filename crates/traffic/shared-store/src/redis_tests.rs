//! Agents over a real Redis: alone, behind Sentinels, as a cluster, with TLS; and what happens when it is not there.

use crate::agent::{AgentOptions, StoreAgent};
use crate::map_replica::{LocalMap, LocalValue, MapReplica};
use crate::permits::{PermitPool, PermitRule, PermitVerdict, StoreLoss};
use crate::redis_connection::RedisSettings;
use crate::redis_store::RedisStore;
use crate::store::Store;
use crate::{RedisMode, StoreAddress};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::free_port;

const LONGEST: Duration = Duration::from_secs(60);

pub fn wait_until(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let until = Instant::now() + LONGEST;
    while let Err(seen) = look() {
        assert!(Instant::now() < until, "waited in vain for {what}; last seen: {seen}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn has_redis() -> bool {
    let is_there = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        testkit::missing_peer("redis-server");
    }
    is_there
}

/// A folder that is removed at the end.
pub struct TestFolder(pub PathBuf);

impl TestFolder {
    pub fn new(name: &str) -> TestFolder {
        let path = std::env::temp_dir().join(format!("tidegate-redis-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        TestFolder(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that is killed at the end.
pub struct Redis(Child);

impl Redis {
    pub fn start(folder: &Path, arguments: &[&str]) -> Redis {
        let log = std::fs::File::create(folder.join("redis.log")).expect("a log");
        let child = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(folder)
            .args(arguments)
            .stdout(log)
            .spawn()
            .expect("redis-server starts");
        Redis(child)
    }

    /// Without a port.
    fn on_socket(folder: &TestFolder, arguments: &[&str]) -> Redis {
        let socket = folder.0.join("redis.sock");
        let _ = std::fs::remove_file(&socket);
        let redis =
            Redis::start(&folder.0, &[&["--port", "0", "--unixsocket", &socket.to_string_lossy()], arguments].concat());
        wait_until("the socket", || socket.exists().then_some(()).ok_or_else(|| "none".into()));
        redis
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill").success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn redis_call(arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(arguments).output().expect("redis-cli runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A zone without a limit.
#[derive(Default)]
pub struct Pairs(pub Mutex<BTreeMap<Vec<u8>, LocalValue>>);

impl LocalMap for Pairs {
    fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
        let mut pairs = self.0.lock().unwrap();
        match value {
            Some(value) => pairs.insert(key.to_vec(), (value.to_vec(), expires)),
            None => pairs.remove(key),
        };
        true
    }

    fn local_keys(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn local_identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64
}

/// A node with a zone.
pub struct TestNode {
    pub agent: StoreAgent,
    pub pairs: Arc<Pairs>,
    replica: Arc<MapReplica>,
}

impl TestNode {
    pub fn start(number: u64, address: &StoreAddress, set: impl FnOnce(&mut AgentOptions)) -> TestNode {
        let mut options = AgentOptions {
            address: address.clone(),
            password: None,
            authorities: None,
            certificate: None,
            prefix: "test".into(),
            patience: Duration::from_millis(500),
            loss: StoreLoss::Local,
            node: number,
            report: Box::new(|_, _| {}),
        };
        set(&mut options);
        let agent = StoreAgent::start(options).expect("a thread");
        let pairs = Arc::new(Pairs::default());
        let replica = agent.share_map("pairs", pairs.clone());
        TestNode { agent, pairs, replica }
    }

    pub fn set(&self, key: &str, value: Option<&str>) {
        let change = || Ok::<_, ()>(self.pairs.apply_value(key.as_bytes(), value.map(str::as_bytes), None));
        self.replica.change_key(key.as_bytes(), now(), change).expect("changed");
    }

    pub fn wait_for(&self, expected: &[(&str, &str)]) {
        wait_until("the pairs", || {
            let pairs = self.pairs.0.lock().unwrap();
            let seen: Vec<(String, String)> = pairs
                .iter()
                .map(|(key, (value, _))| (String::from_utf8_lossy(key).into(), String::from_utf8_lossy(value).into()))
                .collect();
            let is_equal = seen.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected.iter().copied());
            is_equal.then_some(()).ok_or_else(|| format!("{seen:?}, {:?}", self.agent.state()))
        });
    }

    pub fn wait_connected(&self, is_connected: bool) {
        wait_until(&format!("connected: {is_connected}"), || {
            let state = self.agent.state();
            (state.is_connected == is_connected && state.since > 0).then_some(()).ok_or_else(|| format!("{state:?}"))
        });
    }

    /// Waits for a failure with these words.
    pub fn wait_failure(&self, words: &str) {
        wait_until(words, || {
            let state = self.agent.state();
            let is_it = state.last_failure.as_ref().is_some_and(|failure| failure.contains(words));
            is_it.then_some(()).ok_or_else(|| format!("{state:?}"))
        });
    }
}

fn socket_address(folder: &TestFolder) -> StoreAddress {
    StoreAddress::parse(&format!("redis+unix:{}", folder.0.join("redis.sock").display())).expect("an address")
}

#[test]
fn redis_keeps_the_rules() {
    if !has_redis() {
        return;
    }
    let folder = TestFolder::new("rules");
    let _redis = Redis::on_socket(&folder, &[]);
    let settings = RedisSettings {
        mode: RedisMode::UnixSocket(folder.0.join("redis.sock")),
        hosts: Vec::new(),
        uses_tls: false,
        user: None,
        password: None,
        database: 0,
        authorities: None,
        certificate: None,
        patience: Duration::from_secs(20),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::connect(&settings, "rules").await.expect("connected");
        super::tests::check_store(&store).await;
        assert!(store.subscribe(&[]).await.is_err(), "one subscription for a connection");
    });
}

#[test]
fn changes_reach_all_nodes_and_survive_a_store_that_stalls_dies_and_forgets() {
    if !has_redis() {
        return;
    }
    let folder = TestFolder::new("losses");
    let redis = Redis::on_socket(&folder, &[]);
    let address = socket_address(&folder);
    let (a, b) = (TestNode::start(1, &address, |_| {}), TestNode::start(2, &address, |_| {}));
    a.set("x", Some("1"));
    b.wait_for(&[("x", "1")]);
    b.set("y", Some("2"));
    a.wait_for(&[("x", "1"), ("y", "2")]);
    wait_until("both nodes", || match (a.agent.state().nodes, b.agent.state().nodes) {
        (2, 2) => Ok(()),
        seen => Err(format!("{seen:?}")),
    });

    // It does not answer.
    redis.signal("STOP");
    a.set("x", None);
    b.set("z", Some("3"));
    a.wait_connected(false);
    b.wait_connected(false);
    assert!(a.agent.state().records_pending > 0, "{:?}", a.agent.state());
    redis.signal("CONT");
    a.wait_for(&[("y", "2"), ("z", "3")]);
    b.wait_for(&[("y", "2"), ("z", "3")]);

    // It is killed, and begins with nothing.
    drop(redis);
    a.wait_connected(false);
    b.wait_connected(false);
    a.set("y", Some("4"));
    b.set("w", Some("5"));
    assert_eq!(a.agent.state().nodes, 2, "the nodes that were there last");
    let _redis = Redis::on_socket(&folder, &[]);
    a.wait_for(&[("w", "5"), ("y", "4"), ("z", "3")]);
    b.wait_for(&[("w", "5"), ("y", "4"), ("z", "3")]);

    // A node that ends leaves; one that begins has all.
    drop(b);
    wait_until("one node", || match a.agent.state().nodes {
        1 => Ok(()),
        seen => Err(seen.to_string()),
    });
    TestNode::start(3, &address, |_| {}).wait_for(&[("w", "5"), ("y", "4"), ("z", "3")]);
}

#[test]
fn a_store_that_refuses_is_named_with_its_reason() {
    if !has_redis() {
        return;
    }
    let folder = TestFolder::new("refusals");
    let redis = Redis::on_socket(&folder, &["--requirepass", "secret"]);
    let address = socket_address(&folder);
    let no_password = TestNode::start(1, &address, |_| {});
    no_password.wait_failure("NOAUTH");
    let wrong = TestNode::start(2, &address, |options| options.password = Some("wrong".into()));
    wrong.wait_failure("authentication failed");
    let right = TestNode::start(3, &address, |options| options.password = Some("secret".into()));
    right.wait_connected(true);
    right.set("a", Some("1"));
    wait_until("nothing pending", || match right.agent.state().records_pending {
        0 => Ok(()),
        seen => Err(seen.to_string()),
    });
    drop(redis);
    let _full =
        Redis::on_socket(&folder, &["--requirepass", "secret", "--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    right.wait_failure("OOM");
    assert!(right.agent.state().records_pending > 0);
    let nothing = StoreAddress::parse("redis+unix:/nonexistent/redis.sock").expect("an address");
    TestNode::start(4, &nothing, |_| {}).wait_failure("not reachable");
}

/// Writes a certificate of 127.0.0.1 that signs itself, and its key: NAME.crt and NAME.key. Returns both.
fn certify(folder: &TestFolder, name: &str, last_year: i32) -> (Vec<u8>, Vec<u8>) {
    let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    parameters.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = parameters.self_signed(&key).expect("a certificate").pem().into_bytes();
    let key = key.serialize_pem().into_bytes();
    std::fs::write(folder.0.join(format!("{name}.crt")), &certificate).expect("written");
    std::fs::write(folder.0.join(format!("{name}.key")), &key).expect("written");
    (certificate, key)
}

#[test]
fn tls_checks_both_sides() {
    if !has_redis() {
        return;
    }
    let folder = TestFolder::new("tls");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let client = certify(&folder, "client", 4000);
    let start = |server: &str| {
        let port = free_port().to_string();
        let (certificate, key) = (path(&format!("{server}.crt")), path(&format!("{server}.key")));
        let options = ["--port", "0", "--bind", "127.0.0.1", "--tls-port", &port, "--tls-cert-file", &certificate];
        let more = ["--tls-key-file", &key, "--tls-ca-cert-file", &path("client.crt"), "--tls-auth-clients", "yes"];
        let redis = Redis::start(&folder.0, &[&options[..], &more[..]].concat());
        (redis, StoreAddress::parse(&format!("rediss://127.0.0.1:{port}")).expect("an address"))
    };
    let (server, _) = certify(&folder, "server", 4000);
    let (_redis, address) = start("server");
    let trusting = TestNode::start(1, &address, |options| {
        (options.authorities, options.certificate) = (Some(server.clone()), Some(client.clone()));
    });
    trusting.wait_connected(true);
    trusting.set("a", Some("1"));
    let other = TestNode::start(2, &address, |options| {
        (options.authorities, options.certificate) = (Some(server.clone()), Some(client.clone()));
    });
    other.wait_for(&[("a", "1")]);
    TestNode::start(3, &address, |options| options.certificate = Some(client.clone())).wait_failure("UnknownIssuer");
    TestNode::start(4, &address, |options| options.authorities = Some(server.clone())).wait_failure("not reachable");

    let (expired, _) = certify(&folder, "expired", 2020);
    let (_redis, address) = start("expired");
    let node = TestNode::start(5, &address, |options| {
        (options.authorities, options.certificate) = (Some(expired.clone()), Some(client.clone()));
    });
    node.wait_failure("expired");
}

/// Asks until a permit is refused, or a number was granted.
pub fn take_permits(node: &TestNode, pool: &PermitPool, attempts: usize) -> usize {
    (0..attempts).filter(|_| node.agent.take_permit(pool, b"key", now()) == PermitVerdict::Granted).count()
}

#[test]
fn limits_hold_over_nodes_and_have_a_bound_when_the_store_is_gone() {
    if !has_redis() {
        return;
    }
    let folder = TestFolder::new("limits");
    let redis = Redis::on_socket(&folder, &[]);
    let address = socket_address(&folder);
    let nodes: Vec<TestNode> = (1..=3).map(|number| TestNode::start(number, &address, |_| {})).collect();
    // Three in a day, at once: time does not matter.
    let rule = PermitRule { rate: 1, burst: 31_000, takes_ahead: true };
    let pools: Vec<Arc<PermitPool>> =
        nodes.iter().map(|node| node.agent.share_permits("limit", rule, 1 << 20)).collect();
    nodes.iter().for_each(|node| node.wait_connected(true));
    wait_until("three nodes", || match nodes[0].agent.state().nodes {
        3 => Ok(()),
        seen => Err(seen.to_string()),
    });
    let mut granted = 0;
    wait_until("the limit to be used up", || {
        granted += nodes.iter().zip(&pools).map(|(node, pool)| take_permits(node, pool, 1)).sum::<usize>();
        let state = nodes[0].agent.state();
        let taken: u64 = nodes.iter().map(|node| node.agent.state().permits_taken).sum();
        (taken == 32).then_some(()).ok_or_else(|| format!("{granted}, {state:?}"))
    });
    wait_until("all nodes to know it", || {
        let more = nodes.iter().zip(&pools).map(|(node, pool)| take_permits(node, pool, 1)).sum::<usize>();
        granted += more;
        if more == 0 { Ok(()) } else { Err(more.to_string()) }
    });
    let more: usize = nodes.iter().zip(&pools).map(|(node, pool)| take_permits(node, pool, 200)).sum();
    assert_eq!(more, 0, "no node has credit");
    assert!((32..=4 * 32).contains(&granted), "{granted}: the burst of 31 and one, and as many on credit a node");

    // Without the store, each node has its third.
    redis.signal("STOP");
    nodes.iter().for_each(|node| {
        let pool = node.agent.share_permits("other", rule, 1 << 20);
        node.agent.take_permit(&pool, b"key", now());
        node.wait_connected(false);
        assert_eq!(take_permits(node, &pool, 100), 11, "a burst of 10, and one");
    });
    redis.signal("CONT");
}

#[test]
fn sentinels_name_the_new_master() {
    if !has_redis() {
        return;
    }
    let folders = ["master", "replica", "sentinel"].map(|name| TestFolder::new(&format!("sentinel-{name}")));
    let ports = [free_port(), free_port(), free_port()];
    let [master_port, replica_port, sentinel_port] = ports.map(|port| port.to_string());
    let master = Redis::start(&folders[0].0, &["--bind", "127.0.0.1", "--port", &master_port]);
    let replicaof = format!("127.0.0.1 {master_port}");
    let _replica =
        Redis::start(&folders[1].0, &["--bind", "127.0.0.1", "--port", &replica_port, "--replicaof", &replicaof]);
    wait_until("the replica", || {
        let info = redis_call(&["-p", &replica_port, "info", "replication"]);
        info.contains("master_link_status:up").then_some(()).ok_or(info)
    });
    let file = folders[2].0.join("sentinel.conf");
    let text = format!(
        "port {sentinel_port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master_port} 1\n\
         sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    );
    std::fs::write(&file, text).expect("written");
    let sentinel =
        Command::new("redis-server").arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn().expect("a sentinel");
    let _sentinel = Redis(sentinel);
    wait_until("the sentinel to know the replica", || {
        let seen = redis_call(&["-p", &sentinel_port, "sentinel", "replicas", "main"]);
        seen.contains(&replica_port).then_some(()).ok_or(seen)
    });
    let address = format!("redis-sentinel://127.0.0.1:{sentinel_port}?master=main");
    let address = StoreAddress::parse(&address).expect("an address");
    let (a, b) = (TestNode::start(1, &address, |_| {}), TestNode::start(2, &address, |_| {}));
    a.set("x", Some("1"));
    b.wait_for(&[("x", "1")]);
    drop(master);
    a.wait_connected(false);
    a.set("y", Some("2"));
    b.wait_for(&[("x", "1"), ("y", "2")]);
    a.wait_connected(true);
}

#[test]
fn a_cluster_of_three_is_a_store() {
    if !has_redis() {
        return;
    }
    let folders: Vec<TestFolder> = (0..3).map(|number| TestFolder::new(&format!("cluster-{number}"))).collect();
    let ports: Vec<String> = (0..3).map(|_| free_port().to_string()).collect();
    let _nodes: Vec<Redis> = folders
        .iter()
        .zip(&ports)
        .map(|(folder, port)| {
            let bus = free_port().to_string();
            let arguments = ["--bind", "127.0.0.1", "--port", port, "--cluster-enabled", "yes", "--cluster-port", &bus];
            Redis::start(&folder.0, &arguments)
        })
        .collect();
    for port in &ports {
        wait_until("an answer", || match redis_call(&["-p", port, "ping"]).trim() {
            "PONG" => Ok(()),
            seen => Err(seen.to_owned()),
        });
    }
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(hosts.iter().map(String::as_str));
    create.push("--cluster-yes");
    let made = redis_call(&create);
    assert!(made.contains("All 16384 slots covered"), "{made}");
    wait_until("the cluster", || {
        let states: Vec<String> = ports.iter().map(|port| redis_call(&["-p", port, "cluster", "info"])).collect();
        states.iter().all(|state| state.contains("cluster_state:ok")).then_some(()).ok_or_else(|| states.concat())
    });
    let address = StoreAddress::parse(&format!("redis-cluster://{}", hosts.join(","))).expect("an address");
    let (a, b) = (TestNode::start(1, &address, |_| {}), TestNode::start(2, &address, |_| {}));
    a.set("x", Some("1"));
    b.set("y", Some("2"));
    a.wait_for(&[("x", "1"), ("y", "2")]);
    b.wait_for(&[("x", "1"), ("y", "2")]);
    let rule = PermitRule { rate: 1, burst: 2_000, takes_ahead: true };
    let pool = a.agent.share_permits("limit", rule, 1 << 20);
    a.wait_connected(true);
    let mut granted = 0;
    wait_until("permits", || {
        granted += take_permits(&a, &pool, 1);
        (a.agent.state().permits_taken == 3).then_some(()).ok_or_else(|| format!("{:?}", a.agent.state()))
    });
}
