//! `VIRTUAL_HOST_MULTIPORTS`: hosts, their paths and ports in YAML or JSON.

use serde_json::{Map, Value};

use super::variables::VirtualPath;

/// Paths of all hosts at most.
const PATHS_MAX: usize = 256;

/// Reads the hosts of a text. Members that are not supported become problems.
///
/// # Errors
/// If the text is no map of hosts.
pub fn read_multiports(text: &str, problems: &mut Vec<String>) -> Result<Vec<VirtualPath>, String> {
    let hosts: Map<String, Value> =
        serde_saphyr::from_str(text).map_err(|error| first_line(&error.to_string()).to_owned())?;
    let mut found = Vec::new();
    for (host, value) in &hosts {
        let mut note = |reason: String| {
            problems.push(format!("VIRTUAL_HOST_MULTIPORTS: {}: {reason}", host.escape_debug()));
        };
        let paths = match value {
            Value::Null => Map::new(),
            Value::Object(paths) => paths.clone(),
            _ => {
                note("no map of paths".into());
                continue;
            }
        };
        let mut has_path = false;
        for (path, value) in &paths {
            if matches!(path.as_str(), "external_http_port" | "external_https_port") {
                note(format!("{path} is not supported: --http-port and --https-port set those of all hosts"));
                continue;
            }
            if !path.starts_with('/') {
                note(format!("\"{}\" is no path", path.escape_debug()));
                continue;
            }
            has_path = true;
            let empty = Map::new();
            let members = match value {
                Value::Null => &empty,
                Value::Object(members) => members,
                _ => {
                    note(format!("{}: no map of port, proto and dest", path.escape_debug()));
                    continue;
                }
            };
            for member in members.keys().filter(|member| !matches!(member.as_str(), "port" | "proto" | "dest")) {
                note(format!("{}: unknown member \"{}\"", path.escape_debug(), member.escape_debug()));
            }
            found.push(virtual_path(host, path, members));
        }
        if !has_path {
            found.push(virtual_path(host, "/", &Map::new()));
        }
        if found.len() > PATHS_MAX {
            return Err(format!("more than {PATHS_MAX} paths"));
        }
    }
    Ok(found)
}

fn virtual_path(host: &str, path: &str, members: &Map<String, Value>) -> VirtualPath {
    let text = |name: &str| match members.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(value) => Some(value.to_string()),
    };
    VirtualPath {
        host: host.trim().to_owned(),
        path: path.to_owned(),
        port: text("port").filter(|port| !matches!(port.as_str(), "" | "default")),
        protocol: text("proto").unwrap_or_else(|| "http".into()),
        dest: text("dest").unwrap_or_default(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_have_the_same_meaning() {
        let yaml = "www.a.test:\napi.a.test:\n  \"/\":\n    port: 8000\n  /v2/:\n    port: \"9443\"\n    proto: https\n    dest: \"/\"\n";
        let json = r#"{"www.a.test": {}, "api.a.test": {"/": {"port": 8000}, "/v2/": {"port": 9443, "proto": "https", "dest": "/"}}}"#;
        let mut problems = Vec::new();
        let paths = read_multiports(yaml, &mut problems).unwrap();
        assert_eq!(paths, read_multiports(json, &mut problems).unwrap());
        assert_eq!(problems, Vec::<String>::new());
        let of = |host: &str, path: &str, port: Option<&str>, protocol: &str, dest: &str| VirtualPath {
            host: host.into(),
            path: path.into(),
            port: port.map(str::to_owned),
            protocol: protocol.into(),
            dest: dest.into(),
        };
        let mut expected = vec![
            of("api.a.test", "/", Some("8000"), "http", ""),
            of("api.a.test", "/v2/", Some("9443"), "https", "/"),
            of("www.a.test", "/", None, "http", ""),
        ];
        let mut paths = paths;
        paths.sort_by(|a, b| (&a.host, &a.path).cmp(&(&b.host, &b.path)));
        expected.sort_by(|a, b| (&a.host, &a.path).cmp(&(&b.host, &b.path)));
        assert_eq!(paths, expected);
    }

    #[test]
    fn parts_that_are_not_supported_are_named() {
        let mut problems = Vec::new();
        let text = "a.test:\n  external_https_port: 8448\n  path: 1\n  /x: {root: /srv}\nb.test: 1\n";
        assert_eq!(read_multiports(text, &mut problems).unwrap().len(), 1);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(read_multiports("a: [", &mut problems).is_err());
        assert!(read_multiports("- a", &mut problems).is_err());
    }
}
