//! Caches and certificates below `/tidegate/1/`: listed, purged, renewed; stores, and rules of the firewall. Everything
//! here blocks, but stores and rules.

use super::super::answer::{ApiError, ApiResponse};
use super::super::certificates;
use crate::shared::status_tree::iso_time;
use area::shared_store::{StoreState, store_states};
use http_engine::HttpPlan;
use http_engine::acme_state::AcmeRenewals;
use http_engine::firewall_findings;
use http_upstream::caching::paths::CachePaths;
use http_upstream::caching::session::purge_key;
use http_upstream::caching::tagging::{TAG_BYTES_MAX, TAGS_MAX, TagBoundFault, named_tags, purge_tags};
use metrics::process;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Bytes of a key of a purge; the limit of `*_cache_purge` applies to requests.
const KEY_BYTES_MAX: usize = 65_536;

pub fn list_caches(plan: &HttpPlan) -> Value {
    let all = plan.ext::<CachePaths>().into_iter().flat_map(|paths| &paths.0);
    let one = |path: &std::sync::Arc<http_upstream::caching::paths::CachePath>| {
        let zone = &path.zone;
        let facts = json!({
            "path": zone.root().display().to_string(),
            "entries": zone.count.load(Ordering::Relaxed),
            "size": zone.size.load(Ordering::Relaxed),
            "purges": zone.purges.newest(),
            "purged_tags": zone.purges.tags_listed(),
        });
        (zone.name.clone(), facts)
    };
    all.map(one).collect::<serde_json::Map<String, Value>>().into()
}

/// Shows the requests of the firewall, by rule, and the last findings.
pub fn show_firewall() -> Value {
    let rules = firewall_findings::list_rules().into_iter().map(|rule| {
        let facts = json!({ "message": rule.message, "passed": rule.passed, "denied": rule.denied });
        (rule.rule, facts)
    });
    let findings = firewall_findings::list_findings().into_iter().map(|finding| {
        json!({
            "time": iso_time(finding.at_ms),
            "method": finding.method,
            "path": finding.path,
            "status": finding.status,
            "denied": finding.is_denied,
            "rules": finding.rules,
        })
    });
    json!({
        "inspected": process::FIREWALL_TRANSACTIONS.since_reset(),
        "denied": process::FIREWALL_DENIED.since_reset(),
        "rules": rules.collect::<serde_json::Map<String, Value>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

/// Lists the stores of `shared_store`: one, and another one while a reload replaces it.
pub fn list_stores() -> Value {
    let one = |(address, state): (String, StoreState)| {
        json!({
            "address": address,
            "connected": state.is_connected,
            "since": if state.since == 0 { Value::Null } else { json!(iso_time(state.since)) },
            "last_failure": state.last_failure,
            "failures": state.failures,
            "nodes": state.nodes,
            "records": {
                "pending": state.records_pending,
                "sent": state.records_sent,
                "applied": state.records_applied,
                "no_room": state.records_refused,
            },
            "permits": { "taken": state.permits_taken, "refused": state.permits_refused },
            "maps": state.maps.iter().map(|map| json!({
                "name": map.space, "records": map.records, "pending": map.pending,
            })).collect::<Vec<_>>(),
        })
    };
    store_states().into_iter().map(one).collect()
}

/// Purges a key of a cache, all keys with a prefix (`*` at the end), all entries with one of several tags, or, without key and
/// tag, everything.
///
/// # Errors
/// `CacheNotFound`, `CacheKeyNotFound`, `CacheKeyTooLong`, `CacheTagFormatError`, `InternalError`.
pub fn purge_cache(plan: &HttpPlan, name: &str, key: Option<&str>, tag: Option<&str>) -> Result<ApiResponse, ApiError> {
    let mut all = plan.ext::<CachePaths>().into_iter().flat_map(|paths| &paths.0);
    let Some(path) = all.find(|path| path.zone.name == name) else {
        return Err(ApiError::new(404, "CacheNotFound", "cache not found"));
    };
    let not_noted =
        |e: std::io::Error| ApiError::internal(format!("the purge could not be noted {}", observe::os_error(&e)));
    if let Some(text) = tag {
        let wrong = |words: String| ApiError::new(400, "CacheTagFormatError", words);
        if key.is_some() {
            return Err(wrong("write \"key\" or \"tag\", not both".into()));
        }
        let texts = [text];
        let tags = named_tags(&texts).map_err(|TagBoundFault| {
            wrong(format!("there are more than {TAGS_MAX} tags, or one has more than {TAG_BYTES_MAX} bytes"))
        })?;
        if tags.is_empty() {
            return Err(wrong("there is no tag".into()));
        }
        return purge_tags(path, &tags).map(|()| ApiResponse::done()).map_err(not_noted);
    }
    let key = key.unwrap_or("*");
    if key.len() > KEY_BYTES_MAX {
        return Err(ApiError::new(400, "CacheKeyTooLong", format!("the key has more than {KEY_BYTES_MAX} bytes")));
    }
    match purge_key(path, key.as_bytes()).map_err(not_noted)? {
        true => Ok(ApiResponse::done()),
        false => Err(ApiError::new(404, "CacheKeyNotFound", "there is no entry of this key")),
    }
}

pub fn list_certificates(plan: &HttpPlan, files: &[PathBuf]) -> Value {
    base::clock::update();
    let now = i64::try_from(base::clock::unix_millis() / 1000).unwrap_or(0);
    certificates::list_certificates(plan, files).iter().map(|one| one.json(now)).collect()
}

/// Parses `{"renew": "NAME"}`.
///
/// # Errors
/// `JsonError`, `CertificateFormatError`.
pub fn parse_renewal(body: &[u8]) -> Result<String, ApiError> {
    let value: Value =
        serde_json::from_slice(body).map_err(|e| ApiError::new(415, "JsonError", format!("json error: {e}")))?;
    let name = value.as_object().filter(|all| all.len() == 1).and_then(|all| all.get("renew")?.as_str());
    name.map(str::to_string).ok_or_else(|| {
        ApiError::new(400, "CertificateFormatError", "write {\"renew\": NAME} with a name of the certificate")
    })
}

/// Requests orders of the ACME certificates with a name. They start within seconds; the old certificates are used until
/// then.
///
/// # Errors
/// `CertificateNotFound`, `InternalError`.
pub fn renew_certificates(plan: &HttpPlan, name: &str) -> Result<ApiResponse, ApiError> {
    let asked = plan.ext::<AcmeRenewals>().map(|renewals| (renewals.0)(plan, name)).unwrap_or_default();
    if asked.is_empty() {
        let words = format!("no certificate with the name \"{name}\" is ordered by ACME");
        return Err(ApiError::new(404, "CertificateNotFound", words));
    }
    let mut names = Vec::new();
    for (identifiers, result) in asked {
        result
            .map_err(|e| ApiError::internal(format!("the order could not be requested {}", observe::os_error(&e))))?;
        names.push(identifiers);
    }
    Ok(ApiResponse::of(202, &json!({ "renew": names })))
}
