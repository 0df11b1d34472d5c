//! realip (nginx: `ngx_stream_realip_module`): the client's address as a trusted proxy's PROXY protocol header reports it.

use crate::Builtin;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler};
use crate::session::StreamSession;
use crate::variables;
use ::variables::forwarded::{self, TrustedNetwork};
use area::real_ip::From;
use conf_schema::value::ValueList;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

directives! {
    pub struct RealipConf from RealipInput {
        /// Trusted proxies: an address, a network, a host name, or `unix:`.
        set_real_ip_from: ValueList<From>,
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("realip_remote_addr", remote_addr, "The address of the connection itself."),
    Builtin::one("realip_remote_port", remote_port, "The port of the connection itself."),
];

fn original(s: &StreamSession) -> Option<SocketAddr> {
    s.replaced.unwrap_or(s.peer)
}

fn remote_addr(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    match original(s) {
        Some(address) => write!(out, "{}", address.ip()).is_ok(),
        None => write!(out, "unix:").is_ok(),
    }
}

fn remote_port(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    original(s)
        .map(|a| a.port())
        .filter(|port| *port > 0)
        .is_none_or(|port| variables::write_number(out, u64::from(port)))
}

pub struct Realip;

impl Feature for Realip {
    fn table(&self) -> FeatureTable {
        RealipConf::table("realip", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RealipConf>() else { return Ok(()) };
        if let Some(from) = &conf.set_real_ip_from {
            let proxies = from.0.iter().flat_map(|from| from.0.iter().copied()).collect();
            block.server.post_accept.push(Arc::new(Replace(proxies)));
        }
        Ok(())
    }
}

struct Replace(Vec<TrustedNetwork>);

impl Handler for Replace {
    fn run(&self, s: &mut StreamSession) -> Flow {
        let named = s.proxy.as_ref().and_then(|proxy| proxy.0.addresses.as_ref()).map(|a| a.source);
        if let Some(client) = named
            && forwarded::is_trusted(&self.0, s.peer.map(|a| a.ip()))
        {
            s.replaced = Some(s.peer.replace(client));
        }
        Flow::Declined
    }
}
