//! Brings the server to the wanted configuration: with nothing, with new servers of groups, or with a whole
//! configuration.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cluster_model::GroupName;
use cluster_render::{ConfigText, GroupId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::logs;
use super::metrics::{self, Metrics};
use super::server_api::{
    ActiveConfig, ActiveFiles, ApiFailure, Digests, ServerApi, ServerComplaint, digests_of, join_complaints,
};
use super::translate::{DesiredState, GroupServers};

/// Pause between two checks of the active configuration.
pub const CHECK_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause before another attempt to bind an address: each one has the whole configuration checked.
const ADDRESS_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Refused texts at most: those of one push.
const REFUSED_MAX: usize = 9;
/// First line of each configuration of a controller.
const FIRST_LINE: &str = "# Written by tidegate-controller";

/// State of the server, as far as the controller knows it.
struct ServerState {
    active: ActiveConfig,
    text: KnownText,
    /// Files that the server has stored.
    stored: Digests,
    /// Servers of groups, where they are known: the controller has sent them since the server's last load.
    groups: GroupServers,
    /// Groups that the API has changed since the last whole configuration; `None` if a controller before this one may
    /// have changed any.
    touched: Option<BTreeSet<GroupId>>,
}

/// Text of the active configuration, without the servers of its groups.
enum KnownText {
    /// As the server has it; no group of it is known yet.
    Read(String),
    Pushed(Arc<ConfigText>),
}

impl KnownText {
    fn is_text_of(&mut self, desired: &DesiredState) -> bool {
        match self {
            KnownText::Pushed(text) => Arc::ptr_eq(text, &desired.text) || text.skeleton() == desired.text.skeleton(),
            KnownText::Read(main) => {
                let is_same = desired.text.remove_servers(main) == desired.text.skeleton();
                if is_same {
                    *self = KnownText::Pushed(desired.text.clone());
                }
                is_same
            }
        }
    }
}

/// Outcome of a push.
#[derive(Clone)]
pub struct PushResult {
    /// The configuration of all objects, or of those that the server does not refuse.
    pub desired: Arc<DesiredState>,
    /// The server's complaints, if it keeps its old configuration.
    pub refused: Option<Vec<String>>,
}

/// Result of [`Pusher::push`].
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome {
    Nothing,
    Groups,
    Whole,
    Refused(Vec<ServerComplaint>),
    /// The server keeps its old configuration, since an address cannot be bound for now: the push is to be repeated.
    AddressUnavailable(String),
}

/// All of a configuration that its validity depends on: everything but endpoints.
pub struct SentText {
    text: Arc<ConfigText>,
    /// Groups whose servers are no endpoints: a name that cannot be resolved may be the reason of a refusal.
    named: GroupServers,
}

impl SentText {
    pub fn of(desired: &DesiredState) -> SentText {
        SentText { text: desired.text.clone(), named: named_groups(desired) }
    }

    /// Tells whether another configuration is the same one, or came of it by translations of endpoints alone.
    pub fn shares_text_of(&self, desired: &DesiredState) -> bool {
        Arc::ptr_eq(&self.text, &desired.text)
    }

    /// Tells whether another configuration differs in endpoints at most.
    pub fn is_text_of(&self, desired: &DesiredState) -> bool {
        self.shares_text_of(desired)
            || (self.text.skeleton() == desired.text.skeleton() && self.named == named_groups(desired))
    }
}

fn named_groups(desired: &DesiredState) -> GroupServers {
    let discovered: BTreeSet<&GroupName> = desired.sources.values().flatten().map(|source| &source.group).collect();
    let named = desired.groups.iter().filter(|(id, _)| !discovered.contains(&id.name));
    named.map(|(id, servers)| (id.clone(), servers.clone())).collect()
}

/// Compares the wanted configuration with the active one, and sends the difference.
pub struct Pusher {
    api: ServerApi,
    known: Option<ServerState>,
    /// The last texts that the server refused, and its complaints, since it took one: they are not sent again to the same
    /// server process.
    refused: VecDeque<(SentText, Vec<ServerComplaint>)>,
    metrics: Arc<Metrics>,
}

impl Pusher {
    pub fn new(api: ServerApi, metrics: Arc<Metrics>) -> Pusher {
        Pusher { api, known: None, refused: VecDeque::new(), metrics }
    }

    /// Brings the server to a configuration.
    ///
    /// # Errors
    /// If the server does not answer, or another client has changed its configuration: the attempt is to be repeated.
    pub async fn push(&mut self, desired: &DesiredState) -> Result<PushOutcome, ApiFailure> {
        let result = self.compare_and_send(desired).await;
        if result.is_err() {
            // The request may have arrived.
            self.known = None;
        }
        result
    }

    async fn compare_and_send(&mut self, desired: &DesiredState) -> Result<PushOutcome, ApiFailure> {
        if self.known.is_none() {
            self.known = Some(self.read().await?);
        }
        let Some(known) = &mut self.known else { return Ok(PushOutcome::Nothing) };
        if known.text.is_text_of(desired) {
            let changed: GroupServers = desired
                .groups
                .iter()
                .filter(|(id, servers)| known.groups.get(id) != Some(servers))
                .map(|(id, servers)| (id.clone(), servers.clone()))
                .collect();
            if changed.is_empty() {
                return Ok(PushOutcome::Nothing);
            }
            match self.api.replace_groups(&changed).await {
                Ok(()) => {
                    if let Some(touched) = &mut known.touched {
                        touched.extend(changed.keys().cloned());
                    }
                    known.groups.extend(changed);
                    metrics::count_one(&self.metrics.pushes_groups);
                    return Ok(PushOutcome::Groups);
                }
                // A whole configuration says it all.
                Err(ApiFailure::Impossible(_) | ApiFailure::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some((_, complaints)) = self.refused.iter().find(|(text, _)| text.is_text_of(desired)) {
            send_common(&self.api, known, desired).await?;
            return Ok(PushOutcome::Refused(complaints.clone()));
        }
        let main = desired.main_text();
        let mut replaced = self.api.replace(&known.active, &main, &desired.files, &known.stored).await;
        if let Err(ApiFailure::FileMissing(_)) = replaced {
            // A stored file was removed by hand.
            replaced = self.api.replace(&known.active, &main, &desired.files, &Digests::new()).await;
        }
        match replaced {
            Ok(_) => {}
            Err(ApiFailure::Refused(complaints)) => {
                metrics::count_one(&self.metrics.pushes_refused);
                self.refused.push_back((SentText::of(desired), complaints.clone()));
                if self.refused.len() > REFUSED_MAX {
                    self.refused.pop_front();
                }
                send_common(&self.api, known, desired).await?;
                return Ok(PushOutcome::Refused(complaints));
            }
            Err(ApiFailure::AddressUnavailable(reason)) => {
                metrics::count_one(&self.metrics.pushes_failed);
                send_common(&self.api, known, desired).await?;
                return Ok(PushOutcome::AddressUnavailable(reason));
            }
            Err(ApiFailure::Impossible(reason)) => return Err(ApiFailure::Unavailable(reason)),
            Err(error) => return Err(error),
        }
        self.refused.clear();
        metrics::count_one(&self.metrics.pushes_whole);
        // Servers that were added by the API survive a load, also those that the new file does not have.
        let mut stale = desired.groups.clone();
        if let Some(touched) = &known.touched {
            stale.retain(|id, _| touched.contains(id));
        }
        if !stale.is_empty() {
            match self.api.replace_groups(&stale).await {
                Ok(()) => {}
                Err(ApiFailure::Impossible(reason)) => logs::warn("servers of groups stay", &[("error", &reason)]),
                Err(error) => return Err(error),
            }
        }
        let active = self.api.active().await?;
        self.metrics.generation.store(active.generation, Relaxed);
        let groups = desired.groups.clone();
        let text = KnownText::Pushed(desired.text.clone());
        let stored = digests_of(&desired.files);
        self.known = Some(ServerState { active, text, stored, groups, touched: Some(BTreeSet::new()) });
        Ok(PushOutcome::Whole)
    }

    /// Reads the active configuration.
    async fn read(&mut self) -> Result<ServerState, ApiFailure> {
        let active = self.api.active().await?;
        let ActiveFiles { generation, main, attachments } = self.api.files(&active).await?;
        if generation != active.generation {
            return Err(ApiFailure::Changed);
        }
        if main.starts_with(FIRST_LINE) {
            // A controller before this one has pushed it.
            self.metrics.is_ready.store(true, Relaxed);
        }
        self.metrics.generation.store(generation, Relaxed);
        Ok(ServerState {
            active,
            text: KnownText::Read(main),
            stored: attachments,
            groups: GroupServers::new(),
            touched: None,
        })
    }

    /// Checks that the pushed configuration is still active; otherwise, the next push compares anew.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn check(&mut self) -> Result<bool, ApiFailure> {
        let Some(known) = &self.known else { return Ok(false) };
        let active = self.api.active().await;
        let is_same = active.as_ref() == Ok(&known.active);
        if !is_same {
            self.known = None;
            self.refused.clear();
        }
        active.map(|_| is_same)
    }
}

/// Sends the servers of the groups that the active configuration has, too, although the server refuses the wanted one: endpoints come and
/// go meanwhile.
async fn send_common(api: &ServerApi, known: &mut ServerState, desired: &DesiredState) -> Result<(), ApiFailure> {
    let common: BTreeSet<GroupId> = match &known.text {
        KnownText::Read(main) => desired.text.common_groups(main),
        KnownText::Pushed(text) => {
            desired.text.common_groups(&text.with_servers(&known.groups, &desired.settings.render))
        }
    };
    let mut changed = desired.groups.clone();
    changed.retain(|id, servers| common.contains(id) && known.groups.get(id) != Some(servers));
    if changed.is_empty() {
        return Ok(());
    }
    match api.replace_groups(&changed).await {
        Ok(()) => {
            if let Some(touched) = &mut known.touched {
                touched.extend(changed.keys().cloned());
            }
            known.groups.extend(changed);
        }
        // Of several groups, one may be of the kind that changed.
        Err(
            ApiFailure::Impossible(reason) | ApiFailure::FileMissing(reason) | ApiFailure::AddressUnavailable(reason),
        ) => {
            logs::warn("servers of groups stay", &[("error", &reason)]);
        }
        Err(ApiFailure::Refused(reasons)) => {
            logs::warn("servers of groups stay", &[("error", &join_complaints(&reasons))])
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Decides which parts of a configuration are pushed.
pub trait Isolate: Send {
    /// Pushes a configuration or, if the server refuses it, one without the parts that the server complains about. Returns the configuration that the
    /// result is about.
    ///
    /// # Errors
    /// As [`Pusher::push`].
    fn push_isolated(
        &mut self,
        pusher: &mut Pusher,
        full: &Arc<DesiredState>,
    ) -> impl Future<Output = Result<(Arc<DesiredState>, PushOutcome), ApiFailure>> + Send;
}

/// Pushes each configuration of the channel, repeats failed pushes, and notices a server that began anew. Returns when the
/// channel ends.
pub async fn push_changes(
    mut pusher: Pusher,
    mut isolation: impl Isolate,
    mut desired: watch::Receiver<Option<Arc<DesiredState>>>,
    outcomes: watch::Sender<Option<PushResult>>,
) {
    let metrics = pusher.metrics.clone();
    let mut backoff = Backoff::new(PAUSE_MAX);
    let mut address_backoff = Backoff::new(ADDRESS_PAUSE_MAX);
    let mut last_error = String::new();
    loop {
        let Some(next) = desired.borrow_and_update().clone() else {
            // The server may serve a configuration from before; its first line decides about readiness.
            if pusher.known.is_none() {
                pusher.known = pusher.read().await.ok();
            }
            match timeout(CHECK_PAUSE, desired.changed()).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) | Err(_) => continue,
            }
        };
        let began = Instant::now();
        let pause = match isolation.push_isolated(&mut pusher, &next).await {
            Ok((desired, pushed)) => {
                backoff.reset();
                note(&pushed, began.elapsed(), &metrics, &mut last_error);
                let (refused, pause) = match pushed {
                    PushOutcome::Refused(complaints) => {
                        (Some(complaints.into_iter().map(|one| one.message).collect()), None)
                    }
                    PushOutcome::AddressUnavailable(reason) => (Some(vec![reason]), Some(address_backoff.next_pause())),
                    PushOutcome::Nothing | PushOutcome::Groups | PushOutcome::Whole => (None, None),
                };
                if pause.is_none() {
                    address_backoff.reset();
                }
                publish(&outcomes, PushResult { desired, refused });
                pause
            }
            Err(error) => {
                metrics::count_one(&metrics.pushes_failed);
                note_failure(&error.to_string(), &mut last_error);
                Some(backoff.next_pause())
            }
        };
        if let Some(pause) = pause {
            tokio::select! {
                () = sleep(pause) => {}
                result = desired.changed() => if result.is_err() { return },
            }
            continue;
        }
        loop {
            match timeout(CHECK_PAUSE, desired.changed()).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) => break,
                Err(_) => {
                    if !pusher.check().await.unwrap_or(false) {
                        break;
                    }
                }
            }
        }
    }
}

fn publish(outcomes: &watch::Sender<Option<PushResult>>, outcome: PushResult) {
    outcomes.send_if_modified(|old| {
        let is_same = old
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(&old.desired, &outcome.desired) && old.refused == outcome.refused);
        *old = Some(outcome);
        !is_same
    });
}

/// Logs the reason of a push that is repeated, once.
fn note_failure(words: &str, last: &mut String) {
    if words != *last {
        logs::warn("the configuration is not pushed yet", &[("error", words)]);
        *last = words.to_owned();
    }
}

/// Logs and counts the outcome of a push; the same failure once.
fn note(pushed: &PushOutcome, duration: Duration, metrics: &Metrics, last_error: &mut String) {
    let millis = duration.as_millis().to_string();
    let is_refused = match pushed {
        PushOutcome::Nothing => false,
        PushOutcome::Groups => {
            logs::info("servers of groups are pushed", &[("milliseconds", &millis)]);
            false
        }
        PushOutcome::Whole => {
            let generation = metrics.generation.load(Relaxed).to_string();
            logs::info("a configuration is active", &[("generation", &generation), ("milliseconds", &millis)]);
            false
        }
        PushOutcome::Refused(complaints) => {
            let words = join_complaints(complaints);
            if words != *last_error {
                for complaint in complaints {
                    let error = complaint.message.as_str();
                    logs::error("the server refuses the configuration and keeps its old one", &[("error", error)]);
                }
                *last_error = words;
            }
            true
        }
        PushOutcome::AddressUnavailable(reason) => {
            note_failure(reason, last_error);
            true
        }
    };
    metrics.is_refused.store(is_refused, Relaxed);
    if !is_refused {
        last_error.clear();
        metrics.is_ready.store(true, Relaxed);
    }
    if matches!(pushed, PushOutcome::Groups | PushOutcome::Whole) {
        metrics.pushed(duration);
    }
}
