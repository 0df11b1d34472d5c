//! Client of the server's API, over a UNIX socket.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use cluster_model::ObjectOrigin;
use cluster_render::{GroupArea, GroupServer, line_owner};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::translate::GroupServers;

/// Bytes of a response at most: a configuration of the API has at most 16 MB.
const RESPONSE_MAX: usize = 64 << 20;
/// Time for reads and changes of servers.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Time for a new configuration, which may need a new worker process.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(60);

/// Configuration that the server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveConfig {
    pub generation: u64,
    /// Changes with every load: another one means that the servers of groups may be those of the file.
    pub loaded_at: String,
    /// Name of the main file in its folder.
    pub main: String,
}

/// Reason for which the server did not comply with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFailure {
    /// The configuration has errors: the same request fails again.
    Refused(Vec<ServerComplaint>),
    /// An address of the configuration cannot be bound, as when another process has it: the same request may succeed later.
    AddressUnavailable(String),
    /// Another configuration is active than the request's `If-Match` says.
    Changed,
    /// A file that the request names by its digest is not stored.
    FileMissing(String),
    /// The request is not possible with the active configuration.
    Impossible(String),
    /// The server is gone or busy: the same request may succeed later.
    Unavailable(String),
}

/// Line of `-t` about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerComplaint {
    pub message: String,
    /// Object that the line comes from, if the complaint is about a line of the main file that belongs to one. Endpoints
    /// move lines: the text that was sent decides.
    pub origin: Option<ObjectOrigin>,
    file: String,
    line: Option<usize>,
}

impl ServerComplaint {
    fn general(message: String) -> ServerComplaint {
        ServerComplaint { message, origin: None, file: String::new(), line: None }
    }
}

impl fmt::Display for ServerComplaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiFailure::Refused(complaints) => write!(f, "refused: {}", join_complaints(complaints)),
            ApiFailure::Changed => f.write_str("another configuration is active"),
            ApiFailure::AddressUnavailable(reason)
            | ApiFailure::FileMissing(reason)
            | ApiFailure::Impossible(reason)
            | ApiFailure::Unavailable(reason) => f.write_str(reason),
        }
    }
}

/// The API of the server beside the controller.
pub struct ServerApi {
    socket: PathBuf,
}

/// Text of the active configuration's main file, as the API has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveFiles {
    pub generation: u64,
    pub main: String,
    /// Digests of the attachments, by name.
    pub attachments: Digests,
}

/// SHA-256 of files in hexadecimal, by name.
pub type Digests = BTreeMap<String, String>;

/// Returns the digests of files, as the API has them.
pub fn digests_of(files: &BTreeMap<String, Vec<u8>>) -> Digests {
    let digest = |contents: &[u8]| -> String {
        digest::digest(&digest::SHA256, contents).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    files.iter().map(|(name, contents)| (name.clone(), digest(contents))).collect()
}

impl ServerApi {
    pub fn new(socket: PathBuf) -> ServerApi {
        ServerApi { socket }
    }

    /// Returns the active configuration's generation.
    ///
    /// # Errors
    /// [`ApiFailure::Unavailable`]; as for all methods.
    pub async fn active(&self) -> Result<ActiveConfig, ApiFailure> {
        let value = self.ask(Method::GET, "/api/tidegate/1/config", None, None, TIME_MAX).await?;
        let text = |name: &str| value.get(name).map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
        let generation = value.get("generation").and_then(Value::as_u64);
        let (Some(generation), Some(main)) = (generation, text("main")) else {
            return Err(ApiFailure::Unavailable("the API names no active configuration".into()));
        };
        let main = main.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(ActiveConfig { generation, loaded_at: text("loaded_at").unwrap_or_default(), main })
    }

    /// Returns the text of the active configuration's main file, with its generation and its attachments.
    ///
    /// # Errors
    /// [`ApiFailure::Unavailable`].
    pub async fn files(&self, active: &ActiveConfig) -> Result<ActiveFiles, ApiFailure> {
        let value = self.ask(Method::GET, "/api/tidegate/1/config/files", None, None, TIME_MAX).await?;
        let text = value.get("files").and_then(|files| files.get(&active.main)).and_then(Value::as_str);
        let generation = value.get("generation").and_then(Value::as_u64).unwrap_or(active.generation);
        let all = value.get("attachments").and_then(Value::as_object).into_iter().flatten();
        let digest = |value: &Value| Some(value.get("sha256")?.as_str()?.to_owned());
        let attachments = all.filter_map(|(name, value)| Some((name.clone(), digest(value)?))).collect();
        Ok(ActiveFiles { generation, main: text.unwrap_or_default().to_owned(), attachments })
    }

    /// Makes another configuration the active one, if the active one still has this generation. Returns the new generation. Files
    /// that the server has stored are named by their digests, the others are sent.
    ///
    /// # Errors
    /// [`ApiFailure::Refused`], [`ApiFailure::AddressUnavailable`], [`ApiFailure::Changed`], [`ApiFailure::FileMissing`].
    pub async fn replace(
        &self,
        active: &ActiveConfig,
        main: &str,
        files: &BTreeMap<String, Vec<u8>>,
        stored: &Digests,
    ) -> Result<u64, ApiFailure> {
        let tag = format!("\"{}\"", active.generation);
        let value = self.send("/api/tidegate/1/config", active, main, files, stored, Some(&tag)).await?;
        Ok(value.get("generation").and_then(Value::as_u64).unwrap_or(active.generation))
    }

    /// Lets the server check a configuration, as `-t` does, and activates nothing. Files are sent as by [`ServerApi::replace`].
    ///
    /// # Errors
    /// [`ApiFailure::Refused`], [`ApiFailure::AddressUnavailable`], [`ApiFailure::FileMissing`].
    pub async fn check(
        &self,
        active: &ActiveConfig,
        main: &str,
        files: &BTreeMap<String, Vec<u8>>,
        stored: &Digests,
    ) -> Result<(), ApiFailure> {
        self.send("/api/tidegate/1/config?dry_run", active, main, files, stored, None).await.map(drop)
    }

    async fn send(
        &self,
        path: &str,
        active: &ActiveConfig,
        main: &str,
        files: &BTreeMap<String, Vec<u8>>,
        stored: &Digests,
        tag: Option<&str>,
    ) -> Result<Value, ApiFailure> {
        let body = json!({ "files": { &active.main: main }, "attachments": attachments_of(files, stored) });
        let mut result = self.ask(Method::POST, path, Some(&body), tag, CHANGE_TIME_MAX).await;
        if let Err(ApiFailure::Refused(complaints)) = &mut result {
            for complaint in complaints.iter_mut().filter(|complaint| complaint.file == active.main) {
                complaint.origin = complaint.line.and_then(|line| line_owner(main, line));
            }
        }
        result
    }

    /// Replaces the servers of groups.
    ///
    /// # Errors
    /// [`ApiFailure::Impossible`] if a group does not exist or takes no more servers.
    pub async fn replace_groups(&self, groups: &GroupServers) -> Result<(), ApiFailure> {
        let path = "/api/tidegate/1/upstreams";
        self.ask(Method::PUT, path, Some(&batch(groups)), None, TIME_MAX).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
        time: Duration,
    ) -> Result<Value, ApiFailure> {
        let exchange = self.exchange(method, path, body, if_match);
        let result = timeout(time, exchange).await.unwrap_or_else(|_| Err("no answer in time".into()));
        let (status, bytes) =
            result.map_err(|error| ApiFailure::Unavailable(format!("{}: {path}: {error}", self.socket.display())))?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() {
            return Ok(value);
        }
        Err(failure(status, &value))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, tag);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(serde_json::to_vec(body)?)
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(bytes))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let bytes = Limited::new(response.into_body(), RESPONSE_MAX).collect().await?.to_bytes();
            Ok((status, bytes))
        };
        let mut connection = std::pin::pin!(connection);
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            result = &mut exchange => result,
            result = &mut connection => {
                // The response may be complete although the connection has ended.
                result?;
                exchange.await
            }
        }
    }
}

/// Returns the attachments of a change: the digests of stored files, and the contents of the others.
fn attachments_of(files: &BTreeMap<String, Vec<u8>>, stored: &Digests) -> Map<String, Value> {
    let digests = digests_of(files);
    let one = |(name, contents): (&String, &Vec<u8>)| {
        let digest = digests.get(name).filter(|digest| stored.get(name) == Some(digest));
        let value = match (digest, std::str::from_utf8(contents)) {
            (Some(digest), _) => json!({ "sha256": digest }),
            (None, Ok(text)) => json!(text),
            (None, Err(_)) => json!({ "base64": ByteString(contents.clone()) }),
        };
        (name.clone(), value)
    };
    files.iter().map(one).collect()
}

/// Joins the lines of `-t` to one.
pub fn join_complaints(complaints: &[ServerComplaint]) -> String {
    let messages: Vec<&str> = complaints.iter().map(|complaint| complaint.message.as_str()).collect();
    messages.join("; ")
}

fn area(area: GroupArea) -> &'static str {
    match area {
        GroupArea::Http => "http",
        GroupArea::Stream => "stream",
    }
}

fn batch(groups: &GroupServers) -> Value {
    let mut areas = Map::new();
    for (id, servers) in groups {
        let area = areas.entry(area(id.area)).or_insert_with(|| json!({}));
        if let Some(area) = area.as_object_mut() {
            area.insert(id.name.as_str().to_owned(), list(servers));
        }
    }
    Value::Object(areas)
}

fn list(servers: &[GroupServer]) -> Value {
    // As the renderer writes them.
    let one = |server: &GroupServer| json!({ "server": server.server, "weight": server.weight, "down": server.is_down, "max_fails": 0 });
    servers.iter().map(one).collect()
}

/// Sorts an error response by its meaning for a repetition.
fn failure(status: StatusCode, value: &Value) -> ApiFailure {
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    let (code, text) = (word("/error/code"), word("/error/text"));
    let reason = match code.as_str() {
        "" => format!("status {status}"),
        code => format!("{code}: {text}"),
    };
    match code.as_str() {
        "ConfigInvalid" => {
            let complaints = value.get("complaints").and_then(Value::as_array);
            let errors = complaints.into_iter().flatten().filter(|one| {
                one.get("level")
                    .and_then(Value::as_str)
                    .is_none_or(|level| !matches!(level, "warn" | "warning" | "notice"))
            });
            let complaint = |one: &Value| {
                let word = |name: &str| one.get(name).and_then(Value::as_str).map(str::to_owned);
                let message = word("message").or_else(|| word("reason"))?;
                let line = one.get("line").and_then(Value::as_u64).and_then(|line| usize::try_from(line).ok());
                let file = word("file").unwrap_or_default();
                let file = file.rsplit('/').next().unwrap_or_default().to_owned();
                Some(ServerComplaint { message, origin: None, file, line })
            };
            let mut complaints: Vec<ServerComplaint> = errors.filter_map(complaint).collect();
            if complaints.is_empty() {
                complaints.push(ServerComplaint::general(reason));
            }
            ApiFailure::Refused(complaints)
        }
        "ConfigRefused" | "ConfigFormatError" | "JsonError" => {
            ApiFailure::Refused(vec![ServerComplaint::general(reason)])
        }
        "PreconditionFailed" => ApiFailure::Changed,
        "AddressUnavailable" => ApiFailure::AddressUnavailable(text),
        "AttachmentNotFound" => ApiFailure::FileMissing(reason),
        _ if status == StatusCode::PAYLOAD_TOO_LARGE => ApiFailure::Refused(vec![ServerComplaint::general(reason)]),
        _ if status == StatusCode::PRECONDITION_FAILED => ApiFailure::Changed,
        _ if status == StatusCode::CONFLICT || status.is_server_error() => ApiFailure::Unavailable(reason),
        _ => ApiFailure::Impossible(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_a_repetition_would_do() {
        let of = |status: u16, code: &str| {
            failure(StatusCode::from_u16(status).unwrap(), &json!({"error": {"code": code, "text": "words"}}))
        };
        assert_eq!(of(412, "PreconditionFailed"), ApiFailure::Changed);
        assert_eq!(of(409, "AttachmentNotFound"), ApiFailure::FileMissing("AttachmentNotFound: words".into()));
        assert_eq!(of(409, "AddressUnavailable"), ApiFailure::AddressUnavailable("words".into()));
        assert_eq!(of(409, "ConfigBusy"), ApiFailure::Unavailable("ConfigBusy: words".into()));
        assert_eq!(of(504, "ConfigUncertain"), ApiFailure::Unavailable("ConfigUncertain: words".into()));
        let refused = |words: &str| ApiFailure::Refused(vec![ServerComplaint::general(words.into())]);
        assert_eq!(of(500, "ConfigRefused"), refused("ConfigRefused: words"));
        assert_eq!(of(404, "PathNotFound"), ApiFailure::Impossible("PathNotFound: words".into()));
        assert_eq!(of(413, ""), refused("status 413 Payload Too Large"));
        assert_eq!(of(502, ""), ApiFailure::Unavailable("status 502 Bad Gateway".into()));
    }

    #[test]
    fn complaints_of_a_test_are_lines_without_warnings() {
        let value = json!({"error": {"code": "ConfigInvalid", "text": "t"}, "complaints": [
            {"level": "warn", "reason": "w", "message": "a warning"},
            {"level": "emerg", "reason": "r", "message": "nginx: [emerg] r in nginx.conf:3", "file": "conf/nginx.conf", "line": 3},
        ]});
        let message = "nginx: [emerg] r in nginx.conf:3".to_owned();
        let expected = ServerComplaint { message, origin: None, file: "nginx.conf".into(), line: Some(3) };
        assert_eq!(failure(StatusCode::BAD_REQUEST, &value), ApiFailure::Refused(vec![expected]));
    }
}
