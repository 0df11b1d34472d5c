//! Objects of the cluster in memory.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Config};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Stores that watches fill.
pub struct Cluster {
    pub deployments: Store<Deployment>,
    pub pods: Store<Pod>,
    pub services: Store<Service>,
    pub slices: Store<EndpointSlice>,
    pub secrets: Store<Secret>,
    pub config_maps: Store<ConfigMap>,
    /// Wakes after each change.
    pub changed: Arc<Notify>,
    _watches: JoinSet<()>,
}

impl Cluster {
    /// Begins to watch. The stores are empty until [`Cluster::complete`] returns.
    pub fn new(client: &Client) -> Cluster {
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        Cluster {
            deployments: watch(client, &changed, &mut watches),
            pods: watch(client, &changed, &mut watches),
            services: watch(client, &changed, &mut watches),
            slices: watch(client, &changed, &mut watches),
            secrets: watch(client, &changed, &mut watches),
            config_maps: watch(client, &changed, &mut watches),
            changed,
            _watches: watches,
        }
    }

    /// Waits for the first list of each kind.
    pub async fn complete(&self) {
        // An error means that the watch has ended, which it does with the process.
        let _ = tokio::join!(
            self.deployments.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.services.wait_until_ready(),
            self.slices.wait_until_ready(),
            self.secrets.wait_until_ready(),
            self.config_maps.wait_until_ready(),
        );
    }
}

fn watch<K>(client: &Client, changed: &Arc<Notify>, watches: &mut JoinSet<()>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (store, writer) = reflector::store();
    let api: Api<K> = Api::all(client.clone());
    let changed = changed.clone();
    watches.spawn(async move {
        let stream = watcher::watcher(api, Config::default()).default_backoff();
        let mut stream = std::pin::pin!(reflector::reflector(writer, stream));
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => changed.notify_one(),
                Err(error) => eprintln!("fake-kubelet: watch of {}: {error}", K::kind(&())),
            }
        }
    });
    store
}
