//! Servers of a group, as they are written and changed: `.../upstreams/{name}/servers/`.

use super::answer::{ApiError, ApiResponse};
use super::ask::{ApiRequest, Verb};
use super::path::VERSIONS;
use super::upstreams::find_group;
use crate::shared::status_tree::Side;
use conf_schema::value::parse_decimal;
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use upstream::edit::{EditDraft, LINES_MAX};
use upstream::line::is_named;
use upstream::{Entry, Peer, PeerSpec, ServerLine, ServerSource};
use upstream_directives::inventory::ListedGroup;
use upstream_directives::state::{self, write_time};

/// Objects that one PUT may have.
const PUT_MAX: usize = LINES_MAX;

fn format_error(text: impl Into<String>) -> ApiError {
    ApiError::new(400, "UpstreamConfFormatError", text)
}

fn no_server(id: &str) -> ApiError {
    ApiError::new(404, "UpstreamServerNotFound", format!("server with ID \"{id}\" does not exist"))
}

fn parameters(spec: &PeerSpec, side: Side) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| _ = all.insert(name.into(), value);
    put("weight", json!(spec.weight));
    put("max_conns", json!(spec.max_conns));
    put("max_fails", json!(spec.max_fails));
    put("fail_timeout", json!(write_time(spec.fail_timeout_ms)));
    put("slow_start", json!(write_time(spec.slow_start_ms)));
    if side == Side::Http {
        put("route", json!(spec.route));
        if spec.drain {
            put("drain", json!(true));
        }
    }
    put("backup", json!(spec.backup));
    put("down", json!(spec.down));
    all
}

fn shown_line(entry: &Entry, server: &str, side: Side) -> Value {
    let mut all = parameters(&entry.line.spec, side);
    all.insert("id".into(), json!(entry.number));
    all.insert("server".into(), json!(server));
    if let ServerSource::Resolved { service: Some(service), .. } = &entry.line.source {
        all.insert("service".into(), json!(service));
    }
    Value::Object(all)
}

/// With its port.
fn name_of(line: &ServerLine) -> String {
    match &line.source {
        ServerSource::Fixed(all) => all.first().map_or_else(|| line.spec.name.clone(), ToString::to_string),
        ServerSource::Resolved { host, service: Some(_), .. } => host.clone(),
        ServerSource::Named { host, port } | ServerSource::Resolved { host, port, .. } => format!("{host}:{port}"),
    }
}

/// Returns the objects of a line: one, or a name and the servers that it stands for.
fn shown(entry: &Entry, peers: &[Arc<Peer>], side: Side) -> Vec<Value> {
    let mine: Vec<&Arc<Peer>> = peers.iter().filter(|peer| peer.line == entry.number).collect();
    if !is_named(&entry.line) {
        return vec![shown_line(entry, &name_of(&entry.line), side)];
    }
    // A literal name with one address is that server, as in nginx.
    if let (ServerSource::Named { .. }, [one]) = (&entry.line.source, mine.as_slice()) {
        return vec![shown_line(entry, &one.text, side)];
    }
    let parent = shown_line(entry, &name_of(&entry.line), side);
    let children = mine.iter().map(|peer| {
        let mut all = parameters(&peer.spec, side);
        all.insert("id".into(), json!(peer.number));
        all.insert("server".into(), json!(&*peer.text));
        all.insert("parent".into(), json!(entry.number.to_string()));
        all.insert("host".into(), json!(peer.spec.name));
        Value::Object(all)
    });
    std::iter::once(parent).chain(children).collect()
}

fn list(listed: &ListedGroup, entries: &[Entry], side: Side) -> Value {
    let peers: Vec<Arc<Peer>> = listed.group.members().all().cloned().collect();
    let mut all: Vec<&Entry> = entries.iter().collect();
    all.sort_by_key(|entry| entry.number);
    all.into_iter().flat_map(|entry| shown(entry, &peers, side)).collect()
}

/// Returns the entity tag of a group's lines. Generations begin again with each process, and ids may then name other
/// servers, so the tag depends on the process, too.
pub fn group_etag(generation: u64) -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let mut bytes = [0; 8];
        net::random::fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    });
    format!("\"{process:x}-{generation}\"")
}

/// Tells whether `If-Match` permits a change of lines with this tag.
fn matches(condition: &str, tag: &str) -> bool {
    condition == "*" || condition.split(',').any(|one| one.trim() == tag)
}

pub fn answer_servers(
    ask: &ApiRequest,
    verb: Verb,
    side: Side,
    group: &str,
    id: Option<&str>,
    version: u32,
) -> Result<ApiResponse, ApiError> {
    let listed = find_group(ask, side, group)?;
    let invalid_id = || ApiError::new(400, "UpstreamBadServerId", "invalid server ID");
    let number = id.map(|id| parse_decimal::<u64>(id).ok_or_else(invalid_id)).transpose()?;
    let editing = ServerEdit { ask, listed: &listed, side, version, is_rehearsal: ask.dry_run };
    let answer = match (verb, number) {
        (Verb::Get, None) => ApiResponse::json(&list(&listed, &listed.group.lines(), side)),
        (Verb::Get, Some(number)) => {
            let all = list(&listed, &listed.group.lines(), side);
            let found = all.as_array().into_iter().flatten().find(|server| server.get("id") == Some(&json!(number)));
            ApiResponse::json(found.ok_or_else(|| no_server(&number.to_string()))?)
        }
        (Verb::Post, None) => editing.add()?,
        (Verb::Post, Some(_)) => return Err(ApiError::new(409, "EntryExists", "entry exists")),
        (Verb::Put, None) => editing.replace(&ask.json()?)?,
        (Verb::Patch, Some(number)) => editing.change(number)?,
        (Verb::Delete, Some(number)) => editing.remove(number)?,
        _ => return Err(ApiError::method()),
    };
    let etag = listed.group.extras.roster.as_ref().map(|roster| group_etag(roster.generation()));
    Ok(ApiResponse { etag, ..answer })
}

/// Replaces all servers of a group by a list, or only tries to.
///
/// # Errors
/// As `PUT .../servers/`: nothing has changed.
pub fn replace_all(
    ask: &ApiRequest,
    side: Side,
    group: &str,
    list: &Value,
    is_rehearsal: bool,
) -> Result<(), ApiError> {
    let version = *VERSIONS.end();
    ServerEdit { ask, listed: &find_group(ask, side, group)?, side, version, is_rehearsal }.replace(list).map(drop)
}

struct ServerEdit<'a> {
    ask: &'a ApiRequest,
    listed: &'a ListedGroup,
    side: Side,
    version: u32,
    is_rehearsal: bool,
}

impl ServerEdit<'_> {
    /// Changes the group, unless the request is a rehearsal.
    fn edit<R>(&self, change: impl FnOnce(&mut EditDraft<'_>) -> Result<R, ApiError>) -> Result<R, ApiError> {
        let listed = self.listed;
        let Some(roster) = &listed.group.extras.roster else {
            return Err(ApiError::new(400, "UpstreamStatic", "upstream is static"));
        };
        if let Some(file) = listed.state.as_ref().filter(|_| !roster.is_loaded()) {
            let path = file.path.display();
            return Err(ApiError::internal(format!("the state file \"{path}\" could not be read at the start")));
        }
        let guarded = |draft: &mut EditDraft<'_>| match &self.ask.if_match {
            Some(wanted) if !matches(wanted, &group_etag(draft.generation())) => {
                Err(ApiError::new(412, "PreconditionFailed", "the servers have changed since they were read"))
            }
            _ => change(draft),
        };
        let persist = |lines: &[ServerLine]| match &listed.state {
            Some(file) => file.write(lines).map_err(ApiError::internal),
            None => Ok(()),
        };
        let done = listed.group.edit(self.is_rehearsal, guarded, persist);
        done.unwrap_or_else(|| Err(ApiError::new(400, "UpstreamStatic", "upstream is static")))
    }

    fn add(&self) -> Result<ApiResponse, ApiError> {
        let line = self.new_line(&object(&self.ask.json()?)?)?;
        let (entry, peers) = self.edit(|draft| {
            if draft.entries.iter().any(|entry| same_server(&entry.line, &line)) {
                return Err(ApiError::new(409, "EntryExists", "entry exists"));
            }
            let number = draft.add(line).ok_or_else(|| self.exhausted())?;
            let entry = draft.get(number).cloned().ok_or_else(|| no_server(&number.to_string()))?;
            Ok((entry, Vec::new()))
        })?;
        let one = shown(&entry, &peers, self.side).into_iter().next().unwrap_or_default();
        Ok(ApiResponse::of(201, &one))
    }

    fn change(&self, number: u64) -> Result<ApiResponse, ApiError> {
        let given = object(&self.ask.json()?)?;
        let entry = self.edit(|draft| {
            let Some(entry) = draft.get(number) else { return Err(self.missing(number, "server \"{}\" is immutable")) };
            let mut line = entry.line.clone();
            self.apply(&mut line, &given, false)?;
            entry.line = line;
            Ok(entry.clone())
        })?;
        let peers: Vec<Arc<Peer>> = self.listed.group.members().all().cloned().collect();
        Ok(ApiResponse::json(&shown(&entry, &peers, self.side).into_iter().next().unwrap_or_default()))
    }

    fn remove(&self, number: u64) -> Result<ApiResponse, ApiError> {
        let left = self.edit(|draft| {
            if draft.get(number).is_none() {
                return Err(self.missing(number, "server \"{}\" not removable"));
            }
            draft.entries.retain(|entry| entry.number != number);
            Ok(draft.entries.clone())
        })?;
        Ok(ApiResponse::json(&list(self.listed, &left, self.side)))
    }

    /// Replaces all servers. Those that are named by address or id stay as they are, but for given parameters.
    fn replace(&self, list_of_servers: &Value) -> Result<ApiResponse, ApiError> {
        let Value::Array(all) = list_of_servers else { return Err(format_error("an array of servers is required")) };
        if all.len() > PUT_MAX {
            return Err(self.exhausted());
        }
        let all: Vec<Map<String, Value>> = all.iter().map(object).collect::<Result<_, _>>()?;
        let new = self.edit(|draft| {
            let old = std::mem::take(&mut draft.entries);
            let mut kept: Vec<Entry> = Vec::new();
            let mut added = Vec::new();
            // (Servers that a name stands for are in the list that GET returns, and come with their name.)
            for given in all.iter().filter(|given| !given.contains_key("parent")) {
                let mut given = given.clone();
                let id = given.remove("id").map(|id| id.as_u64().ok_or_else(|| format_error("invalid \"id\" value")));
                let id = id.transpose()?;
                let line = self.new_line(&given)?;
                let free = |entry: &&Entry| !kept.iter().any(|other| other.number == entry.number);
                let same =
                    |entry: &&Entry| id == Some(entry.number) || (id.is_none() && same_server(&entry.line, &line));
                match old.iter().filter(free).find(same) {
                    Some(entry) => {
                        let mut entry = entry.clone();
                        entry.line = line;
                        kept.push(entry);
                    }
                    None => added.push(line),
                }
            }
            kept.sort_by_key(|entry| entry.number);
            draft.entries = kept;
            for line in added {
                draft.add(line).ok_or_else(|| self.exhausted())?;
            }
            Ok(draft.entries.clone())
        })?;
        Ok(ApiResponse::json(&list(self.listed, &new, self.side)))
    }

    fn exhausted(&self) -> ApiError {
        let name = &self.listed.group.name;
        ApiError::new(400, "UpstreamOutOfMemory", format!("upstream \"{name}\" memory exhausted"))
    }

    /// There is no such line; a server that a name stands for changes with its name only.
    fn missing(&self, number: u64, words: &str) -> ApiError {
        match self.listed.group.members().all().any(|peer| peer.number == number) {
            true => ApiError::new(400, "UpstreamServerImmutable", words.replace("{}", &number.to_string())),
            false => no_server(&number.to_string()),
        }
    }

    fn new_line(&self, given: &Map<String, Value>) -> Result<ServerLine, ApiError> {
        if !given.contains_key("server") {
            return Err(format_error("missing \"server\" argument"));
        }
        let spec = PeerSpec::new("", net::Address::Unix("".into()));
        let mut line = ServerLine { spec, source: ServerSource::Fixed(Vec::new()) };
        self.apply(&mut line, given, true)?;
        Ok(line)
    }

    /// Applies parameters to a line, each parsed as one of the directive `server`.
    fn apply(&self, line: &mut ServerLine, given: &Map<String, Value>, is_new: bool) -> Result<(), ApiError> {
        if let Some(nested) = given.values().find(|value| value.is_object() || value.is_array()) {
            let _ = nested;
            return Err(format_error("nested object or list"));
        }
        if let Some(server) = given.get("server") {
            let server = server.as_str().ok_or_else(|| format_error("invalid \"server\" value"))?;
            self.rename(line, server, given.get("service"), is_new)?;
        }
        for (name, value) in given {
            self.parameter(line, name, value, is_new)?;
        }
        let (group, spec) = (&self.listed.group, &line.spec);
        if spec.backup && !group.method.takes_backups() {
            let words = format!("upstream \"{}\" has no backup", group.name);
            return Err(ApiError::new(400, "UpstreamNoBackup", words));
        }
        if spec.slow_start_ms > 0 && !group.method.takes_backups() {
            return Err(ApiError::new(
                400,
                "UpstreamBadSlowStart",
                "the balancing method does not support \"slow_start\"",
            ));
        }
        Ok(())
    }

    fn parse(&self, words: &[String]) -> Result<ServerLine, String> {
        state::parse_server(words, self.side == Side::Stream).map_err(state::problem_words)
    }

    fn rename(
        &self,
        line: &mut ServerLine,
        server: &str,
        service: Option<&Value>,
        is_new: bool,
    ) -> Result<(), ApiError> {
        let bad = |why: String| ApiError::new(400, "UpstreamBadAddress", why);
        if !is_new && (server == line.spec.name || server == name_of(line)) {
            return Ok(());
        }
        let mut words = vec![server.to_string()];
        if let Some(service) = service.filter(|_| is_new) {
            let service = service.as_str().ok_or_else(|| format_error("invalid \"service\" value"))?;
            if service.is_empty() {
                return Err(ApiError::new(400, "UpstreamBadService", "\"service\" is empty"));
            }
            words.extend(["resolve".into(), format!("service={service}")]);
        }
        let mut parsed = self.parse(&words).map_err(|why| bad(format!("{why} while parsing")))?;
        if let ServerSource::Named { .. } = parsed.source {
            words.push("resolve".into());
            parsed = self.parse(&words).map_err(|why| bad(format!("{why} while parsing")))?;
        }
        if is_named(&parsed) && !self.listed.resolves {
            let words = format!("no resolver defined to resolve \"{server}\"");
            return Err(ApiError::new(400, "UpstreamConfNoResolver", words));
        }
        line.source = parsed.source;
        line.spec.name = parsed.spec.name;
        if let ServerSource::Fixed(all) = &line.source
            && let Some(address) = all.first()
        {
            line.spec.address = address.clone();
        }
        Ok(())
    }

    fn parameter(&self, line: &mut ServerLine, name: &str, value: &Value, is_new: bool) -> Result<(), ApiError> {
        let invalid = || format_error(format!("invalid \"{name}\" value"));
        let unknown = || format_error(format!("unknown parameter \"{name}\""));
        let (http, spec) = (self.side == Side::Http, &mut line.spec);
        let number = |code| {
            let n = value.as_i64().ok_or_else(invalid)?;
            let words = ["127.0.0.1:1".to_string(), format!("{name}={n}")];
            self.parse(&words).map_err(|_| ApiError::new(400, code, format!("invalid \"{name}\"")))
        };
        let text = |code| {
            let text = value.as_str().ok_or_else(invalid)?;
            let words = ["127.0.0.1:1".to_string(), format!("{name}={text}")];
            self.parse(&words).map_err(|_| ApiError::new(400, code, format!("invalid \"{name}\"")))
        };
        let flag = || value.as_bool().ok_or_else(invalid);
        match name {
            "server" => {}
            "weight" => spec.weight = number("UpstreamBadWeight")?.spec.weight,
            "max_conns" => spec.max_conns = number("UpstreamBadMaxConns")?.spec.max_conns,
            "max_fails" => spec.max_fails = number("UpstreamBadMaxFails")?.spec.max_fails,
            "fail_timeout" => spec.fail_timeout_ms = text("UpstreamBadFailTimeout")?.spec.fail_timeout_ms,
            // The stream area has none: only its default can be said.
            "slow_start" if !http && matches!(value.as_str(), Some("0" | "0s" | "0ms")) => {}
            "slow_start" => spec.slow_start_ms = text("UpstreamBadSlowStart")?.spec.slow_start_ms,
            "route" if http && value.as_str() == Some("") => spec.route.clear(),
            "route" if http => {
                let long = || ApiError::new(400, "UpstreamBadRoute", "route is too long");
                spec.route = text("UpstreamBadRoute")
                    .map_err(|e| if e.status == 400 && value.is_string() { long() } else { e })?
                    .spec
                    .route;
            }
            "down" => {
                spec.down = flag()?;
                spec.drain &= !spec.down;
            }
            "drain" if http && self.version >= 2 => {
                spec.drain = flag()?;
                spec.down &= !spec.drain;
            }
            "backup" if is_new => spec.backup = flag()?,
            // A parameter that cannot change may be repeated.
            "backup" if flag()? == spec.backup => {}
            "service" if is_new => {}
            "service" if matches!(&line.source, ServerSource::Resolved { service, .. } if service.as_deref() == value.as_str()) =>
                {}
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn object(value: &Value) -> Result<Map<String, Value>, ApiError> {
    match value {
        Value::Object(all) => Ok(all.clone()),
        _ => Err(format_error("an object with the parameters of a server is required")),
    }
}

/// Tells whether two lines stand for the same server.
fn same_server(one: &ServerLine, other: &ServerLine) -> bool {
    one.source == other.source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_tags() {
        let (old, tag) = (group_etag(6), group_etag(7));
        assert_ne!(old, tag);
        for condition in ["*".to_string(), tag.clone(), format!("{old}, {tag}"), format!("{tag},\"x\"")] {
            assert!(matches(&condition, &tag), "{condition}");
        }
        // Neither a weak tag nor one of another process.
        for condition in [old, format!("W/{tag}"), "\"7\"".into(), "7".into(), String::new()] {
            assert!(!matches(&condition, &tag), "{condition}");
        }
    }
}
