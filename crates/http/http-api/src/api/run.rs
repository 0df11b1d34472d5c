//! Runs a request of the API on its thread.

use super::answer::{ApiError, ApiResponse};
use super::ask::{ApiRequest, Verb};
use super::path::{self, EndPoint, VERSIONS};
use super::{pairs, server, servers, upstreams, zones};
use crate::shared::status_tree::process;
use serde_json::json;

pub fn run_request(ask: &ApiRequest) -> Result<ApiResponse, ApiError> {
    base::clock::update();
    let has_stream = ask.inventory.stream.is_present();
    let Some((version, end)) = path::parse_path(&ask.path, has_stream)? else {
        return match ask.verb {
            Verb::Get => Ok(ApiResponse::json(&VERSIONS.collect())),
            _ => Err(ApiError::method()),
        };
    };
    if ask.verb != Verb::Get && !ask.writes {
        return Err(ApiError::method());
    }
    if ask.foreign {
        return Err(ApiError::foreign());
    }
    if ask.dry_run && ask.verb != Verb::Get && !matches!(end, EndPoint::Servers(..)) {
        return Err(ApiError::no_rehearsal());
    }
    match (ask.verb, &end) {
        (Verb::Get, EndPoint::Root) => Ok(ApiResponse::json(&json!(path::child_names(None, version, has_stream)))),
        (Verb::Get, EndPoint::Children(side)) => {
            Ok(ApiResponse::json(&json!(path::child_names(Some(*side), version, has_stream))))
        }
        (Verb::Get, EndPoint::Nginx) => ask.object(process::nginx_object(&ask.local)),
        (Verb::Get, EndPoint::Processes) => ask.object(process::processes_object()),
        (Verb::Get, EndPoint::Connections) => ask.object(process::connections_object()),
        (Verb::Get, EndPoint::Ssl) => ask.object(process::ssl_object(version)),
        (Verb::Get, EndPoint::License) => ask.object(server::license_object()),
        (Verb::Get, EndPoint::Requests) => ask.object(process::requests_object()),
        (Verb::Delete, EndPoint::Processes | EndPoint::Connections | EndPoint::Ssl | EndPoint::Requests) => {
            server::reset_counters(&end);
            Ok(ApiResponse::done())
        }
        (Verb::Get | Verb::Delete, EndPoint::Workers(id)) => server::worker_objects(ask, *id),
        (verb, EndPoint::Keyvals(side, name)) => pairs::answer_pairs(ask, verb, *side, *name),
        (verb, EndPoint::Upstreams(side, name)) => upstreams::answer_upstreams(ask, verb, *side, *name, version),
        (verb, EndPoint::Servers(side, group, id)) => servers::answer_servers(ask, verb, *side, group, *id, version),
        (Verb::Get | Verb::Delete, _) => zones::answer_zones(ask, &end, version),
        _ => Err(ApiError::method()),
    }
}
