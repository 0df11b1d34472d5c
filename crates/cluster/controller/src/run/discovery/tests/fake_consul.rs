//! A Consul with blocking queries of the catalogue and of the health of services.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::fake_http::{FakeBody, Outage, serve_tcp, serve_tls, text_body};

/// Token that each request must have.
pub const TOKEN: &str = "2f1e0f3c-token";

#[derive(Default)]
struct State {
    index: u64,
    /// Entries of `/v1/health/service/NAME`.
    services: BTreeMap<String, Vec<Value>>,
    /// Path, query and answered status of each request.
    requests: Vec<String>,
}

/// The Consul of one test.
#[derive(Clone)]
pub struct FakeConsul {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    pub outage: Outage,
    pub port: u16,
}

/// Returns an instance of the service `web`.
pub fn fake_instance(port: u16, host: &str, status: &str) -> Value {
    json!({
        "Node": {"Node": "node-1", "Address": "127.0.0.1", "Datacenter": "dc1"},
        "Service": {"ID": format!("web-{port}"), "Service": "web", "Tags": [format!("tidegate.host={host}"), "v1"],
            "Address": "", "Port": port, "Weights": {"Passing": 1, "Warning": 1}},
        "Checks": [{"CheckID": "serfHealth", "Status": "passing"}, {"CheckID": "service:web", "Status": status}],
    })
}

impl FakeConsul {
    pub async fn start() -> FakeConsul {
        FakeConsul::start_with(None).await
    }

    /// Starts a Consul, over TLS if an acceptor is given.
    pub async fn start_with(acceptor: Option<TlsAcceptor>) -> FakeConsul {
        let state = Arc::new(Mutex::new(State { index: 100, ..State::default() }));
        let (changed, outage): (Arc<Notify>, Outage) = Default::default();
        let (shared, noted) = (state.clone(), changed.clone());
        let handler = Arc::new(move |request: Request<Incoming>| {
            let (shared, noted) = (shared.clone(), noted.clone());
            let answer = async move { answer(&shared, &noted, &request).await };
            Box::pin(answer) as futures::future::BoxFuture<'static, Response<FakeBody>>
        });
        let port = match acceptor {
            Some(acceptor) => serve_tls(acceptor, outage.clone(), handler).await,
            None => serve_tcp(outage.clone(), handler).await,
        };
        FakeConsul { state, changed, outage, port }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Replaces the instances of a service; none removes it.
    pub fn set(&self, service: &str, instances: Vec<Value>) {
        let mut state = self.state();
        state.index += 1;
        match instances.is_empty() {
            true => state.services.remove(service),
            false => state.services.insert(service.to_owned(), instances),
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// Begins the index anew, as a restored snapshot does.
    pub fn reset_index(&self) {
        self.state().index = 1;
        self.changed.notify_waiters();
    }

    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }
}

async fn answer(state: &Mutex<State>, changed: &Notify, request: &Request<Incoming>) -> Response<FakeBody> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    state.lock().unwrap().requests.push(format!("{path}?{query}"));
    if request.headers().get("x-consul-token").is_none_or(|token| token != TOKEN) {
        return Response::builder().status(403).body(text_body("Permission denied".into())).unwrap();
    }
    let index: u64 = query.split('&').find_map(|pair| pair.strip_prefix("index=")).unwrap().parse().unwrap();
    loop {
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        {
            let state = state.lock().unwrap();
            // An index of the future is answered at once.
            if index == 0 || state.index != index {
                let value = match path.strip_prefix("/v1/health/service/") {
                    Some(name) => json!(state.services.get(name).cloned().unwrap_or_default()),
                    None => catalog(&state.services),
                };
                let response = Response::builder().header("x-consul-index", state.index);
                return response.body(text_body(value.to_string())).unwrap();
            }
        }
        notified.await;
    }
}

fn catalog(services: &BTreeMap<String, Vec<Value>>) -> Value {
    let tags = |instances: &Vec<Value>| -> Vec<Value> {
        instances.iter().flat_map(|one| one["Service"]["Tags"].as_array().unwrap().clone()).collect()
    };
    services.iter().map(|(name, instances)| (name.clone(), json!(tags(instances)))).collect()
}
