//! Leaves out the containers and services that the server refuses, so that the others are served. Their values are checked,
//! but the server's own check of a snippet knows more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cluster_discovery::OwnerName;

use super::super::logs;
use super::super::metrics::Metrics;
use super::super::push::{Isolate, PushOutcome, Pusher, SentText};
use super::super::server_api::{ApiFailure, ServerComplaint};
use super::translate::DesiredState;
use super::translation::Translator;

/// Attempts with fewer owners at most.
const ROUNDS_MAX: usize = 8;
/// Owners that are left out at most.
const OWNERS_MAX: usize = 32;

/// Owners that are left out, from one push to the next.
pub struct OwnerIsolation {
    translator: Arc<Translator>,
    metrics: Arc<Metrics>,
    /// The last configuration of all owners, and those that were left out of it.
    last: Option<(SentText, BTreeMap<OwnerName, String>)>,
}

impl OwnerIsolation {
    pub fn new(translator: Arc<Translator>, metrics: Arc<Metrics>) -> OwnerIsolation {
        OwnerIsolation { translator, metrics, last: None }
    }

    fn keep(&mut self, full: &DesiredState, refused: BTreeMap<OwnerName, String>) {
        let old = self.last.take().map(|last| last.1).unwrap_or_default();
        for (owner, words) in refused.iter().filter(|(owner, words)| old.get(*owner) != Some(*words)) {
            let members = [("kind", owner.kind.as_str()), ("name", &owner.name), ("error", words)];
            logs::error("the server refuses a container or service, which is left out", &members);
        }
        self.metrics.objects_refused.store(refused.len() as u64, Relaxed);
        self.last = Some((SentText::of(full), refused));
    }
}

impl Isolate for OwnerIsolation {
    async fn push_isolated(
        &mut self,
        pusher: &mut Pusher,
        full: &Arc<DesiredState>,
    ) -> Result<(Arc<DesiredState>, PushOutcome), ApiFailure> {
        // A change of endpoints leaves out the same owners; any other one begins with all of them again.
        let last = self.last.as_ref().filter(|(text, _)| text.is_text_of(full));
        let mut refused = last.map(|last| last.1.clone()).unwrap_or_default();
        let mut first = None;
        for round in 0..=ROUNDS_MAX {
            let attempt = match refused.is_empty() {
                true => full.clone(),
                false => {
                    let (translator, full, refused) = (self.translator.clone(), full.clone(), refused.clone());
                    let task = move || Arc::new(translator.translate_without(&full.source, &refused));
                    let translated = tokio::task::spawn_blocking(task).await;
                    translated.map_err(|error| ApiFailure::Unavailable(format!("a translation: {error}")))?
                }
            };
            let complaints = match pusher.push(&attempt).await? {
                PushOutcome::Refused(complaints) => complaints,
                pushed => {
                    self.keep(full, refused);
                    return Ok((attempt, pushed));
                }
            };
            let count = refused.len();
            for (owner, words) in owners(full, &complaints) {
                refused.entry(owner).or_insert(words);
            }
            first.get_or_insert(complaints);
            let limit = full.source.owners.len().div_ceil(2).min(OWNERS_MAX);
            if round == ROUNDS_MAX || refused.len() == count || refused.len() > limit {
                break;
            }
        }
        self.keep(full, BTreeMap::new());
        Ok((full.clone(), PushOutcome::Refused(first.unwrap_or_default())))
    }
}

/// Returns the owners of the lines that the server complains about, with its words.
fn owners(full: &DesiredState, complaints: &[ServerComplaint]) -> BTreeMap<OwnerName, String> {
    let mut found = BTreeMap::new();
    for complaint in complaints {
        let Some(owner) = complaint.origin.as_ref().map(OwnerName::from) else { continue };
        if full.source.owners.contains(&owner) {
            found.entry(owner).or_insert_with(|| complaint.message.clone());
        }
    }
    found
}
