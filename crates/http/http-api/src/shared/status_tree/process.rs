//! The process: version, connections, requests, handshakes.

use super::iso_time;
use metrics::{Lifecycle, TlsFailure, VerifyFailure, process};
use serde_json::{Map, Value, json};
use variables::NGINX_VERSION;

/// Clients of the commercial edition read a release number in the build's name.
const BUILD: &str = concat!("tidegate-r36 (", env!("CARGO_PKG_VERSION"), ")");

/// `local`: the address that accepted the connection.
pub fn nginx_object(local: &str) -> Value {
    let life = Lifecycle::now();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    // (The colon of a port stays with the address, as in nginx: only the address is told.)
    let address = match local.parse::<std::net::SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => local.to_string(),
    };
    json!({
        "version": NGINX_VERSION,
        "build": BUILD,
        "address": address,
        "generation": life.loads,
        "load_timestamp": iso_time(life.loaded_at),
        "timestamp": iso_time(base::clock::unix_millis()),
        "pid": std::process::id(),
        "ppid": parent,
    })
}

pub fn processes_object() -> Value {
    json!({ "respawned": Lifecycle::now().respawned })
}

pub fn connections_object() -> Value {
    let accepted = process::CONNECTIONS_ACCEPTED.since_reset();
    let sessions = process::STREAM_SESSIONS.sum() + process::MAIL_SESSIONS.sum();
    let (reading, writing) = (process::CONNECTIONS_READING.sum(), process::CONNECTIONS_WRITING.sum());
    let idle = process::CONNECTIONS_ACTIVE.sum().saturating_sub(reading + writing);
    json!({
        "accepted": accepted,
        "dropped": accepted.saturating_sub(process::CONNECTIONS_HANDLED.since_reset()),
        "active": reading + writing + sessions,
        "idle": idle,
    })
}

pub fn requests_object() -> Value {
    let ended = process::HTTP_RESPONSES.sum() + process::HTTP_DISCARDED.sum();
    let current = process::HTTP_REQUESTS.sum().saturating_sub(ended);
    json!({ "total": process::HTTP_REQUESTS.since_reset(), "current": current })
}

/// Handshakes of a server or of the process: `failures` and `verify` count by reason.
pub fn handshakes_object(
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

pub fn ssl_object(version: u32) -> Value {
    let counts = (process::TLS_HANDSHAKES.since_reset(), process::TLS_SESSION_REUSES.since_reset());
    let failures = |reason: TlsFailure| process::TLS_FAILURES.since_reset_at(reason as usize);
    let verify = |reason: VerifyFailure| process::TLS_VERIFY_FAILURES.since_reset_at(reason as usize);
    handshakes_object(version, counts, failures, verify)
}
