//! ssl (nginx: `ngx_http_ssl_module`): TLS to clients; `tls_directives` processes directives and variables.

mod ocsp;

use conf_schema::value::{Flag, Size};
use conf_schema::{ContextArea, Contexts, FeatureTable, Problem};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpArea, HttpBuild, HttpPlan};
use std::any::Any;
use std::sync::Arc;
use tls_directives as shared;
use tls_directives::server_tls_directives;
use tls_directives::{Stapler, report};

server_tls_directives! {
    pub struct SslConf from SslInput, HttpArea;
    own {
        /// Maximum size of a TLS record: small records reduce latency, large ones cost less.
        ssl_buffer_size: Size = "16k",
        /// Accepts requests in TLS 1.3 early data (0-RTT). Such requests can be replayed: see `$ssl_early_data`.
        ssl_early_data: Flag = "off",
    }
}

/// ALPN protocols without HTTP/2.
const ALPN: [&[u8]; 3] = [b"http/1.1", b"http/1.0", b"http/0.9"];

pub struct Ssl;

impl Feature for Ssl {
    fn table(&self) -> FeatureTable {
        SslConf::table("ssl", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        shared::Variables::<HttpArea>::ALL
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.background.push(Arc::new(Stapler::<HttpPlan>::default()));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SslConf>() else { return Ok(()) };
        if block.context != Contexts::server {
            return Ok(());
        }
        let buffer_size = usize::try_from(conf.ssl_buffer_size.0).unwrap_or(usize::MAX);
        let said = conf.said(buffer_size, conf.ssl_early_data, ALPN.iter().map(|p| p.to_vec()).collect());
        if let Some(mut tls) = shared::server_rules(&said, block.cx)? {
            tls.names = report::certificate_hosts(block.server_names);
            report::report_certificates(&tls, block.cx);
            if let Some(ask) = shared::client_ocsp(&said)? {
                block.handle(HandlerOrder::ServerOcsp, Arc::new(ocsp::OcspCheck(Arc::new(ask))));
            }
            block.location.extensions.push(Arc::new(Arc::new(tls)));
        }
        Ok(())
    }
}
