//! Containers or services that the controller knows, and the state of their source.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_discovery::{Catalog, CertificateFolder, Container, Provider, ServiceInstance};
use cluster_objects::ObjectName;
use tokio::sync::Notify;

use super::super::change_queue::{ChangeQueue, Changes};
use super::super::logs;
use super::super::probes::SourceState;

/// State that the watch of the source writes and translations read.
pub struct Inventory {
    provider: Provider,
    pub queue: ChangeQueue,
    state: Mutex<State>,
    completed: Notify,
}

#[derive(Default)]
struct State {
    catalog: Arc<Catalog>,
    certificates: Arc<CertificateFolder>,
    /// A complete list was there once.
    is_complete: bool,
    is_connected: bool,
    /// Reason of the last loss.
    error: String,
    losses: u64,
}

impl Inventory {
    pub fn new(provider: Provider) -> Inventory {
        Inventory { provider, queue: ChangeQueue::default(), state: Mutex::default(), completed: Notify::new() }
    }

    pub fn provider(&self) -> &'static str {
        self.provider.name()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all containers: a complete list.
    pub fn set_containers(&self, containers: BTreeMap<String, Arc<Container>>) {
        let mut state = self.lock();
        let is_same = state.catalog.containers == containers && state.is_complete;
        if !is_same {
            state.catalog = Arc::new(Catalog { containers, services: BTreeMap::new() });
            self.complete_state(&mut state);
        }
    }

    /// Replaces one container; `None` removes it. A container that stops is urgent: requests must not reach it.
    pub fn set_container(&self, id: &str, container: Option<Container>) {
        let mut state = self.lock();
        let known = state.catalog.containers.get(id);
        let is_urgent = known.is_some_and(|known| known.state.takes_requests())
            && container.as_ref().is_none_or(|container| !container.state.takes_requests());
        if known.map(|known| &**known) == container.as_ref() {
            return;
        }
        let catalog = Arc::make_mut(&mut state.catalog);
        match container {
            Some(container) => catalog.containers.insert(id.to_owned(), Arc::new(container)),
            None => catalog.containers.remove(id),
        };
        self.note(is_urgent);
    }

    /// Returns a container.
    pub fn container(&self, id: &str) -> Option<Arc<Container>> {
        self.lock().catalog.containers.get(id).cloned()
    }

    /// Replaces the instances of one service; `None` removes it.
    pub fn set_service(&self, name: &str, instances: Option<Vec<ServiceInstance>>) {
        let mut state = self.lock();
        let known = state.catalog.services.get(name);
        if known.map(|known| &**known) == instances.as_ref() {
            return;
        }
        let catalog = Arc::make_mut(&mut state.catalog);
        match instances {
            Some(instances) => catalog.services.insert(name.to_owned(), Arc::new(instances)),
            None => catalog.services.remove(name),
        };
        self.note(true);
    }

    /// Returns the names of the services.
    pub fn service_names(&self) -> Vec<String> {
        self.lock().catalog.services.keys().cloned().collect()
    }

    pub fn set_certificates(&self, certificates: CertificateFolder) {
        self.lock().certificates = Arc::new(certificates);
        self.note(false);
    }

    /// Notes that the catalog has all containers or services: translations may begin.
    pub fn set_complete(&self) {
        let mut state = self.lock();
        if !state.is_complete {
            self.complete_state(&mut state);
        }
    }

    fn complete_state(&self, state: &mut State) {
        state.is_complete = true;
        self.note(false);
        self.completed.notify_waiters();
    }

    fn note(&self, is_urgent: bool) {
        self.queue.note(match is_urgent {
            true => Changes::Endpoints([ObjectName::default()].into()),
            false => Changes::Objects,
        });
    }

    /// Notes that the source answers.
    pub fn set_connected(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_connected, true) {
            state.error.clear();
            logs::info("the source answers", &[("provider", self.provider())]);
        }
    }

    /// Notes that the source is gone. Containers and services stay as they were.
    pub fn set_lost(&self, error: &str) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_connected, false) {
            state.losses += 1;
        }
        if state.error != error {
            error.clone_into(&mut state.error);
            let members = [("provider", self.provider()), ("error", error)];
            logs::warn("the source is gone; everything stays as it was", &members);
        }
    }

    /// Waits for the first complete list: a configuration of a part of it would take down the rest.
    pub async fn complete(&self) {
        loop {
            let notified = self.completed.notified();
            if self.lock().is_complete {
                return;
            }
            notified.await;
        }
    }

    /// Returns the catalog and the certificates of this moment.
    pub fn snapshot(&self) -> (Arc<Catalog>, Arc<CertificateFolder>) {
        let state = self.lock();
        self.queue.drain();
        (state.catalog.clone(), state.certificates.clone())
    }
}

impl SourceState for Inventory {
    fn counts(&self) -> Vec<(&'static str, usize)> {
        let state = self.lock();
        match self.provider {
            Provider::Docker | Provider::Podman => vec![("Container", state.catalog.containers.len())],
            Provider::Consul => vec![("Service", state.catalog.services.len())],
        }
    }

    fn missing(&self) -> Option<String> {
        let state = self.lock();
        let reason = if state.error.is_empty() { String::new() } else { format!(" ({})", state.error) };
        (!state.is_complete).then(|| format!("{} has not answered yet{reason}", self.provider.name()))
    }

    fn outage(&self) -> Option<String> {
        let state = self.lock();
        let name = self.provider.name();
        (!state.is_connected).then(|| format!("{name} does not answer, everything stays as it was: {}", state.error))
    }

    fn write_metrics(&self, out: &mut String) {
        let state = self.lock();
        let name = self.provider.name();
        for (metric, kind, help, value) in [
            ("source_connected", "gauge", "1 if the engine or Consul answers.", u64::from(state.is_connected)),
            ("source_losses_total", "counter", "Connections to the engine or Consul that ended.", state.losses),
        ] {
            let _ =
                writeln!(out, "# HELP tidegate_controller_{metric} {help}\n# TYPE tidegate_controller_{metric} {kind}");
            let _ = writeln!(out, "tidegate_controller_{metric}{{provider=\"{name}\"}} {value}");
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn an_outage_is_named_and_keeps_the_catalog() {
        let inventory = Inventory::new(Provider::Docker);
        inventory.set_lost("no such file");
        assert_eq!(inventory.missing().as_deref(), Some("docker has not answered yet (no such file)"));
        let container = Container { id: "a".into(), ..Container::default() };
        inventory.set_connected();
        inventory.set_containers(BTreeMap::from([("a".to_owned(), Arc::new(container))]));
        assert_eq!((inventory.missing(), inventory.outage()), (None, None));
        inventory.set_lost("the stream ended");
        assert!(inventory.outage().is_some_and(|words| words.ends_with("the stream ended")));
        assert_eq!(inventory.counts(), [("Container", 1)]);
        let mut text = String::new();
        inventory.write_metrics(&mut text);
        assert!(text.contains("tidegate_controller_source_connected{provider=\"docker\"} 0\n"), "{text}");
        assert!(text.contains("tidegate_controller_source_losses_total{provider=\"docker\"} 1\n"), "{text}");
    }
}
