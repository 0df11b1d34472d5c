//! `cargo xtask sbom`: the software bill of materials of the binary, as CycloneDX 1.5, from Cargo's metadata and Cargo.lock.
//!
//! Two runs over one Cargo.lock give equal bytes: the file has no time and no serial number.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask sbom [--out FILE]

Writes the bill of materials of the binary as CycloneDX 1.5.

  --out FILE   output file (default: standard output)

  cargo xtask sbom --out tidegate.cdx.json
";

const ROOT: &str = "tidegate";
/// Targets of releases: dependencies of other systems are left out.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub fn write_sbom(arguments: &[String]) -> Result<(), String> {
    let out = match arguments {
        [] => None,
        [option, file] if option == "--out" => Some(file),
        _ => return Err("unknown arguments; see cargo xtask sbom --help".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET];
    let output = Command::new(cargo).args(arguments).current_dir(&root).output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(|e| format!("Cargo.lock: {e}"))?;
    let text = serde_json::to_string_pretty(&bill(&metadata, &checksums(&lock))?).map_err(|e| e.to_string())? + "\n";
    match out {
        Some(file) => std::fs::write(file, text).map_err(|e| format!("{file}: {e}")),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// SHA-256 of packages by name and version, as Cargo.lock has them.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut out = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            package.lines().find_map(|line| Some(line.strip_prefix(&start)?.strip_suffix('"')?.to_string()))
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            out.insert((name, version), checksum);
        }
    }
    out
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(metadata, "packages").into_iter().map(|package| (text(&package, "id"), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"], "nodes").into_iter().map(|node| (text(&node, "id"), node)).collect();
    let root =
        packages.iter().find(|(_, package)| text(package, "name") == ROOT).ok_or("the root package is missing")?;
    // Dependencies of tests are not in the binary; build scripts may leave code in it.
    let needs = |id: &str| -> BTreeSet<String> {
        let deps = nodes.get(id).map(|node| list(node, "deps")).unwrap_or_default();
        let linked = deps.iter().filter(|dep| list(dep, "dep_kinds").iter().any(|kind| kind["kind"] != "dev"));
        linked.map(|dep| text(dep, "pkg")).collect()
    };
    let mut found = BTreeSet::from([root.0.clone()]);
    let mut next = vec![root.0.clone()];
    while let Some(id) = next.pop() {
        next.extend(needs(&id).into_iter().filter(|id| found.insert(id.clone())));
    }
    let reference = |id: &str| {
        let package = packages.get(id).unwrap_or(&Value::Null);
        format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
    };
    let component = |id: &String| {
        let package = packages.get(id).unwrap_or(&Value::Null);
        let (name, version) = (text(package, "name"), text(package, "version"));
        let kind = if *id == *root.0 { "application" } else { "library" };
        let mut out = json!({
            "type": kind, "bom-ref": reference(id), "name": name, "version": version, "purl": reference(id),
        });
        let license = text(package, "license");
        if !license.is_empty() {
            // Old packages write "A/B" for "A OR B".
            out["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(sum) = checksums.get(&(name, version)) {
            out["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        if let Some(place) = package["repository"].as_str().filter(|_| package["source"].is_string()) {
            out["externalReferences"] = json!([{ "type": "vcs", "url": place }]);
        }
        out
    };
    let mut components: Vec<Value> = found.iter().filter(|id| *id != root.0).map(component).collect();
    components.sort_by_key(|component| text(component, "bom-ref"));
    let mut graph: Vec<Value> = found
        .iter()
        .map(|id| {
            let mut on: Vec<String> = needs(id).iter().map(|id| reference(id)).collect();
            on.sort();
            json!({ "ref": reference(id), "dependsOn": on })
        })
        .collect();
    graph.sort_by_key(|node| text(node, "ref"));
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": component(root.0) },
        "components": components, "dependencies": graph,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_lists_what_is_linked() {
        let package = |name: &str, source: Option<&str>| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let dep = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package(ROOT, None), package("a", Some("r")), package("b", Some("r")), package("t", Some("r"))],
            "resolve": { "nodes": [
                { "id": ROOT, "deps": [dep("a", None), dep("t", Some("dev"))] },
                { "id": "a", "deps": [dep("b", Some("build"))] },
            ] },
        });
        let sums = checksums("[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n");
        let bill = bill(&metadata, &sums).expect("a bill");
        let names: Vec<&str> =
            bill["components"].as_array().expect("a list").iter().filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["a", "b"], "what tests use is left out");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "00ff");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["dependencies"][2]["dependsOn"], json!(["pkg:cargo/a@1.0.0"]));
    }

    #[test]
    fn the_bill_of_this_project_is_complete() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        let sums = checksums(&std::fs::read_to_string(lock).expect("the lock file"));
        assert!(sums.len() > 100 && sums.values().all(|sum| sum.len() == 64));
        assert!(sums.keys().any(|(name, _)| name == "rustls"));
    }
}
