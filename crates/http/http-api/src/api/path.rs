//! Paths of the API: version and end-point.

use super::answer::ApiError;
use crate::shared::status_tree::Side;

pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=9;

/// A name is that of one object of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndPoint<'a> {
    Root,
    Nginx,
    Processes,
    Connections,
    Ssl,
    License,
    Requests,
    Children(Side),
    Slabs(Option<&'a str>),
    Resolvers(Option<&'a str>),
    Workers(Option<&'a str>),
    ServerZones(Side, Option<&'a str>),
    LocationZones(Option<&'a str>),
    Caches(Option<&'a str>),
    LimitReqs(Option<&'a str>),
    LimitConns(Side, Option<&'a str>),
    Keyvals(Side, Option<&'a str>),
    Upstreams(Side, Option<&'a str>),
    /// Servers of a group, or one by its id.
    Servers(Side, &'a str, Option<&'a str>),
}

/// End-points below `/`, `/http/` and `/stream/`, with the version that added them.
const TOP: &[(&str, u32)] = &[
    ("nginx", 1),
    ("processes", 1),
    ("connections", 1),
    ("slabs", 1),
    ("http", 1),
    ("stream", 1),
    ("resolvers", 5),
    ("ssl", 1),
    ("license", 9),
    ("workers", 9),
];
const HTTP: &[(&str, u32)] = &[
    ("requests", 1),
    ("server_zones", 1),
    ("location_zones", 5),
    ("caches", 1),
    ("limit_conns", 6),
    ("limit_reqs", 6),
    ("upstreams", 1),
    ("keyvals", 1),
];
const STREAM: &[(&str, u32)] = &[("server_zones", 1), ("limit_conns", 6), ("keyvals", 2), ("upstreams", 1)];

/// Returns the names below an end-point in a version.
pub fn child_names(of: Option<Side>, version: u32, has_stream: bool) -> Vec<&'static str> {
    let all = match of {
        None => TOP,
        Some(Side::Http) => HTTP,
        Some(Side::Stream) => STREAM,
    };
    let known = all.iter().filter(|(name, since)| *since <= version && (has_stream || *name != "stream"));
    known.map(|(name, _)| *name).collect()
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

/// Returns the version of a path; 0: none.
pub fn path_version(path: &str) -> u32 {
    segments(path).next().and_then(number).filter(|version| VERSIONS.contains(version)).unwrap_or(0)
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0'))
}

/// Parses what follows the location's prefix. `None`: nothing follows, and the versions are asked for.
///
/// # Errors
/// `UnknownVersion`, `PathNotFound`.
pub fn parse_path(path: &str, has_stream: bool) -> Result<Option<(u32, EndPoint<'_>)>, ApiError> {
    let mut all: Vec<&str> = segments(path).collect();
    if all.last().is_some_and(|last| last.is_empty()) {
        all.pop();
    }
    let Some((first, rest)) = all.split_first() else { return Ok(None) };
    let unknown = || ApiError::new(404, "UnknownVersion", "unknown version");
    let version = number(first).filter(|version| VERSIONS.contains(version)).ok_or_else(unknown)?;
    let known = |of, name: &str| child_names(of, version, has_stream).contains(&name);
    let is_known = match rest {
        [] => true,
        [top] => known(None, top),
        ["http", name, ..] => known(Some(Side::Http), name),
        ["stream", name, ..] => has_stream && known(Some(Side::Stream), name),
        [top, ..] => known(None, top),
    };
    if !is_known {
        return Err(ApiError::no_path());
    }
    let side = if rest.first() == Some(&"stream") { Side::Stream } else { Side::Http };
    let end = match rest {
        [] => EndPoint::Root,
        ["nginx"] => EndPoint::Nginx,
        ["processes"] => EndPoint::Processes,
        ["connections"] => EndPoint::Connections,
        ["ssl"] => EndPoint::Ssl,
        ["license"] => EndPoint::License,
        ["http" | "stream"] => EndPoint::Children(side),
        ["http", "requests"] => EndPoint::Requests,
        ["slabs", name @ ..] if name.len() <= 1 => EndPoint::Slabs(name.first().copied()),
        ["resolvers", name @ ..] if name.len() <= 1 => EndPoint::Resolvers(name.first().copied()),
        ["workers", name @ ..] if name.len() <= 1 => EndPoint::Workers(name.first().copied()),
        [_, "server_zones", name @ ..] if name.len() <= 1 => EndPoint::ServerZones(side, name.first().copied()),
        [_, "location_zones", name @ ..] if name.len() <= 1 => EndPoint::LocationZones(name.first().copied()),
        [_, "caches", name @ ..] if name.len() <= 1 => EndPoint::Caches(name.first().copied()),
        [_, "limit_reqs", name @ ..] if name.len() <= 1 => EndPoint::LimitReqs(name.first().copied()),
        [_, "limit_conns", name @ ..] if name.len() <= 1 => EndPoint::LimitConns(side, name.first().copied()),
        [_, "keyvals", name @ ..] if name.len() <= 1 => EndPoint::Keyvals(side, name.first().copied()),
        [_, "upstreams", name @ ..] if name.len() <= 1 => EndPoint::Upstreams(side, name.first().copied()),
        [_, "upstreams", group, "servers", id @ ..] if id.len() <= 1 => {
            EndPoint::Servers(side, group, id.first().copied())
        }
        _ => return Err(ApiError::no_path()),
    };
    Ok(Some((version, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_one() {
        let end = |path| parse_path(path, true).map_err(|refused| refused.code);
        for (with, without, want) in [
            ("/9/nginx/", "/9/nginx", EndPoint::Nginx),
            ("9/http/upstreams/a/", "9/http/upstreams/a", EndPoint::Upstreams(Side::Http, Some("a"))),
            (
                "/9/http/upstreams/a/servers/3/",
                "/9/http/upstreams/a/servers/3",
                EndPoint::Servers(Side::Http, "a", Some("3")),
            ),
            ("/9/stream/keyvals/", "/9/stream/keyvals", EndPoint::Keyvals(Side::Stream, None)),
            ("/9/", "/9", EndPoint::Root),
        ] {
            assert_eq!(end(with), Ok(Some((9, want.clone()))), "{with}");
            assert_eq!(end(without), Ok(Some((9, want))), "{without}");
        }
        assert_eq!(end(""), Ok(None));
        assert_eq!(end("/"), Ok(None));
    }

    #[test]
    fn versions_have_their_end_points() {
        let code = |path, stream| parse_path(path, stream).map_err(|refused| refused.code).err();
        for (path, stream, want) in [
            ("/0/nginx", true, Some("UnknownVersion")),
            ("/10/", true, Some("UnknownVersion")),
            ("/09/", true, Some("UnknownVersion")),
            ("/nginx", true, Some("UnknownVersion")),
            ("/4/resolvers", true, Some("PathNotFound")),
            ("/5/resolvers", true, None),
            ("/4/http/location_zones", true, Some("PathNotFound")),
            ("/1/stream/keyvals", true, Some("PathNotFound")),
            ("/8/license", true, Some("PathNotFound")),
            ("/9/stream/server_zones", false, Some("PathNotFound")),
            ("/9/stream", false, Some("PathNotFound")),
            ("/9/stream/zone_sync", true, Some("PathNotFound")),
            ("/9/stream/requests", true, Some("PathNotFound")),
            ("/9/http/upstreams/a/peers", true, Some("PathNotFound")),
            ("/9/nginx/version", true, Some("PathNotFound")),
            ("/9//nginx", true, Some("PathNotFound")),
        ] {
            assert_eq!(code(path, stream), want, "{path}");
        }
    }
}
