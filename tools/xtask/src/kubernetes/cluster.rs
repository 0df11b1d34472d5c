//! Processes of a run, in the namespaces.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::programs::Programs;

/// Address of the API server and of the node. The API server refuses loopback addresses in EndpointSlices.
const NODE: &str = "10.244.0.1";
/// First address of Pods.
const PODS: &str = "10.244.1.0";
/// Addresses that the namespace has: of Gateways, and for Gateways that ask for one.
const POOL: &str = "10.245.0.0/24";
const GATEWAYS: &str = "10.245.0.0/25";
/// Address that a Gateway can ask for.
pub const USABLE: &str = "10.245.0.200";
/// Address that the namespace does not have (RFC 5737).
pub const UNUSABLE: &str = "192.0.2.1";
/// Port of probes and metrics of the controller.
pub const PROBE_PORT: u16 = 9090;
const SERVER_PROBE_PORT: u16 = 8081;

/// Tokens of the API server: its user, and the controller's account with the rights of the manifests.
const TOKENS: &str = "\
admin,admin,1,system:masters
controller,system:serviceaccount:tidegate:tidegate,2,\"system:serviceaccounts,system:serviceaccounts:tidegate\"
";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// Manifests with the rights of the controller and its classes.
pub const MANIFESTS: &str = "packaging/kubernetes/tidegate.yaml";
/// Kinds of the manifests that this cluster cannot run: the two containers are processes here.
const LEFT_OUT: &str = "Deployment,PodDisruptionBudget";

/// A running cluster. Its processes end with the namespace.
pub struct Cluster {
    pub programs: Programs,
    /// Folder of logs and configurations.
    pub folder: PathBuf,
    api_server: Option<Child>,
    controller: Option<Child>,
    _others: Vec<Child>,
}

impl Cluster {
    /// Starts all processes, and waits until the controller is ready.
    pub fn start(programs: &Programs, folder: &Path) -> Result<Cluster, String> {
        prepare_network()?;
        prepare_folder(folder)?;
        let mut cluster = Cluster {
            programs: programs.clone(),
            folder: folder.to_owned(),
            api_server: None,
            controller: None,
            _others: Vec::new(),
        };
        let etcd = cluster.spawn(
            "etcd",
            Command::new("etcd").args([
                "--data-dir",
                &cluster.path("etcd"),
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                // Durability is not a subject of these tests.
                "--unsafe-no-fsync",
            ]),
        )?;
        cluster._others.push(etcd);
        cluster.start_api_server()?;
        cluster.apply(&[&programs.definitions()?.to_string_lossy()])?;
        cluster.apply(&["--skip", LEFT_OUT, MANIFESTS])?;
        cluster.start_kubelet()?;
        cluster.start_server()?;
        cluster.start_controller()?;
        wait_until("the controller is ready", || {
            probe_controller("/readyz").is_some_and(|answer| answer.contains(" 200 "))
        })?;
        Ok(cluster)
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Returns the kubeconfig of a user with all rights.
    pub fn admin_configuration(&self) -> PathBuf {
        self.folder.join("admin.json")
    }

    /// Starts a process whose output goes to a log.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Child, String> {
        let error = |error: std::io::Error| format!("{name}: {error}");
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log"))).map_err(error)?;
        let output = log.try_clone().map_err(error)?;
        command.env("KUBECONFIG", self.admin_configuration()).stdout(output).stderr(log);
        command.stdin(Stdio::null()).spawn().map_err(error)
    }

    pub fn start_api_server(&mut self) -> Result<(), String> {
        let key = self.path("accounts.key");
        let child = self.spawn(
            "kube-apiserver",
            Command::new(&self.programs.api_server).args([
                "--etcd-servers=http://127.0.0.1:2379",
                "--bind-address=127.0.0.1",
                "--secure-port=6443",
                &format!("--advertise-address={NODE}"),
                &format!("--cert-dir={}", self.path("certificates")),
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--service-account-key-file={key}"),
                &format!("--service-account-signing-key-file={key}"),
                &format!("--token-auth-file={}", self.path("tokens.csv")),
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--kubelet-preferred-address-types=InternalIP",
            ]),
        )?;
        self.api_server = Some(child);
        wait_until("the API server listens", || TcpStream::connect(("127.0.0.1", 6443)).is_ok())
    }

    pub fn stop_api_server(&mut self) {
        end(&mut self.api_server);
    }

    fn start_kubelet(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.programs.kubelet);
        command.args(["run", "--node", &format!("{NODE}:10250"), "--pods", PODS, "--echo"]);
        command.arg(&self.programs.echo).args(["--folder", &self.path("pods")]);
        let log = File::create(self.path("fake-kubelet.log")).map_err(|error| error.to_string())?;
        command.env("KUBECONFIG", self.admin_configuration()).stdin(Stdio::piped()).stderr(log);
        self._others.push(command.spawn().map_err(|error| format!("fake-kubelet: {error}"))?);
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), String> {
        let (conf, run) = (self.path("live/nginx.conf"), self.path("run"));
        let port = SERVER_PROBE_PORT.to_string();
        let mut bootstrap = Command::new(&self.programs.controller);
        bootstrap.args(["bootstrap", "--output", &conf, "--run-folder", &run, "--probe-port", &port]);
        let status = bootstrap.stdin(Stdio::null()).status().map_err(|error| format!("bootstrap: {error}"))?;
        if !status.success() {
            return Err("bootstrap failed".into());
        }
        let mut command = Command::new(&self.programs.server);
        let server = self.spawn("tidegate", command.args(["-e", "stderr", "-c", &conf, "-g", "daemon off;"]))?;
        self._others.push(server);
        let socket = self.folder.join("run/api.sock");
        wait_until("the server listens", || socket.exists())
    }

    pub fn start_controller(&mut self) -> Result<(), String> {
        let child = self.spawn(
            "tidegate-controller",
            Command::new(&self.programs.controller).args([
                "run",
                "--kubeconfig",
                &self.path("controller.json"),
                "--api",
                &format!("unix:{}", self.path("run/api.sock")),
                "--files-folder",
                &self.path("live"),
                "--server-probe-port",
                &SERVER_PROBE_PORT.to_string(),
                "--address-pool",
                GATEWAYS,
                "--leader-election-namespace",
                "tidegate",
                "--probe-address",
                &format!("127.0.0.1:{PROBE_PORT}"),
            ]),
        )?;
        self.controller = Some(child);
        Ok(())
    }

    pub fn stop_controller(&mut self) {
        end(&mut self.controller);
    }

    /// Applies manifests with the rights of the administrator.
    pub fn apply(&self, arguments: &[&str]) -> Result<(), String> {
        self.kubelet(&[&["apply"], arguments].concat())
    }

    /// Runs a command of the fake kubelet.
    pub fn kubelet(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.programs.kubelet);
        command.args(arguments).env("KUBECONFIG", self.admin_configuration()).stdin(Stdio::null());
        let status = command.status().map_err(|error| format!("fake-kubelet: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("fake-kubelet {} failed", arguments.join(" "))) }
    }

    /// Returns the log of a process.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }
}

/// Ends a process: first with SIGTERM, so that the controller gives its Lease back.
fn end(child: &mut Option<Child>) {
    let Some(mut child) = child.take() else { return };
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if wait_until("the process ends", || child.try_wait().is_ok_and(|status| status.is_some())).is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Gives the namespace the addresses of the node and of Gateways. Nothing can leave it: it has no other interface.
fn prepare_network() -> Result<(), String> {
    let node = format!("{NODE}/32");
    for words in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &node, "dev", "lo"],
        &["route", "add", "local", POOL, "dev", "lo"],
    ] {
        let status = Command::new("ip").args(words).status().map_err(|error| format!("ip: {error}"))?;
        if !status.success() {
            return Err(format!("ip {} failed", words.join(" ")));
        }
    }
    Ok(())
}

/// Makes the folder empty, and writes the files that processes read.
fn prepare_folder(folder: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| format!("{}: {error}", folder.display());
    for name in ["etcd", "certificates", "pods", "live", "run"] {
        let _ = fs::remove_dir_all(folder.join(name));
        fs::create_dir_all(folder.join(name)).map_err(error)?;
    }
    for entry in fs::read_dir(folder).map_err(error)?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "log") {
            fs::remove_file(entry.path()).map_err(error)?;
        }
    }
    fs::write(folder.join("tokens.csv"), TOKENS).map_err(error)?;
    for (user, namespace) in [("admin", "default"), ("controller", "tidegate")] {
        fs::write(folder.join(format!("{user}.json")), configuration(user, namespace)).map_err(error)?;
    }
    let key = folder.join("accounts.key");
    let mut make = Command::new("openssl");
    make.args(["genrsa", "-out", &key.to_string_lossy(), "2048"]).stderr(Stdio::null());
    let status = make.status().map_err(|error| format!("openssl: {error}"))?;
    if status.success() { Ok(()) } else { Err("openssl genrsa failed".into()) }
}

fn configuration(user: &str, namespace: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "local",
        "clusters": [{ "name": "local", "cluster": {
            "server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": true,
        } }],
        "users": [{ "name": user, "user": { "token": user } }],
        "contexts": [{ "name": "local", "context": { "cluster": "local", "user": user, "namespace": namespace } }],
    })
    .to_string()
}

/// Waits for a condition.
pub fn wait_until(words: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > end {
            return Err(format!("not within {} s: {words}", PATIENCE.as_secs()));
        }
        std::thread::park_timeout(PAUSE);
    }
    Ok(())
}

/// Returns the answer of the controller to a probe, with its head.
pub fn probe_controller(path: &str) -> Option<String> {
    send_request(("127.0.0.1", PROBE_PORT), "localhost", path)
}

/// Returns the answer to a request, with its head.
pub fn send_request(address: (&str, u16), host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
