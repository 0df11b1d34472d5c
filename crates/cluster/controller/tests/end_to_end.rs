//! A real server, a controller, and an API server that has recorded lists only.

mod lists;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::free_port;

/// Ends a process with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // TERM: a master that is killed leaves its workers behind.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Returns the server's program, if it is built beside this test.
fn server_program() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_tidegate-controller")).with_file_name("tidegate");
    path.exists().then_some(path)
}

/// Starts a backend, and returns its port.
fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    });
    port
}

/// Returns the status line of a response.
fn get(port: u16, host: &str) -> Option<String> {
    let text = exchange(TcpStream::connect(("127.0.0.1", port)).ok()?, "/", host)?;
    text.lines().next().map(str::to_owned)
}

/// Returns a response, with its head.
fn exchange(mut stream: impl Read + Write, path: &str, host: &str) -> Option<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A server with a controller and an API server; all end with it.
struct Pod {
    folder: PathBuf,
    _server: Process,
    _controller: Process,
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Pod {
    /// Starts the programs; `None` if the server is not built.
    fn start(name: &str, cluster: &str, arguments: &[&str]) -> Option<Pod> {
        let program = server_program()?;
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("nginx.conf");
        let controller = env!("CARGO_BIN_EXE_tidegate-controller");
        let run_folder = folder.to_str().unwrap();
        let mut bootstrap = Command::new(controller);
        bootstrap.args(["bootstrap", "--run-folder", run_folder, "--output"]).arg(&file);
        assert!(bootstrap.status().unwrap().success());
        let mut server = Command::new(program);
        server.args(["-e", "stderr", "-g", "daemon off;", "-c"]).arg(&file).stdout(Stdio::null());
        let server = Process(server.spawn().unwrap());
        let kubeconfig = folder.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {{server: \"{cluster}\"}}\n\
             contexts:\n- name: a\n  context: {{cluster: a, user: a}}\nusers:\n- name: a\n  user: {{}}\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let mut run = Command::new(controller);
        run.args(["run", "--no-status", "--api", &format!("unix:{run_folder}/api.sock"), "--kubeconfig"]);
        let controller = Process(run.arg(&kubeconfig).args(arguments).spawn().unwrap());
        Some(Pod { folder, _server: server, _controller: controller })
    }
}

fn wait_for(port: u16, host: &str, status: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while get(port, host).as_deref() != Some(status) {
        assert!(Instant::now() < end, "{host}: not {status}: {:?}", get(port, host));
        std::thread::yield_now();
    }
}

const NO_SERVER: &str = "the program tidegate is not built beside this test";

#[test]
fn a_route_of_the_cluster_is_served_by_the_server() {
    let port = free_port();
    let Some(_pod) = Pod::start("end-to-end", &lists::serve(port, backend(), false), &[]) else {
        return testkit::missing_means(NO_SERVER);
    };
    wait_for(port, "shop.test", "HTTP/1.1 204 No Content");
    assert_eq!(get(port, "other.test").as_deref(), Some("HTTP/1.1 404 Not Found"));
}

#[test]
fn a_snippet_that_the_server_refuses_takes_its_own_ingress_down_only() {
    let (port, gateway) = (free_port(), free_port());
    let arguments = [
        "--allow-snippets",
        "--route-metrics",
        "--ingress-address",
        "127.0.0.1",
        "--http-port",
        &port.to_string(),
        "--https-port",
        "8443",
    ];
    let Some(pod) = Pod::start("snippets", &lists::serve(gateway, backend(), true), &arguments) else {
        return testkit::missing_means(NO_SERVER);
    };
    wait_for(port, "good.test", "HTTP/1.1 204 No Content");
    wait_for(gateway, "shop.test", "HTTP/1.1 204 No Content");
    let api = UnixStream::connect(pod.folder.join("api.sock")).unwrap();
    let zones = exchange(api, "/api/9/http/location_zones", "localhost").unwrap();
    assert!(zones.contains("\"shop/Ingress/good\"") && zones.contains("\"shop/HTTPRoute/shop\""), "{zones}");
    assert_eq!(get(port, "bad.test").as_deref(), Some("HTTP/1.1 404 Not Found"));
}
