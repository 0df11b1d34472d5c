//! Brings Pods, processes and EndpointSlices to what the cluster's objects ask for.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::RunSettings;
use crate::cluster::Cluster;
use crate::environment::{self, Data};
use crate::logs::{PodLogs, serve_logs};
use crate::pods::{DEPLOYMENT_LABEL, NODE_NAME, PodKey, running_status, wanted_pods};
use crate::processes::{PodProcess, PodProgram};
use crate::slices::{MANAGER, is_ours, slice_of};

/// Pause before a failed step is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until the end of the standard input.
pub async fn run_kubelet(options: &RunSettings) -> Result<(), String> {
    let client = Client::try_default().await.map_err(|error| error.to_string())?;
    register_node(&client, options).await.map_err(|error| format!("Node: {error}"))?;
    let mut kubelet = Kubelet {
        options,
        cluster: Cluster::new(&client),
        client,
        processes: HashMap::new(),
        logs: PodLogs::default(),
        written: BTreeMap::new(),
        started: 0,
        last_error: String::new(),
    };
    let logs = kubelet.logs.clone();
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    tokio::select! {
        result = serve_logs(options.node, logs) => result,
        () = kubelet.work() => Ok(()),
        _ = input.read(&mut byte) => Ok(()),
    }
}

async fn register_node(client: &Client, options: &RunSettings) -> Result<(), Error> {
    let address = options.node.ip().to_string();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE_NAME } });
    let parameters = PatchParams::apply(MANAGER).force();
    nodes.patch(NODE_NAME, &parameters, &Patch::Apply(&node)).await?;
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": address }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": options.node.port() } },
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastHeartbeatTime": now(), "lastTransitionTime": now(),
        }],
    } });
    nodes.patch_status(NODE_NAME, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

struct Kubelet<'a> {
    options: &'a RunSettings,
    client: Client,
    cluster: Cluster,
    processes: HashMap<PodKey, PodProcess>,
    logs: PodLogs,
    /// Slices as they were written.
    written: BTreeMap<PodKey, Value>,
    /// Processes that were started, for addresses and interfaces.
    started: u32,
    last_error: String,
}

impl Kubelet<'_> {
    async fn work(&mut self) {
        self.cluster.complete().await;
        loop {
            let result = self.reconcile().await;
            let is_complete = result.is_ok();
            let error = result.err().unwrap_or_default();
            if error != self.last_error && !error.is_empty() {
                eprintln!("fake-kubelet: {error}");
            }
            self.last_error = error;
            tokio::select! {
                () = self.cluster.changed.notified() => {}
                () = tokio::time::sleep(RETRY), if !is_complete => {}
            }
        }
    }

    /// Does one step of each kind. The first error is returned after all of them.
    async fn reconcile(&mut self) -> Result<(), String> {
        let wanted = wanted_pods(&self.cluster.deployments.state());
        let pods = self.cluster.pods.state();
        let mut result = Ok(());
        for pod in pods.iter().filter(|pod| is_made_here(pod)) {
            let key = key_of(pod);
            let is_wanted = wanted.contains_key(&key) && pod.metadata.deletion_timestamp.is_none();
            if !is_wanted {
                result = result.and(self.remove_pod(&key).await);
            }
        }
        for (key, pod) in &wanted {
            let existing = pods.iter().find(|pod| key_of(pod) == *key);
            if existing.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
                continue;
            }
            if existing.is_none() {
                result = result.and(self.create_pod(key, pod).await);
            }
            if !self.processes.contains_key(key) {
                result = result.and(self.start_pod(key, pod).await);
            } else if existing.is_some_and(|pod| !has_address(pod)) {
                result = result.and(self.write_status(key, pod).await);
            }
        }
        result.and(self.write_slices().await)
    }

    async fn create_pod(&self, key: &PodKey, pod: &Value) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        let parameters = PatchParams::apply(MANAGER).force();
        let result = api.patch(&key.1, &parameters, &Patch::Apply(pod)).await;
        result.map(|_| ()).map_err(|error| format!("Pod {}/{}: {error}", key.0, key.1))
    }

    async fn start_pod(&mut self, key: &PodKey, pod: &Value) -> Result<(), String> {
        let words = |words: String| format!("Pod {}/{}: {words}", key.0, key.1);
        let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).map_err(|error| words(error.to_string()))?;
        let [container] = spec.containers.as_slice() else {
            return Err(words("exactly one container is supported".into()));
        };
        let folder = self.options.folder.join(&key.0).join(&key.1);
        let data = NamespaceData { cluster: &self.cluster, namespace: &key.0 };
        environment::write_volumes(&spec, &data, &folder).map_err(words)?;
        let own = std::env::current_exe().map_err(|error| words(error.to_string()))?;
        let is_name_server = container.image.as_deref().is_some_and(|image| image.contains("coredns"));
        let program: Vec<&OsStr> = match is_name_server {
            true => vec![own.as_os_str(), OsStr::new("dns")],
            false => vec![self.options.echo.as_os_str()],
        };
        let address = address_of(self.options.pods, self.started);
        let program = PodProgram {
            words: program,
            variables: environment::variables(container, &key.0, &key.1, &address.to_string(), &folder),
            address,
            node: self.options.node.ip(),
            number: self.started,
        };
        self.started += 1;
        let process = PodProcess::start(program, self.cluster.changed.clone()).await.map_err(words)?;
        self.logs.insert(key.clone(), process.log.clone());
        self.processes.insert(key.clone(), process);
        self.write_status(key, pod).await
    }

    async fn write_status(&self, key: &PodKey, pod: &Value) -> Result<(), String> {
        let Some(process) = self.processes.get(key) else { return Ok(()) };
        let node = self.options.node.ip().to_string();
        let status = running_status(&pod["spec"], &process.address.to_string(), &node, &now());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        let result = api.patch_status(&key.1, &PatchParams::default(), &Patch::Merge(&status)).await;
        result.map(|_| ()).map_err(|error| format!("status of Pod {}/{}: {error}", key.0, key.1))
    }

    async fn remove_pod(&mut self, key: &PodKey) -> Result<(), String> {
        self.processes.remove(key);
        self.logs.remove(key);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        match api.delete(&key.1, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(format!("Pod {}/{}: {error}", key.0, key.1)),
        }
    }

    async fn write_slices(&mut self) -> Result<(), String> {
        let pods = self.cluster.pods.state();
        let services = self.cluster.services.state();
        let mut wanted: BTreeMap<PodKey, Value> = BTreeMap::new();
        for slice in services.iter().filter_map(|service| slice_of(service, &pods)) {
            let text = |name: &str| slice["metadata"][name].as_str().unwrap_or_default().to_owned();
            wanted.insert((text("namespace"), text("name")), slice);
        }
        let mut result = Ok(());
        for (key, slice) in &wanted {
            if self.written.get(key) == Some(slice) {
                continue;
            }
            let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.0);
            match api.patch(&key.1, &PatchParams::apply(MANAGER).force(), &Patch::Apply(slice)).await {
                Ok(_) => _ = self.written.insert(key.clone(), slice.clone()),
                Err(error) => result = Err(format!("EndpointSlice {}/{}: {error}", key.0, key.1)),
            }
        }
        for slice in self.cluster.slices.state().iter().filter(|slice| is_ours(slice)) {
            let metadata = &slice.metadata;
            let key = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
            if wanted.contains_key(&key) {
                continue;
            }
            self.written.remove(&key);
            let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.0);
            match api.delete(&key.1, &DeleteParams::default()).await {
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => result = Err(format!("EndpointSlice {}/{}: {error}", key.0, key.1)),
                Ok(_) => {}
            }
        }
        result
    }
}

/// Secrets and ConfigMaps of one namespace.
struct NamespaceData<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
}

impl Data for NamespaceData<'_> {
    fn secret(&self, name: &str) -> Option<BTreeMap<String, ByteString>> {
        let secret = self.cluster.secrets.get(&ObjectRef::new(name).within(self.namespace))?;
        Some(secret.data.clone().unwrap_or_default())
    }

    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let map = self.cluster.config_maps.get(&ObjectRef::new(name).within(self.namespace))?;
        Some(map.data.clone().unwrap_or_default())
    }
}

fn is_made_here(pod: &Arc<Pod>) -> bool {
    pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(DEPLOYMENT_LABEL))
}

fn key_of(pod: &Pod) -> PodKey {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

fn has_address(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
}

/// Returns the address of a Pod by its number.
fn address_of(first: IpAddr, number: u32) -> IpAddr {
    match first {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(number))),
        IpAddr::V6(first) => IpAddr::V6((u128::from(first).wrapping_add(u128::from(number))).into()),
    }
}
