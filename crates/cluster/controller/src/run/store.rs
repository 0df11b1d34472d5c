//! All watched objects, as the API server last sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet, parse_object};
use serde_json::Value;
use tokio::sync::Notify;

use super::change_queue::ChangeQueue;

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

pub type Key = (Kind, ObjectName);

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
    pub live: BTreeMap<Key, Arc<Live>>,
    /// Objects that cannot be read.
    pub complaints: BTreeMap<Key, Complaint>,
}

/// Event of a watch.
pub enum Change {
    /// A list begins; until its end, the old objects stay.
    ListBegins,
    Listed(Value),
    ListEnds,
    Applied(Value),
    Deleted(Value),
}

#[derive(Default)]
struct Inner {
    now: Snapshot,
    /// Names that the list of a kind has had so far.
    lists: BTreeMap<Kind, BTreeSet<ObjectName>>,
    /// Kinds whose first list is complete, or that the API server does not have.
    complete: BTreeSet<Kind>,
}

/// Objects, and notes of their changes.
pub struct Store {
    inner: Mutex<Inner>,
    kinds: Vec<Kind>,
    pub queue: ChangeQueue,
    completed: Notify,
    /// Only statuses changed.
    pub status_changed: Notify,
}

impl Store {
    pub fn new(kinds: Vec<Kind>) -> Store {
        Store {
            inner: Mutex::default(),
            kinds,
            queue: ChangeQueue::default(),
            completed: Notify::new(),
            status_changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn snapshot(&self) -> Snapshot {
        self.lock().now.clone()
    }

    /// Returns the number of objects by kind.
    pub fn counts(&self) -> Vec<(Kind, usize)> {
        let inner = self.lock();
        let mut counts: BTreeMap<Kind, usize> = self.kinds.iter().map(|kind| (*kind, 0)).collect();
        for (kind, _) in inner.now.live.keys() {
            *counts.entry(*kind).or_default() += 1;
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
        let names: Vec<ObjectName> = names_of(&inner.now, kind).cloned().collect();
        for name in names {
            self.note(inner.now.remove(kind, &name));
        }
    }

    fn finish(&self, kind: Kind, inner: &mut Inner) {
        if inner.complete.insert(kind) {
            self.queue.note();
            self.completed.notify_waiters();
        }
    }

    fn note(&self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Status => self.status_changed.notify_one(),
            Effect::Object => self.queue.note(),
        }
    }

    /// Applies an event of the watch of a kind.
    pub fn apply(&self, kind: Kind, plural: &str, change: Change) {
        let mut inner = self.lock();
        match change {
            Change::ListBegins => _ = inner.lists.insert(kind, BTreeSet::new()),
            Change::Listed(value) => {
                if let Some(list) = inner.lists.get_mut(&kind) {
                    list.insert(name_of(kind, &value));
                }
                self.note(inner.now.upsert(kind, plural, value));
            }
            Change::ListEnds => {
                let listed = inner.lists.remove(&kind).unwrap_or_default();
                let gone: Vec<ObjectName> =
                    names_of(&inner.now, kind).filter(|name| !listed.contains(*name)).cloned().collect();
                for name in gone {
                    self.note(inner.now.remove(kind, &name));
                }
                self.finish(kind, &mut inner);
            }
            Change::Applied(value) => self.note(inner.now.upsert(kind, plural, value)),
            Change::Deleted(value) => self.note(inner.now.remove(kind, &name_of(kind, &value))),
        }
    }
}

#[derive(PartialEq)]
enum Effect {
    None,
    Status,
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
        let key = (kind, name);
        let api_version = live.api_version.clone();
        let old = self.live.get(&key);
        let status_changed = old.is_none_or(|old| old.status != live.status);
        // Addresses of Gateways and Services are read from their statuses.
        let is_read = matches!(kind, Kind::Gateway | Kind::Service);
        self.live.insert(key.clone(), Arc::new(live));
        let changed = match parse_object(kind, &api_version, value).and_then(|object| self.set.upsert(object)) {
            Ok(changed) => self.complaints.remove(&key).is_some() || changed,
            Err(reason) => {
                let complaint = Complaint::about(kind, &key.1.namespace, &key.1.name, reason);
                let removed = self.set.remove(kind, &key.1.namespace, &key.1.name);
                self.complaints.insert(key, complaint.clone()).is_none_or(|old| old != complaint) || removed
            }
        };
        match (changed || (status_changed && is_read), status_changed) {
            (true, _) => Effect::Object,
            (false, true) => Effect::Status,
            (false, false) => Effect::None,
        }
    }

    fn remove(&mut self, kind: Kind, name: &ObjectName) -> Effect {
        let key = (kind, name.clone());
        self.live.remove(&key);
        let complained = self.complaints.remove(&key).is_some();
        match self.set.remove(kind, &name.namespace, &name.name) || complained {
            true => Effect::Object,
            false => Effect::None,
        }
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

fn names_of(snapshot: &Snapshot, kind: Kind) -> impl Iterator<Item = &ObjectName> {
    snapshot
        .live
        .range((kind, ObjectName::default())..)
        .map(|(key, _)| key)
        .take_while(move |key| key.0 == kind)
        .map(|key| &key.1)
}

fn name_of(kind: Kind, value: &Value) -> ObjectName {
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    match kind.is_namespaced() {
        true => ObjectName::new(word("/metadata/namespace"), word("/metadata/name")),
        false => ObjectName::new("", word("/metadata/name")),
    }
}
