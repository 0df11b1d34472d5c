//! Services of Consul.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::super::super::probes::SourceState as _;
use super::super::super::tests::load::backends::Backend;
use super::super::super::tests::load::{Load, LoadPermit};
use super::fake_consul::{FakeConsul, TOKEN, fake_instance};
use super::fake_http::{TempFolder, socket_path};
use super::{DiscoveryWorld, program};

const GROUP: &str = "consul_a.test";

fn start(program: std::path::PathBuf, consul: &FakeConsul) -> (DiscoveryWorld, TempFolder) {
    let (path, folder) = socket_path();
    let token = path.with_file_name("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let (address, token) = (format!("http://127.0.0.1:{}", consul.port), token.display().to_string());
    let words =
        ["--provider", "consul", "--consul", &address, "--consul-token-file", &token, "--consul-datacenter", "dc1"];
    (DiscoveryWorld::start(program, &words), folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_come_and_go_lose_no_request() {
    let Some(program) = program() else { return };
    let backends: Vec<Backend> = (0..3).map(|_| Backend::start()).collect();
    let consul = FakeConsul::start().await;
    let passing = |bits: usize| {
        let status = |index: usize| if bits >> index & 1 == 1 { "passing" } else { "critical" };
        let all = backends.iter().enumerate();
        all.map(|(index, backend)| fake_instance(backend.port, "a.test", status(index))).collect::<Vec<_>>()
    };
    let ports = |bits: usize| -> BTreeSet<u16> {
        let all = backends.iter().enumerate();
        all.filter_map(|(index, backend)| (bits >> index & 1 == 1).then_some(backend.port)).collect()
    };
    consul.set("web", passing(7));
    consul.set("unrelated", vec![json!({"Service": {"Service": "unrelated", "Tags": ["x"]}})]);
    let (world, _folder) = start(program, &consul);
    world.answers("a.test", 200).await;
    world.group_has(GROUP, &ports(7)).await;
    let permitted = Arc::new(LoadPermit::default());
    permitted.push(ports(7));
    let load = Load::start(world.port, &permitted);
    let mut current = 7;
    for next in [3, 6, 4, 5, 1, 7, 2] {
        permitted.push(ports(current | next));
        consul.set("web", passing(current | next));
        world.group_has(GROUP, &ports(current | next)).await;
        consul.set("web", passing(next));
        world.group_has(GROUP, &ports(next)).await;
        permitted.push(ports(next));
        current = next;
        assert!(!load.has_failed(), "{:?}\n{}", load.end(), world.server.log());
    }
    let served = load.end();
    assert!(served.as_ref().is_ok_and(|count| *count > 7), "{served:?}\n{}", world.server.log());
    // A service without a passing instance, then none at all.
    consul.set("web", passing(0));
    world.answers("a.test", 503).await;
    consul.set("web", Vec::new());
    world.answers("a.test", 404).await;
    let requests = consul.requests();
    assert!(requests.iter().all(|request| request.contains("&dc=dc1")), "{requests:?}");
    assert!(!requests.iter().any(|request| request.contains("unrelated")), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_and_new_indices_change_nothing() {
    let Some(program) = program() else { return };
    let backends = [Backend::start(), Backend::start()];
    let consul = FakeConsul::start().await;
    consul.set("web", vec![fake_instance(backends[0].port, "a.test", "passing")]);
    let (world, _folder) = start(program, &consul);
    world.answers("a.test", 200).await;
    consul.outage.begin();
    world.until("the outage is noted", || world.inventory.outage().is_some()).await;
    assert_eq!(world.get("a.test").unwrap(), (200, backends[0].port.to_string()));
    consul.set("web", vec![fake_instance(backends[1].port, "a.test", "passing")]);
    consul.outage.end();
    world.group_has(GROUP, &BTreeSet::from([backends[1].port])).await;
    world.until("Consul is back", || world.inventory.outage().is_none()).await;
    consul.reset_index();
    consul.set("web", vec![fake_instance(backends[0].port, "a.test", "passing")]);
    world.group_has(GROUP, &BTreeSet::from([backends[0].port])).await;
}
