//! The transaction of a request, which stays with it over internal redirects.

use crate::audit_log::AuditLog;
use http_engine::body_memory::Reservation;
use http_engine::{Flow, HttpTemplate, Request, Str};
use http_types::Version;
use observe::Severity;
use std::sync::Arc;
use waf::{Connection, RuleSet, Services, Transaction, Verdict};

/// Bytes of a transaction's id.
const ID_BYTES_MAX: usize = 128;

/// The rules of a block, compiled, and its settings.
pub(crate) struct BlockFirewall {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) services: Arc<Services>,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) transaction_id: Option<HttpTemplate>,
    pub(crate) logs_refusals: bool,
    /// Files of the rules, for `explain`.
    pub(crate) files: Vec<Arc<str>>,
}

/// The transaction of a request, kept with the main request.
pub(crate) struct FirewallState {
    pub firewall: Arc<BlockFirewall>,
    /// `None` while a thread of the pool has it.
    pub transaction: Option<Box<Transaction>>,
    /// Phase 2 has run.
    pub has_body: bool,
    /// Phases 3 and 4 have run, or the request was refused.
    pub is_answered: bool,
    /// Matches that are in the error log already.
    pub logged: usize,
    /// Memory of the request's body while the transaction has it.
    pub memory: Option<Reservation>,
}

fn version_text(version: Version) -> &'static str {
    match version {
        Version::Http09 => "0.9",
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http20 => "2.0",
        Version::Http30 => "3.0",
    }
}

/// Returns the protocol as `HTTP/1.1`.
pub(crate) fn protocol_text(version: Version) -> String {
    format!("HTTP/{}", version_text(version))
}

fn transaction_id(firewall: &BlockFirewall, r: &mut Request) -> String {
    let mut text = Vec::new();
    match &firewall.transaction_id {
        Some(template) => text = template.eval(r),
        None => _ = r.variable_named("request_id", &mut text),
    }
    let visible = |byte: &u8| if byte.is_ascii_graphic() && *byte != b'"' { *byte as char } else { '_' };
    text.iter().take(ID_BYTES_MAX).map(visible).collect()
}

fn connection_facts(firewall: &BlockFirewall, r: &mut Request) -> Connection {
    let unique_id = transaction_id(firewall, r);
    let host = if r.target.host().is_empty() { &r.srv().name } else { r.target.host() };
    let connection = r.connection();
    let (server_address, server_port) = match &*connection.local {
        net::Address::Ip(address) => (address.ip().to_string(), address.port()),
        net::Address::Unix(path) => (format!("unix:{}", path.display()), 0),
    };
    Connection {
        client_address: connection.peer_text(),
        client_port: connection.peer.map_or(0, |peer| peer.port()),
        server_address,
        server_port,
        unique_id,
        hostname: String::from_utf8_lossy(host).into_owned(),
    }
}

impl FirewallState {
    /// Begins the transaction of a request with its line and fields. No rule has run yet.
    /// `services`: those of the firewall, or of a rehearsal.
    pub fn begin(firewall: &Arc<BlockFirewall>, services: &Arc<Services>, r: &mut Request) -> FirewallState {
        let connection = connection_facts(firewall, r);
        let mut transaction = Transaction::new(&firewall.rules, services, connection);
        let uri = r.head.request_uri().of(&r.buf);
        transaction.uri(r.head.method_span.of(&r.buf), uri, version_text(r.target.version()));
        for (name, value) in r.headers() {
            transaction.request_header(name, value);
        }
        FirewallState {
            firewall: firewall.clone(),
            transaction: Some(Box::new(transaction)),
            has_body: false,
            is_answered: false,
            logged: 0,
            memory: None,
        }
    }
}

/// Writes new matches to the error log: refusals with level error, others with level info (the connector's levels).
pub(crate) fn log_matches(r: &mut Request) {
    let Some(state) = r.ext_mut::<FirewallState>() else { return };
    let Some(transaction) = &state.transaction else { return };
    let new = transaction.matches().get(state.logged..).unwrap_or_default();
    if new.is_empty() {
        return;
    }
    let lines: Vec<(Severity, String)> = new
        .iter()
        .filter(|found| match found.denied {
            Some(_) => state.firewall.logs_refusals,
            None => found.logged,
        })
        .map(|found| (if found.denied.is_some() { Severity::Error } else { Severity::Info }, found))
        .map(|(level, found)| (level, found.log_line()))
        .collect();
    state.logged = transaction.matches().len();
    for (level, line) in lines {
        r.log(level, format_args!("{line}"));
    }
}

/// Turns a verdict into the engine's answer; `Declined` lets the request pass.
pub(crate) fn answer(r: &mut Request, verdict: Verdict, phase: u8) -> Flow {
    log_matches(r);
    let Some(state) = r.ext_mut::<FirewallState>() else { return Flow::Declined };
    if verdict == Verdict::Pass {
        return Flow::Declined;
    }
    state.is_answered = true;
    let logs = state.firewall.logs_refusals;
    match verdict {
        Verdict::Pass => Flow::Declined,
        Verdict::Deny { status, rule } => {
            let limit = match phase {
                1 | 2 => "SecRequestBodyLimit",
                _ => "SecResponseBodyLimit",
            };
            if rule == 0 && logs && matches!(status, 413 | 500) {
                let words = format!("Access denied with code {status} (phase {phase}). Body over {limit}.");
                r.log(Severity::Error, format_args!("ModSecurity: {words}"));
            }
            Flow::Status(status)
        }
        Verdict::Drop { .. } => Flow::Close,
        Verdict::Redirect { status, location, .. } => {
            r.out.set_location(Str::from(location));
            Flow::Status(status)
        }
    }
}
