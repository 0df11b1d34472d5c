//! Addresses of Gateways from a pool, for clusters without load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cluster_gateway::{Settings, is_ours};
use cluster_objects::types::Gateway;
use cluster_objects::{Kind, ObjectName, endpoint_slices_by_service};
use serde_json::Value;

use super::store::Snapshot;

/// Addresses of a pool at most.
const POOL_MAX: u32 = 65_536;

/// Parses `10.0.0.0/28`, `10.0.0.7` or `fd00::/120`. Network and broadcast addresses are left to their owners: every
/// address of the range can be given to a Gateway.
pub fn parse_range(text: &str) -> Result<Vec<IpAddr>, String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| format!("\"{address}\" is no IP address"))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits: u32 = match bits {
        None => width,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= width).ok_or("the length of the prefix is not valid")?,
    };
    let free = width - bits;
    if free > POOL_MAX.ilog2() {
        return Err(format!("a range has at most {POOL_MAX} addresses"));
    }
    let count: u128 = 1 << free;
    let all = (0..count).map(|offset| match address {
        IpAddr::V4(first) => {
            let first = u128::from(u32::from(first)) & !(count - 1);
            IpAddr::V4((u32::try_from(first + offset).unwrap_or(u32::MAX)).into())
        }
        IpAddr::V6(first) => IpAddr::V6(((u128::from(first) & !(count - 1)) + offset).into()),
    });
    Ok(all.collect())
}

/// Gives an address of the pool to each Gateway of ours that asks for none. A Gateway keeps the address of its status;
/// the others get the first free ones in order of their age, so that all replicas come to the same result.
pub fn assign(snapshot: &Snapshot, settings: &Settings, pool: &[IpAddr]) -> BTreeMap<ObjectName, Vec<IpAddr>> {
    let mut assigned = BTreeMap::new();
    if pool.is_empty() {
        return assigned;
    }
    let gateways: Vec<_> = snapshot
        .set
        .by_age::<Gateway>()
        .into_iter()
        .filter(|(_, gateway)| is_ours(&snapshot.set, settings, gateway))
        .collect();
    let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
    let mut rest = Vec::new();
    for (name, gateway) in gateways {
        let asked: Vec<IpAddr> =
            gateway.spec.addresses.iter().flatten().filter_map(|one| one.value.as_deref()?.parse().ok()).collect();
        if !asked.is_empty() {
            taken.extend(asked);
            continue;
        }
        rest.push(name);
    }
    let in_pool: BTreeSet<IpAddr> = pool.iter().copied().collect();
    let mut without = Vec::new();
    for name in rest {
        let known = status_addresses(snapshot, name).into_iter().find(|one| in_pool.contains(one));
        match known.filter(|address| taken.insert(*address)) {
            Some(address) => _ = assigned.insert(name.clone(), vec![address]),
            None => without.push(name),
        }
    }
    let mut free = pool.iter().filter(|address| !taken.contains(*address));
    for (name, address) in without.into_iter().zip(&mut free) {
        assigned.insert(name.clone(), vec![*address]);
    }
    assigned
}

fn status_addresses(snapshot: &Snapshot, name: &ObjectName) -> Vec<IpAddr> {
    let live = snapshot.live.get(&(Kind::Gateway, name.clone()));
    let list = live.and_then(|live| live.status.get("addresses")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|one| one.get("value")?.as_str()?.parse().ok()).collect()
}

/// Addresses that clients reach the servers by, where an object has none itself.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Service in front of the pods.
    pub service: Option<ObjectName>,
    /// IP addresses and host names, instead of those of a Service.
    pub addresses: Vec<String>,
    /// Address that Ingresses listen on.
    pub ingress_address: Option<IpAddr>,
}

impl Published {
    /// Returns the addresses of one Service.
    pub fn of_service(service: ObjectName) -> Published {
        Published { service: Some(service), ..Published::default() }
    }

    /// Returns the addresses of Ingresses with their types; `None` if no argument says which ones they are.
    pub fn of_ingresses(&self, snapshot: &Snapshot) -> Option<Vec<(&'static str, String)>> {
        if self.service.is_some() || !self.addresses.is_empty() {
            return Some(self.addresses(snapshot));
        }
        self.ingress_address.map(|address| vec![("IPAddress", address.to_string())])
    }

    /// Returns the addresses with their types, those of Gateway API.
    pub fn addresses(&self, snapshot: &Snapshot) -> Vec<(&'static str, String)> {
        if let Some(service) = &self.service {
            return of_service(snapshot, service);
        }
        let with_type = |address: &String| match address.parse::<IpAddr>() {
            Ok(_) => ("IPAddress", address.clone()),
            Err(_) => ("Hostname", address.clone()),
        };
        self.addresses.iter().map(with_type).collect()
    }

    /// Tells whether the Service has an endpoint that takes requests.
    pub fn has_ready_endpoints(&self, snapshot: &Snapshot) -> bool {
        let Some(service) = &self.service else { return false };
        let slices = endpoint_slices_by_service(&snapshot.set);
        let mut endpoints =
            slices.get(service).into_iter().flatten().flat_map(|slice| slice.endpoints.iter().flatten());
        endpoints.any(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            conditions.ready != Some(false) && conditions.terminating != Some(true)
        })
    }
}

/// Returns the addresses of a Service: those of its load balancer, its external ones, or its cluster address.
fn of_service(snapshot: &Snapshot, service: &ObjectName) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let live = snapshot.live.get(&(Kind::Service, service.clone()));
    let ingress = live.and_then(|live| live.status.pointer("/loadBalancer/ingress")).and_then(Value::as_array);
    for one in ingress.into_iter().flatten() {
        match (one.get("ip").and_then(Value::as_str), one.get("hostname").and_then(Value::as_str)) {
            (Some(address), _) => found.push(("IPAddress", address.to_owned())),
            (None, Some(host)) => found.push(("Hostname", host.to_owned())),
            (None, None) => {}
        }
    }
    let spec = snapshot.set.get::<cluster_objects::types::Service>(&service.namespace, &service.name);
    let Some(spec) = spec.and_then(|service| service.spec.as_ref()) else { return found };
    if found.is_empty() {
        found.extend(spec.external_ips.iter().flatten().map(|address| ("IPAddress", address.clone())));
    }
    if found.is_empty() && spec.type_.as_deref() != Some("LoadBalancer") {
        let addresses = spec.cluster_ips.iter().flatten().filter(|address| *address != "None");
        found.extend(addresses.map(|address| ("IPAddress", address.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::store::{Change, Store};
    use super::*;

    #[test]
    fn ranges_are_lists_of_addresses() {
        let texts =
            |range: &str| -> Vec<String> { parse_range(range).unwrap().iter().map(IpAddr::to_string).collect() };
        assert_eq!(texts("10.0.0.5"), ["10.0.0.5"]);
        assert_eq!(texts("10.0.0.5/30"), ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]);
        assert_eq!(texts("fd00::ff/127"), ["fd00::fe", "fd00::ff"]);
        for range in ["10.0.0.0/8", "10.0.0.0/33", "a", "10.0.0.0/x", "fd00::/64"] {
            assert!(parse_range(range).is_err(), "{range}");
        }
    }

    fn gateway(name: &str, age: u32, address: Option<&str>) -> Value {
        let status = address.map(|value| json!({"addresses": [{"type": "IPAddress", "value": value}]}));
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z")},
            "spec": {"gatewayClassName": "tidegate", "listeners": []}, "status": status,
        })
    }

    #[test]
    fn gateways_keep_their_address_and_new_ones_get_the_first_free_one() {
        let store = Store::new(vec![Kind::Gateway]);
        let pool = parse_range("10.0.0.0/30").unwrap();
        for gateway in
            [gateway("old", 1, None), gateway("new", 9, Some("10.0.0.0")), gateway("mid", 5, Some("1.1.1.1"))]
        {
            store.apply(Kind::Gateway, "gateways", Change::Applied(gateway));
        }
        let assigned = assign(&store.snapshot(), &Settings::default(), &pool);
        let texts: Vec<String> = assigned.iter().map(|(name, all)| format!("{} {}", name.name, all[0])).collect();
        assert_eq!(texts, ["mid 10.0.0.2", "new 10.0.0.0", "old 10.0.0.1"]);
    }
}
