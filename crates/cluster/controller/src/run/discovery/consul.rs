//! Watch of Consul: blocking queries of the catalogue, and of the health of each service that has routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster_discovery::{ServiceInstance, routes_services};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::super::backoff::Backoff;
use super::super::logs;
use super::super::metrics::{self, Metrics};
use super::inventory::Inventory;
use super::json_client::{JsonAnswer, JsonClient};

/// Services with routes at most: each has a query that waits.
const SERVICES_MAX: usize = 2_000;
/// Instances of a service at most.
const INSTANCES_MAX: usize = 10_000;
/// Time that a query waits for a change.
const WAIT: Duration = Duration::from_secs(300);
/// Time for the answer: Consul adds up to a sixteenth to the wait.
const ANSWER_TIME: Duration = Duration::from_secs(300 + 19 + 10);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Field with the index of an answer.
const INDEX_FIELD: &str = "x-consul-index";

/// Watch of Consul.
#[derive(Clone)]
pub struct ConsulWatch {
    client: JsonClient,
    datacenter: Option<String>,
    inventory: Arc<Inventory>,
    metrics: Arc<Metrics>,
}

/// Services with a query of their own.
#[derive(Debug, Default)]
struct QueryProgress {
    /// Services of the catalogue. A query whose service has gone notes nothing.
    active: BTreeSet<String>,
    /// Services that have not answered yet.
    waiting: BTreeSet<String>,
}

/// State of one blocking query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueryIndex(u64);

impl QueryIndex {
    /// Takes the index of an answer. One that goes back, or is absent, begins anew: the next query waits for nothing.
    fn advance(&mut self, next: Option<u64>) {
        self.0 = match next {
            Some(next) if next >= self.0 => next,
            _ => 0,
        };
    }
}

impl ConsulWatch {
    pub fn new(
        client: JsonClient,
        datacenter: Option<String>,
        inventory: Arc<Inventory>,
        metrics: Arc<Metrics>,
    ) -> ConsulWatch {
        ConsulWatch { client, datacenter, inventory, metrics }
    }

    /// Watches until the task is dropped.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        let mut watched: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let progress = Arc::new(Mutex::new(QueryProgress::default()));
        let mut index = QueryIndex::default();
        let mut backoff = Backoff::new(PAUSE_MAX);
        loop {
            let answer = match self.query("/v1/catalog/services", index).await {
                Ok(answer) => answer,
                Err(error) => {
                    index = QueryIndex::default();
                    self.lost(&error);
                    sleep(backoff.next_pause()).await;
                    continue;
                }
            };
            backoff.reset();
            index.advance(index_of(&answer));
            self.inventory.set_connected();
            let names = services(&answer.value);
            if names.len() > SERVICES_MAX {
                let count = names.len().to_string();
                logs::error("too many services; the last ones by name are left out", &[("services", &count)]);
            }
            let names: BTreeSet<String> = names.into_iter().take(SERVICES_MAX).collect();
            watched.retain(|name, task| {
                let stays = names.contains(name);
                if !stays {
                    task.abort();
                    let mut progress = lock(&progress);
                    progress.active.remove(name);
                    progress.waiting.remove(name);
                    self.inventory.set_service(name, None);
                }
                stays
            });
            // Of a catalogue before an outage.
            for name in self.inventory.service_names().iter().filter(|name| !names.contains(*name)) {
                self.inventory.set_service(name, None);
            }
            for name in names {
                if watched.contains_key(&name) {
                    continue;
                }
                let mut locked = lock(&progress);
                locked.active.insert(name.clone());
                locked.waiting.insert(name.clone());
                drop(locked);
                let task = tasks.spawn(self.clone().watch_service(name.clone(), progress.clone()));
                watched.insert(name, task);
            }
            while tasks.try_join_next().is_some() {}
            if lock(&progress).waiting.is_empty() {
                self.inventory.set_complete();
            }
        }
    }

    async fn watch_service(self, name: String, progress: Arc<Mutex<QueryProgress>>) {
        let path = format!("/v1/health/service/{}", encoded(&name));
        let mut index = QueryIndex::default();
        let mut backoff = Backoff::new(PAUSE_MAX);
        loop {
            match self.query(&path, index).await {
                Ok(answer) => {
                    backoff.reset();
                    index.advance(index_of(&answer));
                    let instances = instances(&name, &answer.value);
                    let mut progress = lock(&progress);
                    if progress.active.contains(&name) {
                        self.inventory.set_service(&name, Some(instances));
                    }
                    if progress.waiting.remove(&name) && progress.waiting.is_empty() {
                        self.inventory.set_complete();
                    }
                }
                Err(error) => {
                    // The query of the catalogue notes outages.
                    logs::warn("a service is not updated", &[("service", &name), ("error", &error)]);
                    metrics::count_one(&self.metrics.watch_errors);
                    index = QueryIndex::default();
                    sleep(backoff.next_pause()).await;
                }
            }
        }
    }

    async fn query(&self, path: &str, index: QueryIndex) -> Result<JsonAnswer, String> {
        let mut path = format!("{path}?index={}&wait={}s", index.0, WAIT.as_secs());
        if let Some(datacenter) = &self.datacenter {
            path.push_str(&format!("&dc={}", encoded(datacenter)));
        }
        let answer = self.client.get(&path, ANSWER_TIME).await?;
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(format!("{path}: status {}: {}", answer.status, answer.value)),
        }
    }

    fn lost(&self, error: &str) {
        metrics::count_one(&self.metrics.watch_errors);
        self.inventory.set_lost(error);
    }
}

fn lock(progress: &Mutex<QueryProgress>) -> MutexGuard<'_, QueryProgress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index_of(answer: &JsonAnswer) -> Option<u64> {
    answer.fields.get(INDEX_FIELD)?.to_str().ok()?.parse().ok().filter(|index| *index > 0)
}

/// Returns the services of a catalogue whose tags name routes.
fn services(value: &Value) -> BTreeSet<String> {
    let all = value.as_object().into_iter().flatten();
    let has_routes = |(name, tags): (&String, &Value)| {
        let tags = tags.as_array().into_iter().flatten().filter_map(Value::as_str);
        routes_services(tags).then(|| name.clone())
    };
    all.filter_map(has_routes).collect()
}

/// Returns the instances of a service. One that cannot be read takes no other one down.
fn instances(name: &str, value: &Value) -> Vec<ServiceInstance> {
    let mut found = Vec::new();
    for entry in value.as_array().into_iter().flatten().take(INSTANCES_MAX) {
        match ServiceInstance::from_health(entry) {
            Ok(instance) => found.push(instance),
            Err(error) => logs::warn("an instance is left out", &[("service", name), ("error", &error)]),
        }
    }
    found
}

/// Encodes a part of a path.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod unit_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_index_that_goes_back_begins_anew() {
        let mut index = QueryIndex::default();
        for (next, expected) in [(Some(7), 7), (Some(7), 7), (Some(9), 9), (Some(3), 0), (Some(4), 4), (None, 0)] {
            index.advance(next);
            assert_eq!(index.0, expected, "{next:?}");
        }
    }

    #[test]
    fn services_without_routes_are_not_watched() {
        let value =
            json!({"consul": [], "web": ["v1", "tidegate.host=a.test"], "old": ["urlprefix-/"], "db": ["primary"]});
        assert_eq!(services(&value).into_iter().collect::<Vec<_>>(), ["old", "web"]);
        assert_eq!(encoded("a b/c"), "a%20b%2Fc");
    }
}
