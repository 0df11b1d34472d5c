//! Leaves out the objects that the server refuses, so that the others are served.
//!
//! The translators check values, but the server's own check of a configuration knows more. Its complaints name lines, and
//! each line belongs to an object. A refused configuration is translated again without the objects of its complaints, as
//! long as they are a small part of all: if the server refuses most objects, the reason is hardly theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cluster_objects::{Kind, ObjectName};
use cluster_render::line_owner;

use super::logs;
use super::metrics::Metrics;
use super::push::{Pushed, Pusher};
use super::server_api::{ApiFailure, ServerComplaint};
use super::store::{Key, Snapshot};
use super::translate::{Desired, Settings, leave_out};

/// Attempts with fewer objects at most.
const ROUNDS_MAX: usize = 8;
/// Objects that are left out at most.
const OBJECTS_MAX: usize = 32;
/// Kinds whose objects are left out one by one. A Gateway would take all of its routes with it.
const KINDS: &[Kind] =
    &[Kind::Ingress, Kind::HttpRoute, Kind::GrpcRoute, Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute];

/// Objects that are left out, from one push to the next.
pub struct Isolation {
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    /// Configuration of all objects that the server refused, without the servers of its groups.
    skeleton: String,
    /// Objects that were left out of it, with the server's words.
    excluded: BTreeMap<Key, String>,
    /// It was refused without these objects, too: other endpoints will not change that.
    is_hopeless: bool,
}

impl Isolation {
    pub fn new(settings: Arc<Settings>, metrics: Arc<Metrics>) -> Isolation {
        let (skeleton, excluded) = (String::new(), BTreeMap::new());
        Isolation { settings, metrics, skeleton, excluded, is_hopeless: false }
    }

    /// Pushes the configuration of all objects or, if the server refuses it, that of the objects which it does not complain
    /// about. Returns the configuration that the result is about.
    ///
    /// Each change of anything but endpoints begins with all objects again: one object may mend another one.
    ///
    /// # Errors
    /// As [`Pusher::push`].
    pub async fn push(
        &mut self,
        pusher: &mut Pusher,
        full: &Arc<Desired>,
    ) -> Result<(Arc<Desired>, Pushed), ApiFailure> {
        let is_known = self.skeleton == full.skeleton;
        let mut excluded = if is_known { self.excluded.clone() } else { BTreeMap::new() };
        let rounds = if is_known && self.is_hopeless { 0 } else { ROUNDS_MAX };
        let mut first = None;
        for round in 0..=rounds {
            let attempt = self.without(full, &excluded).await?;
            let complaints = match pusher.push(&attempt).await? {
                Pushed::Refused(complaints) => complaints,
                pushed => {
                    self.keep(full, excluded);
                    self.is_hopeless = false;
                    return Ok((attempt, pushed));
                }
            };
            let count = excluded.len();
            for (key, words) in owners(&attempt, &complaints) {
                excluded.entry(key).or_insert(words);
            }
            first.get_or_insert(complaints);
            if round == rounds || excluded.len() == count || excluded.len() > limit(&full.snapshot) {
                break;
            }
        }
        self.keep(full, BTreeMap::new());
        self.is_hopeless = true;
        Ok((full.clone(), Pushed::Refused(first.unwrap_or_default())))
    }

    async fn without(&self, full: &Arc<Desired>, excluded: &BTreeMap<Key, String>) -> Result<Arc<Desired>, ApiFailure> {
        if excluded.is_empty() {
            return Ok(full.clone());
        }
        let (full, excluded, settings) = (full.clone(), excluded.clone(), self.settings.clone());
        let translation = tokio::task::spawn_blocking(move || leave_out(&full, &excluded, &settings));
        translation.await.map(Arc::new).map_err(|error| ApiFailure::Unavailable(format!("a translation: {error}")))
    }

    fn keep(&mut self, full: &Desired, excluded: BTreeMap<Key, String>) {
        for (key, words) in &excluded {
            if self.excluded.get(key) != Some(words) {
                let (kind, ObjectName { namespace, name }) = key;
                let members = [("kind", kind.name()), ("namespace", namespace), ("name", name), ("error", words)];
                logs::error("the server refuses an object, which is left out", &members);
            }
        }
        self.metrics.objects_refused.store(excluded.len() as u64, Relaxed);
        self.skeleton.clone_from(&full.skeleton);
        self.excluded = excluded;
    }
}

/// Returns the objects that complaints of the server are about, with its words.
pub fn owners(desired: &Desired, complaints: &[ServerComplaint]) -> BTreeMap<Key, String> {
    let mut found = BTreeMap::new();
    for complaint in complaints {
        let origin = complaint.line.and_then(|line| line_owner(&desired.main, line));
        let Some(origin) = origin else { continue };
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
