//! `Ingress` of `extensions/v1beta1` and `networking.k8s.io/v1beta1` as `networking.k8s.io/v1`.

use serde_json::{Map, Value, json};

/// Rewrites backends (`serviceName`, `servicePort`), the default backend and absent path types.
pub(crate) fn upgrade_ingress(value: &mut Value) {
    let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(backend) = spec.remove("backend") {
        spec.insert("defaultBackend".into(), upgrade_backend(backend));
    }
    let rules = spec.get_mut("rules").and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let paths = rule.pointer_mut("/http/paths").and_then(Value::as_array_mut);
        for path in paths.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(backend) = path.remove("backend") {
                path.insert("backend".into(), upgrade_backend(backend));
            }
            path.entry("pathType").or_insert_with(|| "ImplementationSpecific".into());
        }
    }
}

fn upgrade_backend(backend: Value) -> Value {
    let Value::Object(mut backend) = backend else { return backend };
    let Some(name) = backend.remove("serviceName") else { return Value::Object(backend) };
    let port = match backend.remove("servicePort") {
        Some(Value::Number(number)) => json!({ "number": number }),
        Some(Value::String(text)) => match text.parse::<u16>() {
            Ok(number) => json!({ "number": number }),
            Err(_) => json!({ "name": text }),
        },
        _ => Value::Object(Map::new()),
    };
    json!({ "service": { "name": name, "port": port } })
}
