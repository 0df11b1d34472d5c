//! Trusted proxies (`set_real_ip_from`).

use conf_schema::value::Cidr;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::net::ToSocketAddrs;
use variables::forwarded::TrustedNetwork;

/// One line of `set_real_ip_from`; a host name may have several addresses.
#[derive(Clone, Debug)]
pub struct From(pub Vec<TrustedNetwork>);

impl ValueKind for From {
    const SYNTAX: &'static str = "address | CIDR | unix: | hostname";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        if word.bytes == b"unix:" {
            return Ok(From(vec![TrustedNetwork::Unix]));
        }
        let text = word.text();
        if let Some((network, stray)) = Cidr::parse(&word.bytes) {
            if stray {
                cx.warn(d, format!("low address bits of {text} are meaningless"));
            }
            return Ok(From(vec![TrustedNetwork::Network(network)]));
        }
        let unknown = || Problem::says(format!("host not found in set_real_ip_from \"{text}\"")).at(0);
        let found = (&*text, 0).to_socket_addrs().map_err(|_| unknown())?;
        let hosts: Vec<TrustedNetwork> = found
            .filter_map(|address| Cidr::parse(address.ip().to_string().as_bytes()))
            .map(|(host, _)| TrustedNetwork::Network(host))
            .collect();
        if hosts.is_empty() { Err(unknown()) } else { Ok(From(hosts)) }
    }
}
