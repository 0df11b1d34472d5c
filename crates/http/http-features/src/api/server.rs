//! The process: version, connections, handshakes, worker threads.

use super::answer::{Answer, Refused, selected, time};
use super::ask::{Ask, Verb};
use super::path::EndPoint;
use metrics::{Lifecycle, TlsFailure, VerifyFailure, WorkerCounts, process};
use serde_json::{Map, Value, json};
use session_engine::NGINX_VERSION;

/// Clients of the commercial edition read a release number in the build's name.
const BUILD: &str = concat!("tidegate-r36 (", env!("CARGO_PKG_VERSION"), ")");

pub fn nginx(ask: &Ask) -> Value {
    let life = Lifecycle::now();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    // (The colon of a port stays with the address, as in nginx: only the address is told.)
    let address = match ask.local.parse::<std::net::SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => ask.local.clone(),
    };
    json!({
        "version": NGINX_VERSION,
        "build": BUILD,
        "address": address,
        "generation": life.loads,
        "load_timestamp": time(life.loaded_at),
        "timestamp": time(base::clock::unix_millis()),
        "pid": std::process::id(),
        "ppid": parent,
    })
}

pub fn processes() -> Value {
    json!({ "respawned": Lifecycle::now().respawned })
}

pub fn connections(ask: &Ask) -> Value {
    let accepted = process::CONNECTIONS_ACCEPTED.since_reset();
    let sessions = process::STREAM_SESSIONS.sum() + process::MAIL_SESSIONS.sum();
    let (reading, writing) = (process::CONNECTIONS_READING.sum(), process::CONNECTIONS_WRITING.sum());
    let idle = process::CONNECTIONS_ACTIVE.sum().saturating_sub(reading + writing + ask.active);
    json!({
        "accepted": accepted,
        "dropped": accepted.saturating_sub(process::CONNECTIONS_HANDLED.since_reset()),
        "active": reading + writing + ask.active + sessions,
        "idle": idle,
    })
}

pub fn requests(ask: &Ask) -> Value {
    let ended = process::HTTP_RESPONSES.sum() + process::HTTP_DISCARDED.sum();
    // At least the present one, if it is not a subrequest.
    let current = process::HTTP_REQUESTS.sum().saturating_sub(ended).max(ask.active);
    json!({ "total": process::HTTP_REQUESTS.since_reset(), "current": current })
}

/// Handshakes of a server or of the process: `failures` and `verify` count by reason.
pub fn handshakes(
    version: u32,
    (done, reused): (u64, u64),
    failures: impl Fn(TlsFailure) -> u64,
    verify: impl Fn(VerifyFailure) -> u64,
) -> Value {
    let reasons = [
        ("no_common_protocol", TlsFailure::NoCommonProtocol),
        ("no_common_cipher", TlsFailure::NoCommonCipher),
        ("handshake_timeout", TlsFailure::Timeout),
        ("peer_rejected_cert", TlsFailure::PeerRejectedCert),
    ];
    let failed: u64 = reasons.iter().map(|(_, reason)| failures(*reason)).sum::<u64>() + failures(TlsFailure::Other);
    let mut all = Map::new();
    all.insert("handshakes".into(), json!(done));
    all.insert("handshakes_failed".into(), json!(failed));
    all.insert("session_reuses".into(), json!(reused));
    if version >= 8 {
        for (name, reason) in reasons {
            all.insert(name.into(), json!(failures(reason)));
        }
        let refused = json!({
            "no_cert": verify(VerifyFailure::NoCert),
            "expired_cert": verify(VerifyFailure::ExpiredCert),
            "revoked_cert": verify(VerifyFailure::RevokedCert),
            "hostname_mismatch": verify(VerifyFailure::HostnameMismatch),
            "other": verify(VerifyFailure::Other),
        });
        all.insert("verify_failures".into(), refused);
    }
    Value::Object(all)
}

pub fn ssl(version: u32) -> Value {
    let counts = (process::TLS_HANDSHAKES.since_reset(), process::TLS_SESSION_REUSES.since_reset());
    let failures = |reason: TlsFailure| process::TLS_FAILURES.since_reset_at(reason as usize);
    let verify = |reason: VerifyFailure| process::TLS_VERIFY_FAILURES.since_reset_at(reason as usize);
    handshakes(version, counts, failures, verify)
}

/// There is no licence, and nothing that could expire or be reported.
pub fn license() -> Value {
    /// The end of the year 9999.
    const NEVER: u64 = 253_402_300_799;
    json!({ "active_till": NEVER, "eval": false, "reporting": { "healthy": true, "fails": 0, "grace": NEVER } })
}

pub fn reset(end: &EndPoint<'_>) {
    let counters: &[_] = match end {
        EndPoint::Processes => return Lifecycle::reset_respawned(),
        EndPoint::Connections => &[process::CONNECTIONS_ACCEPTED, process::CONNECTIONS_HANDLED],
        EndPoint::Ssl => {
            &[process::TLS_HANDSHAKES, process::TLS_SESSION_REUSES, process::TLS_FAILURES, process::TLS_VERIFY_FAILURES]
        }
        EndPoint::Requests => &[process::HTTP_REQUESTS],
        _ => &[],
    };
    counters.iter().for_each(|counter| counter.reset());
}

/// Worker threads, which are nginx's worker processes.
pub fn workers(ask: &Ask, id: Option<&str>) -> Result<Answer, Refused> {
    let missing = || Refused::new(404, "WorkerNotFound", "worker not found");
    let number = id.map(|id| id.parse::<usize>().map_err(|_| missing())).transpose()?;
    if ask.verb == Verb::Delete {
        return if metrics::reset_workers(number) { Ok(Answer::done()) } else { Err(missing()) };
    }
    let all = metrics::workers();
    let shown = |(number, counts): (&usize, &WorkerCounts)| {
        let worker = json!({
            "id": number,
            "pid": std::process::id(),
            "connections": {
                "accepted": counts.accepted,
                "dropped": counts.accepted.saturating_sub(counts.handled),
                "active": counts.active.saturating_sub(counts.waiting),
                "idle": counts.waiting,
            },
            "http": { "requests": { "total": counts.requests, "current": counts.current } },
        });
        selected(worker, ask.fields.as_deref().filter(|fields| !fields.is_empty()))
    };
    let value = match number {
        Some(number) => shown(all.get_key_value(&number).ok_or_else(missing)?),
        None => all.iter().map(shown).collect(),
    };
    Ok(Answer::json(&value))
}
