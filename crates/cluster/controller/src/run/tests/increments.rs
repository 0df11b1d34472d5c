//! Translations of endpoints alone give the result of a translation of all objects, for random sequences of changes.

use std::sync::Arc;

use cluster_objects::Kind;
use serde_json::{Value, json};
use testkit::Random;

use super::super::change_queue::Changes;
use super::super::endpoints::translate_endpoints;
use super::super::store::{KINDS, ObjectStore, WatchChange};
use super::super::translate::{DesiredState, Settings, translate_snapshot};
use super::{gateway_class, route, service};

const SERVICES: &[&str] = &["a", "b", "c", "d"];

fn apply(store: &ObjectStore, object: Value) {
    let word = |name: &str| object[name].as_str().unwrap().to_owned();
    let kind = Kind::of(&word("apiVersion"), &word("kind")).unwrap();
    store.apply(kind, &super::cluster::kind_plural(kind.name()), WatchChange::Applied(object));
}

fn gateway() -> Value {
    let listeners =
        json!([{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "tcp", "port": 5432, "protocol": "TCP"}]);
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "public", "namespace": "shop"},
        "spec": {"gatewayClassName": "tidegate", "listeners": listeners}})
}

fn tcp_route(service: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute",
        "metadata": {"name": "t", "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "public", "sectionName": "tcp"}],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}})
}

/// An Ingress whose group has settings of its own, and another location without endpoints.
fn ingress(service: &str) -> Value {
    let prefix = "nginx.ingress.kubernetes.io";
    let path =
        json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i", "namespace": "shop",
            "annotations": {format!("{prefix}/affinity"): "cookie", format!("{prefix}/default-backend"): "d"}},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "i.test", "http": {"paths": [path]}}]}})
}

/// A slice with a few endpoints: mostly usable ones.
fn slice(random: &mut Random) -> Value {
    let endpoints: Vec<Value> = (0..random.below(4_u64))
        .map(|_| match random.below(20_u64) {
            0 => json!({"addresses": ["not-an-address"]}),
            1 => json!({"addresses": ["10.0.0.9"], "conditions": {"ready": false}}),
            2 => json!({"addresses": ["fd00::7", "10.0.0.8"]}),
            _ => json!({"addresses": [format!("10.0.0.{}", random.below(6_u64))], "conditions": {"ready": true}}),
        })
        .collect();
    let port = ["web", "web", "web", "other"][random.below(4_usize)];
    let labels = match random.below(12_u64) {
        0 => json!({}),
        _ => json!({"kubernetes.io/service-name": SERVICES[random.below(SERVICES.len())]}),
    };
    // A kind of addresses that is none is a slice that cannot be read.
    let kind = if random.chance(4) { json!(7) } else { json!("IPv4") };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
        "metadata": {"name": format!("s-{}", random.below(6_u64)), "namespace": "shop", "labels": labels},
        "ports": [{"name": port, "port": 8080 + random.below(2_u64), "protocol": "TCP"}], "endpoints": endpoints})
}

fn change(store: &ObjectStore, random: &mut Random) {
    let any = SERVICES[random.below(SERVICES.len())];
    match random.below(30_u64) {
        0 => apply(store, route("r", "r.test", any)),
        1 => apply(store, tcp_route(any)),
        2 => apply(store, ingress(any)),
        3 => apply(store, service(any)),
        4 => {
            let object = service(any);
            store.apply(Kind::Service, "services", WatchChange::Deleted(object));
        }
        5..=7 => {
            let object = slice(random);
            store.apply(Kind::EndpointSlice, "endpointslices", WatchChange::Deleted(object));
        }
        _ => apply(store, slice(random)),
    }
}

fn assert_equal(partial: &DesiredState, whole: &DesiredState, words: &str) {
    assert_eq!(partial.main_text(), whole.main_text(), "{words}");
    assert_eq!(partial.groups, whole.groups, "{words}");
    assert_eq!(partial.statuses, whole.statuses, "{words}");
    assert_eq!(partial.complaints, whole.complaints, "{words}");
    assert_eq!(partial.text, whole.text, "{words}");
    assert_eq!(partial.sources, whole.sources, "{words}");
}

#[test]
fn translations_of_endpoints_equal_those_of_all_objects() {
    let (mut partial_translations, mut changed_texts) = (0, 0);
    for seed in 1..=40 {
        let mut random = Random::new(seed * 7919);
        let (store, settings) = (ObjectStore::new(KINDS.to_vec()), Arc::new(Settings::default()));
        apply(&store, gateway_class());
        apply(&store, gateway());
        for name in SERVICES {
            apply(&store, service(name));
        }
        apply(&store, route("r", "r.test", "a"));
        apply(&store, route("q", "q.test", "b"));
        apply(&store, tcp_route("a"));
        apply(&store, ingress("c"));
        let (_, snapshot) = store.take_changes();
        let mut desired = translate_snapshot(snapshot, &settings);
        for step in 0..60 {
            for _ in 0..=random.below(3_u64) {
                change(&store, &mut random);
            }
            let (changes, snapshot) = store.take_changes();
            let words = format!("seed {seed}, step {step}, {changes:?}");
            let whole = translate_snapshot(snapshot.clone(), &settings);
            desired = match &changes {
                Changes::Endpoints(services) => match translate_endpoints(&desired, services, &snapshot) {
                    Some(partial) => {
                        assert_equal(&partial, &whole, &words);
                        partial_translations += 1;
                        changed_texts += usize::from(partial.groups != desired.groups);
                        partial
                    }
                    None => whole,
                },
                Changes::Objects => whole,
            };
        }
    }
    // The sequences do reach the short way, and it does change something.
    assert!(partial_translations > 400 && changed_texts > 150, "{partial_translations} {changed_texts}");
}
