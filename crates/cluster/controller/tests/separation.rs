//! The server's program contains nothing of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Returns the dependencies of each package of the lock file, by name: versions do not matter here.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../Cargo.lock");
    let lock: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().to_owned();
        let listed = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        let names = listed.map(|one| one.as_str().unwrap().split(' ').next().unwrap().to_owned());
        found.entry(name).or_default().extend(names);
    }
    found
}

#[test]
fn the_server_does_not_depend_on_kubernetes() {
    let dependencies = dependencies();
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut rest = vec!["tidegate"];
    while let Some(name) = rest.pop() {
        if reached.insert(name) {
            rest.extend(dependencies[name].iter().map(String::as_str));
        }
    }
    assert!(reached.contains("conf-syntax"), "the walk follows dependencies");
    let is_foreign = |name: &&&str| {
        name.starts_with("cluster-") || name.starts_with("kube") || ["k8s-openapi", "gateway-api"].contains(*name)
    };
    let foreign: Vec<&&str> = reached.iter().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}
