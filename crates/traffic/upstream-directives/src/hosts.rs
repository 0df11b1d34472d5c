//! Servers of a host in the configuration or a request.

use super::groups::{self, AreaGroups, UpstreamRef};
use area::host_port::host_and_port;
use conf_schema::{Cx, Problem};
use net::Address;
use resolver::ResolveRules;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use upstream::names::NameTask;
use upstream::{BalanceMethod, Group, KeepAlive, PeerSpec, ServerLine};

/// Group of a host's addresses. An unresolved name has no servers: requests get 502 until it resolves.
fn implied(host: &str) -> Result<Group, String> {
    let line = ServerLine { spec: PeerSpec::new(host, Address::Unix("".into())), source: groups::server_source(host)? };
    Ok(Group::new(host, vec![line], BalanceMethod::RoundRobin, KeepAlive::none(), false))
}

/// Host with its scheme's port, unless given or 80.
fn with_port(host: &str, default_port: u16) -> Cow<'_, str> {
    match host_and_port(host) {
        Ok((_, None)) if default_port != 80 && !host.starts_with("unix:") => format!("{host}:{default_port}").into(),
        _ => host.into(),
    }
}

/// Servers of a configured host: a group of that name, or its addresses.
pub fn bind_host<R: 'static>(cx: &mut Cx, host: &str, default_port: u16) -> Result<UpstreamRef<R>, Problem> {
    if let Some(named) = cx.get::<AreaGroups<R>>().get(host) {
        return Ok(named.clone());
    }
    if let Ok((name, Some(port))) = host_and_port(host)
        && cx.get::<AreaGroups<R>>().get(name).is_some()
    {
        return Err(Problem::says(format!("upstream \"{name}\" may not have port {port}")).at(0));
    }
    let wrong = |why: &str| Problem::says(format!("{why} in upstream \"{host}\"")).at(0);
    if default_port == 0 && !host.starts_with("unix:") && matches!(host_and_port(host), Ok((_, None))) {
        return Err(
            wrong("no port").hint("no \"upstream\" has this name, and the address has no port (as in HOST:9000)")
        );
    }
    let with_port = &*with_port(host, default_port);
    let group = implied(with_port).map_err(|why| wrong(&why))?;
    let host = with_port;
    let named = UpstreamRef::plain(Arc::new(group));
    let groups = cx.get::<AreaGroups<R>>();
    let (group, timeout) = (named.group.clone(), Duration::from_secs(30));
    groups.names.keep(NameTask { group, resolver: None, timeout });
    groups.imply(host, &named);
    Ok(named)
}

/// Servers of a session's host; `resolving`: the block's resolver.
pub async fn named_host<R>(
    groups: &AreaGroups<R>,
    resolving: Option<ResolveRules>,
    host: &str,
    default_port: u16,
) -> Result<UpstreamRef<R>, NoTarget> {
    if let Some(named) = groups.get(host) {
        return Ok(named.clone());
    }
    if default_port == 0 && !host.starts_with("unix:") && matches!(host_and_port(host), Ok((_, None))) {
        return Err(NoTarget { words: format!("no port in upstream \"{host}\""), status: 500 });
    }
    let host = &*with_port(host, default_port);
    match groups.implied(host) {
        Some(named) => Ok(named),
        None => Ok(UpstreamRef::plain(Arc::new(found(resolving, host).await?))),
    }
}

#[derive(Debug)]
pub struct NoTarget {
    pub words: String,
    pub status: u16,
}

/// Servers of such a host: an address, or a resolved name.
async fn found(resolving: Option<ResolveRules>, text: &str) -> Result<Group, NoTarget> {
    let no_host = |why: &str| NoTarget { words: format!("{why} in upstream \"{text}\""), status: 500 };
    if text.starts_with("unix:") {
        return implied(text).map_err(|why| no_host(&why));
    }
    let (host, port) = host_and_port(text).map_err(no_host)?;
    let port = port.unwrap_or(80);
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let is_v6 = host.starts_with('[');
    let addresses: Vec<IpAddr> = match bare.parse::<IpAddr>() {
        Ok(ip) if !is_v6 || ip.is_ipv6() => vec![ip],
        _ if is_v6 => return Err(no_host("invalid IPv6 address")),
        _ => {
            let Some(ResolveRules { resolver, timeout }) = resolving else {
                return Err(NoTarget { words: format!("no resolver defined to resolve {host}"), status: 502 });
            };
            let found = resolver.resolve(host, timeout).await.map_err(|why| NoTarget {
                words: format!("{host} could not be resolved ({}: {why})", why.code()),
                status: 502,
            })?;
            found.to_vec()
        }
    };
    let all = addresses.iter().map(|ip| Address::Ip(SocketAddr::new(*ip, port))).collect();
    Ok(Group::fleeting(text, all))
}
