//! realip (nginx: `ngx_mail_realip_module`): the client's address as a trusted proxy's PROXY protocol header reports it.

use crate::build::{Feature, ServerBuild};
use area::real_ip::From;
use conf_schema::value::ValueList;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct RealipConf from RealipInput {
        /// Trusted proxies: an address, a network, a host name, or `unix:`.
        set_real_ip_from: ValueList<From>,
    }
}

pub struct Realip;

impl Feature for Realip {
    fn table(&self) -> FeatureTable {
        RealipConf::table("realip", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(from) = conf.downcast_ref::<RealipConf>().and_then(|conf| conf.set_real_ip_from.as_ref()) {
            block.server.proxies = from.0.iter().flat_map(|from| from.0.iter().copied()).collect();
        }
        Ok(())
    }
}
