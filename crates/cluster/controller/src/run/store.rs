//! All watched objects, as the API server last sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_objects::types::EndpointSlice;
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet, parse_object, service_of_slice};
use serde_json::Value;
use tokio::sync::Notify;

use super::change_queue::{ChangeQueue, Changes};
use super::probes::SourceState;

/// Kinds that are watched, if their definitions exist.
pub const KINDS: &[Kind] = &[
    Kind::BackendTlsPolicy,
    Kind::ConfigMap,
    Kind::EndpointSlice,
    Kind::Gateway,
    Kind::GatewayClass,
    Kind::GrpcRoute,
    Kind::HttpRoute,
    Kind::Ingress,
    Kind::IngressClass,
    Kind::ListenerSet,
    Kind::Namespace,
    Kind::ReferenceGrant,
    Kind::Secret,
    Kind::Service,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::UdpRoute,
];

pub type ObjectKey = (Kind, ObjectName);

/// Members of an object that the translators do not read.
#[derive(Debug, Default, PartialEq)]
pub struct Live {
    pub api_version: String,
    /// Plural name in paths of the API.
    pub plural: String,
    pub resource_version: String,
    pub uid: String,
    pub generation: i64,
    pub status: Value,
    /// Field manager that has written `status.loadBalancer.ingress` of an Ingress last.
    pub addresses_manager: Option<String>,
}

/// Objects of one moment.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub set: ObjectSet,
    /// Of all objects except slices that can be read: they have neither statuses nor complaints.
    pub live: Arc<BTreeMap<ObjectKey, Arc<Live>>>,
    /// Objects that cannot be read.
    pub complaints: Arc<BTreeMap<ObjectKey, Complaint>>,
}

/// Event of a watch.
pub enum WatchChange {
    /// A list begins; until its end, the old objects stay.
    ListBegins,
    Listed(Value),
    ListEnds,
    Applied(Value),
    Deleted(Value),
}

#[derive(Default)]
struct StoreInner {
    now: Snapshot,
    /// Names that the list of a kind has had so far.
    lists: BTreeMap<Kind, BTreeSet<ObjectName>>,
    /// Kinds whose first list is complete, or that the API server does not have.
    complete: BTreeSet<Kind>,
}

/// Objects, and notes of their changes.
pub struct ObjectStore {
    inner: Mutex<StoreInner>,
    kinds: Vec<Kind>,
    pub queue: ChangeQueue,
    completed: Notify,
    /// Only statuses changed.
    pub status_changed: Notify,
}

impl ObjectStore {
    pub fn new(kinds: Vec<Kind>) -> ObjectStore {
        ObjectStore {
            inner: Mutex::default(),
            kinds,
            queue: ChangeQueue::default(),
            completed: Notify::new(),
            status_changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn snapshot(&self) -> Snapshot {
        self.lock().now.clone()
    }

    /// Takes the changes since the last call, with the objects as they are after all of them.
    pub fn take_changes(&self) -> (Changes, Snapshot) {
        let inner = self.lock();
        (self.queue.drain(), inner.now.clone())
    }

    /// Returns the number of objects by kind.
    pub fn counts(&self) -> Vec<(Kind, usize)> {
        let inner = self.lock();
        let mut counts: BTreeMap<Kind, usize> = self.kinds.iter().map(|kind| (*kind, 0)).collect();
        for (kind, _) in inner.now.live.keys() {
            *counts.entry(*kind).or_default() += 1;
        }
        if let Some(count) = counts.get_mut(&Kind::EndpointSlice) {
            *count += inner.now.set.all::<EndpointSlice>().count();
        }
        counts.into_iter().collect()
    }

    /// Returns the kinds whose first list is not complete.
    pub fn missing(&self) -> Vec<Kind> {
        let inner = self.lock();
        self.kinds.iter().copied().filter(|kind| !inner.complete.contains(kind)).collect()
    }

    /// Waits until the first list of every kind is complete: a configuration of a part of them would take down the rest.
    pub async fn complete(&self) {
        loop {
            let notified = self.completed.notified();
            if self.missing().is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Notes that the API server does not have a kind.
    pub fn set_absent(&self, kind: Kind) {
        self.finish(kind, &mut self.lock());
    }

    /// Removes all objects of a kind.
    pub fn clear(&self, kind: Kind) {
        let mut inner = self.lock();
        let names = names_of(&inner.now, kind);
        for name in names {
            self.note(inner.now.remove(kind, &name));
        }
    }

    fn finish(&self, kind: Kind, inner: &mut StoreInner) {
        if inner.complete.insert(kind) {
            self.queue.note(Changes::Objects);
            self.completed.notify_waiters();
        }
    }

    fn note(&self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Status => self.status_changed.notify_one(),
            Effect::Endpoints(services) => self.queue.note(Changes::Endpoints(services)),
            Effect::Object => self.queue.note(Changes::Objects),
        }
    }

    /// Applies an event of the watch of a kind.
    pub fn apply(&self, kind: Kind, plural: &str, change: WatchChange) {
        let mut inner = self.lock();
        match change {
            WatchChange::ListBegins => _ = inner.lists.insert(kind, BTreeSet::new()),
            WatchChange::Listed(value) => {
                if let Some(list) = inner.lists.get_mut(&kind) {
                    list.insert(name_of(kind, &value));
                }
                self.note(inner.now.upsert(kind, plural, value));
            }
            WatchChange::ListEnds => {
                let listed = inner.lists.remove(&kind).unwrap_or_default();
                for name in names_of(&inner.now, kind).into_iter().filter(|name| !listed.contains(name)) {
                    self.note(inner.now.remove(kind, &name));
                }
                self.finish(kind, &mut inner);
            }
            WatchChange::Applied(value) => self.note(inner.now.upsert(kind, plural, value)),
            WatchChange::Deleted(value) => self.note(inner.now.remove(kind, &name_of(kind, &value))),
        }
    }
}

#[derive(PartialEq)]
enum Effect {
    None,
    Status,
    /// A slice of these Services: of the one before the change, and of the one after it.
    Endpoints(BTreeSet<ObjectName>),
    Object,
}

impl Snapshot {
    fn upsert(&mut self, kind: Kind, plural: &str, mut value: Value) -> Effect {
        let name = name_of(kind, &value);
        let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let mut live = Live {
            api_version: word("/apiVersion"),
            plural: plural.into(),
            resource_version: word("/metadata/resourceVersion"),
            uid: word("/metadata/uid"),
            generation: value.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0),
            status: Value::Null,
            addresses_manager: (kind == Kind::Ingress).then(|| addresses_manager(&value)).flatten(),
        };
        if let Some(object) = value.as_object_mut() {
            live.status = object.remove("status").unwrap_or_default();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                // They change with every status, and nothing reads them.
                metadata.remove("managedFields");
                metadata.remove("resourceVersion");
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
                }
            }
        }
        let key = (kind, name.clone());
        let api_version = live.api_version.clone();
        let old = self.live.get(&key);
        let status_changed = old.is_none_or(|old| old.status != live.status);
        // Addresses of Gateways and Services are read from their statuses.
        let is_read = matches!(kind, Kind::Gateway | Kind::Service);
        let live = Arc::new(live);
        let unreadable = (kind == Kind::EndpointSlice).then(|| live.clone());
        if kind != Kind::EndpointSlice {
            Arc::make_mut(&mut self.live).insert(key.clone(), live);
        } else if self.live.contains_key(&key) {
            Arc::make_mut(&mut self.live).remove(&key);
        }
        let mut services: BTreeSet<ObjectName> = self.service_of(&key).into_iter().collect();
        let had_complaint = self.complaints.contains_key(&key);
        let changed = match parse_object(kind, &api_version, value).and_then(|object| self.set.upsert(object)) {
            Ok(changed) => self.remove_complaint(&key) || changed,
            Err(reason) => {
                let complaint = Complaint::about(kind, &key.1.namespace, &key.1.name, reason);
                let removed = self.set.remove(kind, &key.1.namespace, &key.1.name);
                if let Some(live) = unreadable {
                    Arc::make_mut(&mut self.live).insert(key.clone(), live);
                }
                let old = Arc::make_mut(&mut self.complaints).insert(key, complaint.clone());
                old.is_none_or(|old| old != complaint) || removed
            }
        };
        let key = (kind, name);
        match (changed || (status_changed && is_read), status_changed) {
            (true, _) if kind == Kind::EndpointSlice && !had_complaint && !self.complaints.contains_key(&key) => {
                services.extend(self.service_of(&key));
                Effect::Endpoints(services)
            }
            (true, _) => Effect::Object,
            (false, true) => Effect::Status,
            (false, false) => Effect::None,
        }
    }

    fn remove(&mut self, kind: Kind, name: &ObjectName) -> Effect {
        let key = (kind, name.clone());
        if self.live.contains_key(&key) {
            Arc::make_mut(&mut self.live).remove(&key);
        }
        let complained = self.remove_complaint(&key);
        let service = self.service_of(&key);
        match self.set.remove(kind, &name.namespace, &name.name) || complained {
            true if kind == Kind::EndpointSlice && !complained => Effect::Endpoints(service.into_iter().collect()),
            true => Effect::Object,
            false => Effect::None,
        }
    }

    fn remove_complaint(&mut self, key: &ObjectKey) -> bool {
        self.complaints.contains_key(key) && Arc::make_mut(&mut self.complaints).remove(key).is_some()
    }

    /// Returns the Service of a slice.
    fn service_of(&self, (kind, name): &ObjectKey) -> Option<ObjectName> {
        let slice =
            (*kind == Kind::EndpointSlice).then(|| self.set.get::<EndpointSlice>(&name.namespace, &name.name))??;
        Some(ObjectName::new(&name.namespace, service_of_slice(slice)?))
    }
}

impl SourceState for ObjectStore {
    fn counts(&self) -> Vec<(&'static str, usize)> {
        ObjectStore::counts(self).into_iter().map(|(kind, count)| (kind.name(), count)).collect()
    }

    fn missing(&self) -> Option<String> {
        let missing: Vec<&str> = ObjectStore::missing(self).into_iter().map(Kind::name).collect();
        (!missing.is_empty()).then(|| format!("the lists of these kinds are not complete: {}", missing.join(", ")))
    }
}

/// Returns the field manager of the addresses in the status of an Ingress; the list has one manager as a whole.
fn addresses_manager(value: &Value) -> Option<String> {
    let entries = value.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let of_status = |entry: &&Value| {
        entry.get("subresource").and_then(Value::as_str) == Some("status")
            && entry.pointer("/fieldsV1/f:status/f:loadBalancer/f:ingress").is_some()
    };
    entries.iter().find(of_status)?.get("manager")?.as_str().map(str::to_owned)
}

fn names_of(snapshot: &Snapshot, kind: Kind) -> Vec<ObjectName> {
    let live = snapshot.live.range((kind, ObjectName::default())..).map(|(key, _)| key);
    let mut names: Vec<ObjectName> = live.take_while(|key| key.0 == kind).map(|key| key.1.clone()).collect();
    if kind == Kind::EndpointSlice {
        names.extend(snapshot.set.all::<EndpointSlice>().map(|(name, _)| name.clone()));
    }
    names
}

fn name_of(kind: Kind, value: &Value) -> ObjectName {
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    match kind.is_namespaced() {
        true => ObjectName::new(word("/metadata/namespace"), word("/metadata/name")),
        false => ObjectName::new("", word("/metadata/name")),
    }
}
