//! session_log (documented with nginx's commercial edition: `ngx_http_session_log_module`): one line for all requests of a session, at
//! its end. `table.rs` has the sessions.

mod table;

use area::zones;
use base::clock;
use conf_schema::value::parse_msec;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variable::Builtin;
use http_engine::{Background, BlockPlan, Feature, HttpBuild, HttpPlan, HttpTemplate, LocalFuture, Logger, Request};
use md5::{Digest, Md5};
use observe::{ErrorLog, LogFile, LogFiles};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use table::{SessionId, SessionLine, ZoneSessions};
use variables::template::Part;

directives! {
    pub struct SessionConf from SessionInput {
        /// Logs the sessions of a zone, with the requests of the block; may be repeated. `off` cancels inherited logs.
        session_log: SessionLogs = "off",
        /// Defines a named format. `$body_bytes_sent` is the sum of all requests of a session; other variables have the values of its
        /// first request.
        session_log_format: SessionLogFormat,
        /// Defines a log and a zone of active sessions. A session ends when no request has come for the time of `timeout` (30 seconds).
        /// `id` is its number in hexadecimal digits; otherwise, `md5` is hashed (the client's address and `User-Agent`). A full zone ends
        /// the sessions of the oldest last requests.
        session_log_zone: SessionLogZones,
    }
}

const KIND: &str = "session_log";
/// Interval of looking for ended sessions.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT_MS: u64 = 30_000;
const SUM: &[&[u8]] = &[b"$body_bytes_sent", b"${body_bytes_sent}"];
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";

/// Parts of a line around the sum of bytes.
type SessionFormat = Arc<Vec<HttpTemplate>>;

#[derive(Default)]
struct Formats(HashMap<Vec<u8>, SessionFormat>);

fn compile(cx: &mut Cx, d: &Directive, text: &[u8]) -> Result<SessionFormat, Problem> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let is_name = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_');
        let found = (0..rest.len()).find_map(|at| {
            let tail = rest.get(at..)?;
            let sum = SUM.iter().find(|sum| tail.starts_with(sum))?;
            (sum.ends_with(b"}") || !is_name(tail.get(sum.len()))).then_some((at, sum.len()))
        });
        let (at, length) = found.unwrap_or((rest.len(), 0));
        parts.push(HttpTemplate::compile(cx, d, rest.get(..at).unwrap_or_default())?);
        if found.is_none() {
            return Ok(Arc::new(parts));
        }
        rest = rest.get(at + length..).unwrap_or_default();
    }
}

/// A `session_log_format` line; formats are found by name.
#[derive(Clone)]
pub struct SessionLogFormat;

impl ValueKind for SessionLogFormat {
    const SYNTAX: &'static str = "name string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((name, words)) = d.args.split_first() else { return Err(Problem::invalid()) };
        if name.bytes == b"combined" || cx.get::<Formats>().0.contains_key(&name.bytes) {
            return Err(Problem::says(format!("duplicate \"session_log_format\" name \"{}\"", name.text())).at(0));
        }
        let text: Vec<u8> = words.iter().flat_map(|word| word.bytes.iter().copied()).collect();
        let format = compile(cx, d, &text)?;
        cx.get::<Formats>().0.insert(name.bytes.clone(), format);
        Ok(SessionLogFormat)
    }
}

struct SessionLogZone {
    log: Arc<LogFile>,
    size: u64,
    timeout_ms: u64,
    format: SessionFormat,
    id: Option<HttpTemplate>,
    hashed: HttpTemplate,
    sum: HttpTemplate,
    sessions: Arc<ZoneSessions>,
}

impl Drop for SessionLogZone {
    /// Ends the sessions of a zone that no other configuration has; the list of zones has the other reference.
    fn drop(&mut self) {
        if Arc::strong_count(&self.sessions) <= 2 {
            self.sessions.expire(clock::now(), None).write();
        }
    }
}

/// Zones of the configuration.
#[derive(Default)]
struct DeclaredZones(Vec<Arc<SessionLogZone>>);

/// A `session_log_zone` line; zones are found by name.
#[derive(Clone)]
pub struct SessionLogZones;

impl ValueKind for SessionLogZones {
    const SYNTAX: &'static str = "path zone=name:size [format=format] [timeout=time] [id=id] [md5=md5]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let (mut zone, mut format, mut timeout_ms, mut id) = (None, None, TIMEOUT_MS, None);
        let mut hashed = HttpTemplate::compile(cx, d, b"$binary_remote_addr$http_user_agent")?;
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text().into_owned();
            let invalid = || Problem::says(format!("invalid parameter \"{text}\"")).at(index);
            let (name, value) = text.split_once('=').ok_or_else(invalid)?;
            match name {
                "zone" => zone = Some(zones::name_and_size(d, index)?),
                "format" => format = Some((index, value.to_string())),
                "timeout" => timeout_ms = parse_msec(value.as_bytes()).filter(|ms| *ms > 0).ok_or_else(invalid)?,
                "id" => id = Some(HttpTemplate::compile(cx, d, value.as_bytes()).map_err(|p| p.at(index))?),
                "md5" => hashed = HttpTemplate::compile(cx, d, value.as_bytes()).map_err(|p| p.at(index))?,
                _ => return Err(invalid()),
            }
        }
        let missing = || Problem::says("\"session_log_zone\" must have \"zone\" parameter");
        let (name, size) = zone.filter(|(name, _)| !name.is_empty()).ok_or_else(missing)?;
        let format = match format {
            Some((index, wanted)) if wanted != "combined" => {
                let known = cx.get::<Formats>().0.get(wanted.as_bytes()).cloned();
                known.ok_or_else(|| Problem::says(format!("unknown session log format \"{wanted}\"")).at(index))?
            }
            _ => compile(cx, d, COMBINED.as_bytes())?,
        };
        let full = cx.full_name(&path);
        let log = cx.get::<LogFiles>().file(&full);
        let sum = HttpTemplate::compile(cx, d, b"$body_bytes_sent")?;
        let sessions = zones::zone_state(KIND, &name, size, full.as_os_str().as_encoded_bytes(), ZoneSessions::default);
        let zone = Arc::new(SessionLogZone { log, size, timeout_ms, format, id, hashed, sum, sessions });
        zones::declare_named::<Request, SessionLogZone>(cx, d, KIND, &name, zone.clone())?;
        cx.get::<DeclaredZones>().0.push(zone);
        Ok(SessionLogZones)
    }
}

/// `session_log` lines of a block: names of zones.
#[derive(Clone, Default)]
pub struct SessionLogs(Vec<String>);

impl ValueKind for SessionLogs {
    const SYNTAX: &'static str = "zone | off";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        Ok(SessionLogs(if name == "off" { Vec::new() } else { vec![name] }))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("session_log_id", id_text, "Number of the session in hexadecimal digits."),
    Builtin::one("session_log_binary_id", id_bytes, "Number of the session as 16 bytes."),
];

/// The feature.
pub struct SessionLog;

impl Feature for SessionLog {
    fn table(&self) -> FeatureTable {
        SessionConf::table("session_log", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SessionConf>() else { return Ok(()) };
        let mut found: Vec<Arc<SessionLogZone>> = Vec::new();
        for name in &conf.session_log.0 {
            found.push(
                zones::find_named::<Request, SessionLogZone>(block.cx, KIND, name)
                    .map_err(|problem| problem.of("session_log"))?,
            );
        }
        if !found.is_empty() {
            let logs = Arc::new(ActiveLogs(found));
            block.location.extensions.push(logs.clone());
            block.location.loggers.push(logs);
        }
        Ok(())
    }
    fn after_servers(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let zones = std::mem::take(&mut http.cx.get::<DeclaredZones>().0);
        if !zones.is_empty() {
            http.background.push(Arc::new(Sweeper(zones)));
        }
        Ok(())
    }
}

/// Logs of a location.
struct ActiveLogs(Vec<Arc<SessionLogZone>>);

impl Logger for ActiveLogs {
    fn log(&self, r: &mut Request) {
        for zone in &self.0 {
            let id = zone.id(r);
            let sum = zone.sum.eval(r);
            let bytes = std::str::from_utf8(&sum).ok().and_then(|sum| sum.parse().ok()).unwrap_or(0);
            let limits = [zone.timeout_ms, zone.size];
            zone.sessions.count(id, clock::now(), limits, bytes, &zone.log, || zone.line(r)).write();
        }
    }
}

impl SessionLogZone {
    fn id(&self, r: &mut Request) -> SessionId {
        let given = self.id.as_ref().and_then(|id| hexadecimal(&id.eval(r)));
        given.unwrap_or_else(|| Md5::digest(self.hashed.eval(r)).into())
    }
    fn line(&self, r: &mut Request) -> SessionLine {
        SessionLine { parts: self.format.iter().map(|part| written(part, r)).collect() }
    }
}

/// Returns the text with values escaped as in access logs.
fn written(template: &HttpTemplate, r: &mut Request) -> Vec<u8> {
    let (mut out, mut value) = (Vec::new(), Vec::new());
    for part in template.parts() {
        let Part::Variable(id) = part else {
            if let Part::Literal(text) = part {
                out.extend_from_slice(text);
            }
            continue;
        };
        value.clear();
        if !r.variable(*id, &mut value) {
            out.push(b'-');
            continue;
        }
        for byte in &value {
            match byte {
                b'"' | b'\\' | 0..=0x1f | 0x7f.. => out.extend_from_slice(format!("\\x{byte:02X}").as_bytes()),
                byte => out.push(*byte),
            }
        }
    }
    out
}

/// Reads 32 hexadecimal digits.
fn hexadecimal(text: &[u8]) -> Option<SessionId> {
    let mut id = SessionId::default();
    if text.len() != 2 * id.len() {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    for (byte, [high, low]) in id.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(id)
}

/// Returns the session of the location's first log.
fn id(r: &mut Request) -> Option<SessionId> {
    let zone = r.loc().ext::<ActiveLogs>().and_then(|active| active.0.first().cloned())?;
    Some(zone.id(r))
}

fn id_text(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(id) = id(r) else { return false };
    id.iter().for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
    true
}

fn id_bytes(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(id) = id(r) else { return false };
    out.extend_from_slice(&id);
    true
}

/// Logs ended sessions.
struct Sweeper(Vec<Arc<SessionLogZone>>);

impl Background<HttpPlan> for Sweeper {
    fn run(self: Arc<Self>, _: Weak<HttpPlan>, _: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            loop {
                runtime::time::sleep_for(INTERVAL).await;
                clock::update();
                for zone in &self.0 {
                    zone.sessions.expire(clock::now(), Some(zone.timeout_ms)).write();
                }
            }
        })
    }
    fn finish(self: Arc<Self>, _: Duration) -> Option<LocalFuture<()>> {
        Some(Box::pin(async move {
            for zone in &self.0 {
                zone.sessions.expire(clock::now(), None).write();
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hashes() {
        assert_eq!(
            hexadecimal(b"00ff10Ab00ff10Ab00ff10Ab00ff10Ab").map(|id| id[..4].to_vec()),
            Some(vec![0, 255, 16, 0xab])
        );
        assert_eq!(
            [hexadecimal(b""), hexadecimal(b"00ff10Ab00ff10Ab00ff10Ab00ff10Ag"), hexadecimal(&[b'0'; 33])],
            [None; 3]
        );
    }

    #[test]
    fn formats_are_divided_at_the_sum() {
        let parts = |text: &str| {
            let format = compile(&mut Cx::default(), &Directive::default(), text.as_bytes()).expect("a format");
            format.iter().map(|part| part.as_literal().expect("text").to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(parts("a"), [b"a"]);
        assert_eq!(parts("a$body_bytes_sent b${body_bytes_sent}c"), [&b"a"[..], b" b", b"c"]);
        assert_eq!(parts("$body_bytes_sent"), [b"", b""]);
    }
}
