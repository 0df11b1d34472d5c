//! `resolver`: name resolution at run time.

use area::host_port::host_and_port;
use conf_schema::value::parse_sec;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use resolver::ResolveRules;
use resolver::{NameResolver, NameServer};
use std::marker::PhantomData;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Resolver of an area's outermost block, in `Cx`. `R` distinguishes the areas.
#[derive(Debug)]
pub struct AreaResolver<R> {
    pub resolving: Option<ResolveRules>,
    pub timeout: Option<Duration>,
    of: PhantomData<fn(R)>,
}

impl<R> Default for AreaResolver<R> {
    fn default() -> Self {
        AreaResolver { resolving: None, timeout: None, of: PhantomData }
    }
}

/// `resolver address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]`
#[derive(Clone)]
pub struct ResolverLine(pub Arc<NameResolver>);

impl ValueKind for ResolverLine {
    const SYNTAX: &'static str = "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut servers, mut valid, mut ipv4, mut ipv6, mut zone) = (Vec::new(), None, true, true, None);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid parameter: {text}")).at(index);
            let switch = |value: &str| match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(invalid()),
            };
            match text.split_once('=') {
                Some(("valid", value)) => {
                    let seconds = parse_sec(value.as_bytes()).ok_or_else(invalid)?;
                    valid = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                Some(("ipv4", value)) => ipv4 = switch(value)?,
                Some(("ipv6", value)) => ipv6 = switch(value)?,
                Some(("status_zone", name)) if !name.is_empty() => zone = Some(name.to_string()),
                Some(("status_zone", _)) => return Err(invalid()),
                // (nginx looks up words with other parameters as names, too.)
                _ => {
                    let found = nameserver(&text)
                        .map_err(|why| Problem::says(format!("{why} in resolver \"{text}\"")).at(index))?;
                    // As nginx, asks the system while reading the configuration; a worker uses the master's result.
                    if let NameServer::Named(host, port) = &found
                        && !(cx.store.replay || cx.store.elsewhere)
                        && (host.as_str(), *port).to_socket_addrs().is_err()
                    {
                        return Err(Problem::says(format!("host not found in resolver \"{text}\"")).at(index).hint(
                            match NOT_HOSTS.iter().find(|(word, _)| text.starts_with(word)) {
                                Some((_, hint)) => *hint,
                                None => "the system knows no host of this name; an address needs no look-up",
                            },
                        ));
                    }
                    servers.push(found);
                }
            }
        }
        if !ipv4 && !ipv6 {
            return Err(Problem::says("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
        }
        if servers.is_empty() {
            return Err(Problem::says("no name servers defined"));
        }
        let resolver = NameResolver::new(servers, valid, ipv4, ipv6);
        Ok(ResolverLine(Arc::new(match zone {
            Some(name) => resolver.counted_as(&name),
            None => resolver,
        })))
    }
}

/// Words mistaken for host names, and their meaning.
const NOT_HOSTS: [(&str, &str); 4] = [
    ("off", "remove the line: without a \"resolver\" directive, names are not resolved"),
    ("valid", "did you mean \"valid=TIME\"?"),
    ("ipv4", "did you mean \"ipv4=on\" or \"ipv4=off\"?"),
    ("ipv6", "did you mean \"ipv6=on\" or \"ipv6=off\"?"),
];

/// A name server: an address, or a name for the system.
fn nameserver(text: &str) -> Result<NameServer, &'static str> {
    if text == "unix:" {
        return Err("no path in the unix domain socket");
    }
    let (host, port) = host_and_port(text)?;
    let port = port.unwrap_or(53);
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    match bare.parse() {
        Ok(ip) => Ok(NameServer::Address(SocketAddr::new(ip, port))),
        Err(_) if host.starts_with('[') => Err("invalid IPv6 address"),
        Err(_) => Ok(NameServer::Named(host.into(), port)),
    }
}
