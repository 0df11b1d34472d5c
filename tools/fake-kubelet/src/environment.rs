//! Variables and volumes of a container.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec};

/// Data of Secrets and ConfigMaps of a namespace: `None` if the object does not exist (yet).
pub trait Data {
    fn secret(&self, name: &str) -> Option<BTreeMap<String, ByteString>>;
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>>;
}

/// Writes the volumes of a Pod to folders of their names. An error names what does not exist yet.
pub fn write_volumes(spec: &PodSpec, data: &dyn Data, folder: &Path) -> Result<(), String> {
    for volume in spec.volumes.iter().flatten() {
        let files = if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let data = data.secret(name).ok_or_else(|| format!("Secret {name} does not exist"))?;
            let data = data.into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
            select(data, secret.items.as_deref())?
        } else if let Some(map) = &volume.config_map {
            let data = data.config_map(&map.name).ok_or_else(|| format!("ConfigMap {} does not exist", map.name))?;
            let data = data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect();
            select(data, map.items.as_deref())?
        } else {
            BTreeMap::new()
        };
        let folder = folder.join(&volume.name);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        for (name, bytes) in files {
            // Names come from tests; a path would leave the folder.
            if name.contains('/') {
                return Err(format!("volume {}: paths are not supported", volume.name));
            }
            fs::write(folder.join(name), bytes).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn select(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let Some(items) = items else { return Ok(data) };
    let pairs = items.iter().map(|item| {
        let bytes = data.remove(&item.key).ok_or_else(|| format!("key {} does not exist", item.key))?;
        Ok((item.path.clone(), bytes))
    });
    pairs.collect()
}

/// Returns the variables of a container. Values that begin with the path of a volume get the path of its folder: the
/// process sees the files of the machine.
pub fn variables(
    container: &Container,
    namespace: &str,
    pod: &str,
    address: &str,
    folder: &Path,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        let value = match field.map(|field| field.field_path.as_str()) {
            Some("metadata.name") => pod.to_owned(),
            Some("metadata.namespace") => namespace.to_owned(),
            Some("status.podIP") => address.to_owned(),
            Some(_) => String::new(),
            None => replace_mount(container, variable.value.as_deref().unwrap_or_default(), folder),
        };
        found.insert(variable.name.clone(), value);
    }
    found
}

fn replace_mount(container: &Container, value: &str, folder: &Path) -> String {
    for mount in container.volume_mounts.iter().flatten() {
        if let Some(rest) = value.strip_prefix(mount.mount_path.as_str()).filter(|rest| rest.starts_with('/')) {
            return format!("{}{rest}", folder.join(&mount.name).display());
        }
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_come_from_fields_values_and_volumes() {
        let container: Container = serde_json::from_value(json!({
            "name": "c",
            "env": [
                { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
                { "name": "CERT", "value": "/etc/secret/crt" },
                { "name": "OTHER", "value": "/etc/secrets" },
            ],
            "volumeMounts": [{ "name": "volume", "mountPath": "/etc/secret" }],
        }))
        .unwrap();
        let found = variables(&container, "n", "pod", "10.0.0.1", Path::new("/pods/1"));
        let texts: Vec<String> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(texts, ["CERT=/pods/1/volume/crt", "NAMESPACE=n", "OTHER=/etc/secrets", "POD_NAME=pod"]);
    }

    #[test]
    fn items_select_keys_of_volumes() {
        let data = || BTreeMap::from([("tls.crt".to_owned(), b"x".to_vec()), ("other".to_owned(), b"y".to_vec())]);
        let items = [KeyToPath { key: "tls.crt".into(), path: "crt".into(), mode: None }];
        assert_eq!(select(data(), Some(&items)).unwrap(), BTreeMap::from([("crt".to_owned(), b"x".to_vec())]));
        assert_eq!(select(data(), None).unwrap().len(), 2);
        let items = [KeyToPath { key: "none".into(), path: "crt".into(), mode: None }];
        assert!(select(data(), Some(&items)).is_err());
    }
}
