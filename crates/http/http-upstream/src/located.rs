//! Client address for geographic databases, also behind trusted proxies.

use conf_schema::value::Cidr;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::Request;
use http_engine::forwarded::{self, TrustedNetwork};
use std::net::IpAddr;

/// `geoip_proxy` and its siblings: addresses whose `X-Forwarded-For` counts.
#[derive(Clone, Debug)]
pub struct Proxies(pub Vec<TrustedNetwork>);

impl ValueKind for Proxies {
    const SYNTAX: &'static str = "address | CIDR";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        let text = word.text();
        let Some((network, stray)) = Cidr::parse(&word.bytes) else {
            return Err(Problem::says(format!("invalid network \"{text}\"")).at(0));
        };
        if stray {
            cx.warn(d, format!("low address bits of {text} are meaningless"));
        }
        Ok(Proxies(vec![TrustedNetwork::Network(network)]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Returns `None` for a client of a UNIX-domain socket.
pub fn client_address(r: &Request, proxies: &[TrustedNetwork], recursive: bool) -> Option<IpAddr> {
    let peer = r.connection().peer;
    if proxies.is_empty() {
        return peer.map(|peer| peer.ip());
    }
    let lines: Vec<&[u8]> =
        r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"x-forwarded-for")).map(|(_, v)| v).collect();
    forwarded::forwarded_client(peer, lines.into_iter(), proxies, recursive).or(peer).map(|address| address.ip())
}
