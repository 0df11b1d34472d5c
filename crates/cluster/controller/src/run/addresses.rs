//! Addresses of Gateways from a pool, for clusters without load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};

use cluster_gateway::{Settings, is_ours};
use cluster_objects::types::Gateway;
use cluster_objects::{Kind, ObjectName, endpoint_slices_by_service};
use k8s_openapi::api::discovery::v1::Endpoint;
use serde_json::Value;

use super::store::Snapshot;

/// Addresses that this process has given to Gateways. Their statuses repeat them later, after the server has them.
#[derive(Debug, Default)]
pub struct AddressBook {
    given: Mutex<GivenAddress>,
}

/// Addresses by name and UID of the Gateway.
type GivenAddress = BTreeMap<(ObjectName, String), IpAddr>;

impl AddressBook {
    /// Gives an address of the pool to each Gateway of ours that asks for none. A Gateway keeps the address of its status,
    /// otherwise the one that it was given before; the others get the first free ones in order of their age, so that all
    /// replicas come to the same result.
    pub fn assign(
        &self,
        snapshot: &Snapshot,
        settings: &Settings,
        pool: &[IpAddr],
    ) -> BTreeMap<ObjectName, Vec<IpAddr>> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        *given = AddressBook::assigned(&given, snapshot, settings, pool);
        by_gateway(&given)
    }

    /// Returns the addresses that [`AddressBook::assign`] would give, and gives none.
    pub fn preview(
        &self,
        snapshot: &Snapshot,
        settings: &Settings,
        pool: &[IpAddr],
    ) -> BTreeMap<ObjectName, Vec<IpAddr>> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        by_gateway(&AddressBook::assigned(&given, snapshot, settings, pool))
    }

    fn assigned(given: &GivenAddress, snapshot: &Snapshot, settings: &Settings, pool: &[IpAddr]) -> GivenAddress {
        if pool.is_empty() {
            return GivenAddress::new();
        }
        let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
        let mut rest = Vec::new();
        for (name, gateway) in snapshot.set.by_age::<Gateway>() {
            if !is_ours(&snapshot.set, settings, gateway) {
                continue;
            }
            let asked: Vec<IpAddr> = asked_addresses(gateway).collect();
            match asked.is_empty() {
                true => rest.push((name.clone(), uid(snapshot, name))),
                false => taken.extend(asked),
            }
        }
        let in_pool: BTreeSet<IpAddr> = pool.iter().copied().collect();
        let mut assigned = GivenAddress::new();
        let known = |key: &(ObjectName, String)| {
            status_addresses(snapshot, &key.0).into_iter().find(|address| in_pool.contains(address))
        };
        for find in [&known as &dyn Fn(&_) -> Option<IpAddr>, &|key| given.get(key).copied()] {
            rest.retain(|key| match find(key).filter(|address| taken.insert(*address)) {
                Some(address) => {
                    assigned.insert(key.clone(), address);
                    false
                }
                None => true,
            });
        }
        let mut free = pool.iter().filter(|address| !taken.contains(*address));
        assigned.extend(rest.into_iter().zip(&mut free).map(|(key, address)| (key, *address)));
        assigned
    }
}

fn by_gateway(given: &GivenAddress) -> BTreeMap<ObjectName, Vec<IpAddr>> {
    given.iter().map(|((name, _), address)| (name.clone(), vec![*address])).collect()
}

fn uid(snapshot: &Snapshot, name: &ObjectName) -> String {
    let live = snapshot.live.get(&(Kind::Gateway, name.clone()));
    live.map(|live| live.uid.clone()).unwrap_or_default()
}

/// Returns the addresses that Gateways of ours ask for, and that this machine has. The server refuses a configuration
/// with any other one as a whole; the pod's containers have the same network.
pub fn usable_addresses(snapshot: &Snapshot, settings: &Settings) -> BTreeSet<IpAddr> {
    let gateways = snapshot.set.all::<Gateway>().map(|(_, gateway)| gateway);
    let ours = gateways.filter(|gateway| is_ours(&snapshot.set, settings, gateway));
    let asked: BTreeSet<IpAddr> = ours.flat_map(|gateway| asked_addresses(gateway)).collect();
    asked.into_iter().filter(|address| is_local(*address)).collect()
}

fn asked_addresses(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    gateway.spec.addresses.iter().flatten().filter_map(|one| one.value.as_deref()?.parse().ok())
}

/// Tells whether a socket can have an address. The port is the kernel's choice, and given back at once.
fn is_local(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
        Ok(_) => true,
    }
}

fn status_addresses(snapshot: &Snapshot, name: &ObjectName) -> Vec<IpAddr> {
    let live = snapshot.live.get(&(Kind::Gateway, name.clone()));
    let list = live.and_then(|live| live.status.get("addresses")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|one| one.get("value")?.as_str()?.parse().ok()).collect()
}

/// Addresses that clients reach the servers by, where an object has none itself.
#[derive(Clone, Debug, Default)]
pub struct PublishedAddresses {
    /// Service in front of the pods.
    pub service: Option<ObjectName>,
    /// IP addresses and host names, instead of those of a Service.
    pub addresses: Vec<String>,
    /// Address that Ingresses listen on.
    pub ingress_address: Option<IpAddr>,
}

impl PublishedAddresses {
    /// Returns the addresses of one Service.
    pub fn of_service(service: ObjectName) -> PublishedAddresses {
        PublishedAddresses { service: Some(service), ..PublishedAddresses::default() }
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
        self.service.as_ref().is_some_and(|service| ready_services(snapshot).contains(service))
    }
}

/// Returns the Services with an endpoint that takes requests. A snapshot of a translation has no slices, hence none.
pub fn ready_services(snapshot: &Snapshot) -> BTreeSet<ObjectName> {
    let is_ready = |endpoint: &Endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.is_none_or(|one| one.ready != Some(false) && one.terminating != Some(true))
    };
    let slices = endpoint_slices_by_service(&snapshot.set).into_iter();
    let ready =
        slices.filter(|(_, slices)| slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).any(is_ready));
    ready.map(|(service, _)| service).collect()
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

    use super::super::store::{ObjectStore, WatchChange};
    use super::*;
    use crate::address_range::parse_range;

    fn gateway(name: &str, age: u32, address: Option<&str>) -> Value {
        let status = address.map(|value| json!({"addresses": [{"type": "IPAddress", "value": value}]}));
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z")},
            "spec": {"gatewayClassName": "tidegate", "listeners": []}, "status": status,
        })
    }

    #[test]
    fn addresses_of_other_machines_are_not_usable() {
        let store = ObjectStore::new(vec![Kind::Gateway]);
        for (name, address) in [("own", "127.0.0.1"), ("other", "192.0.2.1")] {
            let mut object = gateway(name, 1, None);
            object["spec"]["addresses"] = json!([{ "value": address }, { "type": "Hostname", "value": "a.example" }]);
            store.apply(Kind::Gateway, "gateways", WatchChange::Applied(object));
        }
        let usable = usable_addresses(&store.snapshot(), &Settings::default());
        assert_eq!(usable, BTreeSet::from(["127.0.0.1".parse().unwrap()]));
    }

    #[test]
    fn gateways_keep_their_address_and_new_ones_get_the_first_free_one() {
        let store = ObjectStore::new(vec![Kind::Gateway]);
        let pool = parse_range("10.0.0.0/30").unwrap();
        for gateway in
            [gateway("old", 1, None), gateway("new", 9, Some("10.0.0.0")), gateway("mid", 5, Some("1.1.1.1"))]
        {
            store.apply(Kind::Gateway, "gateways", WatchChange::Applied(gateway));
        }
        let assigned = AddressBook::default().assign(&store.snapshot(), &Settings::default(), &pool);
        assert_eq!(texts(&assigned), ["mid 10.0.0.2", "new 10.0.0.0", "old 10.0.0.1"]);
    }

    fn texts(assigned: &BTreeMap<ObjectName, Vec<IpAddr>>) -> Vec<String> {
        assigned.iter().map(|(name, all)| format!("{} {}", name.name, all[0])).collect()
    }

    #[test]
    fn an_address_stays_until_the_status_has_it() {
        let store = ObjectStore::new(vec![Kind::Gateway]);
        let (book, pool) = (AddressBook::default(), parse_range("10.0.0.0/30").unwrap());
        let assign = || texts(&book.assign(&store.snapshot(), &Settings::default(), &pool));
        for (name, age) in [("a", 1), ("b", 2)] {
            store.apply(Kind::Gateway, "gateways", WatchChange::Applied(gateway(name, age, None)));
        }
        let preview = || texts(&book.preview(&store.snapshot(), &Settings::default(), &pool));
        assert_eq!(preview(), ["a 10.0.0.0", "b 10.0.0.1"]);
        store.apply(Kind::Gateway, "gateways", WatchChange::Applied(gateway("c", 0, None)));
        assert_eq!(preview(), ["a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.0"], "a preview gives nothing");
        store.apply(Kind::Gateway, "gateways", WatchChange::Deleted(gateway("c", 0, None)));
        assert_eq!(assign(), ["a 10.0.0.0", "b 10.0.0.1"]);
        store.apply(Kind::Gateway, "gateways", WatchChange::Deleted(gateway("a", 1, None)));
        assert_eq!(assign(), ["b 10.0.0.1"]);
        // A Gateway of the same name is another one.
        let mut again = gateway("b", 3, None);
        again["metadata"]["uid"] = "2".into();
        store.apply(Kind::Gateway, "gateways", WatchChange::Applied(again));
        assert_eq!(assign(), ["b 10.0.0.0"]);
        // The status of another leader goes before an address that was given here.
        store.apply(Kind::Gateway, "gateways", WatchChange::Applied(gateway("c", 4, Some("10.0.0.0"))));
        assert_eq!(assign(), ["b 10.0.0.1", "c 10.0.0.0"]);
    }
}
