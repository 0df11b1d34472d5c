//! The vocabulary of labels and tags: `tidegate.KEY` for the only router of a container or service, `tidegate.NAME.KEY` for
//! one of several.
//!
//! A label that does not exist is a complaint with the nearest name. A router with an invalid value is left out as a whole:
//! a mistake in `allow` must not open a path.

use std::collections::BTreeMap;

use cluster_ingress::parse_location_snippet;
use cluster_model::{HostName, PathMatch};
use conf_schema::suggest::nearest_word;

use crate::routes::{EndpointProtocol, HostSettings, HttpsMode, RouteSettings};
use crate::values;

/// Begin of all labels.
pub const PREFIX: &str = "tidegate.";
/// Routers of a container or service at most.
pub const ROUTERS_MAX: usize = 64;

/// Label of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelKey {
    /// Name behind [`PREFIX`], or behind it and the name of a router.
    pub name: &'static str,
    /// Belongs to a router: may stand behind its name.
    pub is_of_router: bool,
    /// Form of values.
    pub values: &'static str,
    pub meaning: &'static str,
}

const fn key(name: &'static str, is_of_router: bool, values: &'static str, meaning: &'static str) -> LabelKey {
    LabelKey { name, is_of_router, values, meaning }
}

/// All labels.
pub const KEYS: &[LabelKey] = &[
    key("enable", false, "`true`, `false`", "`false` leaves the container out, also one with `VIRTUAL_HOST`"),
    key("network", false, "name of a network", "the endpoint has the container's address in this network"),
    key(
        "host",
        true,
        "names, separated by commas",
        "hosts: `a.example.com`, `*.example.com`, `www.example.*`, `~regex`, `*` for all; required",
    ),
    key(
        "path",
        true,
        "`/api`, `= /exact`, `~ regex`, `~* regex`, `^~ /text`",
        "path; `/api` takes whole elements (`/`)",
    ),
    key("rewrite", true, "a path", "replaces the path that matched"),
    key("port", true, "a number", "port of the container; the only one that it exposes, otherwise 80"),
    key(
        "protocol",
        true,
        "`http`, `https`, `h2c`, `grpc`, `grpcs`, `fastcgi`, `uwsgi`, `scgi`",
        "protocol of the container (`http`)",
    ),
    key("weight", true, "1 to 65535", "share of requests among the containers of a host and path (1)"),
    key(
        "balance",
        true,
        "`round_robin`, `least_conn`, `ip_hash`, `hash ...`, `random ...`, `least_time ...`, `sticky ...`",
        "the directive of `upstream`",
    ),
    key("allow", true, "networks, `internal`, `all`", "clients; others get 403 (`all`)"),
    key(
        "https",
        true,
        "`redirect`, `both`, `only`, `off`",
        "use of HTTP and HTTPS by a host with a certificate (`redirect`)",
    ),
    key("certificate", true, "a name", "`NAME.crt` and `NAME.key` of the folder of certificates"),
    key("acme", true, "`true`, `false`, an address of mails", "the server orders a certificate for each host"),
    key("hsts", true, "`off`, a value", "`Strict-Transport-Security` of the host (`off`)"),
    key("root", true, "a folder", "scripts of FastCGI and SCGI in the container (`/var/www/public`)"),
    key("snippet", true, "directives", "directives of the location; with `--allow-snippets` only"),
];

/// Router of a container or service.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Empty for that of labels without a name.
    pub name: String,
    pub hosts: Vec<HostName>,
    pub path: PathMatch,
    pub port: Option<u16>,
    /// `None` for the weight of the source.
    pub weight: Option<u16>,
    pub settings: RouteSettings,
    pub host_settings: HostSettings,
}

/// Labels of a container or service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    pub enable: Option<bool>,
    pub network: Option<String>,
    pub routers: Vec<Router>,
    /// Names of routers, or nothing, with the reason of a complaint.
    pub problems: Vec<(String, String)>,
}

/// Reads labels; those without [`PREFIX`] belong to others.
pub fn read_labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, allows_snippets: bool) -> Labels {
    let mut found = Labels::default();
    let mut routers: BTreeMap<&str, BTreeMap<&'static str, &str>> = BTreeMap::new();
    for (label, value) in labels {
        let Some(rest) = label.strip_prefix(PREFIX) else { continue };
        let (name, word) = rest.rsplit_once('.').unwrap_or(("", rest));
        if value.len() > values::VALUE_BYTES_MAX {
            let reason = format!("{}: a value longer than {} bytes", shown(label), values::VALUE_BYTES_MAX);
            found.problems.push((name.to_owned(), reason));
            continue;
        }
        let key = KEYS.iter().find(|key| key.name == word && (name.is_empty() || key.is_of_router));
        match key {
            None => found.problems.push((String::new(), unknown(label, name, word))),
            Some(_) if !is_router_name(name) => {
                let reason =
                    format!("{}: names of routers have letters, digits, hyphens and underscores", shown(label));
                found.problems.push((String::new(), reason));
            }
            Some(key) if key.name == "enable" => match values::parse_switch(value) {
                Ok(value) => found.enable = Some(value),
                Err(reason) => {
                    // The container was meant to be switched: not served is the safe side.
                    found.enable = Some(false);
                    found.problems.push((String::new(), format!("{}: {reason}", shown(label))));
                }
            },
            Some(key) if key.name == "network" => found.network = Some(value.trim().to_owned()),
            Some(key) => {
                routers.entry(name).or_default().insert(key.name, value);
            }
        }
    }
    if routers.len() > ROUTERS_MAX {
        found.problems.push((String::new(), format!("more than {ROUTERS_MAX} routers")));
    }
    for (name, values) in routers.into_iter().take(ROUTERS_MAX) {
        let mut problems = Vec::new();
        found.routers.extend(router(name, &values, allows_snippets, &mut problems));
        found.problems.extend(problems.into_iter().map(|reason| (name.to_owned(), reason)));
    }
    found
}

fn is_router_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Returns a label for a message.
fn shown(label: &str) -> String {
    label.chars().take(128).collect::<String>().escape_debug().to_string()
}

fn unknown(label: &str, name: &str, word: &str) -> String {
    let candidates = || KEYS.iter().filter(|key| name.is_empty() || key.is_of_router).map(|key| key.name);
    let near = nearest_word(word, candidates()).or_else(|| candidates().find(|known| *known == word));
    let hint = match (near, name) {
        (None, _) => String::new(),
        (Some(near), "") => format!(": did you mean \"{PREFIX}{near}\"?"),
        (Some(near), name) => format!(": did you mean \"{PREFIX}{}.{near}\"?", shown(name)),
    };
    format!("unknown label \"{}\"{hint}", shown(label))
}

/// Reads one router; `None` if it is left out.
fn router(
    name: &str,
    texts: &BTreeMap<&'static str, &str>,
    allows_snippets: bool,
    problems: &mut Vec<String>,
) -> Option<Router> {
    let text = |key: &str| texts.get(key).copied();
    let label = |key: &str| if name.is_empty() { format!("{PREFIX}{key}") } else { format!("{PREFIX}{name}.{key}") };
    let Some(hosts) = text("host") else {
        problems.push(format!("left out, since there is no label \"{}\"", label("host")));
        return None;
    };
    let mut is_valid = true;
    let mut fails = |key: &str, reason: String| {
        problems.push(format!("{}: {reason}", label(key)));
        is_valid = false;
    };
    let mut host_names = Vec::new();
    for host in host_list(hosts) {
        match HostName::parse_server_name(host) {
            Ok(host) if !host_names.contains(&host) => host_names.push(host),
            Ok(_) => {}
            Err(reason) => fails("host", reason),
        }
    }
    let mut settings = RouteSettings::default();
    let mut host_settings = HostSettings::default();
    macro_rules! read {
        ($key:literal, $read:expr, $place:expr) => {
            if let Some(text) = text($key) {
                match $read(text) {
                    Ok(value) => $place = value,
                    Err(reason) => fails($key, reason),
                }
            }
        };
    }
    let some = |result: Result<String, String>| result.map(Some);
    let mut path = PathMatch::Prefix("/".into());
    let (mut port, mut weight) = (None, None);
    read!("path", |text| values::parse_path(text, true), path);
    read!("rewrite", |text| values::parse_rewrite(text, &path), settings.rewrite);
    read!("port", |text| values::parse_port(text).map(Some), port);
    read!("protocol", |text| values::parse_word(text, EndpointProtocol::WORDS), settings.protocol);
    read!("weight", |text| values::parse_port(text).map(Some).map_err(|_| no_weight(text)), weight);
    read!("balance", values::parse_balance, settings.group);
    read!("allow", values::parse_networks, settings.allow);
    read!("https", |text| values::parse_word(text, HttpsMode::WORDS).map(Some), host_settings.https);
    read!("certificate", certificate, host_settings.certificate);
    read!("acme", acme, host_settings.acme);
    read!("hsts", |text| some(values::parse_hsts(text)), host_settings.hsts);
    read!("root", |text| some(values::parse_folder(text)), settings.root);
    match text("snippet") {
        Some(_) if !allows_snippets => fails("snippet", "snippets are not allowed (--allow-snippets)".into()),
        Some(text) => match parse_location_snippet(text) {
            Ok(nodes) => settings.snippet = nodes,
            Err(reason) => fails("snippet", reason),
        },
        None => {}
    }
    if let Some(reason) = rewrite_problem(settings.protocol, &path).filter(|_| !settings.rewrite.is_empty()) {
        fails("rewrite", reason.into());
    }
    if host_names.is_empty() {
        fails("host", "names no host".into());
    }
    if !is_valid {
        problems.push("left out".into());
        return None;
    }
    Some(Router { name: name.to_owned(), hosts: host_names, path, port, weight, settings, host_settings })
}

/// Splits a list of hosts. A regular expression goes to the end of the list: it may contain commas.
pub(crate) fn host_list(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if rest.starts_with('~') {
            found.push(rest);
            break;
        }
        let (host, behind) = rest.split_once(',').unwrap_or((rest, ""));
        found.extend(host.split_whitespace());
        rest = behind.trim_start();
    }
    found
}

/// Returns the reason for which requests of a path cannot be rewritten for a protocol, if there is one.
pub(crate) fn rewrite_problem(protocol: EndpointProtocol, path: &PathMatch) -> Option<&'static str> {
    match protocol {
        EndpointProtocol::Http | EndpointProtocol::Https => None,
        EndpointProtocol::Http2 | EndpointProtocol::Grpc | EndpointProtocol::Grpcs
            if matches!(path, PathMatch::Prefix(_)) =>
        {
            None
        }
        EndpointProtocol::Http2 | EndpointProtocol::Grpc | EndpointProtocol::Grpcs => {
            Some("with h2c, grpc and grpcs, only a path of whole elements has one")
        }
        EndpointProtocol::FastCgi | EndpointProtocol::Uwsgi | EndpointProtocol::Scgi => {
            Some("only http, https, h2c, grpc and grpcs have one")
        }
    }
}

fn no_weight(text: &str) -> String {
    format!("\"{}\" is no weight from 1 to 65535", text.escape_debug())
}

fn certificate(text: &str) -> Result<Option<String>, String> {
    match text.trim() {
        "" => Err("an empty name".into()),
        name if name.starts_with('.') || name.contains(['/', '\0']) => Err("a name of a file, without a folder".into()),
        name => Ok(Some(name.to_owned())),
    }
}

fn acme(text: &str) -> Result<Option<Option<String>>, String> {
    match values::parse_switch(text) {
        Ok(true) => Ok(Some(None)),
        Ok(false) => Ok(None),
        Err(_) => values::parse_mail(text).map(|mail| Some(Some(mail))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_pairs(pairs: &[(&str, &str)]) -> Labels {
        read_labels(pairs.iter().copied(), true)
    }

    #[test]
    fn labels_without_a_name_are_one_router() {
        let labels = read_pairs(&[
            ("tidegate.host", "A.example.com, *.b.example.com"),
            ("tidegate.port", "8080"),
            ("com.example.other", "x"),
        ]);
        assert_eq!(labels.problems, []);
        let [router] = labels.routers.as_slice() else { panic!("{labels:?}") };
        let hosts = [HostName::Exact("a.example.com".into()), HostName::Wildcard("b.example.com".into())];
        assert_eq!((router.hosts.as_slice(), router.port), (hosts.as_slice(), Some(8080)));
        assert_eq!(router.path, PathMatch::Prefix("/".into()));
    }

    #[test]
    fn names_separate_routers() {
        let labels = read_pairs(&[
            ("tidegate.api.host", "a.test"),
            ("tidegate.api.path", "/api"),
            ("tidegate.web.host", "a.test"),
            ("tidegate.web.protocol", "grpc"),
        ]);
        assert_eq!(labels.problems, []);
        let names: Vec<&str> = labels.routers.iter().map(|router| router.name.as_str()).collect();
        assert_eq!(names, ["api", "web"]);
        assert_eq!(labels.routers[1].settings.protocol, EndpointProtocol::Grpc);
    }

    #[test]
    fn an_unknown_label_names_the_nearest_one() {
        for (label, hint) in [
            ("tidegate.hots", "did you mean \"tidegate.host\"?"),
            ("tidegate.api.pth", "did you mean \"tidegate.api.path\"?"),
            ("tidegate.middleware", "unknown label \"tidegate.middleware\""),
            ("tidegate.api.enable", "unknown label"),
        ] {
            let labels = read_pairs(&[(label, "x"), ("tidegate.host", "a.test")]);
            assert_eq!(labels.routers.len(), 1, "the router stays");
            assert!(labels.problems.iter().any(|(_, reason)| reason.contains(hint)), "{:?}", labels.problems);
        }
    }

    #[test]
    fn an_invalid_value_leaves_its_router_out() {
        for (key, value) in [
            ("allow", "10.0.0.0/99"),
            ("port", "0"),
            ("protocol", "ftp"),
            ("weight", "many"),
            ("path", "api"),
            ("https", "maybe"),
            ("certificate", "../x"),
            ("hsts", "a\nb"),
            ("balance", "server 1"),
            ("snippet", "include /etc/passwd;"),
            ("rewrite", "x"),
            ("acme", "x y"),
            ("root", "www"),
            ("host", "a b..c"),
        ] {
            let label = format!("tidegate.x.{key}");
            let mut pairs = vec![("tidegate.x.host", "a.test"), ("tidegate.y.host", "b.test")];
            pairs.retain(|(known, _)| *known != label);
            pairs.push((&label, value));
            let labels = read_pairs(&pairs);
            let names: Vec<&str> = labels.routers.iter().map(|router| router.name.as_str()).collect();
            assert_eq!(names, ["y"], "{label}");
            assert!(labels.problems.iter().any(|(_, reason)| reason.starts_with(&label)), "{:?}", labels.problems);
        }
    }

    #[test]
    fn snippets_are_off_by_default() {
        let pairs = [("tidegate.host", "a.test"), ("tidegate.snippet", "add_header X-A b;")];
        let labels = read_labels(pairs.into_iter(), false);
        assert_eq!(labels.routers, []);
        assert!(labels.problems[0].1.contains("--allow-snippets"), "{:?}", labels.problems);
    }

    #[test]
    fn a_regular_expression_ends_a_list() {
        assert_eq!(host_list("a.test, b.test ,~^x{1,3}\\.test$"), ["a.test", "b.test", "~^x{1,3}\\.test$"]);
    }

    #[test]
    fn each_key_is_read() {
        let valid = |key: &str| match key {
            "host" => "a.test",
            "path" | "rewrite" | "root" => "/x",
            "port" | "weight" => "7",
            "protocol" => "grpcs",
            "balance" => "least_conn",
            "allow" => "internal",
            "https" => "both",
            "certificate" => "shared",
            "acme" => "a@b.test",
            "hsts" => "max-age=1",
            "snippet" => "add_header X-A b;",
            key => panic!("{key} has no value here"),
        };
        let plain = read_pairs(&[("tidegate.host", "z.test")]).routers.remove(0);
        for key in KEYS.iter().filter(|key| key.is_of_router) {
            let label = format!("{PREFIX}{}", key.name);
            let labels = read_pairs(&[("tidegate.host", "z.test"), (&label, valid(key.name))]);
            let routers = match key.name {
                "host" => read_pairs(&[(&label, "a.test")]).routers,
                _ => labels.routers,
            };
            assert_ne!(routers.as_slice(), std::slice::from_ref(&plain), "{} has no effect", key.name);
            assert_eq!(routers.len(), 1, "{} {:?}", key.name, labels.problems);
        }
    }
}
