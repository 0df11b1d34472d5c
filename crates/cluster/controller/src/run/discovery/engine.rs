//! Watch of an engine (Docker, Podman): a stream of events, and a complete list at the beginning of each stream.
//!
//! The stream is opened before the list is read, so that no change falls between them. An event says only which container
//! may have changed; its description decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_discovery::{Container, ContainerState};
use futures::StreamExt as _;
use futures::stream;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::backoff::Backoff;
use super::super::logs;
use super::super::metrics::{self, Metrics};
use super::engine_events::{ContainerEvent, EventKind, LineBuffer};
use super::inventory::Inventory;
use super::json_client::{HEAD_TIME_MAX, JsonClient};

/// Containers at most.
const CONTAINERS_MAX: usize = 20_000;
/// Descriptions that are read at once.
const PARALLEL_MAX: usize = 8;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Silence after which the engine is asked for its version: a stream over TCP may hang.
const SILENCE: Duration = Duration::from_secs(30);
/// Time beyond a container's stop timeout after which it has survived its stop signal.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Number of `SIGKILL`.
const SIGNAL_KILL: u8 = 9;
/// Events of containers and networks.
const EVENTS_PATH: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%2C%22network%22%5D%7D";

/// Watch of an engine.
#[derive(Clone)]
pub struct EngineWatch {
    client: JsonClient,
    inventory: Arc<Inventory>,
    metrics: Arc<Metrics>,
}

impl EngineWatch {
    pub fn new(client: JsonClient, inventory: Arc<Inventory>, metrics: Arc<Metrics>) -> EngineWatch {
        EngineWatch { client, inventory, metrics }
    }

    /// Watches until the task is dropped. Connects again with growing pauses.
    pub async fn run(self) {
        let mut backoff = Backoff::new(PAUSE_MAX);
        loop {
            let mut session = EngineSession { watch: &self, stopping: BTreeMap::new(), has_list: false };
            let error = session.run().await;
            if session.has_list {
                backoff.reset();
            }
            metrics::count_one(&self.metrics.watch_errors);
            self.inventory.set_lost(&error);
            sleep(backoff.next_pause()).await;
        }
    }

    /// Reads the description of a container; `None` if it does not exist.
    async fn inspect(&self, id: &str) -> Result<Option<Container>, String> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("an identifier with other characters than letters and digits".into());
        }
        let answer = self.client.get(&format!("/containers/{id}/json"), HEAD_TIME_MAX).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => match Container::from_inspect(&answer.value) {
                Ok(container) => Ok(Some(container)),
                Err(error) => {
                    // One container takes no other one down.
                    logs::warn("a container is left out", &[("container", id), ("error", &error)]);
                    Ok(None)
                }
            },
            status => Err(format!("/containers/{id}/json: status {status}")),
        }
    }

    /// Reads the descriptions of all containers.
    async fn list(&self) -> Result<BTreeMap<String, Arc<Container>>, String> {
        let answer = self.client.get("/containers/json?all=true", HEAD_TIME_MAX).await?;
        if !answer.status.is_success() {
            return Err(format!("/containers/json: status {}: {}", answer.status, answer.value));
        }
        let entries = answer.value.as_array().ok_or("/containers/json: no list")?;
        let id = |entry: &Value| entry.get("Id").and_then(Value::as_str).map(str::to_owned);
        let ids: Vec<String> = entries.iter().filter_map(id).collect();
        if ids.len() > CONTAINERS_MAX {
            return Err(format!("more than {CONTAINERS_MAX} containers"));
        }
        let mut descriptions =
            stream::iter(ids).map(|id| async move { self.inspect(&id).await }).buffer_unordered(PARALLEL_MAX);
        let mut containers = BTreeMap::new();
        while let Some(description) = descriptions.next().await {
            if let Some(container) = description? {
                containers.insert(container.id.clone(), Arc::new(container));
            }
        }
        Ok(containers)
    }
}

/// One stream of events.
struct EngineSession<'a> {
    watch: &'a EngineWatch,
    /// Containers that have got their stop signal, and the time when they have survived it.
    stopping: BTreeMap<String, Instant>,
    has_list: bool,
}

impl EngineSession<'_> {
    /// Runs until the stream ends. Returns the reason.
    async fn run(&mut self) -> String {
        match self.follow().await {
            Ok(()) => "the stream of events has ended".into(),
            Err(error) => error,
        }
    }

    async fn follow(&mut self) -> Result<(), String> {
        let (mut body, _connection) = self.watch.client.stream(EVENTS_PATH).await?;
        let containers = self.watch.list().await?;
        self.watch.inventory.set_containers(containers);
        self.watch.inventory.set_connected();
        self.has_list = true;
        let mut lines = LineBuffer::default();
        loop {
            let survival = self.stopping.values().min().copied();
            let frame = tokio::select! {
                frame = timeout(SILENCE, body.frame()) => frame,
                () = until(survival) => {
                    self.readmit().await?;
                    continue;
                }
            };
            match frame {
                Err(_) => self.ping().await?,
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => {
                    let frame = frame.map_err(|error| format!("the stream of events: {error}"))?;
                    if let Some(data) = frame.data_ref() {
                        let events = lines.add(data)?;
                        self.apply(events).await?;
                    }
                }
            }
        }
    }

    async fn ping(&self) -> Result<(), String> {
        let answer = self.watch.client.get("/version", HEAD_TIME_MAX).await?;
        if answer.status.is_success() { Ok(()) } else { Err(format!("/version: status {}", answer.status)) }
    }

    async fn apply(&mut self, events: Vec<ContainerEvent>) -> Result<(), String> {
        let mut changed = BTreeSet::new();
        for event in events {
            match event.kind {
                EventKind::Signal(signal) => self.signal(&event.id, signal),
                EventKind::Lifetime => {
                    self.stopping.remove(&event.id);
                    changed.insert(event.id);
                }
                EventKind::Change => {
                    changed.insert(event.id);
                }
            }
        }
        for id in changed {
            self.refresh(&id).await?;
        }
        Ok(())
    }

    /// Takes a container out that has got its stop signal: it ends its requests, and takes no others.
    fn signal(&mut self, id: &str, signal: u8) {
        let Some(container) = self.watch.inventory.container(id) else { return };
        if signal != container.stop_signal && signal != SIGNAL_KILL {
            return;
        }
        let time = Instant::now() + Duration::from_secs(container.stop_seconds) + STOP_GRACE;
        self.stopping.insert(id.to_owned(), time);
        if container.state.takes_requests() {
            let stopping = Container { state: ContainerState::Stopping, ..Container::clone(&container) };
            self.watch.inventory.set_container(id, Some(stopping));
        }
    }

    async fn refresh(&mut self, id: &str) -> Result<(), String> {
        let mut container = self.watch.inspect(id).await?;
        match &mut container {
            Some(container) if container.state.takes_requests() && self.stopping.contains_key(id) => {
                container.state = ContainerState::Stopping;
            }
            Some(container) if container.state.takes_requests() => {}
            _ => {
                self.stopping.remove(id);
            }
        }
        self.watch.inventory.set_container(id, container);
        Ok(())
    }

    /// Admits containers again that have survived their stop signal.
    async fn readmit(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let ids: Vec<String> =
            self.stopping.iter().filter(|(_, time)| **time <= now).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.stopping.remove(&id);
            self.refresh(&id).await?;
        }
        Ok(())
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
