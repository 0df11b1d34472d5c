//! The controller between an API server and a server, both in this process. Time is paused: timers cost nothing.

mod certificates;
mod cluster;
mod increments;
mod ingresses;
mod isolation;
pub mod load;
mod provisions;
mod reviews;
mod server;
mod streams;

use std::time::Duration;

use clap::Parser as _;
use cluster_objects::ObjectSet;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::cluster::Cluster;
use self::server::{Server, groups_of};
use super::ControllerParts;
use super::lease::Election;
use super::push::PushResult;
use super::store::Snapshot;
use super::translate::{DesiredState, translate_snapshot};
use crate::arguments::{ControllerArguments, ControllerCommand};

/// Waits until a property holds; a note follows each change.
async fn until(words: &str, changed: &Notify, property: impl Fn() -> bool) {
    let wait = async {
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if property() {
                return;
            }
            notified.await;
        }
    };
    assert!(timeout(Duration::from_secs(3_600), wait).await.is_ok(), "it never came to this: {words}");
}

fn gateway_class() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "tidegate"},
        "spec": {"controllerName": cluster_gateway::CONTROLLER_NAME}})
}

fn gateway() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "public", "namespace": "shop"},
        "spec": {"gatewayClassName": "tidegate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
}

fn route(name: &str, host: &str, service: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "public"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}], "clusterIP": "10.96.0.9"}})
}

fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> =
        addresses.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
}

/// A controller; all of its tasks end with it.
struct Controller {
    parts: ControllerParts,
    outcomes: channel::Receiver<Option<PushResult>>,
    tasks: JoinSet<()>,
    _leader: channel::Sender<bool>,
}

impl Controller {
    /// Ends all tasks, as SIGTERM does.
    async fn end(mut self) -> ControllerParts {
        self.tasks.shutdown().await;
        self.parts
    }
}

/// A cluster and a server.
struct ClusterWorld {
    cluster: Cluster,
    server: Server,
}

impl ClusterWorld {
    async fn start() -> ClusterWorld {
        let (cluster, server) = (Cluster::start().await, Server::start());
        for object in
            [gateway_class(), gateway(), service("api"), slice("api", &["10.0.0.1"]), route("a", "a.test", "api")]
        {
            cluster.apply(object);
        }
        ClusterWorld { cluster, server }
    }

    fn parts(&self, more: &[&str]) -> ControllerParts {
        let api = format!("unix:{}", self.server.socket().display());
        let words = [&["tidegate-controller", "run", "--api", &api], more].concat();
        let Ok(ControllerArguments { command: ControllerCommand::Run(options) }) =
            ControllerArguments::try_parse_from(words)
        else {
            panic!("arguments")
        };
        ControllerParts::new(&options, self.cluster.client(), "tidegate".into()).unwrap()
    }

    /// Starts a controller that is the leader.
    fn controller(&self, more: &[&str]) -> Controller {
        let parts = self.parts(more);
        let (leader, end) = channel::channel(true);
        let (tasks, outcomes) = parts.spawn(end);
        Controller { parts, outcomes, tasks, _leader: leader }
    }

    /// Returns the translation of the cluster's objects, without any watch.
    fn expected(&self) -> DesiredState {
        let mut set = ObjectSet::default();
        let state = self.cluster.state();
        for object in state.objects.values() {
            let mut object = object.clone();
            // A watch has no resource version in the set.
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            let word = |name: &str| object[name].as_str().unwrap_or("").to_owned();
            let (version, kind) = (word("apiVersion"), word("kind"));
            if let Some(kind) = cluster_objects::Kind::of(&version, &kind)
                && let Ok(object) = cluster_objects::parse_object(kind, &version, object)
            {
                set.upsert(object).unwrap();
            }
        }
        drop(state);
        translate_snapshot(Snapshot { set, ..Snapshot::default() }, &self.parts(&[]).settings)
    }

    /// Waits until the server serves the cluster's objects.
    async fn settle(&self) {
        let expected = self.expected();
        let groups = groups_of(&expected.main_text());
        self.server
            .until("the server serves all objects", |state| {
                let mut live = state.groups.clone();
                live.values_mut().for_each(|servers| servers.sort());
                expected.text.remove_servers(&state.main) == expected.text.skeleton() && live == groups
            })
            .await;
    }

    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.server.state().changes)
    }
}

const POST: &str = "POST /api/tidegate/1/config";
const PUT: &str = "PUT /api/tidegate/1/upstreams";

#[tokio::test(start_paused = true)]
async fn nothing_is_pushed_before_all_lists_are_complete() {
    let world = ClusterWorld::start().await;
    world.cluster.state().broken.insert("secrets".into());
    let controller = world.controller(&[]);
    let store = controller.parts.store.clone();
    world.cluster.until("the other lists", |_| store.missing() == [cluster_objects::Kind::Secret]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.changes(), [""; 0]);
    world.cluster.state().broken.clear();
    world.settle().await;
    assert_eq!(world.changes()[0], POST);
}

#[tokio::test(start_paused = true)]
async fn endpoints_change_servers_and_nothing_else() {
    let world = ClusterWorld::start().await;
    let _controller = world.controller(&[]);
    world.settle().await;
    world.server.until("the first push ends", |state| state.changes.last().is_some_and(|change| change == PUT)).await;
    world.changes();
    for addresses in [&["10.0.0.1", "10.0.0.2"][..], &["10.0.0.3"], &[]] {
        world.cluster.apply(slice("api", addresses));
        world.settle().await;
        assert_eq!(world.changes(), [PUT]);
    }
    world.cluster.apply(route("b", "b.test", "api"));
    world.settle().await;
    // The API has changed the group since the last configuration: the servers are sent again.
    world.server.until("servers follow", |state| state.changes == [POST, PUT]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_leaves_the_old_one_and_is_reported() {
    let world = ClusterWorld::start().await;
    let controller = world.controller(&[]);
    world.settle().await;
    let programmed = |state: &cluster::ClusterState| {
        let conditions = state.objects["gateways/shop/public"]["status"]["conditions"].as_array().cloned();
        let found = conditions.into_iter().flatten().find(|one| one["type"] == "Programmed");
        found.map(|one| (one["status"].as_str().unwrap().to_owned(), one["message"].as_str().unwrap().to_owned()))
    };
    world.cluster.until("Programmed", |state| programmed(state).is_some_and(|(status, _)| status == "True")).await;
    let old = world.server.state().main.clone();
    let first = world.changes().iter().filter(|change| *change == POST).count();
    assert!(first > 0);
    world.server.state().refuses = Some("bad.test".into());
    world.cluster.apply(route("bad", "bad.test", "api"));
    let is_reported = |state: &cluster::ClusterState| {
        programmed(state).is_some_and(|(status, words)| status == "False" && words.contains("no such thing"))
    };
    world.cluster.until("not Programmed", is_reported).await;
    let is_event = |event: &Value| event["type"] == "Warning" && event["reason"] == "ConfigurationRefused";
    world.cluster.until("an event", |state| state.events.iter().any(is_event)).await;
    assert_eq!(world.server.state().main, old);
    // Endpoints of groups that the old configuration has go on changing.
    let has =
        |servers: &'static [&'static str]| move |state: &server::State| state.groups["http/shop_api_80"] == servers;
    world.cluster.apply(slice("api", &["10.0.0.5", "10.0.0.6"]));
    world.server.until("the new servers", has(&["10.0.0.5:8080", "10.0.0.6:8080"])).await;
    world.cluster.apply(slice("api", &["10.0.0.7"]));
    world.server.until("the next ones", has(&["10.0.0.7:8080"])).await;
    assert_eq!(world.server.state().changes.iter().filter(|change| *change == POST).count(), 1, "the refused one once");
    let posts = |world: &ClusterWorld| world.server.state().changes.iter().filter(|change| *change == POST).count();
    let sent = posts(&world);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(posts(&world), sent, "a refused text is not sent again");
    world.cluster.delete("HTTPRoute", "shop", "bad");
    world
        .cluster
        .until("Programmed again", |state| programmed(state).is_some_and(|(status, _)| status == "True"))
        .await;
    world.settle().await;
    assert!(
        controller
            .parts
            .metrics
            .text(&*controller.parts.store)
            .contains("\ntidegate_controller_pushes_refused_total 1\n")
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_process_has_is_waited_for() {
    let world = ClusterWorld::start().await;
    let controller = world.controller(&[]);
    world.settle().await;
    let old = world.server.state().main.clone();
    world.server.state().is_occupied = true;
    world.cluster.apply(route("b", "b.test", "api"));
    let is_event = |event: &Value| event["note"].as_str().is_some_and(|note| note.contains("words"));
    world.cluster.until("an event", |state| state.events.iter().any(is_event)).await;
    // Endpoints of groups that the old configuration has go on changing.
    world.cluster.apply(slice("api", &["10.0.0.7"]));
    let has = |state: &server::State| state.groups["http/shop_api_80"] == ["10.0.0.7:8080"];
    world.server.until("the new server", has).await;
    assert_eq!(world.server.state().main, old);
    world.changes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let attempts = world.changes().iter().filter(|change| *change == POST).count();
    assert!((20..=50).contains(&attempts), "{attempts} attempts, with pauses of up to 30 s");
    world.server.state().is_occupied = false;
    world.server.until("the configuration", |state| state.main.contains("b.test")).await;
    world.settle().await;
    let text = controller.parts.metrics.text(&*controller.parts.store);
    assert!(text.contains("\ntidegate_controller_pushes_refused_total 0\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_begins_anew_sends_no_configuration() {
    let world = ClusterWorld::start().await;
    let first = world.controller(&[]);
    world.settle().await;
    drop(first);
    world.cluster.apply(slice("api", &["10.0.0.8"]));
    world.changes();
    let _second = world.controller(&[]);
    world.settle().await;
    assert_eq!(world.changes(), [PUT]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_begins_anew_gets_its_servers_again() {
    let world = ClusterWorld::start().await;
    let _controller = world.controller(&[]);
    world.settle().await;
    world.cluster.apply(slice("api", &["10.0.0.8"]));
    world.settle().await;
    world.server.until("the push ends", |state| state.changes.len() >= 2).await;
    world.changes();
    world.server.restart();
    assert_eq!(world.server.state().groups["http/shop_api_80"], ["10.0.0.1:8080"], "as the file has it");
    world.settle().await;
    assert_eq!(world.changes(), [PUT]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_is_waited_for() {
    let world = ClusterWorld::start().await;
    world.server.state().is_down = true;
    let controller = world.controller(&[]);
    let metrics = controller.parts.metrics.clone();
    while metrics.pushes_failed.load(std::sync::atomic::Ordering::Relaxed) < 20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.server.state().is_down = false;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_gone_for_ten_minutes_changes_nothing() {
    let world = ClusterWorld::start().await;
    let controller = world.controller(&[]);
    world.settle().await;
    world.server.until("the push ends", |state| state.changes.last().is_some_and(|change| change == PUT)).await;
    world.changes();
    world.cluster.set_down(true);
    let end = tokio::time::Instant::now() + Duration::from_secs(600);
    tokio::time::sleep_until(end).await;
    assert_eq!(world.changes(), [""; 0]);
    assert!(controller.parts.metrics.is_ready.load(std::sync::atomic::Ordering::Relaxed));
    world.cluster.set_down(false);
    world.cluster.apply(route("b", "b.test", "api"));
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_its_definition_appears() {
    let world = ClusterWorld::start().await;
    world.cluster.state().absent.extend(["listenersets".to_owned(), "tcproutes".to_owned()]);
    let controller = world.controller(&[]);
    world.settle().await;
    let tcp = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute",
        "metadata": {"name": "t", "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "public"}], "rules": [{"backendRefs": [{"name": "api", "port": 80}]}]}});
    world.cluster.apply(tcp);
    world.cluster.state().absent.clear();
    let is_there = || controller.parts.store.counts().contains(&(cluster_objects::Kind::TcpRoute, 1));
    world.cluster.until("the route is read", |_| is_there()).await;
}

/// Both are killed after each number of requests of the server's API, with and without a response.
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_killed_at_any_step_is_followed_by_one_that_ends_it() {
    for unanswered in [0, 1, 2] {
        for steps in 0..6 {
            let world = ClusterWorld::start().await;
            world.server.state().unanswered = unanswered;
            let first = world.controller(&[]);
            world.cluster.apply(route("b", "b.test", "api"));
            // As far as it comes in this number of turns of the loop.
            let (loads, mut turns) = (world.server.state().loads, 0);
            while turns < 40 * steps && world.server.state().loads <= loads + 1 {
                tokio::task::yield_now().await;
                turns += 1;
            }
            drop(first);
            world.server.restart();
            world.cluster.apply(slice("api", &["10.0.0.4", "10.0.0.5"]));
            let _second = world.controller(&[]);
            world.settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_of_other_controllers_stay() {
    let world = ClusterWorld::start().await;
    let foreign = json!({"parentRef": {"name": "other"}, "controllerName": "example.com/other", "conditions": []});
    let mut with_status = route("a", "a.test", "api");
    with_status["status"] = json!({"parents": [foreign]});
    world.cluster.apply(with_status);
    let _controller = world.controller(&[]);
    let parents =
        |state: &cluster::ClusterState| state.objects["httproutes/shop/a"]["status"]["parents"].as_array().cloned();
    world.cluster.until("two parents", |state| parents(state).is_some_and(|all| all.len() == 2)).await;
    let all = parents(&world.cluster.state()).unwrap();
    assert_eq!(all[0], foreign);
    assert_eq!(all[1]["controllerName"], cluster_gateway::CONTROLLER_NAME);
    let conditions = all[1]["conditions"].as_array().unwrap();
    for condition in conditions {
        assert_eq!(
            condition["observedGeneration"],
            world.cluster.state().objects["httproutes/shop/a"]["metadata"]["generation"]
        );
        assert!(condition["lastTransitionTime"].as_str().unwrap().ends_with('Z'));
    }
    // Without its parent, the route keeps the other controller's entry only.
    let mut moved = route("a", "a.test", "api");
    moved["spec"]["parentRefs"] = json!([{"name": "other"}]);
    world.cluster.apply(moved);
    world.cluster.until("one parent", |state| parents(state).is_some_and(|all| all == [foreign.clone()])).await;
}

#[tokio::test(start_paused = true)]
async fn statuses_are_written_once() {
    let world = ClusterWorld::start().await;
    let controller = world.controller(&[]);
    world.settle().await;
    let is_written = |state: &cluster::ClusterState| {
        ["gatewayclasses//tidegate", "gateways/shop/public", "httproutes/shop/a"]
            .iter()
            .all(|key| state.objects[*key]["status"].is_object())
    };
    world.cluster.until("all statuses", is_written).await;
    let end = tokio::time::Instant::now() + Duration::from_secs(300);
    tokio::time::sleep_until(end).await;
    let mut writes = world.cluster.state().writes.clone();
    let count = writes.len();
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), count, "a status is written more than once: {writes:?}");
    drop(controller);
}

#[tokio::test(start_paused = true)]
async fn gateways_have_the_addresses_of_the_service_in_front() {
    let world = ClusterWorld::start().await;
    let mut front = service("front");
    front["spec"]["type"] = "LoadBalancer".into();
    world.cluster.apply(front.clone());
    let _controller = world.controller(&["--publish-service", "shop/front"]);
    let addresses =
        |state: &cluster::ClusterState| state.objects["gateways/shop/public"]["status"]["addresses"].clone();
    world.cluster.until("a status", |state| addresses(state) == json!([])).await;
    front["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.test"}]}});
    world.cluster.apply(front);
    let expected = json!([{"type": "IPAddress", "value": "192.0.2.1"}, {"type": "Hostname", "value": "lb.test"}]);
    world.cluster.until("both addresses", |state| addresses(state) == expected).await;
}

#[tokio::test(start_paused = true)]
async fn one_replica_is_the_leader_and_gives_the_lease_back() {
    let cluster = Cluster::start().await;
    let mut elections: Vec<Election> =
        ["one", "two"].iter().map(|identity| Election::new(&cluster.client(), "tidegate", "lease", identity)).collect();
    let mut second = elections.pop().unwrap();
    let mut first = elections.pop().unwrap();
    let (first_leads, mut first_state) = channel::channel(false);
    let (second_leads, mut second_state) = channel::channel(false);
    let holder = |state: &cluster::ClusterState| {
        state
            .objects
            .get("leases/tidegate/lease")
            .map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
    };
    tokio::select! {
        () = first.run(&first_leads) => {}
        result = first_state.wait_for(|leads| *leads) => drop(result.unwrap()),
    }
    let task = tokio::spawn(async move { second.run(&second_leads).await });
    // The first one renews meanwhile.
    assert!(timeout(Duration::from_secs(120), first.run(&first_leads)).await.is_err());
    assert!(!*second_state.borrow());
    assert_eq!(holder(&cluster.state()).as_deref(), Some("one"));
    first.release(&first_leads).await;
    assert_eq!(holder(&cluster.state()).as_deref(), Some(""));
    second_state.wait_for(|leads| *leads).await.unwrap();
    assert!(!*first_state.borrow());
    // A leader without the API server stops before its Lease ends.
    cluster.set_down(true);
    second_state.wait_for(|leads| !*leads).await.unwrap();
    // A Lease that is not renewed is taken.
    task.abort();
    cluster.set_down(false);
    tokio::select! {
        () = first.run(&first_leads) => {}
        result = first_state.wait_for(|leads| *leads) => drop(result.unwrap()),
    }
    assert_eq!(cluster.state().objects["leases/tidegate/lease"]["spec"]["leaseTransitions"], 2);
}

/// Prints times from an event to the request of the server's API (`--nocapture`).
#[tokio::test(start_paused = true)]
async fn with_5000_routes_a_changed_endpoint_is_one_small_request() {
    let world = ClusterWorld::start().await;
    for number in 0..5_000 {
        world.cluster.apply(route(&format!("r-{number}"), &format!("r{number}.test"), "api"));
    }
    let _controller = world.controller(&["--no-status"]);
    world.settle().await;
    world.server.until("the first push ends", |state| state.changes.last().is_some_and(|change| change == PUT)).await;
    world.changes();
    for (change, object) in [
        (PUT, slice("api", &["10.0.1.1"])),
        (PUT, slice("api", &["10.0.1.1", "10.0.1.2"])),
        (POST, route("r-7", "x.test", "api")),
    ] {
        let began = std::time::Instant::now();
        world.cluster.apply(object);
        world.server.until("the request", |state| !state.changes.is_empty()).await;
        println!("{change}: {} ms", began.elapsed().as_millis());
        world.settle().await;
        assert_eq!(world.changes()[0], change);
    }
}

/// In a cluster without slices, nothing is ready: no group has a name that only the cluster resolves.
#[tokio::test(start_paused = true)]
async fn the_last_slice_of_a_cluster_leaves_a_group_without_endpoints() {
    let world = ClusterWorld::start().await;
    let _controller = world.controller(&["--no-status"]);
    world.settle().await;
    world.cluster.delete("EndpointSlice", "shop", "api-1");
    let is_empty = |servers: &[String]| servers.len() == 1 && servers[0].ends_with("/unavailable.sock");
    world.server.until("no endpoint", |state| is_empty(&state.groups["http/shop_api_80"])).await;
}
