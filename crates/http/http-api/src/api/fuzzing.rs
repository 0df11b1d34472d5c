//! Body of the fuzz target: paths and bodies of the API.

use super::ask::{ApiRequest, Verb};
use super::configuration::{Present, Terms};
use super::{own, path, run};
use bytes::Bytes;
use http_engine::HttpPlan;

/// A request of the API of a plan: the first byte is the method, up to the first line end follows the path, then the body.
/// Returns the status.
///
/// # Panics
/// A status or a path is invalid.
pub fn api(plan: &HttpPlan, data: &[u8]) -> u16 {
    let Some(present) = plan.ext::<Present>() else { return 0 };
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let mut parts = rest.splitn(2, |c| *c == b'\n');
    let (path, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let path = String::from_utf8_lossy(path).into_owned();
    let verb = match first % 5 {
        0 => Verb::Get,
        1 => Verb::Post,
        2 => Verb::Put,
        3 => Verb::Patch,
        _ => Verb::Delete,
    };
    // Both forms of a path are one.
    if let (Ok(one), Some(without)) =
        (path::parse_path(&path, true), path.strip_suffix('/').filter(|path| !path.ends_with('/')))
    {
        assert!(path::parse_path(without, true).is_ok_and(|other| other == one), "{path}");
    }
    if let Some(below) = own::path_below(&path) {
        let _ = own::parse_point(below);
    }
    let _ = (own::config_request(body, Terms::default()), own::parse_level(body), own::parse_renewal(body));
    let ask = ApiRequest {
        path,
        verb,
        fields: None,
        key: None,
        tag: None,
        dry_run: first & 0x40 != 0,
        if_match: None,
        foreign: false,
        body: Bytes::copy_from_slice(body),
        writes: first & 0x80 == 0,
        local: String::new(),
        inventory: present.inventory.clone(),
    };
    let status = match run::run_request(&ask) {
        Ok(answer) => {
            if let Some(body) = &answer.body {
                assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
            }
            answer.status
        }
        Err(refused) => {
            assert!((400..600).contains(&refused.status) && !refused.code.is_empty());
            refused.status
        }
    };
    assert!(status != 500, "{} {}", ask.path, data.escape_ascii());
    status
}
