//! Groups and their servers, as they are: `/http/upstreams/`, `/stream/upstreams/`.

use super::answer::{ApiError, ApiResponse, collection, selected};
use super::ask::{Ask, Verb};
use crate::shared::status_tree::{Side, groups};
use session_engine::inventory::Listed;

/// Finds a group whose servers can change.
///
/// # Errors
/// `UpstreamNotFound`, `UpstreamStatic`.
pub fn find(ask: &Ask, side: Side, name: &str) -> Result<Listed, ApiError> {
    let listed = ask.area(side).group(name);
    let listed = listed.ok_or_else(|| ApiError::new(404, "UpstreamNotFound", "upstream not found"))?;
    match listed.zone {
        Some(_) => Ok(listed),
        None => Err(ApiError::new(400, "UpstreamStatic", "upstream is static")),
    }
}

pub fn run(ask: &Ask, verb: Verb, side: Side, name: Option<&str>, version: u32) -> Result<ApiResponse, ApiError> {
    let fields = ask.fields.as_deref();
    match (verb, name) {
        (Verb::Get, None) => Ok(ApiResponse::json(&collection(groups::all(ask.area(side), side, version), fields))),
        (Verb::Get, Some(name)) => {
            Ok(ApiResponse::json(&selected(groups::shown(&find(ask, side, name)?, side, version), fields)))
        }
        (Verb::Delete, Some(name)) => {
            find(ask, side, name)?.group.reset();
            Ok(ApiResponse::done())
        }
        _ => Err(ApiError::method()),
    }
}
