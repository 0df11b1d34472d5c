//! Applies the objects of Gateways with pods of their own, and removes those of Gateways that are gone; as the leader only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_objects::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Error, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::logs;
use super::provisioning::{OWNER_LABEL, PodTemplate, Provision};
use super::push::PushResult;
use super::translate::DesiredState;

/// Pause after which changes by others are undone.
const CHECK_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Provisioner of one replica.
pub struct Provisioner {
    pub client: Client,
    pub template: Arc<PodTemplate>,
    /// Name under which this controller writes.
    pub manager: String,
}

/// Objects as they were applied last, by name.
type AppliedObjects = BTreeMap<String, Provision>;

impl Provisioner {
    /// Applies after each translation, and checks once a minute. Returns when the translations end.
    pub async fn run(self, mut outcomes: watch::Receiver<Option<PushResult>>, mut leader: watch::Receiver<bool>) {
        let mut backoff = Backoff::new(PAUSE_MAX);
        let mut applied = AppliedObjects::new();
        let mut pause = CHECK_PAUSE;
        loop {
            let mut is_check = false;
            tokio::select! {
                result = outcomes.changed() => if result.is_err() { return },
                result = leader.changed() => if result.is_err() { return },
                () = sleep(pause) => is_check = true,
            }
            pause = CHECK_PAUSE;
            let outcome = outcomes.borrow_and_update().clone();
            let is_leader = *leader.borrow_and_update();
            let Some(outcome) = outcome.filter(|_| is_leader) else {
                applied.clear();
                continue;
            };
            let wanted = self.wanted(&outcome.desired);
            if wanted == applied && !is_check {
                continue;
            }
            match self.apply(&wanted, &outcome.desired, &applied, is_check).await {
                Ok(()) => {
                    applied = wanted;
                    backoff.reset();
                }
                Err(error) => {
                    logs::warn("the objects of Gateways are not applied yet", &[("error", &error.to_string())]);
                    applied.clear();
                    pause = backoff.next_pause();
                }
            }
        }
    }

    /// Returns the objects of all Gateways that have a port.
    fn wanted(&self, desired: &DesiredState) -> AppliedObjects {
        let mut wanted = AppliedObjects::new();
        for (gateway, ports) in desired.gateway_ports.iter().filter(|(_, ports)| !ports.is_empty()) {
            let Some(status) = desired.statuses.gateways.get(&gateway.to_string()) else { continue };
            let provision = self.template.provision(gateway, status, ports, &desired.snapshot);
            wanted.insert(provision.name.clone(), provision);
        }
        wanted
    }

    async fn apply(
        &self,
        wanted: &AppliedObjects,
        desired: &DesiredState,
        applied: &AppliedObjects,
        is_check: bool,
    ) -> Result<(), Error> {
        let namespace = &self.template.namespace;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        for (name, provision) in wanted {
            let old = applied.get(name).filter(|_| !is_check);
            if old.is_none_or(|old| old.service != provision.service) {
                self.apply_one(&services, name, &provision.service, is_check).await?;
            }
            if old.is_none_or(|old| old.deployment != provision.deployment) {
                self.apply_one(&deployments, name, &provision.deployment, is_check).await?;
            }
        }
        // A Gateway that cannot be read, or whose listeners are all invalid for now, keeps its address.
        let unreadable = desired.snapshot.complaints.keys().filter(|(kind, _)| *kind == Kind::Gateway);
        let kept = desired.gateway_ports.keys().chain(unreadable.map(|(_, name)| name));
        let kept: BTreeSet<String> = kept.map(|gateway| self.template.service_of(gateway).name).collect();
        self.remove_others(&deployments, &kept).await?;
        self.remove_others(&services, &kept).await
    }

    async fn apply_one<T>(&self, api: &Api<T>, name: &str, object: &Value, is_check: bool) -> Result<(), Error>
    where
        T: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams::apply(&self.manager).force();
        api.patch(name, &parameters, &Patch::Apply(object)).await?;
        if !is_check {
            logs::info("an object of a Gateway is applied", &[("kind", &T::kind(&())), ("name", name)]);
        }
        Ok(())
    }

    async fn remove_others<T>(&self, api: &Api<T>, kept: &BTreeSet<String>) -> Result<(), Error>
    where
        T: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let ours = ListParams::default().labels(&format!("{OWNER_LABEL}={}", self.template.owner));
        for object in api.list(&ours).await? {
            let name = object.name_any();
            if kept.contains(&name) {
                continue;
            }
            match api.delete(&name, &DeleteParams::background()).await {
                Ok(_) => logs::info("an object of a Gateway is removed", &[("kind", &T::kind(&())), ("name", &name)]),
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
