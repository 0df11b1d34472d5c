//! ssl_preread (nginx: `ngx_stream_ssl_preread_module`): version, server name and protocols of a ClientHello, without
//! answering it.

mod hello;

use crate::Builtin;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, LookedUp, Preread};
use crate::session::StreamSession;
use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
pub use hello::{Hello, HelloResult, read_hello};
use std::any::Any;
use std::sync::Arc;
use variables::names::valid_host;

directives! {
    pub struct PrereadConf from PrereadInput {
        /// Reads the TLS ClientHello in the preread phase, for the variables `$ssl_preread_...`.
        ssl_preread: Flag = "off",
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("ssl_preread_protocol", protocol, "The highest version of TLS that the client offers."),
    Builtin::one("ssl_preread_server_name", server_name, "The server name that the client requests (SNI)."),
    Builtin::one(
        "ssl_preread_alpn_protocols",
        alpn_protocols,
        "The protocols that the client offers, separated by commas (ALPN).",
    ),
];

fn protocol(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<Hello>().map(|hello| out.extend_from_slice(hello.protocol().as_bytes())).is_some()
}

fn server_name(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<Hello>().map(|hello| out.extend_from_slice(&hello.server_name)).is_some()
}

fn alpn_protocols(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<Hello>().map(|hello| out.extend_from_slice(&hello.alpn)).is_some()
}

pub struct SslPreread;

impl Feature for SslPreread {
    fn table(&self) -> FeatureTable {
        PrereadConf::table("ssl_preread", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<PrereadConf>().is_some_and(|conf| conf.ssl_preread) {
            block.server.preread.push(Arc::new(HelloLook));
        }
        Ok(())
    }
}

struct HelloLook;

impl Preread for HelloLook {
    fn look(&self, s: &mut StreamSession, bytes: Option<&[u8]>) -> LookedUp {
        if s.udp {
            return LookedUp::Flow(Flow::Declined);
        }
        let Some(bytes) = bytes else { return LookedUp::More };
        match read_hello(bytes) {
            HelloResult::More => {
                // The variables exist, empty, from the start.
                if s.ext::<Hello>().is_none() {
                    s.keep(Hello::default());
                }
                LookedUp::More
            }
            HelloResult::NotOne => {
                s.forget::<Hello>();
                LookedUp::Flow(Flow::Declined)
            }
            HelloResult::Hello(hello) => {
                let name = valid_host(&hello.server_name);
                s.keep(hello);
                let plan = s.plan.clone();
                if let (Some(name), Some(listener)) = (name, plan.listeners.get(s.listener)) {
                    match listener.names.find(&name, s) {
                        Ok(Some(server)) => s.server = server,
                        Ok(None) => {}
                        Err(_) => return LookedUp::Flow(Flow::End(500)),
                    }
                }
                LookedUp::Flow(Flow::Done)
            }
        }
    }
}
