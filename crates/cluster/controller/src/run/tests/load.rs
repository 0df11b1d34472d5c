//! The server itself between a controller and clients: changes under load lose nothing, and a server that is killed at any
//! step of a change comes back with its configuration.
//!
//! `TIDEGATE_CLUSTER_CHANGES=1000` makes more changes.

pub mod backends;
pub mod process;
mod scale;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser as _;
use serde_json::{Value, json};
use testkit::Random;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use self::backends::{Backend, KeepaliveClient};
use self::process::{STEPS, ServerProcess, server_program};
use super::super::ControllerParts;
use super::super::metrics::Metrics;
use super::cluster::Cluster;
use super::{gateway_class, route, service};
use crate::arguments::{ControllerArguments, ControllerCommand};

/// A wait that takes longer has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);
const GROUP: &str = "shop_api_80";

/// An API server, a controller, and a server process.
struct LoadWorld {
    cluster: Cluster,
    server: ServerProcess,
    metrics: Arc<Metrics>,
    _tasks: JoinSet<()>,
    _leader: channel::Sender<bool>,
    port: u16,
}

impl LoadWorld {
    /// Starts all of them, with a route of the host `a.test` to these backends, and with more objects.
    async fn start(program: std::path::PathBuf, backends: &[&Backend], more: Vec<Value>) -> LoadWorld {
        let cluster = Cluster::start().await;
        let port = testkit::free_port();
        let server = ServerProcess::start(program);
        cluster.apply(gateway_class());
        cluster.apply(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "public", "namespace": "shop"},
            "spec": {"gatewayClassName": "tidegate", "addresses": [{"type": "IPAddress", "value": "127.0.0.1"}],
                "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}}));
        cluster.apply(service("api"));
        for backend in backends {
            cluster.apply(slice(backend));
        }
        cluster.apply(route("a", "a.test", "api"));
        more.into_iter().for_each(|object| cluster.apply(object));
        let api = format!("unix:{}", server.socket().display());
        let words = ["tidegate-controller", "run", "--no-status", "--api", &api];
        let Ok(ControllerArguments { command: ControllerCommand::Run(options) }) =
            ControllerArguments::try_parse_from(words)
        else {
            panic!("arguments")
        };
        let parts = ControllerParts::new(&options, cluster.client(), "tidegate".into()).unwrap();
        let (leader, end) = channel::channel(true);
        let (metrics, (tasks, _)) = (parts.metrics.clone(), parts.spawn(end));
        LoadWorld { cluster, server, metrics, _tasks: tasks, _leader: leader, port }
    }

    /// Waits until a request of a host has an answer of a backend.
    async fn serves(&self, host: &str) {
        self.until(host, || KeepaliveClient::new(self.port).get(host).is_ok_and(|answer| answer.status == 200)).await;
    }

    /// Waits until the server's API lists these backends.
    async fn has_servers(&self, backends: &BTreeSet<u16>) {
        let expected = backends.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        self.group_has(GROUP, &expected).await;
    }

    /// Waits until the server's API lists these servers of a group.
    async fn group_has(&self, group: &str, expected: &BTreeSet<String>) {
        let path = format!("/api/9/http/upstreams/{group}/servers");
        self.until(&format!("{expected:?}"), || {
            let Some(Value::Array(all)) = self.server.get(&path) else { return false };
            let server = |one: &Value| one["server"].as_str().map(str::to_owned);
            all.iter().filter_map(server).collect::<BTreeSet<String>>() == *expected
        })
        .await;
    }

    async fn until(&self, words: &str, mut property: impl FnMut() -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !property() {
            assert!(Instant::now() < end, "it never came to this: {words}\n{}", self.server.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A slice for each backend: they differ by their port.
fn slice(backend: &Backend) -> Value {
    let port = backend.port;
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("api-{port}"), "namespace": "shop", "labels": {"kubernetes.io/service-name": "api"}},
        "ports": [{"name": "web", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]})
}

/// Sets of backends that answers may come from, the newest last.
#[derive(Default)]
pub struct LoadPermit {
    sets: Mutex<Vec<BTreeSet<u16>>>,
    count: AtomicUsize,
}

impl LoadPermit {
    pub fn push(&self, set: BTreeSet<u16>) {
        let mut sets = self.sets.lock().unwrap();
        sets.push(set);
        self.count.store(sets.len(), Ordering::SeqCst);
    }

    /// Returns the number of the newest set.
    fn newest(&self) -> usize {
        self.count.load(Ordering::SeqCst) - 1
    }

    /// Tells whether a backend was permitted at any time since a set was the newest one.
    fn has_since(&self, first: usize, backend: u16) -> bool {
        self.sets.lock().unwrap()[first..].iter().any(|set| set.contains(&backend))
    }
}

pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Load {
    /// Starts clients, half of which use a new connection for each request.
    pub fn start(port: u16, permitted: &Arc<LoadPermit>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..4)
            .map(|number| {
                let (stop, permitted) = (stop.clone(), permitted.clone());
                std::thread::spawn(move || send(port, number % 2 == 0, &stop, &permitted))
            })
            .collect();
        Load { stop, threads }
    }

    /// Returns the number of answered requests.
    pub fn end(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }

    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

fn send(port: u16, keeps: bool, stop: &AtomicBool, permitted: &LoadPermit) -> Result<u64, String> {
    let (mut client, mut count) = (KeepaliveClient::new(port), 0);
    while !stop.load(Ordering::SeqCst) {
        if !keeps {
            client = KeepaliveClient::new(port);
        }
        let first = permitted.newest();
        let answer = client.get("a.test")?;
        let backend = answer.body.parse().map_err(|_| format!("{answer:?}"))?;
        if answer.status != 200 || !permitted.has_since(first, backend) {
            return Err(format!("{answer:?} is not permitted since {first}"));
        }
        count += 1;
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_load_lose_nothing() {
    let Some(program) = server_program() else {
        return testkit::missing_means("the program tidegate is not built beside this test");
    };
    let changes = std::env::var("TIDEGATE_CLUSTER_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_u32);
    let backends: Vec<Backend> = (0..4).map(|_| Backend::start()).collect();
    let ports = |bits: u64| -> BTreeSet<u16> {
        let named = |(index, backend): (usize, &Backend)| (bits >> index & 1 == 1).then_some(backend.port);
        backends.iter().enumerate().filter_map(named).collect()
    };
    let world = LoadWorld::start(program, &backends.iter().collect::<Vec<_>>(), Vec::new()).await;
    world.serves("a.test").await;
    let mut current = ports(15);
    world.has_servers(&current).await;
    let permitted = Arc::new(LoadPermit::default());
    permitted.push(current.clone());
    let load = Load::start(world.port, &permitted);
    let (mut random, mut extra) = (Random::new(5), false);
    for number in 0..changes {
        if random.chance(25) {
            // A route comes or goes, and another one changes: both are in force once the new header is there.
            extra = !extra;
            match extra {
                true => world.cluster.apply(route("extra", "extra.test", "api")),
                false => world.cluster.delete("HTTPRoute", "shop", "extra"),
            }
            let mut changed = route("b", "b.test", "api");
            let header = json!({"name": "X-Change", "value": number.to_string()});
            changed["spec"]["rules"][0]["filters"] =
                json!([{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [header]}}]);
            world.cluster.apply(changed);
            let mark = format!("x-change: {number}");
            world
                .until(&mark, || {
                    KeepaliveClient::new(world.port)
                        .get("b.test")
                        .is_ok_and(|answer| answer.head.to_lowercase().contains(&mark))
                })
                .await;
            let status = KeepaliveClient::new(world.port).get("extra.test").unwrap().status;
            assert_eq!(status, if extra { 200 } else { 404 });
        } else {
            let next = ports(1 + random.below(15_u64));
            permitted.push(&current | &next);
            // As a rollout has it: there is always an endpoint that is ready.
            backends.iter().filter(|one| next.contains(&one.port)).for_each(|one| world.cluster.apply(slice(one)));
            for port in current.difference(&next) {
                world.cluster.delete("EndpointSlice", "shop", &format!("api-{port}"));
            }
            world.has_servers(&next).await;
            permitted.push(next.clone());
            current = next;
        }
        assert!(!load.has_failed(), "{:?}\n{}", load.end(), world.server.log());
    }
    let served = load.end();
    assert!(served.as_ref().is_ok_and(|count| *count > u64::from(changes)), "{served:?}\n{}", world.server.log());
    println!("{changes} changes, {} requests", served.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_at_any_step_of_a_change_comes_back() {
    let Some(program) = server_program() else {
        return testkit::missing_means("the program tidegate is not built beside this test");
    };
    if !cfg!(debug_assertions) {
        return testkit::missing_means("the server stops at steps in debug builds only");
    }
    let backends = [Backend::start(), Backend::start()];
    let mut world = LoadWorld::start(program, &[&backends[0]], Vec::new()).await;
    world.serves("a.test").await;
    for (number, step) in STEPS.iter().enumerate() {
        world.server.kill();
        world.server.restart(Some(step));
        world.serves("a.test").await;
        let host = format!("b{number}.test");
        world.cluster.apply(route("b", &host, "api"));
        world.until(step, || world.server.is_stopped()).await;
        // Both change while the server hangs in the middle of the first change.
        let (goes, comes) = (&backends[number % 2], &backends[(number + 1) % 2]);
        world.cluster.apply(slice(comes));
        world.cluster.delete("EndpointSlice", "shop", &format!("api-{}", goes.port));
        world.server.kill();
        world.server.restart(None);
        // From the disk, without the controller.
        world.serves("a.test").await;
        world.serves(&host).await;
        world.has_servers(&BTreeSet::from([comes.port])).await;
        assert_eq!(KeepaliveClient::new(world.port).get(&host).unwrap().body, comes.port.to_string(), "{step}");
    }
}
