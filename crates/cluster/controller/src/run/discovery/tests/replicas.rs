//! Containers of one service under load.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use testkit::Random;

use super::super::super::tests::load::backends::Backend;
use super::super::super::tests::load::{Load, LoadPermit};
use super::fake_engine::{FakeEngine, fake_container};
use super::{DiscoveryWorld, program};

const GROUP: &str = "docker_a.test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_that_come_and_go_lose_no_request() {
    let Some(program) = program() else { return };
    let backends: Vec<Backend> = (0..4).map(|_| Backend::start()).collect();
    let engine = FakeEngine::start();
    for (number, backend) in (1..).zip(&backends) {
        engine.run(fake_container(number, backend.port));
    }
    let world = DiscoveryWorld::start(program, &["--provider", "docker", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    let ports = |bits: u64| -> BTreeSet<u16> {
        let named = |(index, backend): (usize, &Backend)| (bits >> index & 1 == 1).then_some(backend.port);
        backends.iter().enumerate().filter_map(named).collect()
    };
    let mut current = ports(15);
    world.group_has(GROUP, &current).await;
    let generation = world.generation();
    let permitted = Arc::new(LoadPermit::default());
    permitted.push(current.clone());
    let load = Load::start(world.port, &permitted);
    let mut random = Random::new(7);
    for _ in 0..40 {
        let next = ports(1 + random.below(15_u64));
        permitted.push(&current | &next);
        for (number, backend) in (1..).zip(&backends) {
            if next.contains(&backend.port) && !current.contains(&backend.port) {
                engine.run(fake_container(number, backend.port));
            }
        }
        world.group_has(GROUP, &(&current | &next)).await;
        let stopping: Vec<u16> =
            (1..).zip(&backends).filter(|(_, one)| !next.contains(&one.port)).map(|(number, _)| number).collect();
        // The stop signal is enough: the container still runs.
        stopping.iter().for_each(|number| engine.signal(*number, 3));
        world.group_has(GROUP, &next).await;
        permitted.push(next.clone());
        stopping.iter().for_each(|number| engine.die(*number));
        current = next;
        assert!(!load.has_failed(), "{:?}\n{}", load.end(), world.server.log());
    }
    let served = load.end();
    assert!(served.as_ref().is_ok_and(|count| *count > 40), "{served:?}\n{}", world.server.log());
    assert_eq!(world.generation(), generation, "endpoints change without a new configuration");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_container_keeps_its_host_until_it_is_removed() {
    let Some(program) = program() else { return };
    let (backend, other) = (Backend::start(), Backend::start());
    let engine = FakeEngine::start();
    engine.run(fake_container(1, backend.port));
    let mut second = fake_container(2, other.port);
    second["Config"]["Labels"] = json!({"tidegate.host": "b.test", "tidegate.port": other.port.to_string()});
    engine.run(second);
    let world = DiscoveryWorld::start(program, &["--provider", "docker", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    world.answers("b.test", 200).await;
    engine.die(1);
    world.answers("a.test", 503).await;
    engine.remove(1);
    world.answers("a.test", 404).await;
    assert_eq!(world.get("b.test").unwrap(), (200, other.port.to_string()));
    // A health check that fails.
    engine.change(2, "/State", json!({"Status": "running", "Running": true, "Health": {"Status": "unhealthy"}}));
    engine.event(&format!("{:064x}", 2), "health_status: unhealthy", json!({}));
    world.answers("b.test", 503).await;
    engine.change(2, "/State/Health/Status", json!("healthy"));
    engine.event(&format!("{:064x}", 2), "health_status: healthy", json!({}));
    world.answers("b.test", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_signals_and_survived_stops_take_no_container_out() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let engine = FakeEngine::start();
    let mut reloads = fake_container(1, backend.port);
    reloads["Config"]["StopTimeout"] = json!(0);
    engine.run(reloads);
    let world = DiscoveryWorld::start(program, &["--provider", "docker", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    engine.signal(1, 1);
    // The next event arrives behind it.
    let mut second = fake_container(2, backend.port);
    second["Config"]["Labels"]["tidegate.host"] = json!("b.test");
    engine.run(second);
    world.answers("b.test", 200).await;
    assert_eq!(world.get("a.test").unwrap().0, 200);
    engine.signal(1, 3);
    world.answers("a.test", 503).await;
    // It still runs behind its stop timeout.
    world.answers("a.test", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_container_is_back_before_its_stop_timeout() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let engine = FakeEngine::start();
    let mut slow = fake_container(1, backend.port);
    slow["Config"]["StopTimeout"] = json!(3_600);
    engine.run(slow);
    let world = DiscoveryWorld::start(program, &["--provider", "docker", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    engine.signal(1, 3);
    world.answers("a.test", 503).await;
    // The container runs again when its description is read.
    for action in ["die", "stop", "start", "restart"] {
        engine.event(&format!("{:064x}", 1), action, json!({}));
    }
    world.answers("a.test", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snippet_that_the_server_refuses_takes_its_own_container_out_only() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let engine = FakeEngine::start();
    engine.run(fake_container(1, backend.port));
    for (number, host) in [(2, "b.test"), (3, "c.test")] {
        let mut bad = fake_container(number, backend.port);
        bad["Config"]["Labels"] = json!({"tidegate.host": host, "tidegate.port": backend.port.to_string()});
        if number == 2 {
            bad["Config"]["Labels"]["tidegate.snippet"] = json!("proxy_read_timeout soon;");
        }
        engine.run(bad);
    }
    let world =
        DiscoveryWorld::start(program, &["--provider", "docker", "--allow-snippets", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    world.answers("c.test", 200).await;
    assert_eq!(world.get("b.test").unwrap().0, 404);
}
