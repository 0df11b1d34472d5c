//! realip (nginx: `ngx_http_realip_module`): replaces the client's address by the one that trusted proxies report.

use area::real_ip::From;
use conf_schema::value::{Flag, Text, ValueList};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::forwarded::{self, TrustedNetwork};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, ClientConnection, Feature, Flow, Handler, HandlerOrder, Request};
use std::any::Any;
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

directives! {
    pub struct RealipConf from RealipInput {
        /// Field with the client's address: X-Real-IP, X-Forwarded-For, another one, or `proxy_protocol`.
        real_ip_header: Text = "X-Real-IP",
        /// Takes the last address in the field that is not a trusted proxy's, instead of the last one.
        real_ip_recursive: Flag = "off",
        /// Trusted proxies: an address, a network, a host name, or `unix:`.
        set_real_ip_from: ValueList<From>,
    }
}

enum AddressSource {
    /// First field of this name.
    First(Box<[u8]>),
    /// All `X-Forwarded-For` fields, as one list.
    Forwarded,
    ProxyProtocol,
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("realip_remote_addr", remote_addr, "The address of the connection itself."),
    Builtin::one("realip_remote_port", remote_port, "The port of the connection itself."),
];

/// The actual connection of a request with a replaced address.
struct Original(Rc<ClientConnection>);

fn original(r: &Request) -> Option<SocketAddr> {
    match r.shared::<Original>() {
        Some(original) => original.0.peer,
        None => r.connection().peer,
    }
}

fn remote_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match original(r) {
        Some(address) => write!(out, "{}", address.ip()).is_ok(),
        None => {
            out.extend_from_slice(b"unix:");
            true
        }
    }
}

fn remote_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Some(port) = original(r).map(|a| a.port()).filter(|port| *port > 0) {
        http_engine::head_out::write_number(u64::from(port), out);
    }
    true
}

pub struct Realip;

impl Feature for Realip {
    fn table(&self) -> FeatureTable {
        RealipConf::table("realip", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RealipConf>() else { return Ok(()) };
        let Some(from) = &conf.set_real_ip_from else { return Ok(()) };
        let place = match conf.real_ip_header.0.as_slice() {
            b"X-Forwarded-For" => AddressSource::Forwarded,
            b"proxy_protocol" => AddressSource::ProxyProtocol,
            name => AddressSource::First(name.into()),
        };
        let proxies = from.0.iter().flat_map(|from| from.0.iter().copied()).collect();
        let replace = Arc::new(Replace { place, proxies, recursive: conf.real_ip_recursive });
        block.handle(HandlerOrder::ServerRealip, replace.clone());
        block.handle(HandlerOrder::Realip, replace);
        Ok(())
    }
}

struct Replace {
    place: AddressSource,
    proxies: Vec<TrustedNetwork>,
    recursive: bool,
}

impl Replace {
    fn client(&self, r: &Request) -> Option<SocketAddr> {
        let peer = r.connection().peer;
        let named = |name: &[u8]| {
            let name = name.to_vec();
            r.headers().filter(move |(field, _)| field.eq_ignore_ascii_case(&name)).map(|(_, value)| value)
        };
        let lines: Vec<&[u8]> = match &self.place {
            AddressSource::First(name) => named(name).take(1).collect(),
            AddressSource::Forwarded => named(b"x-forwarded-for").collect(),
            AddressSource::ProxyProtocol => {
                let source = r.connection().proxy.as_ref()?.0.addresses.as_ref()?.source;
                return forwarded::is_trusted(&self.proxies, peer.map(|a| a.ip())).then_some(source);
            }
        };
        forwarded::forwarded_client(peer, lines.into_iter(), &self.proxies, self.recursive)
    }
}

impl Handler for Replace {
    fn run(&self, r: &mut Request) -> Flow {
        if r.shared::<Original>().is_none()
            && let Some(client) = self.client(r)
            && let Some(connection) = r.connection_rc()
        {
            r.set_connection(Rc::new(ClientConnection { peer: Some(client), ..(*connection).clone() }));
            r.share(Rc::new(Original(connection)));
        }
        Flow::Declined
    }
}
