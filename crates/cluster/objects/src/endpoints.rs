//! Endpoints of Services: addresses of the slices that belong to a port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::kinds::ObjectSet;
use crate::set::ObjectName;

/// Label of a slice that names its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Endpoints of a port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyEndpoints {
    /// In order and without duplicates.
    pub addresses: BTreeSet<(IpAddr, u16)>,
    /// Addresses that are no IP addresses.
    pub invalid: BTreeSet<String>,
}

/// Returns the name of the Service that a slice belongs to, in the slice's namespace.
pub fn service_of_slice(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.labels.as_ref()?.get(SERVICE_LABEL).map(String::as_str)
}

/// Returns the slices of each Service.
pub fn endpoint_slices_by_service(set: &ObjectSet) -> BTreeMap<ObjectName, Vec<&EndpointSlice>> {
    let mut found: BTreeMap<ObjectName, Vec<&EndpointSlice>> = BTreeMap::new();
    for (name, slice) in set.all::<EndpointSlice>() {
        if let Some(service) = service_of_slice(slice) {
            found.entry(ObjectName::new(&name.namespace, service)).or_default().push(slice);
        }
    }
    found
}

/// Returns the slices of some Services, without an index of all.
pub fn endpoint_slices_of<'a>(
    set: &'a ObjectSet,
    services: &BTreeSet<ObjectName>,
) -> BTreeMap<ObjectName, Vec<&'a EndpointSlice>> {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in services {
        wanted.entry(&service.namespace).or_default().insert(&service.name);
    }
    let mut found: BTreeMap<ObjectName, Vec<&EndpointSlice>> = BTreeMap::new();
    for (name, slice) in set.all::<EndpointSlice>() {
        let is_wanted =
            |service: &&str| wanted.get(name.namespace.as_str()).is_some_and(|names| names.contains(service));
        if let Some(service) = service_of_slice(slice).filter(is_wanted) {
            found.entry(ObjectName::new(&name.namespace, service)).or_default().push(slice);
        }
    }
    found
}

/// Returns the endpoints of a port that take requests. `port` is the name of the port, empty if it has none; slices and
/// Services agree on ports by name and protocol. An endpoint whose readiness is unknown is ready, as the API has it.
pub fn ready_endpoints(slices: &[&EndpointSlice], port: &str, protocol: &str) -> ReadyEndpoints {
    let mut found = ReadyEndpoints::default();
    for slice in slices {
        let target = slice.ports.iter().flatten().find(|target| {
            target.name.as_deref().unwrap_or("") == port && target.protocol.as_deref().unwrap_or("TCP") == protocol
        });
        let Some(number) = target.and_then(|target| target.port).and_then(|port| u16::try_from(port).ok()) else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            if endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(false) {
                continue;
            }
            for address in &endpoint.addresses {
                match address.parse::<IpAddr>() {
                    Ok(address) => _ = found.addresses.insert((address, number)),
                    Err(_) => _ = found.invalid.insert(address.clone()),
                }
            }
        }
    }
    found
}
