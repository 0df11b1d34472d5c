//! `run`: the controller beside a server. Watches the cluster, translates, pushes, and writes statuses. [`discovery`] has the
//! watches of engines and Consul.
//!
//! ```text
//! watch ─▶ store ─▶ change_queue ─▶ translate ─▶ push ─▶ server
//!                                                  └───▶ status_writer ─▶ cluster (the leader only)
//! ```
//!
//! Each arrow keeps the newest state only: a slow receiver skips states, and never sees an older one after a newer one.

mod addresses;
mod backoff;
mod change_queue;
mod discovery;
mod endpoints;
mod events;
mod isolation;
mod lease;
mod logs;
mod metrics;
mod probes;
mod provisioner;
mod provisioning;
mod push;
mod server_api;
mod status;
mod status_writer;
mod store;
#[cfg(test)]
mod tests;
mod translate;
mod watch;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use crate::arguments::RunArguments;
use crate::discovery_arguments::ProviderName;
pub use discovery::read_folder;

use addresses::PublishedAddresses;
use isolation::Isolation;
use lease::Election;
use metrics::Metrics;
use provisioner::Provisioner;
use provisioning::PodTemplate;
use push::{PushResult, Pusher};
use server_api::ServerApi;
use status_writer::StatusWriter;
use store::ObjectStore;
use translate::{DesiredState, Settings};
use webhook::{CertificateFiles, Reviewer};

/// Runs the command until SIGTERM, SIGINT or SIGQUIT.
pub fn run_controller(options: &RunArguments) -> ExitCode {
    if let Some(argument) = options.misplaced() {
        logs::error("the controller ends", &[("error", &format!("{argument} has no meaning for this provider"))]);
        return ExitCode::FAILURE;
    }
    // An error means that there is a provider already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(start(options)),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logs::error("the controller ends", &[("error", &error)]);
            ExitCode::FAILURE
        }
    }
}

async fn start(options: &RunArguments) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    // The stop signal of the image, for the server's sake.
    let mut quit = signal(SignalKind::quit()).map_err(|error| error.to_string())?;
    if options.discovery.provider != ProviderName::Kubernetes {
        let listener = probe_listener(options).await?;
        return tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = quit.recv() => Ok(()),
            result = discovery::run_discovery(options, listener) => result,
        };
    }
    let config = cluster_config(options.kubeconfig.as_ref()).await?;
    let namespace = options.leader_election_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| format!("the cluster: {error}"))?;
    let listener = probe_listener(options).await?;
    let webhook = match options.webhook_address {
        Some(address) => {
            Some(TcpListener::bind(address).await.map_err(|error| format!("--webhook-address {address}: {error}"))?)
        }
        None => None,
    };
    let parts = ControllerParts::new(options, client, namespace)?;
    logs::info("the controller begins", &[("identity", &parts.identity), ("api", &options.api.display().to_string())]);
    let (leader, _) = channel::channel(false);
    let mut election = parts.election();
    let (mut tasks, outcomes) = parts.spawn(leader.subscribe());
    if let Some(listener) = webhook
        && let (Some(certificate), Some(key)) = (&options.webhook_certificate, &options.webhook_key)
    {
        let files = CertificateFiles::new(certificate.clone(), key.clone());
        tasks.spawn(webhook::serve_webhook(listener, files, Arc::new(parts.reviewer(outcomes))));
    }
    if let Some(listener) = listener {
        tasks.spawn(probes::serve_probes(listener, parts.store.clone(), parts.metrics.clone()));
    }
    let elect = async {
        match &mut election {
            Some(election) => election.run(&leader).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = quit.recv() => Ok(()),
        () = elect => Ok(()),
        _ = tasks.join_next() => Err("a task has ended unexpectedly".into()),
    };
    // No status is written after the Lease is given back.
    tasks.shutdown().await;
    if parts.withdraws_addresses && *leader.borrow() {
        parts.status_writer().withdraw_addresses().await;
    }
    if let Some(election) = &mut election {
        election.release(&leader).await;
    }
    result
}

async fn probe_listener(options: &RunArguments) -> Result<Option<TcpListener>, String> {
    let Some(address) = options.probe_address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|error| format!("--probe-address {address}: {error}"))
}

async fn cluster_config(path: Option<&PathBuf>) -> Result<Config, String> {
    match path {
        None => Config::infer().await.map_err(|error| format!("no configuration of the cluster: {error}")),
        Some(path) => {
            let error = |error: kube::config::KubeconfigError| format!("{}: {error}", path.display());
            let file = Kubeconfig::read_from(path).map_err(error)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(error)
        }
    }
}

/// Bytes of the name of a field manager at most, as the API server has it.
const MANAGER_MAX: usize = 128;

/// Parts that the tasks of a controller share.
struct ControllerParts {
    client: Client,
    namespace: String,
    identity: String,
    lease_name: String,
    api: PathBuf,
    settings: Arc<Settings>,
    published: PublishedAddresses,
    withdraws_addresses: bool,
    writes_status: bool,
    store: Arc<ObjectStore>,
    metrics: Arc<Metrics>,
}

impl ControllerParts {
    /// # Errors
    /// If the pod template of `--provision` cannot be read.
    fn new(options: &RunArguments, client: Client, namespace: String) -> Result<ControllerParts, String> {
        let template =
            options.provision.as_deref().map(|path| PodTemplate::read(path, &namespace, &options.lease_name));
        let template = template.transpose()?.map(Arc::new);
        let gateway = cluster_gateway::Settings {
            controller_name: options.controller_name.clone(),
            class: options.class.clone(),
            only: options.gateway.clone(),
            // A cluster without a class of ours has nothing for this controller.
            serves_all_without_classes: false,
            names_services_without_slices: false,
            reserved_ports: options.server_probe_port.into_iter().collect(),
            ..cluster_gateway::Settings::default()
        };
        let run_folder = options.api.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let render = cluster_render::Settings {
            run_folder,
            probe_port: options.server_probe_port,
            route_zones: options.route_metrics,
            resolver: options.resolver.clone(),
            ipv6: options.ipv6,
            ..cluster_render::Settings::default()
        };
        let ingress = cluster_ingress::Settings {
            names_services_without_slices: false,
            ..crate::render::ingress_settings(&options.ingress, options.resolver.is_some())
        };
        // Ingresses may have an address of the pool.
        let is_free = |address: &std::net::IpAddr| Some(*address) != options.ingress.ingress_address;
        let pool = options.address_pool.iter().flat_map(|range| range.0.iter().copied()).filter(is_free).collect();
        Ok(ControllerParts {
            client,
            namespace,
            identity: options.identity.clone().unwrap_or_else(default_identity),
            lease_name: options.lease_name.clone(),
            api: options.api.clone(),
            settings: Arc::new(Settings { gateway, ingress, render, pool, book: Arc::default(), template }),
            published: PublishedAddresses {
                service: options.publish_service.clone(),
                addresses: options.publish_status_address.clone(),
                ingress_address: options.ingress.ingress_address,
            },
            withdraws_addresses: options.update_status_on_shutdown,
            // The leader of the controllers that have made this pod writes the statuses.
            writes_status: !options.no_status && options.gateway.is_none(),
            store: Arc::new(ObjectStore::new(store::KINDS.to_vec())),
            metrics: Arc::new(Metrics::default()),
        })
    }

    fn election(&self) -> Option<Election> {
        self.writes_status.then(|| Election::new(&self.client, &self.namespace, &self.lease_name, &self.identity))
    }

    /// Returns the name under which the controller writes: two installations have different Leases, or one leader.
    fn manager(&self) -> String {
        let mut manager = format!("{}.{}", self.lease_name, self.namespace);
        manager.truncate(MANAGER_MAX);
        manager
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter {
            client: self.client.clone(),
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            controller_name: self.settings.gateway.controller_name.clone(),
            published: self.published.clone(),
            manager: self.manager(),
            template: self.settings.template.clone(),
            identity: self.identity.clone(),
        }
    }

    fn server_api(&self) -> ServerApi {
        ServerApi::new(self.api.clone())
    }

    fn reviewer(&self, outcomes: channel::Receiver<Option<PushResult>>) -> Reviewer {
        Reviewer::new(self.store.clone(), self.settings.clone(), self.server_api(), outcomes, self.metrics.clone())
    }

    /// Starts all tasks of the controller. Also returns the outcomes of pushes.
    fn spawn(&self, leader: channel::Receiver<bool>) -> (JoinSet<()>, channel::Receiver<Option<PushResult>>) {
        let mut tasks = JoinSet::new();
        let (desired, desired_end) = channel::channel(None);
        let (outcomes, outcomes_end) = channel::channel(None);
        tasks.spawn(watch::watch_all(self.client.clone(), self.store.clone(), self.metrics.clone()));
        tasks.spawn(translations(self.store.clone(), self.settings.clone(), self.metrics.clone(), desired));
        let pusher = Pusher::new(self.server_api(), self.metrics.clone());
        let reviewed = outcomes_end.clone();
        let isolation = Isolation::new(self.store.clone(), self.metrics.clone());
        tasks.spawn(push::push_changes(pusher, isolation, desired_end, outcomes));
        if self.writes_status {
            tasks.spawn(note_leader(leader.clone(), self.metrics.clone()));
            if let Some(template) = self.settings.template.clone() {
                let provisioner = Provisioner { client: self.client.clone(), template, manager: self.manager() };
                tasks.spawn(provisioner.run(outcomes_end.clone(), leader.clone()));
            }
            tasks.spawn(self.status_writer().run(outcomes_end, leader));
        } else {
            tasks.spawn(drain(outcomes_end));
        }
        (tasks, reviewed)
    }
}

/// Translates after each change, once all lists are complete.
async fn translations(
    store: Arc<ObjectStore>,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    desired: channel::Sender<Option<Arc<DesiredState>>>,
) {
    store.complete().await;
    let mut previous: Option<Arc<DesiredState>> = None;
    loop {
        store.queue.due().await;
        let began = Instant::now();
        let (changes, snapshot) = store.take_changes();
        if changes.is_empty() {
            continue;
        }
        let next = translate::translate_changes(previous.take(), changes, snapshot, &settings).await;
        let Some((next, is_partial)) = next else {
            logs::error("a translation failed; the server keeps its configuration", &[]);
            continue;
        };
        metrics.translated(began.elapsed(), is_partial);
        previous = Some(next.clone());
        metrics.complaints.store(next.complaints.len() as u64, Ordering::Relaxed);
        log_complaints(&next, desired.borrow().as_deref());
        if desired.send(Some(next)).is_err() {
            return;
        }
    }
}

/// Writes a line for each complaint that the previous translation did not have.
fn log_complaints(next: &DesiredState, previous: Option<&DesiredState>) {
    if previous.is_some_and(|previous| Arc::ptr_eq(&previous.complaints, &next.complaints)) {
        return;
    }
    for complaint in next.complaints.iter() {
        if previous.is_some_and(|previous| previous.complaints.binary_search(complaint).is_ok()) {
            continue;
        }
        match events::complaint_subject(complaint) {
            Some((kind, name)) => {
                let members = [("kind", kind.name()), ("namespace", &name.namespace), ("name", &name.name)];
                logs::warn(&complaint.reason, &members);
            }
            None => logs::warn(&complaint.reason, &[("object", &complaint.subject)]),
        }
    }
}

async fn note_leader(mut leader: channel::Receiver<bool>, metrics: Arc<Metrics>) {
    loop {
        metrics.is_leader.store(*leader.borrow_and_update(), Ordering::Relaxed);
        if leader.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn drain(mut outcomes: channel::Receiver<Option<PushResult>>) {
    while outcomes.changed().await.is_ok() {}
}

/// Name of the pod, which is the name of the host in it.
fn default_identity() -> String {
    let host = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let host = host.ok().filter(|host| !host.is_empty());
    host.unwrap_or_else(|| format!("tidegate-controller-{}", std::process::id()))
}
