//! Writes statuses and events to the API server, as the leader only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_gateway::Statuses;
use cluster_objects::{Complaint, Kind};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::addresses::{PublishedAddresses, ready_services};
use super::backoff::Backoff;
use super::events::{self, EventLog};
use super::logs;
use super::metrics::{self, Metrics};
use super::provisioning::PodTemplate;
use super::push::PushResult;
use super::status::{Context, StatusWrite, status_differences};
use super::store::{ObjectKey, ObjectStore};

/// Writes at once at most.
const WRITES_MAX: usize = 16;
/// Pause that bundles changes of statuses by others.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time for the removal of addresses when the process ends.
const WITHDRAWAL_TIME: Duration = Duration::from_secs(10);

/// Writer of one replica.
pub struct StatusWriter {
    pub client: Client,
    pub store: Arc<ObjectStore>,
    pub metrics: Arc<Metrics>,
    pub controller_name: String,
    pub published: PublishedAddresses,
    /// Name under which this controller writes.
    pub manager: String,
    /// Gateways have pods and Services of their own.
    pub template: Option<Arc<PodTemplate>>,
    pub identity: String,
}

/// Written statuses, and the statuses that came of them: a definition without a member drops it without a word.
type WrittenStatuses = BTreeMap<ObjectKey, (Value, Value)>;

impl StatusWriter {
    /// Writes after each push, each change of a status by others, and when this replica becomes the leader. Returns when
    /// the pushes end.
    pub async fn run(self, mut outcomes: watch::Receiver<Option<PushResult>>, mut leader: watch::Receiver<bool>) {
        let (mut written, mut log) = (WrittenStatuses::new(), EventLog::new());
        let mut backoff = Backoff::new(PAUSE_MAX);
        let mut retry: Option<Duration> = None;
        loop {
            tokio::select! {
                result = outcomes.changed() => if result.is_err() { return },
                result = leader.changed() => if result.is_err() { return },
                () = self.store.status_changed.notified() => {}
                () = sleep(retry.unwrap_or(PAUSE_MAX)) => {}
            }
            retry = None;
            let outcome = outcomes.borrow_and_update().clone();
            let Some(outcome) = outcome.filter(|_| *leader.borrow_and_update()) else { continue };
            match self.write(&outcome, &mut written).await {
                true => backoff.reset(),
                false => retry = Some(backoff.next_pause()),
            }
            let complaints = self.complaints(&outcome);
            let snapshot = &outcome.desired.snapshot;
            events::write_events(&mut log, &complaints, snapshot, &self.client, &self.identity, &self.metrics).await;
            sleep(PAUSE).await;
        }
    }

    fn complaints(&self, outcome: &PushResult) -> Vec<Complaint> {
        let mut complaints = outcome.desired.complaints.to_vec();
        for words in outcome.refused.iter().flatten() {
            for class in outcome.desired.statuses.classes.keys() {
                let words = format!("ConfigurationRefused: the server keeps its old configuration: {words}");
                complaints.push(Complaint::about(Kind::GatewayClass, "", class, words));
            }
        }
        complaints
    }

    /// Writes all statuses that differ. Returns false if one could not be written for now.
    async fn write(&self, outcome: &PushResult, written: &mut WrittenStatuses) -> bool {
        // The rest of the snapshot goes at once: the store changes its maps in place if nothing else has them.
        let (now, ready) = {
            let now = self.store.snapshot();
            let ready = self.template.as_ref().map(|_| ready_services(&now)).unwrap_or_default();
            (now.live, ready)
        };
        let context = Context {
            controller_name: &self.controller_name,
            refused: outcome.refused.as_deref(),
            published: &self.published,
            ingresses: &outcome.desired.ingresses,
            manager: &self.manager,
            template: self.template.as_deref(),
            ready: &ready,
        };
        written.retain(|key, _| now.contains_key(key));
        let desired = &outcome.desired;
        let mut writes = status_differences(&desired.statuses, &desired.snapshot, &now, &context);
        writes.retain(|write| {
            written.get(&write.key).is_none_or(|(sent, result)| *sent != write.status || *result != write.live.status)
        });
        let mut results = futures::stream::iter(writes.into_iter().map(|write| async {
            let result = self.patch(&write).await;
            (write, result)
        }))
        .buffer_unordered(WRITES_MAX);
        let mut is_complete = true;
        while let Some((write, result)) = results.next().await {
            match result {
                Ok(status) => {
                    metrics::count_one(&self.metrics.status_writes);
                    written.insert(write.key, (write.status, status));
                }
                // The object has changed or is gone: its watch says so.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    metrics::count_one(&self.metrics.status_failures);
                    is_complete = false;
                    let (kind, name) = &write.key;
                    let members = [
                        ("kind", kind.name()),
                        ("namespace", name.namespace.as_str()),
                        ("name", name.name.as_str()),
                        ("error", &error.to_string()),
                    ];
                    logs::warn("a status is not written", &members);
                }
            }
        }
        is_complete
    }

    /// Removes the addresses of all Ingresses, if no other pod takes requests: for the end of the last one. A status that cannot be
    /// written stays.
    pub async fn withdraw_addresses(&self) {
        let snapshot = self.store.snapshot();
        if self.published.has_ready_endpoints(&snapshot) {
            return;
        }
        // Without any Ingress of ours, the addresses of all are removed.
        let context = Context {
            controller_name: &self.controller_name,
            refused: None,
            published: &self.published,
            ingresses: &BTreeSet::new(),
            manager: &self.manager,
            template: self.template.as_deref(),
            ready: &BTreeSet::new(),
        };
        let writes = status_differences(&Statuses::default(), &snapshot, &snapshot.live, &context);
        let writes = writes.iter().filter(|write| write.key.0 == Kind::Ingress).map(|write| self.patch(write));
        let results = futures::stream::iter(writes).buffer_unordered(WRITES_MAX).collect::<Vec<_>>();
        let results = timeout(WITHDRAWAL_TIME, results).await.unwrap_or_default();
        let count = results.iter().filter(|result| result.is_ok()).count();
        logs::info("addresses of Ingresses are removed", &[("count", &count.to_string())]);
    }

    async fn patch(&self, write: &StatusWrite) -> Result<Value, Error> {
        let (kind, name) = &write.key;
        let (group, version) = write.live.api_version.split_once('/').unwrap_or(("", &write.live.api_version));
        let resource = ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: write.live.api_version.clone(),
            kind: kind.name().into(),
            plural: write.live.plural.clone(),
        };
        let api: Api<DynamicObject> = match kind.is_namespaced() {
            true => Api::namespaced_with(self.client.clone(), &name.namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        };
        // With the version, the server refuses the patch if another controller was faster: lists are written as a whole.
        let patch = json!({
            "metadata": { "resourceVersion": write.live.resource_version },
            "status": write.status,
        });
        let parameters = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let object = api.patch_status(&name.name, &parameters, &Patch::Merge(&patch)).await?;
        Ok(object.data.get("status").cloned().unwrap_or_default())
    }
}
