//! ssl (nginx: `ngx_mail_ssl_module`): TLS for mail clients, from the first byte (`listen ... ssl`) or after STARTTLS
//! (`starttls`).

use crate::MailArea;
use crate::build::{Feature, ServerBuild};
use crate::protocol::Starttls;
use conf_schema::{ContextArea, FeatureTable, Problem};
use std::any::Any;
use std::sync::Arc;
use tls_directives as shared;
use tls_directives::basic_tls_directives;
use tls_directives::report;

basic_tls_directives! {
    pub struct SslConf from SslInput, MailArea;
    own {
        /// Offers STARTTLS or STLS; `only` requires it before login.
        starttls: Starttls = "off",
    }
}

/// Bytes of plaintext per record: the area has no `ssl_buffer_size`.
const RECORD_BYTES: usize = 16 * 1024;

pub struct Ssl;

impl Feature for Ssl {
    fn table(&self) -> FeatureTable {
        SslConf::table("ssl", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SslConf>() else { return Ok(()) };
        block.server.starttls = conf.starttls;
        let mode = match (block.listens_ssl, conf.starttls) {
            (true, _) => "listen ... ssl",
            (false, Starttls::Off) => return Ok(()),
            (false, _) => "starttls",
        };
        let (certificates, keys) = (conf.ssl_certificate.as_ref(), conf.ssl_certificate_key.as_ref());
        let missing = |what: &str| Problem::says(format!("no \"{what}\" is defined for the \"{mode}\" directive"));
        let certificates = certificates.ok_or_else(|| missing("ssl_certificate"))?;
        let keys = keys.ok_or_else(|| missing("ssl_certificate_key"))?;
        if let Some(bare) = certificates.0.last().filter(|_| keys.0.len() < certificates.0.len()) {
            return Err(Problem::says(format!(
                "no \"ssl_certificate_key\" is defined for certificate \"{}\" and the \"{mode}\" directive",
                bare.text
            )));
        }
        let said = conf.basics(RECORD_BYTES, vec![block.kind.name().as_bytes().to_vec()]);
        if let Some(mut rules) = shared::server_rules(&said, block.cx)? {
            rules.names = vec![block.server.name.clone()];
            report::report_certificates(&rules, block.cx);
            block.server.tls = Some(Arc::new(rules));
        }
        Ok(())
    }
}
