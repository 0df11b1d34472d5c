//! `PUT /tidegate/1/upstreams`: the servers of several groups at once.

use super::super::answer::{ApiError, ApiResponse};
use super::super::ask::ApiRequest;
use super::super::servers::replace_all;
use crate::shared::status_tree::Side;
use serde_json::{Map, Value};

fn format_error(text: impl Into<String>) -> ApiError {
    ApiError::new(400, "UpstreamConfFormatError", text)
}

/// Splits `{"http": {"GROUP": [servers], ...}, "stream": {...}}` into groups.
fn groups(value: Value) -> Result<Vec<(Side, String, Value)>, ApiError> {
    let Value::Object(areas) = value else { return Err(format_error("an object of areas is required")) };
    let mut all = Vec::new();
    for (area, groups) in areas {
        let side = match area.as_str() {
            "http" => Side::Http,
            "stream" => Side::Stream,
            _ => return Err(format_error(format!("unknown area \"{area}\": write \"http\" or \"stream\""))),
        };
        let Value::Object(groups) = groups else {
            return Err(format_error(format!("an object of groups is required in \"{area}\"")));
        };
        all.extend(Map::into_iter(groups).map(|(name, list)| (side, name, list)));
    }
    Ok(all)
}

/// Replaces the servers of groups. All lists are tried before the first one is replaced; changes of the API happen one after the other,
/// so that none comes between.
///
/// # Errors
/// As a change of the first group that is refused, whose name the text begins with: nothing has changed, unless a state file could not
/// be written.
pub fn replace_groups(ask: &ApiRequest) -> Result<ApiResponse, ApiError> {
    let all = groups(ask.json()?)?;
    for is_rehearsal in [true, false] {
        if !is_rehearsal && ask.dry_run {
            break;
        }
        for (side, name, list) in &all {
            replace_all(ask, *side, name, list, is_rehearsal)
                .map_err(|refused| ApiError { text: format!("{name}: {}", refused.text), ..refused })?;
        }
    }
    Ok(ApiResponse::done())
}
