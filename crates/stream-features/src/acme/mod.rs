//! acme (Angie: `ngx_stream_acme_module`): certificates of the http area's ACME clients.

use crate::Builtin;
use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::session::StreamSession;
use conf_schema::value::ValueList;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;
use tls_directives::acme_clients::{AcmeClients, ClientName, HandshakeHook};

directives! {
    pub struct AcmeConf from AcmeInput {
        /// Adds the server's names to the certificate of an `acme_client` of the http block. `$acme_cert_NAME` and
        /// `$acme_cert_key_NAME` are its values for `ssl_certificate` and `ssl_certificate_key`. Servers with `listen
        /// ... ssl` answer its challenges by TLS (`challenge=alpn`); the http block answers HTTP challenges
        /// (`challenge=http`).
        acme: ValueList<ClientName>,
    }
}

static VARIABLES: &[Builtin] = &[Builtin::family(
    "acme_cert_",
    value,
    "The certificate of the `acme_client` NAME with its chain; `$acme_cert_key_NAME` is the certificate's private key.",
)];

fn value(s: &mut StreamSession, name: &str, out: &mut Vec<u8>) -> bool {
    s.plan.ext::<AcmeClients>().is_some_and(|clients| clients.write(name, out))
}

pub struct Acme;

impl Feature for Acme {
    fn table(&self) -> FeatureTable {
        AcmeConf::table("acme", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        let clients = stream.cx.get::<AcmeClients>().clone();
        if !clients.0.is_empty() {
            stream.extensions.push(Arc::new(clients));
        }
        if let Some(validations) = stream.cx.get::<Option<HandshakeHook>>().clone() {
            stream.extensions.push(Arc::new(validations));
        }
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AcmeConf>() else { return Ok(()) };
        let Some(ValueList(lines)) = &conf.acme else { return Ok(()) };
        let names: Vec<Vec<u8>> = block.names.iter().map(|name| name.configured()).collect();
        AcmeClients::add(block.cx, lines, &names, block.server.resolving.clone())
    }
}
