//! Removes each right of the controller in turn: its log must name the verb and the resource.

use std::fs;

use serde_json::Value;

use super::cluster::{Cluster, MANIFESTS, send_request, wait_until};

const OBJECTS: &str = include_str!("objects.yaml");
const LEASE: &str = include_str!("lease.yaml");

/// A verb of a resource in a rule of a role.
#[derive(Clone, Debug, PartialEq)]
struct Right {
    role: usize,
    rule: usize,
    resource: String,
    verb: String,
}

/// Removes each right in turn, with a new controller and a change of all objects. Requests are answered without any of
/// them.
pub fn remove_each(cluster: &mut Cluster) -> Result<(), String> {
    let text = fs::read_to_string(MANIFESTS).map_err(|error| format!("{MANIFESTS}: {error}"))?;
    let roles = read_roles(&text)?;
    let mut silent = Vec::new();
    change_objects(cluster, 1)?;
    wait_until("the route answers", is_answered)?;
    for (number, right) in list_rights(&roles).iter().enumerate() {
        cluster.stop_controller();
        write_role(cluster, &without(&roles[right.role], right))?;
        if right.resource == "leases" && right.verb == "create" {
            delete_lease(cluster)?;
        }
        let begin = cluster.log("tidegate-controller").len();
        cluster.start_controller()?;
        change_objects(cluster, number + 2)?;
        // The words of the API server, which the controller passes on.
        let words = format!("cannot {} resource \\\"{}\\\"", right.verb, right.resource);
        let said = || cluster.log("tidegate-controller").get(begin..).unwrap_or_default().contains(&words);
        match wait_until(&words, said) {
            Ok(()) => println!("{} {}: named", right.verb, right.resource),
            Err(_) => silent.push(format!("{} {}", right.verb, right.resource)),
        }
        if !is_answered() {
            return Err(format!("without {} {}, requests are not answered", right.verb, right.resource));
        }
        write_role(cluster, &roles[right.role])?;
    }
    match silent.is_empty() {
        true => Ok(()),
        false => Err(format!("the log does not name: {}", silent.join(", "))),
    }
}

/// Address of the only Gateway: the first one of the pool.
const GATEWAY: (&str, u16) = ("10.245.0.0", 80);

/// Tells whether the route of the objects answers.
pub fn is_answered() -> bool {
    send_request(GATEWAY, "shop.example.com", "/").is_some_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

/// Applies objects of all kinds, which another number changes.
pub fn change_objects(cluster: &Cluster, number: usize) -> Result<(), String> {
    let path = cluster.path("objects.yaml");
    fs::write(&path, OBJECTS.replace("NUMBER", &number.to_string())).map_err(|error| error.to_string())?;
    cluster.apply(&[&path])
}

fn delete_lease(cluster: &Cluster) -> Result<(), String> {
    let path = cluster.path("lease.yaml");
    fs::write(&path, LEASE).map_err(|error| error.to_string())?;
    cluster.kubelet(&["delete", &path])
}

fn write_role(cluster: &Cluster, role: &Value) -> Result<(), String> {
    let path = cluster.path("role.yaml");
    fs::write(&path, role.to_string()).map_err(|error| error.to_string())?;
    cluster.apply(&[&path])
}

/// Returns the ClusterRoles and Roles of manifests.
fn read_roles(text: &str) -> Result<Vec<Value>, String> {
    let mut roles = Vec::new();
    for document in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
        if matches!(value["kind"].as_str(), Some("ClusterRole" | "Role")) {
            roles.push(value);
        }
    }
    Ok(roles)
}

fn list_rights(roles: &[Value]) -> Vec<Right> {
    let mut rights = Vec::new();
    for (role, object) in roles.iter().enumerate() {
        for (rule, entry) in object["rules"].as_array().into_iter().flatten().enumerate() {
            for resource in strings(&entry["resources"]) {
                let verbs = strings(&entry["verbs"]);
                rights.extend(verbs.into_iter().map(|verb| Right { role, rule, resource: resource.clone(), verb }));
            }
        }
    }
    rights
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a role without a right.
fn without(role: &Value, right: &Right) -> Value {
    let mut role = role.clone();
    let Some(rules) = role["rules"].as_array_mut() else { return role };
    let mut own = rules[right.rule].clone();
    let retain = |list: &mut Value, word: &str| {
        if let Some(list) = list.as_array_mut() {
            list.retain(|entry| entry != word);
        }
    };
    retain(&mut rules[right.rule]["resources"], &right.resource);
    own["resources"] = vec![right.resource.clone()].into();
    retain(&mut own["verbs"], &right.verb);
    rules.push(own);
    rules.retain(|rule| ["resources", "verbs"].iter().all(|name| rule[*name] != Value::Array(Vec::new())));
    role
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "\
kind: Namespace
---
kind: ClusterRole
rules:
  - {apiGroups: [\"\"], resources: [secrets, services], verbs: [list, watch]}
  - {apiGroups: [g], resources: [events], verbs: [create]}
";

    #[test]
    fn each_right_is_removed_alone() {
        let roles = read_roles(MANIFEST).unwrap();
        let rights = list_rights(&roles);
        assert_eq!(rights.len(), 5);
        for right in &rights {
            let rest = list_rights(&[without(&roles[0], right)]);
            let plain = |right: &Right| (right.resource.clone(), right.verb.clone());
            let mut expected: Vec<_> = rights.iter().filter(|one| *one != right).map(plain).collect();
            let mut found: Vec<_> = rest.iter().map(plain).collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{right:?}");
        }
    }

    #[test]
    fn the_manifests_have_rights_and_the_objects_their_kinds() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(MANIFESTS);
        let rights = list_rights(&read_roles(&fs::read_to_string(path).unwrap()).unwrap());
        assert!(rights.len() > 40, "{}", rights.len());
        // A status of each kind is to be written in each round.
        for right in rights.iter().filter(|right| right.verb == "patch") {
            let plural = right.resource.trim_end_matches("/status").trim_end_matches("ies");
            // "ingresses" ends as the plural of "ingress" does, "gateways" does not.
            let kind = plural
                .strip_suffix("sses")
                .map_or(plural.trim_end_matches("es").to_owned(), |word| format!("{word}ss"));
            let kind = if kind.ends_with("ss") { kind } else { kind.trim_end_matches('s').to_owned() };
            assert!(OBJECTS.to_lowercase().contains(&format!("\nkind: {kind}")), "{}", right.resource);
        }
    }
}
