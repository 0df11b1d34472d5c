//! Reviews of objects: the object is put in its place in the set of all objects, and the set is translated.
//!
//! | Result of the translation | Answer |
//! |---|---|
//! | the object is of another controller | allowed |
//! | parts of the object are left out | allowed, with the complaints as warnings |
//! | an Ingress is left out, because of a directive of a snippet | denied |
//! | the server's check of the configuration refuses it | denied, with the words of `-t` |
//! | the server cannot be asked, or not in time | allowed, with a warning |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster_objects::{Complaint, Kind, ObjectName, parse_object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::super::events;
use super::super::isolation::complaint_owners;
use super::super::logs;
use super::super::metrics::{self, Metrics};
use super::super::push::{PushResult, SentText};
use super::super::server_api::{ApiFailure, Digests, ServerApi, digests_of, join_complaints};
use super::super::store::{ObjectKey, ObjectStore};
use super::super::translate::{DesiredState, Settings, translate_snapshot};

/// Translations at once at most.
const REVIEWS_MAX: usize = 4;
/// Warnings of an answer at most.
const WARNINGS_MAX: usize = 16;
/// Characters of a warning at most: the API server cuts longer ones.
const WARNING_MAX: usize = 250;
/// Kinds that are reviewed.
pub const KINDS: &[Kind] = &[
    Kind::BackendTlsPolicy,
    Kind::Gateway,
    Kind::GrpcRoute,
    Kind::HttpRoute,
    Kind::Ingress,
    Kind::ListenerSet,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::UdpRoute,
];

/// Reviews objects with the set of a controller, and with the server beside it.
pub struct Reviewer {
    pub store: Arc<ObjectStore>,
    pub settings: Arc<Settings>,
    pub api: ServerApi,
    pub outcomes: watch::Receiver<Option<PushResult>>,
    pub metrics: Arc<Metrics>,
    slots: Arc<Semaphore>,
}

/// `AdmissionReview` of `admission.k8s.io/v1`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    api_version: String,
    kind: String,
    request: AdmissionRequest,
}

#[derive(Deserialize)]
struct AdmissionRequest {
    uid: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    object: Value,
}

/// Answer to a review.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReviewVerdict {
    /// Reason of a denial.
    pub denied: Option<String>,
    pub warnings: Vec<String>,
}

impl ReviewVerdict {
    fn warn(words: impl Into<String>) -> ReviewVerdict {
        ReviewVerdict { denied: None, warnings: vec![words.into()] }
    }
}

impl Reviewer {
    pub fn new(
        store: Arc<ObjectStore>,
        settings: Arc<Settings>,
        api: ServerApi,
        outcomes: watch::Receiver<Option<PushResult>>,
        metrics: Arc<Metrics>,
    ) -> Reviewer {
        Reviewer { store, settings, api, outcomes, metrics, slots: Arc::new(Semaphore::new(REVIEWS_MAX)) }
    }

    /// Answers an `AdmissionReview`. A review that takes longer than `time` allows the object, with a warning.
    ///
    /// # Errors
    /// If the bytes are no `AdmissionReview` of `admission.k8s.io/v1`.
    pub async fn answer(&self, bytes: &[u8], time: Duration) -> Result<Value, String> {
        let review: AdmissionReview =
            serde_json::from_slice(bytes).map_err(|error| format!("not an AdmissionReview: {error}"))?;
        if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
            return Err("expected an AdmissionReview of admission.k8s.io/v1".into());
        }
        let request = review.request;
        let uid = request.uid.clone();
        let verdict = timeout(time, self.review(request)).await;
        let mut verdict = verdict.unwrap_or_else(|_| ReviewVerdict::warn("not checked: the controller took too long"));
        verdict.warnings.iter_mut().for_each(|words| *words = shorten(words));
        if verdict.warnings.len() > WARNINGS_MAX {
            let rest = verdict.warnings.len() - (WARNINGS_MAX - 1);
            verdict.warnings.truncate(WARNINGS_MAX - 1);
            verdict.warnings.push(format!("and {rest} more"));
        }
        metrics::count_one(&self.metrics.reviews);
        let mut response = json!({ "uid": uid, "allowed": verdict.denied.is_none(), "warnings": verdict.warnings });
        if let Some(words) = verdict.denied {
            metrics::count_one(&self.metrics.reviews_denied);
            response["status"] = json!({ "code": 422, "reason": "Invalid", "message": words });
        }
        Ok(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
    }

    async fn review(&self, request: AdmissionRequest) -> ReviewVerdict {
        if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
            return ReviewVerdict::default();
        }
        let mut object = request.object;
        let word = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let Some(kind) = Kind::of(&version, &kind).filter(|kind| KINDS.contains(kind)) else {
            return ReviewVerdict::default();
        };
        let name = complete_name(&mut object, &request.namespace);
        let key = (kind, name);
        if !self.store.missing().is_empty() {
            return ReviewVerdict::warn("not checked: the controller has not read the cluster yet");
        }
        let outcome = self.outcomes.borrow().clone();
        let Ok(slot) = self.slots.clone().acquire_owned().await else { return ReviewVerdict::default() };
        let excluded = outcome.as_ref().map(|outcome| outcome.desired.excluded.clone()).unwrap_or_default();
        let task = {
            let (snapshot, settings, key) = (self.store.snapshot(), self.settings.clone(), key.clone());
            move || {
                let _slot = slot;
                let mut snapshot = snapshot;
                remove_others(&mut snapshot.set, &excluded, &key);
                Arc::make_mut(&mut snapshot.complaints).remove(&key);
                let object = parse_object(kind, &version, object)?;
                snapshot.set.upsert(object)?;
                let addresses = settings.book.preview(&snapshot, &settings.gateway, &settings.pool);
                let settings = settings.with_addresses(addresses, &snapshot);
                Ok::<DesiredState, String>(translate_snapshot(snapshot, &settings))
            }
        };
        let desired = match tokio::task::spawn_blocking(task).await {
            Ok(Ok(desired)) => desired,
            Ok(Err(error)) => return ReviewVerdict::warn(format!("left out: {error}")),
            Err(error) => return ReviewVerdict::warn(format!("not checked: {error}")),
        };
        self.judge(&key, &desired, outcome.as_ref()).await
    }

    async fn judge(&self, key: &ObjectKey, desired: &DesiredState, outcome: Option<&PushResult>) -> ReviewVerdict {
        if !is_ours(desired, key) {
            return ReviewVerdict::default();
        }
        let (own, others): (Vec<&Complaint>, Vec<&Complaint>) =
            desired.complaints.iter().partition(|complaint| events::complaint_subject(complaint).as_ref() == Some(key));
        if key.0 == Kind::Ingress && desired.refused_ingresses.contains(&key.1) {
            let words: Vec<&str> = own.iter().map(|complaint| complaint.reason.as_str()).collect();
            return ReviewVerdict { denied: Some(words.join("; ")), warnings: Vec::new() };
        }
        let mut warnings: Vec<String> = own.iter().map(|complaint| complaint.reason.clone()).collect();
        let Some(outcome) = outcome else {
            warnings.push("not checked by the server: it has no configuration of the controller yet".into());
            return ReviewVerdict { denied: None, warnings };
        };
        let known = &outcome.desired.complaints;
        // The object may take a path or a port from another one.
        let of_others = others.into_iter().filter(|complaint| known.binary_search(complaint).is_err());
        warnings.extend(of_others.map(Complaint::to_string));
        if SentText::of(&outcome.desired).is_text_of(desired) {
            return ReviewVerdict { denied: None, warnings };
        }
        let denied = match self.check(desired, &outcome.desired).await {
            Ok(()) => None,
            Err(ApiFailure::Refused(complaints)) => {
                let words = complaint_owners(desired, &complaints).remove(key);
                match (words, &outcome.refused) {
                    (Some(words), _) => Some(format!("the server refuses it: {words}")),
                    (None, None) => {
                        Some(format!("the server refuses the configuration with it: {}", join_complaints(&complaints)))
                    }
                    // It refuses the configuration without the object, too.
                    (None, Some(_)) => {
                        warnings.push("not checked by the server: it refuses the configuration already".into());
                        None
                    }
                }
            }
            Err(error) => {
                logs::warn("a review is not checked by the server", &[("error", &error.to_string())]);
                warnings.push(format!("not checked by the server: {error}"));
                None
            }
        };
        ReviewVerdict { denied, warnings }
    }

    /// Sends a configuration to the server's check. Most of its files are those of the pushed one.
    async fn check(&self, desired: &DesiredState, pushed: &DesiredState) -> Result<(), ApiFailure> {
        let active = self.api.active().await?;
        let (main, files) = (desired.main_text(), &desired.files);
        match self.api.check(&active, &main, files, &digests_of(&pushed.files)).await {
            // The server keeps an older configuration, with other files.
            Err(ApiFailure::FileMissing(_)) => self.api.check(&active, &main, files, &Digests::new()).await,
            result => result,
        }
    }
}

/// Removes the objects that the server refuses already, except for the reviewed one.
fn remove_others(set: &mut cluster_objects::ObjectSet, excluded: &BTreeMap<ObjectKey, String>, reviewed: &ObjectKey) {
    for (kind, name) in excluded.keys().filter(|key| *key != reviewed) {
        set.remove(*kind, &name.namespace, &name.name);
    }
}

/// Returns the name of an object, and completes it: names that the API server generates come later.
fn complete_name(object: &mut Value, namespace: &str) -> ObjectName {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return ObjectName::default();
    };
    let word = |metadata: &serde_json::Map<String, Value>, name: &str| {
        metadata.get(name).and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let mut name = word(metadata, "name");
    if name.is_empty() {
        name = format!("{}new", word(metadata, "generateName"));
        metadata.insert("name".into(), name.as_str().into());
    }
    let mut place = word(metadata, "namespace");
    if place.is_empty() {
        place = namespace.to_owned();
        metadata.insert("namespace".into(), namespace.into());
    }
    ObjectName::new(&place, &name)
}

/// Tells whether the controller serves an object.
fn is_ours(desired: &DesiredState, key: &ObjectKey) -> bool {
    let (kind, name) = key;
    let (statuses, name) = (&desired.statuses, name.to_string());
    match kind {
        Kind::Ingress => desired.ingresses.contains(&key.1),
        Kind::Gateway => statuses.gateways.contains_key(&name),
        Kind::ListenerSet => statuses.listener_sets.contains_key(&name),
        Kind::BackendTlsPolicy => statuses.policies.contains_key(&name),
        kind => statuses.routes.get(&format!("{} {name}", kind.name())).is_some_and(|parents| !parents.is_empty()),
    }
}

fn shorten(words: &str) -> String {
    match words.char_indices().nth(WARNING_MAX) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words.to_owned(),
    }
}
