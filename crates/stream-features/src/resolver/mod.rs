//! resolver, resolver_timeout: name servers for names known only at run time (nginx: `ngx_stream_core_module`,
//! `ngx_resolver.c`).

use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::groups::StreamResolver;
use conf_schema::value::Msec;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use resolver::ResolveRules;
use std::any::Any;
use std::sync::Arc;
use upstream_directives::ResolverLine;

directives! {
    pub struct ResolverConf from ResolverInput {
        /// Name servers for host names, used in turn. A name is asked for at most once a second, whatever its TTL; one that a name server has failed to tell, once at each of the others.
        /// Differs: failures are remembered for that second, too.
        resolver: ResolverLine,
        /// Maximum time to resolve a name.
        resolver_timeout: Msec = "30s",
    }
}

pub struct StreamResolverLine;

fn resolving(conf: &ResolverConf) -> Option<ResolveRules> {
    let timeout = conf.resolver_timeout.duration();
    conf.resolver.as_ref().map(|ResolverLine(resolver)| ResolveRules { resolver: resolver.clone(), timeout })
}

impl Feature for StreamResolverLine {
    fn table(&self) -> FeatureTable {
        ResolverConf::table("resolver", ContextArea::Stream)
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
