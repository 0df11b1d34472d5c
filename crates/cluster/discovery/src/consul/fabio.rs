//! Tags in the form of Fabio: `urlprefix-HOST/PATH` with options behind it.

use cluster_model::{HostName, PathMatch};

use crate::labels::Router;
use crate::routes::{EndpointProtocol, HostSettings, RouteSettings};
use crate::values;

/// Begin of the tags.
pub const PREFIX: &str = "urlprefix-";

/// Reads a tag without its prefix; `None` if it is left out.
pub fn read_urlprefix(tag: &str, problems: &mut Vec<String>) -> Option<Router> {
    let mut words = tag.split_whitespace();
    let target = words.next().unwrap_or("");
    let mut note = |reason: String| problems.push(format!("{PREFIX}{}: {reason}", target.escape_debug()));
    let Some((host, path)) = target.find('/').map(|at| target.split_at(at)) else {
        note("no path: forwarding of TCP is not supported; left out".into());
        return None;
    };
    // Fabio compares ports of the listener; this server has one for each scheme.
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let parsed = if host.is_empty() { Ok(HostName::Any) } else { HostName::parse_server_name(host) };
    let (host, path) = match (parsed, values::parse_path(path, false)) {
        (Ok(host), Ok(path)) => (host, path),
        (Err(reason), _) | (_, Err(reason)) => {
            note(format!("{reason}; left out"));
            return None;
        }
    };
    let mut settings = RouteSettings::default();
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, value) {
            ("proto", "http") => {}
            ("proto", "https") => settings.protocol = EndpointProtocol::Https,
            ("proto", "grpc") => settings.protocol = EndpointProtocol::Grpc,
            ("proto", "grpcs") => settings.protocol = EndpointProtocol::Grpcs,
            ("tlsskipverify", _) => {}
            ("strip", prefix) => match (&path, prefix) {
                (PathMatch::Text(text), prefix) if text == prefix => settings.rewrite = "/".into(),
                _ => {
                    note(format!("strip={}: only the path itself can be removed; left out", prefix.escape_debug()));
                    return None;
                }
            },
            // Denying is what these are for: a route without them would be open.
            ("allow" | "deny" | "auth", _) => {
                note(format!("\"{name}\" is not supported; left out"));
                return None;
            }
            _ => note(format!("\"{}\" is not supported", word.escape_debug())),
        }
    }
    Some(Router {
        name: String::new(),
        hosts: vec![host],
        path,
        port: None,
        weight: None,
        settings,
        host_settings: HostSettings::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_named() {
        let mut problems = Vec::new();
        let router = read_urlprefix("a.test/api strip=/api proto=https", &mut problems).unwrap();
        assert_eq!(router.path, PathMatch::Text("/api".into()));
        assert_eq!((router.settings.rewrite.as_str(), router.settings.protocol), ("/", EndpointProtocol::Https));
        assert_eq!(read_urlprefix("/", &mut problems).unwrap().hosts, [HostName::Any]);
        assert_eq!(problems, Vec::<String>::new());
        assert!(read_urlprefix("a.test/ weight=0.5", &mut problems).is_some());
        for tag in [":3306", "a.test/ allow=ip:10.0.0.0/8", "a.test/x strip=/y", "a b/", "a..b/"] {
            assert!(read_urlprefix(tag, &mut problems).is_none(), "{tag}");
        }
        assert_eq!(problems.len(), 6, "{problems:?}");
    }
}
