//! Addresses of other servers, in annotations: a Service of the cluster is reached by its group, so that no name has to be
//! resolved when the server starts.

use cluster_model::GroupName;
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::services::Services;
use crate::template::template;

/// Way to another server.
pub(crate) struct Way {
    pub lines: Vec<WriteNode>,
    pub group: Option<GroupName>,
    /// Host of the address, without its port.
    pub host: String,
}

/// Returns the lines that pass a request to an address.
///
/// # Errors
/// If a variable does not exist, or the name has to be resolved while the server runs and it cannot.
pub(crate) fn way(
    url: &str,
    variable: &'static str,
    variables: &[String],
    has_resolver: bool,
    services: &mut Services<'_>,
) -> Result<Way, String> {
    let argument = template(url, variables)?;
    let (scheme, rest) = url.split_once("://").ok_or_else(|| "an address without http:// or https://".to_owned())?;
    let end = rest.find(['/', '?', '$']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let has_variable_host =
        path.starts_with('$') && !path.starts_with("$request_uri") && !path.starts_with("$uri") || authority.is_empty();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, port.parse().ok())
        }
        _ => (authority, None),
    };
    let port = port.unwrap_or(if scheme == "https" { 443 } else { 80 });
    if !has_variable_host && let Some(target) = services.of_host(host, port) {
        let address = template(&format!("{scheme}://{}{path}", target.group), variables)?;
        let mut lines = Vec::new();
        if scheme == "https" {
            lines.push(NewDirective::new("proxy_ssl_server_name").arg("on").into());
            lines.push(NewDirective::new("proxy_ssl_name").arg(Argument::literal(host)).into());
        }
        lines.push(NewDirective::new("proxy_pass").arg(address).into());
        return Ok(Way { lines, group: Some(target.group), host: host.to_owned() });
    }
    let is_address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() && !has_variable_host;
    if !is_address && !has_resolver {
        return Err(format!("\"{}\" is no Service here, and other names need --resolver", authority.escape_debug()));
    }
    let lines = vec![
        NewDirective::new("set").arg(Argument::variable(variable)).arg(argument).into(),
        NewDirective::new("proxy_ssl_server_name").arg("on").into(),
        NewDirective::new("proxy_pass").arg(Argument::variable(variable)).into(),
    ];
    Ok(Way { lines, group: None, host: host.to_owned() })
}
