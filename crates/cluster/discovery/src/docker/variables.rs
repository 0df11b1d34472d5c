//! Environment variables of containers, with the meaning that nginx-proxy and acme-companion give them.

use cluster_model::{HostName, PathMatch};

use super::container::Container;
use super::multiports;
use crate::labels::{Router, host_list, rewrite_problem};
use crate::routes::{EndpointProtocol, HostSettings, HttpsMode, RouteSettings};
use crate::values;

/// Labels of nginx-proxy.
const LABEL_PREFIX: &str = "com.github.nginx-proxy.nginx-proxy.";
/// `Strict-Transport-Security` by default.
const HSTS: &str = "max-age=31536000";
/// Folder of FastCGI scripts by default.
pub(crate) const ROOT: &str = "/var/www/public";

/// Treatment of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableUse {
    Supported,
    /// A complaint names the variable, and says why or what to use instead.
    Ignored(&'static str),
}

use VariableUse::{Ignored, Supported};

/// Variables of containers that have `VIRTUAL_HOST` or `VIRTUAL_HOST_MULTIPORTS`.
pub const VARIABLES: &[(&str, VariableUse)] = &[
    ("VIRTUAL_HOST", Supported),
    ("VIRTUAL_HOST_MULTIPORTS", Supported),
    ("VIRTUAL_PORT", Supported),
    ("VIRTUAL_PATH", Supported),
    ("VIRTUAL_DEST", Supported),
    ("VIRTUAL_PROTO", Supported),
    ("VIRTUAL_ROOT", Supported),
    ("CERT_NAME", Supported),
    ("HTTPS_METHOD", Supported),
    ("HSTS", Supported),
    ("NETWORK_ACCESS", Supported),
    ("LETSENCRYPT_HOST", Supported),
    ("LETSENCRYPT_EMAIL", Supported),
    ("ACME_HTTP_CHALLENGE_LOCATION", Ignored("the server answers challenges itself, on port 80")),
    ("ACME_CA_URI", Ignored("--acme-directory sets the authority of all containers")),
    ("ACME_EAB_KID", Ignored("the account of --acme-state has no external binding")),
    ("LETSENCRYPT_TEST", Ignored("--acme-directory sets the authority of all containers")),
    ("LETSENCRYPT_KEYSIZE", Ignored("keys are ECDSA P-256")),
    ("LETSENCRYPT_SINGLE_DOMAIN_CERTS", Ignored("each host has its own certificate")),
    ("LETSENCRYPT_RESTART_CONTAINER", Ignored("containers are not restarted")),
    ("LETSENCRYPT_MIN_VALIDITY", Ignored("certificates are renewed after two thirds of their life")),
    ("SSL_POLICY", Ignored("the server's protocols and ciphers are those of all hosts")),
    ("SERVER_TOKENS", Ignored("server_tokens is off")),
    ("EXTERNAL_HTTP_PORT", Ignored("--http-port sets the port of all hosts")),
    ("EXTERNAL_HTTPS_PORT", Ignored("--https-port sets the port of all hosts")),
    ("ENABLE_HTTP_ON_MISSING_CERT", Ignored("a host without a certificate is served over HTTP")),
];

/// Routers of a container's variables.
#[derive(Debug, Default)]
pub struct VariableRouters {
    pub routers: Vec<Router>,
    /// Reasons of complaints.
    pub problems: Vec<String>,
}

/// Path of a host of `VIRTUAL_HOST_MULTIPORTS`, or the only one of `VIRTUAL_HOST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualPath {
    pub host: String,
    pub path: String,
    pub port: Option<String>,
    pub protocol: String,
    pub dest: String,
}

/// Reads the variables of a container.
pub fn read_container(container: &Container) -> VariableRouters {
    let mut found = VariableRouters::default();
    let paths = match (container.variable("VIRTUAL_HOST_MULTIPORTS"), container.variable("VIRTUAL_HOST")) {
        (Some(text), _) => match multiports::read_multiports(text, &mut found.problems) {
            Ok(paths) => paths,
            Err(reason) => {
                found.problems.push(format!("VIRTUAL_HOST_MULTIPORTS: {reason}"));
                return found;
            }
        },
        (None, Some(text)) => host_list(text).into_iter().map(|host| virtual_path(container, host)).collect(),
        (None, None) => return found,
    };
    for (name, treatment) in VARIABLES {
        if let (Ignored(reason), Some(_)) = (treatment, container.variable(name)) {
            found.problems.push(format!("{name} is not supported: {reason}"));
        }
    }
    let shared = match CommonSettings::read(container, &mut found.problems) {
        Ok(shared) => shared,
        Err(reason) => {
            found.problems.push(format!("{reason}; left out"));
            return found;
        }
    };
    let mut hosts: Vec<String> = Vec::new();
    for path in &paths {
        match router(path, &shared, &mut found.problems) {
            Ok(router) => found.routers.push(router),
            Err(reason) => found.problems.push(format!("{reason}; left out")),
        }
        hosts.push(path.host.to_ascii_lowercase());
    }
    for name in shared.acme_hosts.iter().filter(|name| !hosts.contains(name)) {
        let name = name.escape_debug();
        found.problems.push(format!("LETSENCRYPT_HOST: \"{name}\" is no host of the container"));
    }
    found
}

fn virtual_path(container: &Container, host: &str) -> VirtualPath {
    let text = |name: &str, default: &str| container.variable(name).unwrap_or(default).to_owned();
    VirtualPath {
        host: host.to_owned(),
        path: text("VIRTUAL_PATH", "/"),
        port: container.variable("VIRTUAL_PORT").map(str::to_owned),
        protocol: text("VIRTUAL_PROTO", "http"),
        dest: text("VIRTUAL_DEST", ""),
    }
}

/// Settings of all hosts and paths of a container.
struct CommonSettings {
    settings: RouteSettings,
    host_settings: HostSettings,
    /// In lower case.
    acme_hosts: Vec<String>,
    contact: Option<String>,
}

impl CommonSettings {
    /// # Errors
    /// If a value is invalid without which paths would be open to too many clients.
    fn read(container: &Container, problems: &mut Vec<String>) -> Result<CommonSettings, String> {
        let mut settings = RouteSettings { root: Some(ROOT.into()), ..RouteSettings::default() };
        let mut host_settings = HostSettings { default_hsts: Some(HSTS.into()), ..HostSettings::default() };
        let mut note = |name: &str, reason: String| problems.push(format!("{name}: {reason}"));
        match container.variable("NETWORK_ACCESS") {
            None | Some("external") => {}
            Some("internal") => settings.allow = values::parse_networks("internal")?,
            Some(other) => {
                return Err(format!("NETWORK_ACCESS: \"{}\" is neither internal nor external", other.escape_debug()));
            }
        }
        if let Some(text) = container.variable("VIRTUAL_ROOT") {
            match values::parse_folder(text) {
                Ok(folder) => settings.root = Some(folder),
                Err(reason) => note("VIRTUAL_ROOT", reason),
            }
        }
        if let Some(text) = container.variable("HTTPS_METHOD") {
            match values::parse_word(text, HttpsMode::WORDS) {
                Ok(mode) => host_settings.https = Some(mode),
                Err(reason) => note("HTTPS_METHOD", reason),
            }
        }
        if let Some(text) = container.variable("HSTS") {
            match values::parse_hsts(text) {
                Ok(value) => host_settings.hsts = Some(value),
                Err(reason) => note("HSTS", reason),
            }
        }
        host_settings.certificate = container.variable("CERT_NAME").map(str::to_owned);
        let mut kept = Vec::new();
        for (label, value) in container.label_pairs() {
            let Some(name) = label.strip_prefix(LABEL_PREFIX) else { continue };
            let (place, nodes) = match name {
                "loadbalance" => (&mut settings.group, values::parse_balance(value)),
                "keepalive" => (&mut kept, values::parse_keepalive(value)),
                // Names the server's container for docker-gen.
                "nginx" => continue,
                _ => (&mut kept, Err("the label is not supported".into())),
            };
            match nodes {
                Ok(nodes) => place.extend(nodes),
                Err(reason) => note(label, reason),
            }
        }
        // Kept connections stand behind the way of balancing.
        settings.group.extend(kept);
        let contact = match container.variable("LETSENCRYPT_EMAIL").map(values::parse_mail) {
            None => None,
            Some(Ok(mail)) => Some(mail),
            Some(Err(reason)) => {
                note("LETSENCRYPT_EMAIL", reason);
                None
            }
        };
        let acme_hosts = container.variable("LETSENCRYPT_HOST").unwrap_or("");
        let acme_hosts = values::split_list(acme_hosts).map(str::to_ascii_lowercase).collect();
        Ok(CommonSettings { settings, host_settings, acme_hosts, contact })
    }
}

fn router(path: &VirtualPath, shared: &CommonSettings, problems: &mut Vec<String>) -> Result<Router, String> {
    let host = HostName::parse_server_name(&path.host).map_err(|reason| format!("VIRTUAL_HOST: {reason}"))?;
    let location: PathMatch =
        values::parse_path(&path.path, false).map_err(|reason| format!("VIRTUAL_PATH: {reason}"))?;
    let port = path.port.as_deref().map(values::parse_port).transpose();
    let port = port.map_err(|reason| format!("VIRTUAL_PORT: {reason}"))?;
    let protocol = values::parse_word(&path.protocol, EndpointProtocol::WORDS)
        .map_err(|reason| format!("VIRTUAL_PROTO: {reason}"))?;
    let mut settings = RouteSettings { protocol, ..shared.settings.clone() };
    let rewritten = values::parse_rewrite(&path.dest, &location);
    settings.rewrite = rewritten.map_err(|reason| format!("VIRTUAL_DEST: {reason}"))?;
    if let Some(reason) = rewrite_problem(protocol, &location).filter(|_| !settings.rewrite.is_empty()) {
        problems.push(format!("VIRTUAL_DEST: {reason}"));
        settings.rewrite.clear();
    }
    let mut host_settings = shared.host_settings.clone();
    if shared.acme_hosts.contains(&path.host.to_ascii_lowercase()) {
        host_settings.acme = Some(shared.contact.clone());
    }
    let hosts = vec![host];
    Ok(Router { name: String::new(), hosts, path: location, port, weight: None, settings, host_settings })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read_variables(pairs: &[(&str, &str)]) -> VariableRouters {
        let environment: BTreeMap<String, String> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read_container(&Container { environment, ..Container::default() })
    }

    #[test]
    fn hosts_are_a_list_with_wildcards_and_expressions() {
        let found = read_variables(&[("VIRTUAL_HOST", "a.test, *.b.test,c.*,~^d\\d+\\.test$")]);
        let hosts: Vec<String> = found.routers.iter().map(|router| router.hosts[0].to_string()).collect();
        assert_eq!(hosts, ["a.test", "*.b.test", "c.*", "~^d\\d+\\.test$"]);
        assert_eq!(found.problems, Vec::<String>::new());
    }

    #[test]
    fn each_ignored_variable_is_named() {
        for (name, _) in VARIABLES.iter().filter(|(_, treatment)| matches!(treatment, Ignored(_))) {
            let found = read_variables(&[("VIRTUAL_HOST", "a.test"), (name, "x")]);
            assert_eq!(found.routers.len(), 1);
            assert!(found.problems[0].starts_with(&format!("{name} is not supported")), "{:?}", found.problems);
            assert_eq!(read_variables(&[(name, "x")]).problems, Vec::<String>::new(), "not without VIRTUAL_HOST");
        }
    }

    #[test]
    fn each_supported_variable_has_an_effect() {
        let plain = read_variables(&[("VIRTUAL_HOST", "a.test")]).routers;
        for (name, value) in [
            ("VIRTUAL_HOST", "b.test"),
            ("VIRTUAL_HOST_MULTIPORTS", "b.test:"),
            ("VIRTUAL_PORT", "7"),
            ("VIRTUAL_PATH", "/x"),
            ("VIRTUAL_DEST", "/"),
            ("VIRTUAL_PROTO", "https"),
            ("VIRTUAL_ROOT", "/srv"),
            ("CERT_NAME", "shared"),
            ("HTTPS_METHOD", "nohttp"),
            ("HSTS", "off"),
            ("NETWORK_ACCESS", "internal"),
            ("LETSENCRYPT_HOST", "A.test"),
        ] {
            let found = read_variables(&[("VIRTUAL_HOST", "a.test"), (name, value)]);
            let found = if name == "VIRTUAL_HOST" { read_variables(&[(name, value)]) } else { found };
            assert_ne!(found.routers, plain, "{name}");
            assert_eq!(found.problems, Vec::<String>::new());
        }
        let acme = [("VIRTUAL_HOST", "a.test"), ("LETSENCRYPT_HOST", "a.test"), ("LETSENCRYPT_EMAIL", "x@a.test")];
        assert_eq!(read_variables(&acme).routers[0].host_settings.acme, Some(Some("x@a.test".into())));
    }

    #[test]
    fn an_invalid_access_leaves_all_paths_out() {
        let found = read_variables(&[("VIRTUAL_HOST", "a.test"), ("NETWORK_ACCESS", "intern")]);
        assert_eq!(found.routers, []);
        assert!(found.problems[0].contains("left out"), "{:?}", found.problems);
    }

    #[test]
    fn invalid_values_are_named() {
        for (name, value) in [
            ("VIRTUAL_PORT", "80,81"),
            ("VIRTUAL_PATH", "x"),
            ("VIRTUAL_PROTO", "spdy"),
            ("VIRTUAL_DEST", "x"),
            ("HTTPS_METHOD", "x"),
            ("VIRTUAL_ROOT", "x"),
            ("LETSENCRYPT_EMAIL", "x"),
            ("LETSENCRYPT_HOST", "other.test"),
        ] {
            let found = read_variables(&[("VIRTUAL_HOST", "a.test"), (name, value)]);
            assert!(found.problems.iter().any(|reason| reason.starts_with(name)), "{name}: {:?}", found.problems);
        }
    }
}
