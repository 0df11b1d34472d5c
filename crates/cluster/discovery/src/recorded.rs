//! Recorded answers of engines and of Consul, for `render`.

use std::sync::Arc;

use serde_json::Value;

use crate::Catalog;
use crate::consul::ServiceInstance;
use crate::docker::Container;
use crate::settings::Provider;

/// Lists in each other at most: files of several answers.
const DEPTH_MAX: usize = 4;

/// Adds the containers of `docker inspect`, or the instances of `/v1/health/service/NAME`, to a catalog: one object, a list, or
/// lists of lists.
///
/// # Errors
/// If the text is no JSON, or a part of it is none of these; the others are added.
pub fn read_recorded(text: &str, provider: Provider, catalog: &mut Catalog) -> Result<(), Vec<String>> {
    let value: Value = serde_json::from_str(text).map_err(|error| vec![format!("no JSON: {error}")])?;
    let mut errors = Vec::new();
    add(&value, provider, 0, catalog, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn add(value: &Value, provider: Provider, depth: usize, catalog: &mut Catalog, errors: &mut Vec<String>) {
    if let Value::Array(values) = value {
        match depth < DEPTH_MAX {
            true => values.iter().for_each(|value| add(value, provider, depth + 1, catalog, errors)),
            false => errors.push("too many lists in each other".into()),
        }
        return;
    }
    match provider {
        Provider::Docker | Provider::Podman => match Container::from_inspect(value) {
            Ok(container) => {
                catalog.containers.insert(container.id.clone(), Arc::new(container));
            }
            Err(error) => errors.push(error),
        },
        Provider::Consul => match ServiceInstance::from_health(value) {
            Ok(instance) => {
                let instances = catalog.services.entry(instance.service.clone()).or_default();
                Arc::make_mut(instances).push(instance);
            }
            Err(error) => errors.push(error),
        },
    }
}
