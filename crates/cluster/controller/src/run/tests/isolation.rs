//! Objects that the server refuses are left out, and the others are served.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};

use super::cluster::ClusterState;
use super::ingresses::{ingress_class, snippet_annotations, test_ingress};
use super::{ClusterWorld, PUT, route, service, slice};

#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_refuses_takes_no_other_one_down() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.server.state().refuses_lines = vec!["banana".into()];
    for object in [
        test_ingress("good", json!({})),
        test_ingress("bad", snippet_annotations("proxy_read_timeout banana;")),
        test_ingress("worse", snippet_annotations("proxy_send_timeout banana;")),
        test_ingress("fine", snippet_annotations("proxy_read_timeout 7s;")),
    ] {
        world.cluster.apply(object);
    }
    let controller = world.controller(&["--allow-snippets"]);
    let serves = |name: &str| world.server.state().main.contains(&format!("server_name {name}.test;"));
    world.server.until("the others are served", |state| state.main.contains("server_name good.test;")).await;
    assert!(serves("fine") && serves("a") && !serves("bad") && !serves("worse"));
    let has_event = |state: &ClusterState, name: &str| {
        let is_it = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == "Refused";
        state.events.iter().find(is_it).is_some_and(|event| event["note"].as_str().unwrap().contains("banana"))
    };
    world.cluster.until("two events", |state| has_event(state, "bad") && has_event(state, "worse")).await;
    assert!(!has_event(&world.cluster.state(), "good"));
    let gauge = || controller.parts.metrics.objects_refused.load(Relaxed);
    assert_eq!(gauge(), 2);
    // Endpoints reach the server without a look at the refused objects.
    world.changes();
    world.cluster.apply(slice("api", &["10.0.0.77"]));
    world.server.until("the endpoint", |state| state.groups["http/shop_api_80"] == ["10.0.0.77:8080"]).await;
    assert_eq!(world.changes(), [PUT]);
    // A mended object is served.
    world.cluster.apply(test_ingress("bad", snippet_annotations("proxy_read_timeout 9s;")));
    world.server.until("it is served", |state| state.main.contains("server_name bad.test;")).await;
    world.cluster.delete("Ingress", "shop", "worse");
    world.cluster.until("none is refused", |_| gauge() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_route_says_so_in_its_condition() {
    let world = ClusterWorld::start().await;
    world.server.state().refuses_lines = vec!["bad.path".into()];
    let mut bad = route("bad", "bad.test", "api");
    bad["spec"]["rules"][0]["matches"] = json!([{"path": {"type": "PathPrefix", "value": "/bad.path"}}]);
    world.cluster.apply(bad);
    let _controller = world.controller(&[]);
    let accepted = |state: &ClusterState, name: &str| {
        let conditions = &state.objects[&format!("httproutes/shop/{name}")]["status"]["parents"][0]["conditions"];
        let found = conditions.as_array().into_iter().flatten().find(|one| one["type"] == "Accepted").cloned();
        found.unwrap_or_default()
    };
    world.cluster.until("one is refused", |state| accepted(state, "bad")["status"] == "False").await;
    let condition = accepted(&world.cluster.state(), "bad");
    assert_eq!(condition["reason"], "UnsupportedValue");
    assert!(condition["message"].as_str().unwrap().contains("bad.path"), "{condition}");
    world.cluster.until("the other one is accepted", |state| accepted(state, "a")["status"] == "True").await;
    assert!(world.server.state().main.contains("server_name a.test;"));
}

#[tokio::test(start_paused = true)]
async fn if_the_server_refuses_most_objects_the_old_configuration_stays() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    let controller = world.controller(&[]);
    world.settle().await;
    let old = world.server.state().main.clone();
    world.server.state().refuses_lines = vec!["server_name".into(), "set $route ".into()];
    world.cluster.apply(test_ingress("b", json!({})));
    let is_refused = || controller.parts.metrics.is_refused.load(Relaxed);
    world.cluster.until("it is refused", |_| is_refused()).await;
    assert_eq!(world.server.state().main, old);
    assert_eq!(controller.parts.metrics.objects_refused.load(Relaxed), 0);
    // Other endpoints do not begin the search again.
    world.changes();
    world.cluster.apply(slice("api", &["10.0.0.78"]));
    world.server.until("the endpoint", |state| state.groups["http/shop_api_80"] == ["10.0.0.78:8080"]).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(world.changes(), [PUT]);
}

/// An Ingress of a host and a Service.
fn ingress_of(name: &str, host: &str, service: &str, annotations: Value) -> Value {
    let mut object = test_ingress(name, annotations);
    object["spec"]["rules"][0]["host"] = host.into();
    object["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = service.into();
    object
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_what_takes_the_place_of_a_refused_object_go_on_changing() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.server.state().refuses_lines = vec!["banana".into()];
    world.cluster.apply(service("web"));
    world.cluster.apply(slice("web", &["10.0.1.1"]));
    let mut bad = ingress_of("bad", "x.test", "api", snippet_annotations("proxy_read_timeout banana;"));
    bad["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    // Of the same host and path, the older one is served, if it is not left out.
    let mut second = ingress_of("second", "x.test", "web", json!({}));
    second["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
    world.cluster.apply(bad);
    world.cluster.apply(second);
    let controller = world.controller(&["--allow-snippets"]);
    let has = |servers: &'static [&'static str]| {
        move |state: &super::server::State| state.groups.get("http/shop_web_80").is_some_and(|known| known == servers)
    };
    world.server.until("the second one is served", has(&["10.0.1.1:8080"])).await;
    assert!(!world.server.state().main.contains("banana"));
    // The push has ended.
    let is_left_out = |outcome: &Option<super::PushResult>| {
        outcome.as_ref().is_some_and(|outcome| outcome.desired.excluded.len() == 1)
    };
    controller.outcomes.clone().wait_for(is_left_out).await.unwrap();
    for servers in [&["10.0.1.2"][..], &["10.0.1.3", "10.0.1.4"]] {
        world.changes();
        world.cluster.apply(slice("web", servers));
        let expected: Vec<String> = servers.iter().map(|address| format!("{address}:8080")).collect();
        world.server.until("its endpoints", |state| state.groups["http/shop_web_80"] == expected).await;
        assert_eq!(world.changes(), [PUT]);
    }
    assert_eq!(controller.parts.metrics.objects_refused.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_becomes_empty_brings_no_refused_object_back() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.server.state().refuses_lines = vec!["banana".into()];
    world.cluster.apply(service("web"));
    world.cluster.apply(slice("web", &["10.0.1.1"]));
    world.cluster.apply(test_ingress("bad", snippet_annotations("proxy_read_timeout banana;")));
    world.cluster.apply(ingress_of("good", "good.test", "web", json!({})));
    let controller = world.controller(&["--allow-snippets"]);
    let mut outcomes = controller.outcomes.clone();
    let is_left_out = |outcome: &Option<super::PushResult>| {
        outcome.as_ref().is_some_and(|outcome| outcome.desired.excluded.len() == 1)
    };
    outcomes.wait_for(is_left_out).await.unwrap();
    for servers in [&[][..], &["10.0.1.5"], &[]] {
        world.cluster.apply(slice("web", servers));
        let expected = servers.iter().map(|address| format!("{address}:8080")).collect::<Vec<String>>();
        world
            .server
            .until("the endpoints of the others", |state| {
                let group = state.groups.get("http/shop_web_80").cloned().unwrap_or_default();
                group == expected || (expected.is_empty() && group.iter().all(|server| !server.starts_with("10.")))
            })
            .await;
        outcomes.wait_for(is_left_out).await.unwrap();
        assert!(!world.server.state().main.contains("bad.test"));
    }
    assert_eq!(controller.parts.metrics.objects_refused.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn beside_a_refused_object_endpoints_are_translated_alone() {
    let world = ClusterWorld::start().await;
    world.cluster.apply(ingress_class());
    world.server.state().refuses_lines = vec!["banana".into()];
    world.cluster.apply(test_ingress("bad", snippet_annotations("proxy_read_timeout banana;")));
    // A status of a Gateway is a change of objects.
    let controller = world.controller(&["--allow-snippets", "--no-status"]);
    let mut outcomes = controller.outcomes.clone();
    let old = outcomes.wait_for(Option::is_some).await.unwrap().clone().unwrap().desired;
    assert_eq!(old.excluded.len(), 1);
    world.cluster.apply(slice("api", &["10.0.0.77"]));
    let is_next =
        |outcome: &Option<super::PushResult>| outcome.as_ref().is_some_and(|one| !Arc::ptr_eq(&one.desired, &old));
    let next = outcomes.wait_for(is_next).await.unwrap().clone().unwrap().desired;
    assert!(Arc::ptr_eq(&next.text, &old.text) && Arc::ptr_eq(&next.excluded, &old.excluded));
    assert_eq!(world.server.state().groups["http/shop_api_80"], ["10.0.0.77:8080"]);
}
