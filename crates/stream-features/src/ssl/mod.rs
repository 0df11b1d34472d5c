//! ssl (nginx: `ngx_stream_ssl_module`): client connections over TLS; see `tls_directives`.

use crate::Builtin;
use crate::area::StreamArea;
use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::plan::{StreamPlan, Tls};
use conf_schema::value::Msec;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use std::any::Any;
use std::sync::Arc;
use tls_directives as shared;
use tls_directives::server_tls_directives;
use tls_directives::{Stapler, report};

server_tls_directives! {
    pub struct SslConf from SslInput, StreamArea;
    own {
        /// Maximum duration of the TLS handshake.
        ssl_handshake_timeout: Msec = "60s",
        /// Protocols offered to clients by ALPN.
        ssl_alpn: Alpn,
    }
}

#[derive(Clone, Debug)]
pub struct Alpn(Vec<Vec<u8>>);

impl ValueKind for Alpn {
    const SYNTAX: &'static str = "protocol ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let all: Vec<Vec<u8>> = d.args.iter().map(|word| word.bytes.clone()).collect();
        match all.iter().position(|name| name.len() > 255) {
            Some(_) => Err(Problem::directive("protocol too long")),
            None => Ok(Alpn(all)),
        }
    }
}

/// Octets of plaintext in a record: the area has no `ssl_buffer_size`.
const RECORD_BYTES: usize = 16 * 1024;

pub struct Ssl;

impl Feature for Ssl {
    fn table(&self) -> FeatureTable {
        SslConf::table("ssl", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        shared::Variables::<StreamArea>::ALL
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        stream.background.push(Arc::new(Stapler::<StreamPlan>::default()));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SslConf>() else { return Ok(()) };
        let alpn = conf.ssl_alpn.as_ref().map(|alpn| alpn.0.clone()).unwrap_or_default();
        let said = conf.said(RECORD_BYTES, false, alpn);
        if let Some(mut rules) = shared::server_rules(&said, block.cx)? {
            rules.names = report::certificate_hosts(block.names);
            report::report_certificates(&rules, block.cx);
            let ask = shared::client_ocsp(&said)?;
            let handshake_timeout = conf.ssl_handshake_timeout.duration();
            block.server.tls = Some(Arc::new(Tls { rules, handshake_timeout, ask }));
        }
        Ok(())
    }
}
