//! An engine with the answers and events of Docker 27, as far as the controller reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::fake_http::{FakeBody, Handler, Outage, TempFolder, serve_tls, serve_unix, socket_path, text_body};

#[derive(Default)]
struct State {
    /// Descriptions by identifier.
    containers: BTreeMap<String, Value>,
    streams: Vec<mpsc::UnboundedSender<Bytes>>,
    /// Streams of events that were opened.
    opened: usize,
}

/// The engine of one test.
pub struct FakeEngine {
    state: Arc<Mutex<State>>,
    pub outage: Outage,
    address: String,
    _folder: Option<TempFolder>,
}

/// Returns a container with the host's network, which serves `a.test` at a port.
pub fn fake_container(number: u16, port: u16) -> Value {
    json!({
        "Id": format!("{number:064x}"), "Name": format!("/shop-web-{number}"),
        "State": {"Status": "running", "Running": true, "Paused": false, "Restarting": false, "Dead": false, "Pid": 4711},
        "HostConfig": {"NetworkMode": "host"},
        "Config": {"Hostname": "machine", "Env": ["PATH=/bin"], "StopSignal": "SIGQUIT", "StopTimeout": 1,
            "Labels": {"com.docker.compose.project": "shop", "com.docker.compose.service": "web",
                "tidegate.host": "a.test", "tidegate.port": port.to_string()}},
        "NetworkSettings": {"Ports": {}, "Networks": {"host": {"IPAddress": "", "Gateway": ""}}},
    })
}

fn handler(state: &Arc<Mutex<State>>) -> Handler {
    let shared = state.clone();
    Arc::new(move |request: Request<Incoming>| {
        let response = answer(&mut shared.lock().unwrap(), request.uri().path());
        Box::pin(async move { response }) as futures::future::BoxFuture<'static, Response<FakeBody>>
    })
}

fn id_of(container: &Value) -> String {
    container["Id"].as_str().unwrap().to_owned()
}

impl FakeEngine {
    pub fn start() -> FakeEngine {
        let (path, folder) = socket_path();
        let state: Arc<Mutex<State>> = Arc::default();
        let outage = Outage::default();
        serve_unix(&path, outage.clone(), handler(&state));
        FakeEngine { state, outage, address: format!("unix:{}", path.display()), _folder: Some(folder) }
    }

    /// Starts an engine that is reached by `tcp://`, over TLS.
    pub async fn start_tls(acceptor: TlsAcceptor) -> FakeEngine {
        let state: Arc<Mutex<State>> = Arc::default();
        let outage = Outage::default();
        let port = serve_tls(acceptor, outage.clone(), handler(&state)).await;
        FakeEngine { state, outage, address: format!("tcp://127.0.0.1:{port}"), _folder: None }
    }

    pub fn address(&self) -> String {
        self.address.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn opened_streams(&self) -> usize {
        self.state().opened
    }

    /// Creates and starts a container.
    pub fn run(&self, container: Value) {
        let id = id_of(&container);
        self.state().containers.insert(id.clone(), container);
        self.event(&id, "create", json!({}));
        self.event(&id, "start", json!({}));
    }

    /// Changes a container without an event.
    pub fn change(&self, number: u16, pointer: &str, value: Value) {
        let mut state = self.state();
        *state.containers.get_mut(&format!("{number:064x}")).unwrap().pointer_mut(pointer).unwrap() = value;
    }

    /// Sends a signal, which the container survives so far.
    pub fn signal(&self, number: u16, signal: u8) {
        self.event(&format!("{number:064x}"), "kill", json!({"signal": signal.to_string()}));
    }

    /// Ends a container.
    pub fn die(&self, number: u16) {
        let id = format!("{number:064x}");
        let state = json!({"Status": "exited", "Running": false, "Paused": false, "ExitCode": 0});
        self.change(number, "/State", state);
        self.event(&id, "die", json!({"exitCode": "0", "execDuration": "1"}));
        self.event(&id, "stop", json!({}));
    }

    /// Removes a container.
    pub fn remove(&self, number: u16) {
        let id = format!("{number:064x}");
        self.state().containers.remove(&id);
        self.event(&id, "destroy", json!({}));
    }

    /// Sends an event to all streams.
    pub fn event(&self, id: &str, action: &str, attributes: Value) {
        let mut attributes = attributes;
        attributes["image"] = json!("registry.example/app:1");
        let event = json!({"status": action, "id": id, "from": "registry.example/app:1", "Type": "container", "Action": action,
            "Actor": {"ID": id, "Attributes": attributes}, "scope": "local", "time": 1795907408, "timeNano": 1795907408282049376u64});
        let line = Bytes::from(format!("{event}\n"));
        self.state().streams.retain(|stream| stream.unbounded_send(line.clone()).is_ok());
    }
}

fn answer(state: &mut State, path: &str) -> Response<FakeBody> {
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    match words.as_slice() {
        ["events"] => {
            let (sender, receiver) = mpsc::unbounded();
            state.streams.push(sender);
            state.opened += 1;
            Response::new(BodyExt::boxed(StreamBody::new(receiver.map(|line| Ok(Frame::data(line))))))
        }
        ["version"] => Response::new(text_body("{\"Version\":\"27.3.1\"}".into())),
        ["containers", "json"] => {
            let list: Vec<Value> = state.containers.keys().map(|id| json!({ "Id": id })).collect();
            Response::new(text_body(json!(list).to_string()))
        }
        ["containers", id, "json"] => match state.containers.get(*id) {
            Some(container) => Response::new(text_body(container.to_string())),
            None => status(404),
        },
        _ => status(400),
    }
}

fn status(code: u16) -> Response<FakeBody> {
    Response::builder().status(code).body(text_body("{\"message\":\"no such container\"}".into())).unwrap()
}
