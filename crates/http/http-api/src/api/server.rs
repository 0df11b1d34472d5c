//! The process: licence, resets, worker threads.

use super::answer::{ApiError, ApiResponse, select_fields};
use super::ask::{ApiRequest, Verb};
use super::path::EndPoint;
use conf_schema::value::parse_decimal;
use metrics::{Lifecycle, WorkerCounts, process};
use serde_json::{Value, json};

/// There is no licence, and nothing that could expire or be reported.
pub fn license_object() -> Value {
    /// The end of the year 9999.
    const NEVER: u64 = 253_402_300_799;
    json!({ "active_till": NEVER, "eval": false, "reporting": { "healthy": true, "fails": 0, "grace": NEVER } })
}

pub fn reset_counters(end: &EndPoint<'_>) {
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
pub fn worker_objects(ask: &ApiRequest, id: Option<&str>) -> Result<ApiResponse, ApiError> {
    let missing = || ApiError::new(404, "WorkerNotFound", "worker not found");
    let number = id.map(|id| parse_decimal::<usize>(id).ok_or_else(missing)).transpose()?;
    if ask.verb == Verb::Delete {
        return if metrics::reset_workers(number) { Ok(ApiResponse::done()) } else { Err(missing()) };
    }
    let all = metrics::worker_counts();
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
        select_fields(worker, ask.fields.as_deref().filter(|fields| !fields.is_empty()))
    };
    let value = match number {
        Some(number) => shown(all.get_key_value(&number).ok_or_else(missing)?),
        None => all.iter().map(shown).collect(),
    };
    Ok(ApiResponse::json(&value))
}
