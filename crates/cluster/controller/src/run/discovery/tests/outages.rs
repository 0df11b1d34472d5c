//! Engines that go away.

use std::collections::BTreeSet;

use super::super::super::probes::SourceState as _;
use super::super::super::tests::load::backends::Backend;
use super::fake_engine::{FakeEngine, fake_container};
use super::{DiscoveryWorld, program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_goes_away_changes_nothing_and_is_listed_on_return() {
    let Some(program) = program() else { return };
    let backends = [Backend::start(), Backend::start()];
    let engine = FakeEngine::start();
    engine.run(fake_container(1, backends[0].port));
    let world = DiscoveryWorld::start(program, &["--provider", "docker", "--engine", &engine.address()]);
    world.answers("a.test", 200).await;
    assert_eq!(world.inventory.outage(), None);
    engine.outage.begin();
    world.until("the outage is noted", || world.inventory.outage().is_some()).await;
    assert_eq!(world.get("a.test").unwrap(), (200, backends[0].port.to_string()));
    let text = world.parts.metrics.text(&*world.inventory);
    assert!(text.contains("tidegate_controller_source_connected{provider=\"docker\"} 0\n"), "{text}");
    // Events of this time are lost.
    engine.remove(1);
    engine.run(fake_container(2, backends[1].port));
    assert_eq!(world.get("a.test").unwrap(), (200, backends[0].port.to_string()));
    let opened = engine.opened_streams();
    engine.outage.end();
    world.group_has("docker_a.test", &BTreeSet::from([backends[1].port])).await;
    assert_eq!(world.inventory.outage(), None);
    assert!(engine.opened_streams() > opened);
    assert_eq!(world.get("a.test").unwrap(), (200, backends[1].port.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_waits_for_the_first_list() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let engine = FakeEngine::start();
    engine.outage.begin();
    engine.run(fake_container(1, backend.port));
    let world = DiscoveryWorld::start(program, &["--provider", "podman", "--engine", &engine.address()]);
    world.until("the outage is noted", || world.inventory.missing().is_some_and(|words| words.contains('('))).await;
    assert!(world.get("a.test").is_err(), "nothing listens");
    engine.outage.end();
    world.answers("a.test", 200).await;
    assert_eq!(world.inventory.missing(), None);
}
