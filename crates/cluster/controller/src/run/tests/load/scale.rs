//! Durations from an event of the cluster to its effect in the server, and the memory of both, with many routes and endpoints.
//!
//! ```text
//! cargo build --release -p tidegate
//! TIDEGATE_CLUSTER_ROUTES=5000 cargo test --release -p tidegate-controller many_routes -- --nocapture
//! ```
//!
//! Durations depend on the other programs of the machine, CPU times do not. This process contains the API server and the clients of the
//! test, which look every millisecond.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{route, service};
use super::LoadWorld;
use super::backends::Backend;
use super::process::server_program;

const ENDPOINTS: usize = 4;
const ENDPOINT_CHANGES: usize = 20;
const ROUTE_CHANGES: usize = 5;

fn addresses(number: usize, first: usize) -> Vec<String> {
    (first..first + ENDPOINTS).map(|last| format!("10.{}.{}.{}", 1 + number / 250, number % 250, last + 1)).collect()
}

fn endpoints(number: usize, addresses: &[String]) -> Value {
    let all: Vec<Value> =
        addresses.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("s{number}-1"), "namespace": "shop",
            "labels": {"kubernetes.io/service-name": format!("s{number}")}},
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}], "endpoints": all})
}

/// Half and maximum of durations, in ms.
fn summary(mut durations: Vec<Duration>) -> String {
    durations.sort();
    let millis = |duration: Option<&Duration>| duration.map_or(0.0, |duration| duration.as_secs_f64() * 1_000.0);
    format!("median {:.1} ms, maximum {:.1} ms", millis(durations.get(durations.len() / 2)), millis(durations.last()))
}

/// CPU time of a process, with the children that it has waited for, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or("").split(' ').skip(11).take(4);
    fields.filter_map(|number| number.parse::<u64>().ok()).sum()
}

/// CPU times, in ms for each of a number of changes.
struct CpuTimes {
    server: Vec<u32>,
    begun: Vec<u64>,
    translations: (u64, Duration),
}

impl CpuTimes {
    fn begin(world: &LoadWorld) -> CpuTimes {
        let server = world.server.processes();
        let all = server.iter().copied().chain([std::process::id()]);
        CpuTimes { begun: all.map(ticks).collect(), server, translations: world.metrics.translations_and_time() }
    }

    fn per_change(self, world: &LoadWorld, changes: usize) -> String {
        let all = self.server.into_iter().chain([std::process::id()]);
        let spent = all.zip(self.begun).map(|(pid, begun)| 10.0 * (ticks(pid) - begun) as f64 / changes as f64);
        let spent: Vec<String> = spent.map(|ms| format!("{ms:.1}")).collect();
        let (count, time) = world.metrics.translations_and_time();
        let (count, time) = (count - self.translations.0, time - self.translations.1);
        let translation = time.as_secs_f64() * 1_000.0 / count.max(1) as f64;
        format!(
            "CPU ms a change (server's processes, this one): {}; {translation:.1} ms a translation",
            spent.join(", ")
        )
    }
}

fn memory(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let lines = status.lines().filter(|line| ["VmRSS", "VmHWM"].iter().any(|name| line.starts_with(name)));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_routes_and_endpoints_are_served() {
    let Some(program) = server_program() else {
        return testkit::missing_means("the program tidegate is not built beside this test");
    };
    let routes = std::env::var("TIDEGATE_CLUSTER_ROUTES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_usize);
    let mut objects = Vec::new();
    for number in 0..routes {
        let name = format!("s{number}");
        objects.extend([
            service(&name),
            endpoints(number, &addresses(number, 0)),
            route(&format!("r{number}"), &format!("r{number}.test"), &name),
        ]);
    }
    let backend = Backend::start();
    let began = Instant::now();
    let world = LoadWorld::start(program, &[&backend], objects).await;
    world.serves("a.test").await;
    println!("{routes} routes, {} endpoints: served after {:.1?}", routes * ENDPOINTS, began.elapsed());
    let mut durations = Vec::new();
    let mut cpu = None;
    // The first one waits for the end of the first push.
    for change in 0..=ENDPOINT_CHANGES {
        if change == 1 {
            durations.clear();
            cpu = Some(CpuTimes::begin(&world));
        }
        let number = (change * 7919) % routes;
        let changed = addresses(number, 1 + change);
        let expected: BTreeSet<String> = changed.iter().map(|address| format!("{address}:8080")).collect();
        let began = Instant::now();
        world.cluster.apply(endpoints(number, &changed));
        world.group_has(&format!("shop_s{number}_80"), &expected).await;
        durations.push(began.elapsed());
    }
    println!("a changed endpoint is in force: {}", summary(durations));
    println!("{}", cpu.unwrap().per_change(&world, ENDPOINT_CHANGES));
    let mut durations = Vec::new();
    let cpu = CpuTimes::begin(&world);
    for change in 0..ROUTE_CHANGES {
        let host = format!("new{change}.test");
        let began = Instant::now();
        world.cluster.apply(route("a2", &host, "api"));
        world.serves(&host).await;
        durations.push(began.elapsed());
    }
    println!("a changed route is in force: {}", summary(durations));
    println!("{}", cpu.per_change(&world, ROUTE_CHANGES));
    for pid in world.server.processes() {
        println!("server, process {pid}: {}", memory(pid));
    }
    println!("controller and API server: {}", memory(std::process::id()));
}
