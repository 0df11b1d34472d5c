//! `run` with `--provider docker`, `podman` or `consul`: watches an engine or Consul instead of a cluster.
//!
//! ```text
//! engine, consul ─▶ inventory ─▶ translation ─▶ push ─▶ server
//! ```
//!
//! An engine or a Consul that is gone changes nothing: the inventory stays as it was, and a complete list follows on return.

mod certificate_watch;
mod client_tls;
mod consul;
mod engine;
mod engine_events;
mod inventory;
mod isolation;
mod json_client;
mod source_client;
#[cfg(test)]
mod tests;
mod translation;

use std::sync::Arc;

use cluster_discovery::Provider;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use crate::arguments::RunArguments;
use crate::discovery_arguments::ProviderName;

use super::logs;
use super::metrics::Metrics;
use super::probes;
use super::push::{self, Pusher};
use super::server_api::ServerApi;
use super::translate;

pub use certificate_watch::read_folder;
use consul::ConsulWatch;
use engine::EngineWatch;
use inventory::Inventory;
use isolation::OwnerIsolation;
use source_client::source_client;
pub use translation::CatalogSource;
use translation::Translator;

/// Runs until a task ends, which none does.
///
/// # Errors
/// If an argument is invalid, a file cannot be read, or a task has ended.
pub async fn run_discovery(options: &RunArguments, listener: Option<TcpListener>) -> Result<(), String> {
    let parts = DiscoveryParts::new(options)?;
    let members = [("provider", parts.inventory.provider()), ("api", &options.api.display().to_string())];
    logs::info("the controller begins", &members);
    let mut tasks = parts.spawn();
    if let Some(listener) = listener {
        tasks.spawn(probes::serve_probes(listener, parts.inventory.clone(), parts.metrics.clone()));
    }
    tasks.join_next().await;
    Err("a task has ended unexpectedly".into())
}

/// Watch of the source of containers or services.
enum SourceWatch {
    Engine(EngineWatch),
    Consul(ConsulWatch),
}

/// Parts that the tasks of a controller share.
struct DiscoveryParts {
    inventory: Arc<Inventory>,
    metrics: Arc<Metrics>,
    translator: Arc<Translator>,
    api: std::path::PathBuf,
    source: SourceWatch,
    certificates: Option<std::path::PathBuf>,
}

impl DiscoveryParts {
    fn new(options: &RunArguments) -> Result<DiscoveryParts, String> {
        let discovery = &options.discovery;
        let provider = discovery.provider.source().ok_or("the provider kubernetes has no containers")?;
        let render = cluster_render::Settings {
            run_folder: options.api.parent().map(|folder| folder.display().to_string()).unwrap_or_default(),
            probe_port: options.server_probe_port,
            route_zones: options.route_metrics,
            resolver: options.resolver.clone(),
            ipv6: options.ipv6,
            ..cluster_render::Settings::default()
        };
        let mut settings = discovery.settings(provider, &options.ingress, options.resolver.is_some());
        if settings.server_container.is_none() {
            settings.server_hostname = host_name();
        }
        let inventory = Arc::new(Inventory::new(provider));
        if let Some(folder) = &discovery.certificates {
            inventory.set_certificates(read_folder(folder)?);
        }
        let client = source_client(&options.source, provider, |name| std::env::var(name).ok())?;
        let metrics = Arc::<Metrics>::default();
        let source = match provider {
            Provider::Docker | Provider::Podman => {
                SourceWatch::Engine(EngineWatch::new(client, inventory.clone(), metrics.clone()))
            }
            Provider::Consul => {
                let datacenter = options.source.consul_datacenter.clone();
                SourceWatch::Consul(ConsulWatch::new(client, datacenter, inventory.clone(), metrics.clone()))
            }
        };
        let translator = Arc::new(Translator::new(settings, render));
        let (api, certificates) = (options.api.clone(), discovery.certificates.clone());
        Ok(DiscoveryParts { inventory, metrics, translator, api, source, certificates })
    }

    /// Starts all tasks of the controller.
    fn spawn(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (desired, desired_end) = channel::channel(None);
        let (outcomes, outcomes_end) = channel::channel(None);
        match &self.source {
            SourceWatch::Engine(watch) => tasks.spawn(watch.clone().run()),
            SourceWatch::Consul(watch) => tasks.spawn(watch.clone().run()),
        };
        if let Some(folder) = &self.certificates {
            tasks.spawn(certificate_watch::watch_certificates(folder.clone(), self.inventory.clone()));
        }
        let translation = translation::translate_changes(
            self.inventory.clone(),
            self.translator.clone(),
            self.metrics.clone(),
            desired,
        );
        tasks.spawn(translation);
        let pusher = Pusher::new(ServerApi::new(self.api.clone()), self.metrics.clone());
        let isolation = OwnerIsolation::new(self.translator.clone(), self.metrics.clone());
        tasks.spawn(push::push_changes(pusher, isolation, desired_end, outcomes));
        tasks.spawn(super::drain(outcomes_end));
        tasks
    }
}

/// Returns the name of this host, which is that of the controller's container in one.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

impl ProviderName {
    /// Returns the source of containers or services; `None` for Kubernetes.
    pub fn source(self) -> Option<Provider> {
        match self {
            ProviderName::Kubernetes => None,
            ProviderName::Docker => Some(Provider::Docker),
            ProviderName::Podman => Some(Provider::Podman),
            ProviderName::Consul => Some(Provider::Consul),
        }
    }
}
