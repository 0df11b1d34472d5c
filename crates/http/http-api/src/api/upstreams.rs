//! Groups and their servers, as they are: `/http/upstreams/`, `/stream/upstreams/`.

use super::answer::{ApiError, ApiResponse, select_collection, select_fields};
use super::ask::{ApiRequest, Verb};
use crate::shared::status_tree::{Side, groups};
use upstream_directives::inventory::ListedGroup;

/// Finds a group whose servers can change.
///
/// # Errors
/// `UpstreamNotFound`, `UpstreamStatic`.
pub fn find_group(ask: &ApiRequest, side: Side, name: &str) -> Result<ListedGroup, ApiError> {
    let listed = ask.area(side).group(name);
    let listed = listed.ok_or_else(|| ApiError::new(404, "UpstreamNotFound", "upstream not found"))?;
    match listed.zone {
        Some(_) => Ok(listed),
        None => Err(ApiError::new(400, "UpstreamStatic", "upstream is static")),
    }
}

pub fn answer_upstreams(
    ask: &ApiRequest,
    verb: Verb,
    side: Side,
    name: Option<&str>,
    version: u32,
) -> Result<ApiResponse, ApiError> {
    let fields = ask.fields.as_deref();
    match (verb, name) {
        (Verb::Get, None) => {
            Ok(ApiResponse::json(&select_collection(groups::all_groups(ask.area(side), side, version), fields)))
        }
        (Verb::Get, Some(name)) => Ok(ApiResponse::json(&select_fields(
            groups::show_group(&find_group(ask, side, name)?, side, version),
            fields,
        ))),
        (Verb::Delete, Some(name)) => {
            find_group(ask, side, name)?.group.reset();
            Ok(ApiResponse::done())
        }
        _ => Err(ApiError::method()),
    }
}
