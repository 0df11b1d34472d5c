//! Services of Consul: from the answers of `/v1/health/service/NAME` to routes.
//!
//! Tags have the vocabulary of labels (`tidegate.host=a.example.com`), or the form of Fabio (`urlprefix-a.example.com/path`).

mod fabio;

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_model::{Endpoint, HostName, ObjectOrigin};
use cluster_objects::Complaint;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::labels::{self, Router};
use crate::routes::{HostRoute, router_origin};
use crate::settings::Settings;

/// Instance of a service, with the state of its checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceInstance {
    pub service: String,
    pub id: String,
    pub tags: Vec<String>,
    /// Address of the service; that of its node, if it has none.
    pub address: String,
    pub port: u16,
    /// Weight while all checks pass.
    pub weight: u16,
    /// All checks pass.
    pub is_passing: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(default, deserialize_with = "or_default")]
    node: CatalogNode,
    service: CatalogService,
    #[serde(default, deserialize_with = "or_default")]
    checks: Vec<ServiceCheck>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CatalogNode {
    #[serde(deserialize_with = "or_default")]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CatalogService {
    service: String,
    #[serde(rename = "ID", default, deserialize_with = "or_default")]
    id: String,
    #[serde(default, deserialize_with = "or_default")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    address: String,
    #[serde(default, deserialize_with = "or_default")]
    port: u16,
    #[serde(default, deserialize_with = "or_default")]
    weights: Option<Weights>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    #[serde(default)]
    passing: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceCheck {
    #[serde(default, deserialize_with = "or_default")]
    status: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ServiceInstance {
    /// Reads an entry of `/v1/health/service/NAME`.
    ///
    /// # Errors
    /// If it names no service, or a member has another type.
    pub fn from_health(value: &Value) -> Result<ServiceInstance, String> {
        let entry = Entry::deserialize(value).map_err(|error| format!("no instance of a service: {error}"))?;
        let CatalogService { service, id, tags, address, port, weights } = entry.service;
        let weight = weights.map_or(1, |weights| weights.passing);
        Ok(ServiceInstance {
            id: if id.is_empty() { service.clone() } else { id },
            service,
            tags,
            address: if address.is_empty() { entry.node.address } else { address },
            port,
            weight: u16::try_from(weight).unwrap_or(u16::MAX),
            is_passing: entry.checks.iter().all(|check| check.status == "passing"),
        })
    }

    fn is_live(&self) -> bool {
        // A weight of zero takes an instance out.
        self.is_passing && self.weight > 0
    }
}

/// Tells whether tags of a service name routes: the catalogue has the tags of all services.
pub fn routes_services<'a>(mut tags: impl Iterator<Item = &'a str>) -> bool {
    tags.any(|tag| tag.starts_with(labels::PREFIX) || tag.starts_with(fabio::PREFIX))
}

/// Returns the routes of all services: passing instances first.
pub fn service_routes(
    services: &BTreeMap<String, Arc<Vec<ServiceInstance>>>,
    settings: &Settings,
    complaints: &mut Vec<Complaint>,
) -> Vec<HostRoute> {
    let mut instances: Vec<&ServiceInstance> = services.values().flat_map(|instances| instances.iter()).collect();
    instances.sort_by_key(|instance| {
        (!instance.is_live(), &instance.service, &instance.id, &instance.address, instance.port)
    });
    let mut found = Vec::new();
    for instance in instances {
        let origin = ObjectOrigin::new("Service", settings.provider.name(), &plain_name(&instance.service));
        let pairs = instance.tags.iter().map(|tag| tag.split_once('=').unwrap_or((tag, "")));
        let read = labels::read_labels(pairs, settings.allows_snippets);
        for (router, reason) in &read.problems {
            complaints.push(crate::complaint(&router_origin(&origin, router), reason));
        }
        if read.enable == Some(false) {
            continue;
        }
        if read.network.is_some() {
            complaints.push(crate::complaint(&origin, "tidegate.network: services of Consul have no networks"));
        }
        let mut routers = read.routers;
        for tag in instance.tags.iter().filter_map(|tag| tag.strip_prefix(fabio::PREFIX)) {
            let mut problems = Vec::new();
            routers.extend(fabio::read_urlprefix(tag, &mut problems));
            complaints.extend(problems.into_iter().map(|reason| crate::complaint(&origin, reason)));
        }
        for router in routers {
            let origin = router_origin(&origin, &router.name);
            let endpoint = endpoint(instance, &router, settings).unwrap_or_else(|reason| {
                complaints
                    .push(crate::complaint(&origin, format!("instance {}: {reason}", instance.id.escape_debug())));
                None
            });
            found.extend(HostRoute::all_of(&origin, router, endpoint.as_ref()));
        }
    }
    found
}

fn endpoint(instance: &ServiceInstance, router: &Router, settings: &Settings) -> Result<Option<Endpoint>, String> {
    if !instance.is_live() {
        return Ok(None);
    }
    let port = router.port.unwrap_or(instance.port);
    if port == 0 {
        return Err("it has no port".into());
    }
    let host = match instance.address.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) if !settings.has_resolver => {
            return Err(format!("\"{}\" is no address: a name needs --resolver", instance.address.escape_debug()));
        }
        Err(_) => match HostName::parse(&instance.address.to_ascii_lowercase())? {
            HostName::Exact(name) => name,
            _ => return Err(format!("\"{}\" is no address", instance.address.escape_debug())),
        },
    };
    Ok(Some(Endpoint { host, port, weight: router.weight.unwrap_or(instance.weight) }))
}

/// Returns a name for comments and logs.
fn plain_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' }).take(256).collect()
}
