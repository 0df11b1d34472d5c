//! resolver, resolver_timeout: name servers for names known only at run time (nginx: `ngx_http_core_module`,
//! `ngx_resolver.c`).

use conf_schema::value::Msec;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HttpBuild};
use http_upstream::resolving::{HttpResolver, ResolveRules, ResolverLine};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct ResolverConf from ResolverInput {
        /// Name servers for host names, used in turn. A name is asked for at most once a second, whatever its TTL; one that a name server has failed to tell, once at each of the others.
        /// Differs: failures are remembered for that second, too.
        resolver: ResolverLine,
        /// Maximum time to resolve a name.
        resolver_timeout: Msec = "30s",
    }
}

pub struct HttpResolverLine;

impl Feature for HttpResolverLine {
    fn table(&self) -> FeatureTable {
        ResolverConf::table("resolver", ContextArea::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ResolverConf>() else { return Ok(()) };
        let timeout = conf.resolver_timeout.duration();
        let resolving =
            conf.resolver.as_ref().map(|ResolverLine(resolver)| ResolveRules { resolver: resolver.clone(), timeout });
        let area = http.cx.get::<HttpResolver>();
        (area.resolving, area.timeout) = (resolving, Some(timeout));
        Ok(())
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ResolverConf>() else { return Ok(()) };
        if let Some(ResolverLine(resolver)) = &conf.resolver {
            let timeout = conf.resolver_timeout.duration();
            block.location.extensions.push(Arc::new(ResolveRules { resolver: resolver.clone(), timeout }));
        }
        Ok(())
    }
}
