//! Leadership: a Lease of `coordination.k8s.io` that one replica holds. Only its holder writes statuses.
//!
//! Times of the Lease are compared with this process's clock only by the change of the record, as client-go does: clocks
//! of machines need not agree.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::logs;

/// Time after which a Lease without renewal is free.
pub const LEASE_TIME: Duration = Duration::from_secs(15);
/// Time after which a holder that cannot renew stops writing: before another one begins.
const RENEWAL_TIME: Duration = Duration::from_secs(10);
/// Pause between two renewals or looks.
pub const PAUSE: Duration = Duration::from_secs(4);

/// Lease of one replica.
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// Record of another holder, and the time since when it has not changed.
    observed: Option<(LeaseSpec, Instant)>,
    renewed: Option<Instant>,
}

/// Next step with a record.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Take,
    Renew,
    Wait,
}

impl Election {
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str) -> Election {
        Election {
            api: Api::namespaced(client.clone(), namespace),
            name: name.into(),
            identity: identity.into(),
            observed: None,
            renewed: None,
        }
    }

    fn step(&mut self, spec: &LeaseSpec, now: Instant) -> Step {
        match spec.holder_identity.as_deref() {
            None | Some("") => Step::Take,
            Some(holder) if holder == self.identity => Step::Renew,
            Some(_) => {
                let since = match &self.observed {
                    Some((known, since)) if known == spec => *since,
                    _ => {
                        self.observed = Some((spec.clone(), now));
                        now
                    }
                };
                let time = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                match now.duration_since(since) > time.map_or(LEASE_TIME, Duration::from_secs) {
                    true => Step::Take,
                    false => Step::Wait,
                }
            }
        }
    }

    /// Takes or renews the Lease, if it is free or held by this replica. Returns true if this replica holds it.
    async fn attempt(&mut self) -> Result<bool, Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.record(None)) };
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(true);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.step(&spec, Instant::now()) == Step::Wait {
            return Ok(false);
        }
        lease.spec = Some(self.record(Some(&spec)));
        // The resource version in the metadata lets one of several replicas win.
        self.api.replace(&self.name, &PostParams::default(), &lease).await?;
        Ok(true)
    }

    fn record(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let was_ours = old.is_some_and(|old| old.holder_identity.as_deref() == Some(&self.identity));
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_TIME.as_secs()).ok(),
            acquire_time: if was_ours { old.and_then(|old| old.acquire_time.clone()) } else { now.clone() },
            renew_time: now,
            lease_transitions: Some(if was_ours || old.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..old.cloned().unwrap_or_default()
        }
    }

    /// Takes the Lease when it is free, and renews it, until the task is dropped.
    pub async fn run(&mut self, leader: &watch::Sender<bool>) {
        loop {
            // An attempt that hangs must not keep a leader that another one has replaced.
            let attempt = timeout(PAUSE, self.attempt()).await;
            let now = Instant::now();
            let holds = match &attempt {
                Ok(Ok(true)) => {
                    self.renewed = Some(now);
                    true
                }
                Ok(Ok(false)) => {
                    self.renewed = None;
                    false
                }
                Ok(Err(Error::Api(status))) if status.code == 409 => false,
                Ok(Err(_)) | Err(_) => self.renewed.is_some_and(|renewed| now.duration_since(renewed) < RENEWAL_TIME),
            };
            if let Ok(Err(error)) = &attempt
                && !matches!(error, Error::Api(status) if status.code == 409)
            {
                logs::warn("the Lease cannot be renewed", &[("name", &self.name), ("error", &error.to_string())]);
            }
            set(leader, holds, &self.identity);
            sleep(PAUSE).await;
        }
    }

    /// Gives the Lease back, so that another replica need not wait for its end.
    pub async fn release(&mut self, leader: &watch::Sender<bool>) {
        let was_leader = *leader.borrow();
        set(leader, false, &self.identity);
        if !was_leader {
            return;
        }
        let release = async {
            let mut lease = self.api.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.identity) {
                spec.holder_identity = Some(String::new());
                self.api.replace(&self.name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), Error>(())
        };
        if !matches!(timeout(PAUSE, release).await, Ok(Ok(()))) {
            logs::warn("the Lease is not given back; it ends by itself", &[("name", &self.name)]);
        }
    }
}

fn set(leader: &watch::Sender<bool>, holds: bool, identity: &str) {
    let changed = leader.send_if_modified(|old| std::mem::replace(old, holds) != holds);
    if changed {
        let words = if holds { "this replica is the leader" } else { "this replica is not the leader any more" };
        logs::info(words, &[("identity", identity)]);
    }
}
