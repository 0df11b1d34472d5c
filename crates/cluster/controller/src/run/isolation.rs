//! Leaves out the objects that the server refuses, so that the others are served.
//!
//! The translators check values, but the server's own check of a configuration knows more. Its complaints name lines, and
//! each line belongs to an object. A refused configuration is translated again without the objects of its complaints, as
//! long as they are a small part of all: if the server refuses most objects, the reason is hardly theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cluster_objects::{Kind, ObjectName};

use super::endpoints::translate_endpoints;
use super::logs;
use super::metrics::Metrics;
use super::push::{Isolate, PushOutcome, Pusher, SentText};
use super::server_api::{ApiFailure, ServerComplaint};
use super::store::{ObjectKey, ObjectStore, Snapshot};
use super::translate::{DesiredState, leave_out, with_slices};

/// Attempts with fewer objects at most.
const ROUNDS_MAX: usize = 8;
/// Objects that are left out at most.
const OBJECTS_MAX: usize = 32;
/// Kinds whose objects are left out one by one. A Gateway would take all of its routes with it.
const KINDS: &[Kind] =
    &[Kind::Ingress, Kind::HttpRoute, Kind::GrpcRoute, Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute];

/// Objects that are left out, from one push to the next.
pub struct Isolation {
    store: Arc<ObjectStore>,
    metrics: Arc<Metrics>,
    last: Option<LastPush>,
}

/// End of the last push.
struct LastPush {
    /// Configuration of all objects.
    full: SentText,
    /// Objects that were left out of it, with the server's words.
    excluded: Arc<BTreeMap<ObjectKey, String>>,
    /// The configuration without them, if there are any.
    reduced: Option<Arc<DesiredState>>,
    /// The server refused the configurations with fewer objects, too.
    is_given_up: bool,
}

impl Isolation {
    pub fn new(store: Arc<ObjectStore>, metrics: Arc<Metrics>) -> Isolation {
        Isolation { store, metrics, last: None }
    }

    /// Pushes the configuration of all objects or, if the server refuses it, that of the objects which it does not complain
    /// about. Returns the configuration that the result is about.
    ///
    /// Each change of anything but endpoints begins with all objects again: one object may mend another one. A change of
    /// endpoints leaves out the same objects.
    ///
    /// # Errors
    /// As [`Pusher::push`].
    pub async fn push(
        &mut self,
        pusher: &mut Pusher,
        full: &Arc<DesiredState>,
    ) -> Result<(Arc<DesiredState>, PushOutcome), ApiFailure> {
        let last = self.last.as_ref().filter(|last| last.full.is_text_of(full));
        let mut excluded = last.map(|last| BTreeMap::clone(&last.excluded)).unwrap_or_default();
        let rounds = if last.is_some_and(|last| last.is_given_up) { 0 } else { ROUNDS_MAX };
        let mut first = None;
        for round in 0..=rounds {
            let attempt = self.without(full, &excluded).await?;
            let complaints = match pusher.push(&attempt).await? {
                PushOutcome::Refused(complaints) => complaints,
                pushed => {
                    self.keep(full, Some(attempt.clone()));
                    return Ok((attempt, pushed));
                }
            };
            let count = excluded.len();
            for (key, words) in complaint_owners(&attempt, &complaints) {
                excluded.entry(key).or_insert(words);
            }
            first.get_or_insert(complaints);
            if round == rounds || excluded.len() == count || excluded.len() > limit(&full.snapshot) {
                break;
            }
        }
        self.keep(full, None);
        Ok((full.clone(), PushOutcome::Refused(first.unwrap_or_default())))
    }

    /// Translates without some objects. If endpoints alone have changed since the last push, only they are translated.
    async fn without(
        &self,
        full: &Arc<DesiredState>,
        excluded: &BTreeMap<ObjectKey, String>,
    ) -> Result<Arc<DesiredState>, ApiFailure> {
        if excluded.is_empty() {
            return Ok(full.clone());
        }
        // Translations of endpoints share the text; each one of all objects has another.
        let last = self.last.as_ref().filter(|last| last.full.shares_text_of(full) && *last.excluded == *excluded);
        let reduced = last.and_then(|last| last.reduced.clone());
        let (full, excluded, slices) = (full.clone(), Arc::new(excluded.clone()), self.store.snapshot().set);
        let task = move || {
            let endpoints = reduced.and_then(|reduced| {
                // One of its Services may have groups in this configuration only.
                let services = reduced.sources.keys().cloned().collect();
                translate_endpoints(&reduced, &services, &with_slices(&full.snapshot, &slices))
            });
            endpoints.unwrap_or_else(|| leave_out(&full, &slices, &excluded))
        };
        let translation = tokio::task::spawn_blocking(task).await;
        translation.map(Arc::new).map_err(|error| ApiFailure::Unavailable(format!("a translation: {error}")))
    }

    /// Notes the configuration that is active; `None` if the server has refused all.
    fn keep(&mut self, full: &DesiredState, active: Option<Arc<DesiredState>>) {
        let is_given_up = active.is_none();
        let excluded = active.as_ref().map(|active| active.excluded.clone()).unwrap_or_default();
        let old = self.last.take().map(|last| last.excluded).unwrap_or_default();
        for (key, words) in excluded.iter().filter(|(key, words)| old.get(key) != Some(*words)) {
            let (kind, ObjectName { namespace, name }) = key;
            let members = [("kind", kind.name()), ("namespace", namespace), ("name", name), ("error", words)];
            logs::error("the server refuses an object, which is left out", &members);
        }
        self.metrics.objects_refused.store(excluded.len() as u64, Relaxed);
        let reduced = active.filter(|_| !excluded.is_empty());
        self.last = Some(LastPush { full: SentText::of(full), excluded, reduced, is_given_up });
    }
}

impl Isolate for Isolation {
    async fn push_isolated(
        &mut self,
        pusher: &mut Pusher,
        full: &Arc<DesiredState>,
    ) -> Result<(Arc<DesiredState>, PushOutcome), ApiFailure> {
        self.push(pusher, full).await
    }
}

/// Returns the objects that complaints of the server are about, with its words.
pub fn complaint_owners(desired: &DesiredState, complaints: &[ServerComplaint]) -> BTreeMap<ObjectKey, String> {
    let mut found = BTreeMap::new();
    for complaint in complaints {
        let Some(origin) = &complaint.origin else { continue };
        let Some(kind) = KINDS.iter().copied().find(|kind| kind.name() == origin.kind) else { continue };
        let name = ObjectName::new(&origin.namespace, &origin.name);
        if desired.snapshot.set.contains(kind, &name) {
            found.entry((kind, name)).or_insert_with(|| complaint.message.clone());
        }
    }
    found
}

/// Returns the number of objects that may be left out: half of all, but one at least.
fn limit(snapshot: &Snapshot) -> usize {
    let count = snapshot.live.keys().filter(|(kind, _)| KINDS.contains(kind)).count();
    count.div_ceil(2).min(OBJECTS_MAX)
}
