//! No value of a container leaves its argument, and the order of containers does not matter.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_discovery::{Catalog, Container, Provider, Settings, labels, translate_catalog};
use cluster_render::{render_model, render_tree};
use conf_syntax::writer::first_difference;
use conf_syntax::{FileId, parse_file};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const VARIABLES: &[&str] = &[
    "VIRTUAL_HOST",
    "VIRTUAL_PATH",
    "VIRTUAL_DEST",
    "VIRTUAL_PROTO",
    "VIRTUAL_ROOT",
    "HSTS",
    "CERT_NAME",
    "LETSENCRYPT_HOST",
    "VIRTUAL_HOST_MULTIPORTS",
    "VIRTUAL_PORT",
    "HTTPS_METHOD",
];

fn value() -> impl Strategy<Value = String> {
    let hostile = ["a.test; } http {", "/$host", "/a b{", "\"", "~^x$", "* # \n listen 81;", "\\", "${dollar}", "/é"];
    let plain = [
        "a.test",
        "b.test,*.c.test",
        "/api",
        "/",
        "= /x",
        "grpc",
        "https",
        "fastcgi",
        "8080",
        "internal",
        "both",
        "off",
    ];
    prop_oneof![
        prop::sample::select(plain.to_vec()).prop_map(str::to_owned),
        prop::sample::select(hostile.to_vec()).prop_map(str::to_owned),
        ".{0,12}"
    ]
}

fn container() -> impl Strategy<Value = Value> {
    let keys: Vec<&str> = labels::KEYS.iter().map(|key| key.name).collect();
    let label = (prop_oneof![Just(""), Just("x."), Just("y z.")], prop::sample::select(keys), value());
    let variable = (prop::sample::select(VARIABLES.to_vec()), value());
    let parts = (0..40_u8, prop::collection::vec(label, 0..6), prop::collection::vec(variable, 0..5), any::<bool>());
    parts.prop_map(|(number, labels, variables, is_running)| {
        let mut map: Map<String, Value> =
            labels.into_iter().map(|(router, key, value)| (format!("tidegate.{router}{key}"), json!(value))).collect();
        if number % 2 == 0 {
            map.insert("tidegate.host".into(), json!("a.test"));
        }
        let env: Vec<String> = variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        json!({"Id": format!("{number:012}"), "Name": format!("/c{number}"), "State": {"Running": is_running},
            "Config": {"Labels": map, "Env": env},
            "NetworkSettings": {"Networks": {"bridge": {"IPAddress": format!("172.17.0.{number}")}}}})
    })
}

fn catalog<'a>(values: impl Iterator<Item = &'a Value>) -> Catalog {
    let mut catalog = Catalog::default();
    for value in values {
        let container = Container::from_inspect(value).unwrap();
        catalog.containers.insert(container.id.clone(), Arc::new(container));
    }
    catalog
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_stay_in_their_arguments(values in prop::collection::vec(container(), 0..6)) {
        let settings = Settings { provider: Provider::Docker, allows_snippets: true, ..Settings::default() };
        let translation = translate_catalog(&catalog(values.iter()), &settings, &BTreeSet::new());
        let config = render_model(&translation.model, &cluster_render::Settings::default());
        let tree = render_tree(&translation.model, &cluster_render::Settings::default());
        prop_assert_eq!(first_difference(&tree, &parse_file(FileId(0), config.main.as_bytes())), None);
        // One container of each identifier: the last one counts in both orders.
        let mut unique: Vec<&Value> = Vec::new();
        for value in values.iter().rev() {
            if !unique.iter().any(|known| known["Id"] == value["Id"]) {
                unique.push(value);
            }
        }
        let again = translate_catalog(&catalog(unique.into_iter()), &settings, &BTreeSet::new());
        prop_assert_eq!(again, translation);
    }
}
