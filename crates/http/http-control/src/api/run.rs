//! Runs a request of the API on its thread.

use super::answer::{ApiError, ApiResponse};
use super::ask::{Ask, Verb};
use super::path::{self, EndPoint, VERSIONS};
use super::{pairs, server, servers, upstreams, zones};
use crate::shared::status_tree::process;
use serde_json::json;

pub fn run(ask: &Ask) -> Result<ApiResponse, ApiError> {
    base::clock::update();
    let has_stream = ask.inventory.stream.is_present();
    let Some((version, end)) = path::parse(&ask.path, has_stream)? else {
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
        (Verb::Get, EndPoint::Root) => Ok(ApiResponse::json(&json!(path::children(None, version, has_stream)))),
        (Verb::Get, EndPoint::Children(side)) => {
            Ok(ApiResponse::json(&json!(path::children(Some(*side), version, has_stream))))
        }
        (Verb::Get, EndPoint::Nginx) => ask.object(process::nginx(&ask.local)),
        (Verb::Get, EndPoint::Processes) => ask.object(process::processes()),
        (Verb::Get, EndPoint::Connections) => ask.object(process::connections()),
        (Verb::Get, EndPoint::Ssl) => ask.object(process::ssl(version)),
        (Verb::Get, EndPoint::License) => ask.object(server::license()),
        (Verb::Get, EndPoint::Requests) => ask.object(process::requests()),
        (Verb::Delete, EndPoint::Processes | EndPoint::Connections | EndPoint::Ssl | EndPoint::Requests) => {
            server::reset(&end);
            Ok(ApiResponse::done())
        }
        (Verb::Get | Verb::Delete, EndPoint::Workers(id)) => server::workers(ask, *id),
        (verb, EndPoint::Keyvals(side, name)) => pairs::run(ask, verb, *side, *name),
        (verb, EndPoint::Upstreams(side, name)) => upstreams::run(ask, verb, *side, *name, version),
        (verb, EndPoint::Servers(side, group, id)) => servers::run(ask, verb, *side, group, *id, version),
        (Verb::Get | Verb::Delete, _) => zones::run(ask, &end, version),
        _ => Err(ApiError::method()),
    }
}
