//! resolver, resolver_timeout: who is asked for the addresses of names that are known only when a session is there (nginx:
//! `ngx_stream_core_module`, `ngx_resolver.c`).

use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::groups::StreamResolver;
use conf_schema::value::Msec;
use conf_schema::{Area, Problem, Table, directives};
use session_engine::upstreams::{ResolverLine, Resolving};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What a block is told of names.
    pub struct ResolverConf from ResolverInput {
        /// The name servers that are asked for addresses, in turn.
        resolver: ResolverLine,
        /// How long a name may take.
        resolver_timeout: Msec = "30s",
    }
}

/// The feature.
pub struct Resolver;

fn resolving(conf: &ResolverConf) -> Option<Resolving> {
    let timeout = conf.resolver_timeout.duration();
    conf.resolver.as_ref().map(|ResolverLine(resolver)| Resolving { resolver: resolver.clone(), timeout })
}

impl Feature for Resolver {
    fn table(&self) -> Table {
        ResolverConf::table("resolver", Area::Stream)
    }
    fn plan_stream(&self, conf: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ResolverConf>() else { return Ok(()) };
        let area = stream.cx.get::<StreamResolver>();
        (area.resolving, area.timeout) = (resolving(conf), Some(conf.resolver_timeout.duration()));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<ResolverConf>() {
            block.server.resolving = resolving(conf);
        }
        Ok(())
    }
}
