//! The API of a server, as far as the controller uses it: it keeps a configuration and the servers of its groups.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Notify;

/// Servers by `AREA/GROUP`.
pub type ServersByGroup = BTreeMap<String, Vec<String>>;

#[derive(Default)]
pub struct State {
    pub generation: u64,
    pub loads: u64,
    pub main: String,
    /// Contents of attachments.
    pub attachments: BTreeMap<String, String>,
    /// Attachments that the last change, or its check, brought.
    pub sent: Vec<String>,
    pub groups: ServersByGroup,
    /// Servers that only the API has added: a load keeps them.
    added: ServersByGroup,
    /// Method and path of each request that changes something.
    pub changes: Vec<String>,
    /// Refuses texts with this word.
    pub refuses: Option<String>,
    /// An address cannot be bound: no text is accepted.
    pub is_occupied: bool,
    /// Refuses texts with one of these words, and names its lines.
    pub refuses_lines: Vec<String>,
    pub is_down: bool,
    /// Number of changes that are applied without a response.
    pub unanswered: u32,
}

/// The server of one test. Its socket is removed with it.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    folder: Arc<ServerFolder>,
}

struct ServerFolder(PathBuf);

impl Drop for ServerFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the servers of the groups of a text.
pub fn groups_of(main: &str) -> ServersByGroup {
    let (mut area, mut group, mut found) = (String::new(), None, ServersByGroup::new());
    for line in main.lines() {
        let words = line.trim_start();
        match line.len() - words.len() {
            0 if !words.is_empty() && words != "}" => area = words.split(' ').next().unwrap_or("").to_owned(),
            4 => group = words.strip_prefix("upstream ").map(|name| format!("{area}/{}", name.trim_end_matches(" {"))),
            8 => {
                if let (Some(group), Some(server)) = (&group, words.strip_prefix("server ")) {
                    let server = server
                        .trim_end_matches(';')
                        .trim_end_matches(" down")
                        .trim_end_matches(" max_fails=0")
                        .to_owned();
                    found.entry(group.clone()).or_default().push(server);
                }
            }
            _ => {}
        }
    }
    found
}

impl Server {
    pub fn start() -> Server {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidegate-run-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let state = State { generation: 1, main: "events {}\n".into(), ..State::default() };
        let server = Server {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::default(),
            folder: Arc::new(ServerFolder(folder)),
        };
        let listener = UnixListener::bind(server.socket()).unwrap();
        let served = Server { folder: Arc::new(ServerFolder(PathBuf::from("/nonexistent"))), ..server.clone() };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if served.state().is_down {
                    continue;
                }
                let served = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let served = served.clone();
                        async move { served.answer(request).await }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.0.join("api.sock")
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub async fn until(&self, words: &str, property: impl Fn(&State) -> bool) {
        super::until(words, &self.changed, || property(&self.state())).await;
    }

    /// Begins anew with the file: servers that only the API has changed are lost.
    pub fn restart(&self) {
        let mut state = self.state();
        state.loads += 1;
        state.groups = groups_of(&state.main);
        state.added.clear();
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, String> {
        let target = request.uri().path_and_query().unwrap();
        let change = format!("{} {target}", request.method());
        let tag = request.headers().get("if-match").map(|tag| tag.to_str().unwrap().to_owned());
        assert_eq!(request.headers()["host"], "localhost");
        let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, value) = self.state().answer(&change, tag.as_deref(), &value);
        self.changed.notify_waiters();
        if !change.starts_with("GET") {
            let mut state = self.state();
            if state.unanswered > 0 {
                state.unanswered -= 1;
                return Err("the connection ends before the response".into());
            }
        }
        let body = Full::new(Bytes::from(value.to_string()));
        Ok(Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body).unwrap())
    }
}

fn digest_of(text: &str) -> String {
    let files = BTreeMap::from([(String::new(), text.as_bytes().to_vec())]);
    super::super::server_api::digests_of(&files).remove("").unwrap()
}

fn failure(status: u16, code: &str) -> (u16, Value) {
    (status, json!({"error": {"status": status, "code": code, "text": "words"}}))
}

impl State {
    fn refusal(&self, main: &str) -> Option<(u16, Value)> {
        let mut complaints = Vec::new();
        if self.refuses.as_ref().is_some_and(|word| main.contains(word)) {
            complaints.push(json!({"level": "emerg", "message": "nginx: [emerg] no such thing"}));
        }
        for (index, line) in main.lines().enumerate() {
            if let Some(word) = self.refuses_lines.iter().find(|word| line.contains(*word)) {
                let message = format!("nginx: [emerg] invalid value \"{word}\"");
                complaints.push(json!({"level": "emerg", "message": message, "file": "nginx.conf", "line": index + 1}));
            }
        }
        let (status, mut value) = failure(400, "ConfigInvalid");
        value["complaints"] = complaints.into();
        (value["complaints"] != json!([])).then_some((status, value))
    }

    /// Returns the contents of attachments, and the names of those that the change brings; `None` if one is not stored.
    fn attached(&self, attachments: &Value) -> Option<(BTreeMap<String, String>, Vec<String>)> {
        let (mut all, mut sent) = (BTreeMap::new(), Vec::new());
        for (name, value) in attachments.as_object().unwrap() {
            let stored = self.attachments.get(name).filter(|text| value["sha256"] == digest_of(text).as_str());
            let text = value.as_str().or(stored.map(String::as_str))?;
            all.insert(name.clone(), text.to_owned());
            if value.is_string() {
                sent.push(name.clone());
            }
        }
        Some((all, sent))
    }

    fn answer(&mut self, change: &str, tag: Option<&str>, value: &Value) -> (u16, Value) {
        match change {
            "GET /api/tidegate/1/config" => (
                200,
                json!({"generation": self.generation, "loaded_at": format!("T{}", self.loads), "main": "/etc/tidegate/nginx.conf"}),
            ),
            "GET /api/tidegate/1/config/files" => {
                let digests: BTreeMap<&String, Value> =
                    self.attachments.iter().map(|(name, text)| (name, json!({"sha256": digest_of(text)}))).collect();
                let value =
                    json!({"generation": self.generation, "files": {"nginx.conf": self.main}, "attachments": digests});
                (200, value)
            }
            "POST /api/tidegate/1/config?dry_run" => {
                self.changes.push(change.into());
                let main = value["files"]["nginx.conf"].as_str().unwrap();
                let Some((_, sent)) = self.attached(&value["attachments"]) else {
                    return failure(409, "AttachmentNotFound");
                };
                self.sent = sent;
                self.refusal(main).unwrap_or_else(|| (200, json!({"dry_run": true})))
            }
            "POST /api/tidegate/1/config" => {
                self.changes.push(change.into());
                if tag != Some(&format!("\"{}\"", self.generation)) {
                    return failure(412, "PreconditionFailed");
                }
                let mut files: BTreeMap<String, Value> = serde_json::from_value(value["files"].clone()).unwrap();
                let main = files.remove("nginx.conf").unwrap().as_str().unwrap().to_owned();
                if let Some(refusal) = self.refusal(&main) {
                    return refusal;
                }
                let Some(attached) = self.attached(&value["attachments"]) else {
                    return failure(409, "AttachmentNotFound");
                };
                if self.is_occupied {
                    return failure(409, "AddressUnavailable");
                }
                (self.attachments, self.sent) = attached;
                self.generation += 1;
                self.loads += 1;
                self.groups = groups_of(&main);
                for (group, servers) in &self.added {
                    if let Some(live) = self.groups.get_mut(group) {
                        live.extend(servers.iter().cloned());
                        live.sort();
                        live.dedup();
                    }
                }
                self.main = main;
                (200, json!({"generation": self.generation}))
            }
            "PUT /api/tidegate/1/upstreams" => {
                self.changes.push(change.into());
                let file = groups_of(&self.main);
                for (area, groups) in value.as_object().unwrap() {
                    for (name, servers) in groups.as_object().unwrap() {
                        let id = format!("{area}/{name}");
                        let Some(known) = file.get(&id) else { return failure(404, "UpstreamNotFound") };
                        let servers: Vec<String> = servers
                            .as_array()
                            .unwrap()
                            .iter()
                            .map(|one| one["server"].as_str().unwrap().to_owned())
                            .collect();
                        let added = servers.iter().filter(|server| !known.contains(server)).cloned().collect();
                        self.added.insert(id.clone(), added);
                        self.groups.insert(id, servers);
                    }
                }
                (200, json!({}))
            }
            _ => failure(404, "PathNotFound"),
        }
    }
}
