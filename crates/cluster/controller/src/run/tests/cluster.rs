//! An API server in memory: lists, watches, statuses, Leases and events of the kinds that the controller uses.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

type ClusterBody = BoxBody<Bytes, Infallible>;

/// Resources of the group of Gateway API.
const GATEWAY_PLURALS: &[&str] = &[
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
    "udproutes",
];

#[derive(Default)]
pub struct ClusterState {
    version: u64,
    /// By `PLURAL/NAMESPACE/NAME`.
    pub objects: BTreeMap<String, Value>,
    /// Events by plural, with their version.
    log: BTreeMap<String, Vec<(u64, Value)>>,
    /// Versions before this one are forgotten.
    oldest: BTreeMap<String, u64>,
    watches: Vec<(String, UnboundedSender<Bytes>)>,
    pub absent: BTreeSet<String>,
    /// Plurals whose lists fail; `*` for all requests.
    pub broken: BTreeSet<String>,
    /// Methods and paths of all changes by controllers.
    pub writes: Vec<String>,
    pub events: Vec<Value>,
}

/// The API server of one test.
#[derive(Clone)]
pub struct Cluster {
    state: Arc<Mutex<ClusterState>>,
    changed: Arc<Notify>,
    pub url: String,
}

/// Returns the plural of a kind.
pub fn kind_plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.as_str() {
        "backendtlspolicy" => "backendtlspolicies".into(),
        "gatewayclass" => "gatewayclasses".into(),
        "ingress" => "ingresses".into(),
        "ingressclass" => "ingressclasses".into(),
        _ => format!("{lower}s"),
    }
}

fn key(object: &Value) -> String {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    format!("{}/{}/{}", kind_plural(&word("/kind")), word("/metadata/namespace"), word("/metadata/name"))
}

impl Cluster {
    pub async fn start() -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cluster = Cluster { state: Arc::default(), changed: Arc::default(), url };
        let served = cluster.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let served = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let served = served.clone();
                        async move { Ok::<_, Infallible>(served.answer(request).await) }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        cluster
    }

    pub fn client(&self) -> kube::Client {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        kube::Client::try_from(kube::Config::new(self.url.parse().unwrap())).unwrap()
    }

    pub fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap()
    }

    /// Waits until the state has a property.
    pub async fn until(&self, words: &str, property: impl Fn(&ClusterState) -> bool) {
        super::until(words, &self.changed, || property(&self.state())).await;
    }

    /// Creates or replaces an object.
    pub fn apply(&self, mut object: Value) {
        let mut state = self.state();
        let key = key(&object);
        let old = state.objects.get(&key).cloned();
        let generation = old.as_ref().map_or(1, |old| {
            let number = old["metadata"]["generation"].as_i64().unwrap_or(1);
            number + i64::from(old["spec"] != object["spec"])
        });
        object["metadata"]["generation"] = generation.into();
        object["metadata"]["uid"] = format!("uid-{key}").into();
        if let Some(status) = old.as_ref().and_then(|old| old.get("status")) {
            object.as_object_mut().unwrap().entry("status").or_insert(status.clone());
            object["metadata"]["managedFields"] = old.as_ref().unwrap()["metadata"]["managedFields"].clone();
        }
        state.put(key, object, if old.is_some() { "MODIFIED" } else { "ADDED" });
        self.changed.notify_waiters();
    }

    pub fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let key = format!("{}/{namespace}/{name}", kind_plural(kind));
        let object = state.objects.remove(&key).unwrap();
        state.version += 1;
        let version = state.version;
        state.send(&kind_plural(kind), version, json!({"type": "DELETED", "object": object}));
    }

    /// Ends the watches of a kind without a word; those of all kinds for `*`.
    pub fn disconnect(&self, kind: &str) {
        let plural = kind_plural(kind);
        self.state().watches.retain(|(watched, _)| kind != "*" && *watched != plural);
    }

    /// Forgets the history of a kind: its watch gets 410, as after a compaction.
    pub fn forget(&self, kind: &str) {
        let (mut state, plural) = (self.state(), kind_plural(kind));
        let version = state.version + 1;
        state.version = version;
        state.log.remove(&plural);
        state.oldest.insert(plural.clone(), version);
        let event = gone();
        state.broadcast(&plural, &event);
        state.watches.retain(|(watched, _)| *watched != plural);
    }

    pub fn bookmark(&self, kind: &str) {
        let mut state = self.state();
        let object =
            json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": state.version.to_string()}});
        let event = json!({"type": "BOOKMARK", "object": object});
        state.broadcast(&kind_plural(kind), &event);
    }

    /// Makes all requests fail, and ends all watches; or lets them succeed again.
    pub fn set_down(&self, is_down: bool) {
        match is_down {
            true => _ = self.state().broken.insert("*".into()),
            false => _ = self.state().broken.remove("*"),
        }
        self.disconnect("*");
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ClusterBody> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let response = self.state().answer(&method, uri.path(), uri.query().unwrap_or(""), &body);
        self.changed.notify_waiters();
        response
    }
}

/// Returns the members of a value as the API server lists them; lists are whole.
fn fields(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    Value::Object(members.map(|(name, value)| (format!("f:{name}"), fields(value))).collect())
}

fn gone() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410}})
}

fn reply(status: u16, value: &Value) -> Response<ClusterBody> {
    let body = Full::new(Bytes::from(value.to_string())).boxed();
    let builder = Response::builder().status(StatusCode::from_u16(status).unwrap());
    builder.header("content-type", "application/json").body(body).unwrap()
}

fn failure(code: u16, reason: &str) -> Response<ClusterBody> {
    let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
        "reason": reason, "code": code});
    reply(code, &value)
}

impl ClusterState {
    fn put(&mut self, key: String, mut object: Value, kind: &str) -> Value {
        self.version += 1;
        let version = self.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let plural = key.split('/').next().unwrap().to_owned();
        self.objects.insert(key, object.clone());
        self.send(&plural, version, json!({"type": kind, "object": object}));
        object
    }

    fn send(&mut self, plural: &str, version: u64, event: Value) {
        self.broadcast(plural, &event);
        self.log.entry(plural.into()).or_default().push((version, event));
    }

    fn broadcast(&mut self, plural: &str, event: &Value) {
        let line = Bytes::from(format!("{event}\n"));
        self.watches.retain(|(watched, sender)| watched != plural || sender.unbounded_send(line.clone()).is_ok());
    }

    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> Response<ClusterBody> {
        if self.broken.contains("*") {
            return failure(503, "ServiceUnavailable");
        }
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        // "api/v1/..." or "apis/GROUP/VERSION/...".
        let (group, rest) = match words[0] {
            "api" => ("", &words[2..]),
            _ => (words[1], &words[3..]),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method.as_str(), rest) {
            ("GET", []) => self.resources(group, words[2]),
            ("GET", [plural]) if self.absent.contains(*plural) => failure(404, "NotFound"),
            ("GET", [plural]) if self.broken.contains(*plural) => failure(503, "ServiceUnavailable"),
            ("GET", [plural]) if query.contains("watch=") => self.watch(plural, query),
            ("GET", [plural]) => {
                let prefix = match namespace {
                    "" => format!("{plural}/"),
                    namespace => format!("{plural}/{namespace}/"),
                };
                let label = query.split('&').find_map(|one| one.strip_prefix("labelSelector=")?.split_once("%3D"));
                let is_selected = |object: &Value| {
                    label.is_none_or(|(name, value)| {
                        let labels = &object["metadata"]["labels"];
                        labels[name.replace("%2F", "/")].as_str() == Some(value)
                    })
                };
                let all = self.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, value)| value);
                let items: Vec<&Value> = all.filter(|object| is_selected(object)).collect();
                let version = self.version.to_string();
                reply(
                    200,
                    &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            ("GET", [plural, name]) => match self.objects.get(&format!("{plural}/{namespace}/{name}")) {
                Some(object) => reply(200, object),
                None => failure(404, "NotFound"),
            },
            ("POST", ["events"]) => {
                self.events.push(value.clone());
                reply(201, &value)
            }
            ("POST", [plural]) => {
                let name = value["metadata"]["name"].as_str().unwrap().to_owned();
                self.writes.push(format!("POST {plural} {name}"));
                let key = format!("{plural}/{namespace}/{name}");
                match self.objects.contains_key(&key) {
                    true => failure(409, "AlreadyExists"),
                    false => reply(201, &self.put(key, value, "ADDED")),
                }
            }
            ("PUT", [plural, name]) => self.change(plural, namespace, name, &value, None),
            ("PATCH", [plural, name, "status"]) => {
                let manager = query.split('&').find_map(|one| one.strip_prefix("fieldManager=")).unwrap_or("");
                self.change(plural, namespace, name, &value, Some(manager))
            }
            ("PATCH", [plural, name]) => {
                let key = format!("{plural}/{namespace}/{name}");
                assert!(query.contains("fieldManager=tidegate-controller.tidegate"), "{query}");
                self.writes.push(format!("APPLY {key}"));
                let mut object = value.clone();
                let old = self.objects.get(&key).cloned();
                let event = if old.is_some() { "MODIFIED" } else { "ADDED" };
                if let Some(status) = old.as_ref().and_then(|old| old.get("status")) {
                    object["status"] = status.clone();
                }
                // Fields that the patch does not name stay, as the fields of other managers do.
                for (name, member) in old.iter().flat_map(|old| old["spec"].as_object().into_iter().flatten()) {
                    object["spec"].as_object_mut().unwrap().entry(name).or_insert(member.clone());
                }
                reply(200, &self.put(key, object, event))
            }
            ("DELETE", [plural, name]) => {
                let key = format!("{plural}/{namespace}/{name}");
                self.writes.push(format!("DELETE {key}"));
                match self.objects.remove(&key) {
                    Some(object) => reply(200, &object),
                    None => failure(404, "NotFound"),
                }
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }

    /// Replaces an object or, with the name of a field manager, its status.
    fn change(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
        value: &Value,
        manager: Option<&str>,
    ) -> Response<ClusterBody> {
        let key = format!("{plural}/{namespace}/{name}");
        let Some(mut object) = self.objects.get(&key).cloned() else { return failure(404, "NotFound") };
        let version = &value["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return failure(409, "Conflict");
        }
        self.writes.push(format!("{} {key}", if manager.is_some() { "STATUS" } else { "PUT" }));
        match manager {
            Some(manager) => {
                object["status"] = value["status"].clone();
                object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update",
                    "subresource": "status", "fieldsV1": {"f:status": fields(&value["status"])}}]);
            }
            None => object = value.clone(),
        }
        // Definitions drop members that they do not know.
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("attachedListenerSets");
        }
        reply(200, &self.put(key, object, "MODIFIED"))
    }

    fn resources(&self, group: &str, version: &str) -> Response<ClusterBody> {
        if group != "gateway.networking.k8s.io" || version != "v1" {
            return failure(404, "NotFound");
        }
        let one = |name: &&&str| !self.absent.contains(**name);
        let list: Vec<Value> = GATEWAY_PLURALS
            .iter()
            .filter(one)
            .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "x", "verbs": []}))
            .collect();
        let group_version = format!("{group}/{version}");
        reply(
            200,
            &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}),
        )
    }

    fn watch(&mut self, plural: &str, query: &str) -> Response<ClusterBody> {
        let parameter = query.split('&').find_map(|one| one.strip_prefix("resourceVersion="));
        let from: u64 = parameter.and_then(|number| number.parse().ok()).unwrap_or(0);
        let (sender, receiver) = unbounded::<Bytes>();
        if from < self.oldest.get(plural).copied().unwrap_or(0) {
            sender.unbounded_send(Bytes::from(format!("{}\n", gone()))).unwrap();
        } else {
            for (_, event) in self.log.get(plural).into_iter().flatten().filter(|(version, _)| *version > from) {
                sender.unbounded_send(Bytes::from(format!("{event}\n"))).unwrap();
            }
            self.watches.push((plural.into(), sender));
        }
        let stream = receiver.map(|line| Ok::<_, Infallible>(Frame::data(line)));
        Response::builder()
            .header("content-type", "application/json")
            .body(http_body_util::BodyExt::boxed(StreamBody::new(stream)))
            .unwrap()
    }
}
