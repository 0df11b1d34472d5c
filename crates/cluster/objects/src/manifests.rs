//! Reads manifests: YAML with several documents, JSON, and lists of objects.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, budget, options};

use crate::complaint::Complaint;
use crate::ingress_versions::upgrade_ingress;
use crate::kinds::{Kind, Object, ObjectSet};

/// Nested maps and lists of a document at most.
pub const DOCUMENT_DEPTH_MAX: usize = 128;
/// Values of a document at most, after aliases are resolved.
pub const DOCUMENT_NODES_MAX: usize = 5_000_000;
/// Bytes of the values of a document at most.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 20;

/// Adds the objects of a text to a set. Kinds that Tidegate does not read are passed over without a complaint. A
/// document or an object that cannot be read is left out with a complaint, and takes no other one down.
///
/// `source` names the text in complaints.
pub fn read_manifests(source: &str, text: &str, set: &mut ObjectSet, complaints: &mut Vec<Complaint>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') {
        return read_json(source, text, set, complaints);
    }
    for (index, document) in split_documents(text).into_iter().enumerate() {
        if is_empty(&document) {
            continue;
        }
        match parse_yaml(&document, DuplicateKeyPolicy::Error) {
            Ok(value) => add(source, index + 1, value, set, complaints),
            // The API server's decoder takes the last of several equal keys.
            Err(error) => match parse_yaml(&document, DuplicateKeyPolicy::LastWins) {
                Ok(value) => {
                    let reason = format!("{error}; the last value is used");
                    complaints.push(Complaint::document(source, index + 1, reason));
                    add(source, index + 1, value, set, complaints);
                }
                Err(error) => complaints.push(Complaint::document(source, index + 1, error)),
            },
        }
    }
}

fn read_json(source: &str, text: &str, set: &mut ObjectSet, complaints: &mut Vec<Complaint>) {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    for (index, value) in values.enumerate() {
        match value {
            Ok(value) => add(source, index + 1, value, set, complaints),
            Err(error) => complaints.push(Complaint::document(source, index + 1, error.to_string())),
        }
    }
}

fn parse_yaml(document: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, String> {
    let budget = budget! {
        max_depth: DOCUMENT_DEPTH_MAX,
        max_nodes: DOCUMENT_NODES_MAX,
        max_events: 2 * DOCUMENT_NODES_MAX,
        max_total_scalar_bytes: DOCUMENT_BYTES_MAX,
    };
    let options = options! { duplicate_keys: duplicates, budget: budget, with_snippet: false };
    serde_saphyr::from_str_with_options::<Value>(document, options).map_err(|error| error.to_string())
}

/// Splits at lines that begin with `---`, as kubectl does. Anchors do not outlive a document, so each one is parsed on its own.
fn split_documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let behind =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        match behind {
            Some(rest) => documents.push(rest.to_owned()),
            None => {
                if let Some(last) = documents.last_mut() {
                    last.push_str(line);
                }
            }
        }
    }
    documents
}

/// Tells whether a document has comments, directives and empty lines only.
fn is_empty(document: &str) -> bool {
    document.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with(['#', '%']) || line == "...")
}

fn add(source: &str, number: usize, value: Value, set: &mut ObjectSet, complaints: &mut Vec<Complaint>) {
    if value.is_null() {
        return;
    }
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
    if kind.ends_with("List")
        && let Some(Value::Array(items)) = value.get("items")
    {
        for item in items.clone() {
            add(source, number, item, set, complaints);
        }
        return;
    }
    let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
    if kind.is_empty() || api_version.is_empty() {
        complaints.push(Complaint::document(source, number, "neither an object nor a list of objects"));
        return;
    }
    let Some(kind) = Kind::of(&api_version, &kind) else { return };
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    let name = word("/metadata/name");
    let namespace = match (kind.is_namespaced(), word("/metadata/namespace")) {
        (false, _) => String::new(),
        (true, namespace) if namespace.is_empty() => "default".into(),
        (true, namespace) => namespace,
    };
    let mut complain = |reason: String| complaints.push(Complaint::about(kind, &namespace, &name, reason));
    let known = set.contains(kind, &crate::set::ObjectName::new(&namespace, &name));
    match parse_object(kind, &api_version, value).and_then(|object| set.upsert(object)) {
        Ok(_) if known => complain("appears more than once; the last one is used".into()),
        Ok(_) => {}
        Err(reason) => complain(reason),
    }
}

/// Makes an object of a value, of a manifest or of the API server. The status is left out.
///
/// # Errors
/// If the value has not the form of the kind.
pub fn parse_object(kind: Kind, api_version: &str, mut value: Value) -> Result<Object, String> {
    drop_nulls(&mut value);
    if let Some(object) = value.as_object_mut() {
        // The controller writes statuses and reads none.
        object.remove("status");
        object.insert("apiVersion".into(), kind.api_version().into());
        object.insert("kind".into(), kind.name().into());
        let is_beta = api_version.ends_with("/v1beta1");
        if kind == Kind::TlsRoute
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            // Optional in v1alpha2.
            spec.entry("hostnames").or_insert_with(|| Value::Array(Vec::new()));
        }
        if kind == Kind::Ingress && is_beta {
            upgrade_ingress(&mut value);
        }
    }
    Object::parse(kind, value).map_err(|error| error.to_string())
}

/// Removes keys without a value, which the API server takes as absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
