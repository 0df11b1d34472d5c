//! `/tidegate/1/`, an extension of nginx's API: the configuration as a tree, changes of it, levels of error logs, purges
//! of caches, certificates, rules of the firewall.
//!
//! The configuration's secrets are read here, so that requests need a host name of this server (DNS rebinding).

mod groups;
mod state;

pub use state::parse_renewal;

use super::answer::{ApiError, ApiResponse};
use super::ask::{ApiRequest, Verb};
use super::configuration::{Attachment, ConfigRefusal, ConfigRequest, Configuration, Terms, current};
use super::origin::OwnNames;
use super::{ConfigAccess, on_thread};
use crate::shared::status_tree::iso_time;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_engine::Request;
use http_upstream::body_store;
use net::pool::{Pool, PoolSpec};
use observe::Severity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes of a body with a configuration or with lists of servers: JSON is longer than its texts.
const BODY_BYTES_MAX: u64 = 24 << 20;
/// Generations that `If-Match` may name.
const MATCHES_MAX: usize = 16;
/// How long the master may take: its own limits are shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// Below `/tidegate/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnPoint<'a> {
    Versions,
    Root,
    Config,
    Tree,
    Plan,
    Files,
    Generations,
    Generation(u64),
    Logs,
    Caches,
    Cache(&'a str),
    Certificates,
    Upstreams,
    Stores,
    Firewall,
}

/// Names of end-points below `/tidegate/1/` and `/tidegate/1/config/`.
const NAMES: &[&str] = &["caches", "certificates", "config", "firewall", "logs", "stores", "upstreams"];
const CONFIG_NAMES: &[&str] = &["tree", "plan", "files", "generations"];

/// Returns the path below `/tidegate`, if the path is one.
pub fn path_below(path: &str) -> Option<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_prefix("tidegate").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Parses a path below `/tidegate`.
///
/// # Errors
/// `UnknownVersion`, `PathNotFound`.
pub fn parse_point(path: &str) -> Result<OwnPoint<'_>, ApiError> {
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    Ok(match parts.as_slice() {
        [] => OwnPoint::Versions,
        ["1"] => OwnPoint::Root,
        ["1", "config"] => OwnPoint::Config,
        ["1", "config", "tree"] => OwnPoint::Tree,
        ["1", "config", "plan"] => OwnPoint::Plan,
        ["1", "config", "files"] => OwnPoint::Files,
        ["1", "config", "generations"] => OwnPoint::Generations,
        ["1", "config", "generations", number] => {
            let plain = number.bytes().all(|c| c.is_ascii_digit());
            let missing = || ApiError::new(404, "ConfigNotFound", "there is no configuration of this number");
            OwnPoint::Generation(number.parse().ok().filter(|n| plain && *n > 0).ok_or_else(missing)?)
        }
        ["1", "logs"] => OwnPoint::Logs,
        ["1", "caches"] => OwnPoint::Caches,
        ["1", "caches", name] => OwnPoint::Cache(name),
        ["1", "certificates"] => OwnPoint::Certificates,
        ["1", "upstreams"] => OwnPoint::Upstreams,
        ["1", "stores"] => OwnPoint::Stores,
        ["1", "firewall"] => OwnPoint::Firewall,
        ["1", ..] => return Err(ApiError::no_path()),
        _ => return Err(ApiError::new(404, "UnknownVersion", "unknown version")),
    })
}

impl From<ConfigRefusal> for ApiError {
    fn from(refusal: ConfigRefusal) -> ApiError {
        ApiError { more: refusal.complaints, ..ApiError::new(refusal.status, refusal.code, refusal.text) }
    }
}

/// Parses `If-Match`: `*`, or numbers of generations. A value that is none of these matches nothing.
fn terms(ask: &ApiRequest) -> Terms {
    let if_match = ask.if_match.as_deref().map(str::trim).filter(|text| *text != "*").map(|text| {
        let number = |one: &str| one.trim().trim_matches('"').parse().ok();
        text.split(',').take(MATCHES_MAX).filter_map(number).collect()
    });
    Terms { dry_run: ask.dry_run, if_match }
}

/// Makes a request of a body: a JSON object of texts by name, plain or as the member `files` beside which `attachments` may stand, or the
/// main file's text.
///
/// # Errors
/// `JsonError`, `ConfigFormatError`.
pub fn config_request(body: &[u8], terms: Terms) -> Result<ConfigRequest, ApiError> {
    // No configuration begins with a brace.
    if body.iter().find(|c| !c.is_ascii_whitespace()) != Some(&b'{') {
        return match body {
            [] => Err(ApiError::new(400, "ConfigFormatError", "the body is empty")),
            _ => Ok(ConfigRequest::Main(body.to_vec(), terms)),
        };
    }
    let format = |words: String| ApiError::new(400, "ConfigFormatError", words);
    let all: Value =
        serde_json::from_slice(body).map_err(|e| ApiError::new(415, "JsonError", format!("json error: {e}")))?;
    let Value::Object(mut all) = all else { return Err(format("an object of files is required".into())) };
    let mut attachments = None;
    if let Some(Value::Object(_)) = all.get("files") {
        let unknown = all.keys().find(|name| !matches!(name.as_str(), "attachments" | "files" | "generation"));
        if let Some(name) = unknown {
            return Err(format(format!("unknown member \"{name}\" beside \"files\"")));
        }
        attachments = all.remove("attachments").map(sent_attachments).transpose()?;
        if let Some(Value::Object(files)) = all.remove("files") {
            all = files;
        }
    }
    let mut texts = BTreeMap::new();
    for (name, text) in all {
        match text {
            Value::String(text) => _ = texts.insert(name, text.into_bytes()),
            _ => return Err(format(format!("the value of \"{name}\" is not a string"))),
        }
    }
    Ok(ConfigRequest::Files(texts, attachments, terms))
}

/// Parses attachments: texts, `{"base64": ...}`, or `{"sha256": ...}` for files that the server has.
fn sent_attachments(value: Value) -> Result<BTreeMap<String, Attachment>, ApiError> {
    let format = |words: String| ApiError::new(400, "ConfigFormatError", words);
    let Value::Object(all) = value else { return Err(format("\"attachments\" is not an object".into())) };
    let mut attachments = BTreeMap::new();
    for (name, value) in all {
        let attachment = match &value {
            Value::String(text) => Some(Attachment::Sent(text.clone().into_bytes())),
            Value::Object(members) if members.len() == 1 => {
                let word = |name: &str| members.get(name).and_then(Value::as_str);
                let stored = word("sha256").map(|digest| Attachment::Stored(digest.to_string()));
                let sent = word("base64").and_then(|text| BASE64_STANDARD.decode(text).ok());
                stored.or(sent.map(Attachment::Sent))
            }
            _ => None,
        };
        let attachment = attachment.ok_or_else(|| {
            let form = "a string, {\"base64\": \"...\"} or {\"sha256\": \"...\"}";
            format(format!("the attachment \"{name}\" is none of {form}"))
        })?;
        attachments.insert(name, attachment);
    }
    Ok(attachments)
}

/// Parses a change of levels: `{"level": "debug"}`, or `null` for the levels of the configuration.
///
/// # Errors
/// `JsonError`, `LevelFormatError`.
pub fn parse_level(body: &[u8]) -> Result<Option<u8>, ApiError> {
    let value: Value =
        serde_json::from_slice(body).map_err(|e| ApiError::new(415, "JsonError", format!("json error: {e}")))?;
    let wrong = || {
        let names: Vec<&str> = Severity::ALL.iter().map(|level| level.name()).collect();
        ApiError::new(
            400,
            "LevelFormatError",
            format!("write {{\"level\": L}} with one of {}, or null", names.join(", ")),
        )
    };
    let all = value.as_object().filter(|all| all.len() == 1).ok_or_else(wrong)?;
    match all.get("level").ok_or_else(wrong)? {
        Value::Null => Ok(None),
        Value::String(name) => {
            let found = Severity::ALL.iter().find(|level| level.name() == name).ok_or_else(wrong)?;
            Ok(Some(*found as u8))
        }
        _ => Err(wrong()),
    }
}

fn with_times(value: &mut Value) {
    match value {
        Value::Object(all) => {
            for name in ["at", "loaded_at"] {
                if let Some(ms) = all.get(name).and_then(Value::as_u64) {
                    all.insert(name.into(), json!(iso_time(ms)));
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(with_times),
        _ => {}
    }
}

/// Answers with JSON, and its generation as `ETag`.
fn shown(mut value: Value) -> ApiResponse {
    with_times(&mut value);
    let etag = value.get("generation").and_then(Value::as_u64).map(|generation| format!("\"{generation}\""));
    ApiResponse { etag, ..ApiResponse::json(&value) }
}

fn busy() -> ApiError {
    ApiError::new(503, "TooManyRequests", "too many requests of the API are waiting")
}

#[derive(Clone, Debug)]
pub struct OwnAccess {
    pub config: ConfigAccess,
    pub names: OwnNames,
    pub files: Arc<[PathBuf]>,
}

/// Answers a request below `/tidegate`.
///
/// # Errors
/// The refusal; a status of 444 or 499 has no response.
pub async fn answer_own(
    r: &mut Request,
    mut ask: ApiRequest,
    path: &str,
    own: &OwnAccess,
) -> Result<ApiResponse, ApiError> {
    let access = own.config;
    if !own.names.has(r.target.host()) {
        let words = "the host is neither an address nor localhost nor a name of this server: add it to \"server_name\"";
        return Err(ApiError::new(421, "UnknownHost", words));
    }
    let point = parse_point(path)?;
    let is_config = match point {
        OwnPoint::Config | OwnPoint::Tree | OwnPoint::Plan | OwnPoint::Files | OwnPoint::Generations => true,
        OwnPoint::Generation(_) => true,
        OwnPoint::Versions | OwnPoint::Root | OwnPoint::Logs => false,
        OwnPoint::Caches | OwnPoint::Cache(_) | OwnPoint::Certificates | OwnPoint::Upstreams | OwnPoint::Stores => {
            false
        }
        OwnPoint::Firewall => false,
    };
    if is_config && access == ConfigAccess::Off {
        return Err(ApiError::no_path());
    }
    let may_write = if is_config { access == ConfigAccess::Write } else { ask.writes };
    if ask.verb != Verb::Get && !may_write {
        return Err(ApiError::method());
    }
    if ask.foreign {
        return Err(ApiError::foreign());
    }
    let is_rehearsable = matches!(point, OwnPoint::Config | OwnPoint::Generation(_) | OwnPoint::Upstreams);
    if ask.dry_run && ask.verb != Verb::Get && !is_rehearsable {
        return Err(ApiError::no_rehearsal());
    }
    let unavailable = || ApiError::new(503, "ConfigUnavailable", "no configuration serves yet");
    let config = current().ok_or_else(unavailable)?;
    match (ask.verb, point) {
        (Verb::Get, OwnPoint::Versions) => Ok(ApiResponse::json(&json!([1]))),
        (Verb::Get, OwnPoint::Root) => {
            let names = NAMES.iter().filter(|name| **name != "config" || access != ConfigAccess::Off);
            Ok(ApiResponse::json(&names.copied().collect()))
        }
        (Verb::Get, OwnPoint::Config) => {
            let mut facts = config.facts();
            if let Value::Object(facts) = &mut facts {
                facts.insert("writable".into(), json!(access == ConfigAccess::Write));
                facts.insert("endpoints".into(), json!(CONFIG_NAMES));
            }
            Ok(shown(facts))
        }
        (Verb::Get, OwnPoint::Tree) => read(move || Ok(config.tree())).await,
        (Verb::Get, OwnPoint::Plan) => read(move || Ok(config.plan())).await,
        (Verb::Get, OwnPoint::Files) => read(move || config.files()).await,
        (Verb::Get, OwnPoint::Logs) => read(move || Ok(config.logs())).await,
        (Verb::Get, OwnPoint::Caches) => {
            let plan = r.plan().clone();
            read(move || Ok(state::list_caches(&plan))).await
        }
        (Verb::Delete, OwnPoint::Cache(name)) => {
            let (plan, name, key, tag) = (r.plan().clone(), name.to_string(), ask.key.take(), ask.tag.take());
            on_thread(move || state::purge_cache(&plan, &name, key.as_deref(), tag.as_deref()))
                .await
                .map_err(|_| busy())?
        }
        (Verb::Get, OwnPoint::Certificates) => {
            let (plan, files) = (r.plan().clone(), own.files.clone());
            read(move || Ok(state::list_certificates(&plan, &files))).await
        }
        (Verb::Post, OwnPoint::Certificates) => {
            let body =
                body_store::read_small(r).await.map_err(|status| body_error(status, "client_body_buffer_size"))?;
            let (plan, name) = (r.plan().clone(), state::parse_renewal(&body)?);
            on_thread(move || state::renew_certificates(&plan, &name)).await.map_err(|_| busy())?
        }
        (Verb::Get, OwnPoint::Stores) => Ok(ApiResponse::json(&state::list_stores())),
        (Verb::Get, OwnPoint::Firewall) => Ok(ApiResponse::json(&state::show_firewall())),
        (Verb::Get, OwnPoint::Generations) => asked(r, &config, ConfigRequest::List, false).await,
        (Verb::Get, OwnPoint::Generation(number)) => asked(r, &config, ConfigRequest::Show(number), false).await,
        (Verb::Put, OwnPoint::Upstreams) => {
            ask.body = long_body(r).await?;
            on_thread(move || groups::replace_groups(&ask)).await.map_err(|_| busy())?
        }
        (Verb::Post | Verb::Put, OwnPoint::Config) => {
            ask.body = long_body(r).await?;
            let terms = terms(&ask);
            let what = slowly(move || config_request(&ask.body, terms)).await??;
            asked(r, &config, what, true).await
        }
        (Verb::Post, OwnPoint::Generation(number)) => {
            asked(r, &config, ConfigRequest::Rollback(number, terms(&ask)), true).await
        }
        (Verb::Patch | Verb::Put, OwnPoint::Logs) => {
            let body =
                body_store::read_small(r).await.map_err(|status| body_error(status, "client_body_buffer_size"))?;
            let level = parse_level(&body)?;
            asked(r, &config, ConfigRequest::Level(level), true).await?;
            read(move || Ok(config.logs())).await
        }
        _ => Err(ApiError::method()),
    }
}

/// Reads a body of many texts.
async fn long_body(r: &mut Request) -> Result<Bytes, ApiError> {
    let most = match r.loc().core.conf.client_max_body_size.0 {
        0 => BODY_BYTES_MAX,
        most => most.min(BODY_BYTES_MAX),
    };
    body_store::read_up_to(r, most).await.map_err(|status| body_error(status, "client_max_body_size"))
}

pub fn body_error(status: u16, limit: &str) -> ApiError {
    match status {
        413 => ApiError::new(413, "RequestEntityTooLarge", format!("the body exceeds {limit}")),
        444 | 499 => ApiError::new(status, "BodyReadError", ""),
        _ => ApiError::new(status.clamp(400, 599), "BodyReadError", "reading request body failed"),
    }
}

/// Requests about texts of configurations that wait at most.
const SLOW_WAITING_MAX: usize = 16;

/// Runs a job on a thread beside the API's own: parsing and comparing large configurations takes seconds, and must not
/// delay counters and changes of servers.
async fn slowly<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let spec = || PoolSpec::control("api config", SLOW_WAITING_MAX);
    match POOL.get_or_init(|| Pool::new(spec())).run(job) {
        Ok(work) => work.await.map_err(|_| ApiError::internal("the request failed")),
        Err(_) => Err(busy()),
    }
}

async fn read(work: impl FnOnce() -> Result<Value, ConfigRefusal> + Send + 'static) -> Result<ApiResponse, ApiError> {
    Ok(shown(slowly(work).await??))
}

/// Asks the master and waits for its answer. A client that goes away does not stop a change.
async fn asked(
    r: &Request,
    config: &Arc<dyn Configuration>,
    what: ConfigRequest,
    changes: bool,
) -> Result<ApiResponse, ApiError> {
    let lost = || {
        let words = if changes {
            "the master process has ended: read the active configuration to see whether the change was made"
        } else {
            "the master process has ended"
        };
        ApiError::new(503, "ConfigUnavailable", words)
    };
    let overdue = || ApiError::new(504, "ConfigUncertain", "the master process has not answered");
    let reply = config.submit(what)?;
    let reply = runtime::time::with_timeout(PATIENCE, reply).await.map_err(|_| overdue())?.map_err(|_| lost())?;
    let mut value = reply.result?;
    if let (Value::Object(all), Some(diff)) = (&mut value, reply.diff) {
        let diff = slowly(diff).await?;
        all.insert("diff".into(), diff);
    }
    if changes && let Some(generation) = value.get("generation").filter(|_| value.get("previous").is_some()) {
        let by = r.connection().peer_text();
        r.log(Severity::Notice, format_args!("api: configuration {generation} is in force, sent from {by}"));
    }
    Ok(shown(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed() {
        for (path, want) in [
            ("", OwnPoint::Versions),
            ("/", OwnPoint::Versions),
            ("/1", OwnPoint::Root),
            ("/1/config", OwnPoint::Config),
            ("/1/config/", OwnPoint::Config),
            ("/1/config/generations/12", OwnPoint::Generation(12)),
            ("/1/logs/", OwnPoint::Logs),
            ("/1/caches/a", OwnPoint::Cache("a")),
            ("/1/upstreams", OwnPoint::Upstreams),
            ("/1/stores", OwnPoint::Stores),
            ("/1/firewall", OwnPoint::Firewall),
        ] {
            assert_eq!(parse_point(path), Ok(want), "{path}");
        }
        for (path, want) in [
            ("/2/config", "UnknownVersion"),
            ("/1/none", "PathNotFound"),
            ("/1/config/generations/+1", "ConfigNotFound"),
            ("/1/config/generations/0", "ConfigNotFound"),
            ("/1/config/generations/99999999999999999999", "ConfigNotFound"),
            ("/1/config//tree", "PathNotFound"),
        ] {
            assert_eq!(parse_point(path).map_err(|refused| refused.code), Err(want), "{path}");
        }
        assert_eq!(
            (path_below("/tidegate/1"), path_below("tidegate"), path_below("/tidegates"), path_below("/9")),
            (Some("/1"), Some(""), None, None)
        );
    }

    #[test]
    fn bodies_are_a_main_file_or_an_object_of_files() {
        let sent = |text: &str| {
            config_request(text.as_bytes(), Terms::default()).map_err(|refused| (refused.status, refused.code))
        };
        assert_eq!(sent("events {}"), Ok(ConfigRequest::Main(b"events {}".to_vec(), Terms::default())));
        let files = BTreeMap::from([("a".to_string(), b"x;".to_vec())]);
        for text in [r#"{"a": "x;"}"#, r#" {"files": {"a": "x;"}, "generation": 3}"#] {
            assert_eq!(sent(text), Ok(ConfigRequest::Files(files.clone(), None, Terms::default())), "{text}");
        }
        let text =
            r#"{"files": {"a": "x;"}, "attachments": {"t": "text", "b": {"base64": "AP8="}, "s": {"sha256": "77"}}}"#;
        let attachments = [
            ("t".to_string(), Attachment::Sent(b"text".to_vec())),
            ("b".to_string(), Attachment::Sent(vec![0, 255])),
            ("s".to_string(), Attachment::Stored("77".into())),
        ];
        assert_eq!(sent(text), Ok(ConfigRequest::Files(files.clone(), Some(attachments.into()), Terms::default())));
        for wrong in
            [r#"[]"#, r#"{"a": 1}"#, r#"{"a": {}}"#, r#"{"a": {"base64": "!"}}"#, r#"{"a": {"sha256": "7", "x": 1}}"#]
        {
            let text = format!(r#"{{"files": {{"a": "x;"}}, "attachments": {wrong}}}"#);
            assert_eq!(sent(&text), Err((400, "ConfigFormatError")), "{wrong}");
        }
        assert_eq!(sent(""), Err((400, "ConfigFormatError")));
        assert_eq!(sent("{"), Err((415, "JsonError")));
        assert_eq!(sent(r#"{"a": 1}"#), Err((400, "ConfigFormatError")));
        assert_eq!(sent(r#"{"files": {}, "b": "x"}"#), Err((400, "ConfigFormatError")));
        // A file may be called so.
        assert!(sent(r#"{"files": "x;", "b": "x"}"#).is_ok());
    }

    #[test]
    fn levels_have_names() {
        assert_eq!(parse_level(br#"{"level": "debug"}"#).ok(), Some(Some(Severity::Debug as u8)));
        assert_eq!(parse_level(br#"{"level": null}"#).ok(), Some(None));
        for wrong in [r#"{"level": "loud"}"#, "{}", "[]", r#"{"level": 3}"#, r#"{"level": "info", "x": 1}"#, "x"] {
            assert!(parse_level(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
