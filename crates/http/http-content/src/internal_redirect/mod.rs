//! internal_redirect (nginx: `ngx_http_internal_redirect_module`): another URI after limits and access checks, unlike
//! `rewrite`.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request, special};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct RedirectConf from RedirectInput {
        /// Continues with this URI, or in this named location, after limits and access checks. An empty value, which
        /// variables may give, has no effect.
        internal_redirect: HttpTemplate,
    }
}

pub struct InternalRedirect;

impl Feature for InternalRedirect {
    fn table(&self) -> FeatureTable {
        RedirectConf::table("internal_redirect", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(target) = conf.downcast_ref::<RedirectConf>().and_then(|conf| conf.internal_redirect.clone()) {
            block.handle(HandlerOrder::InternalRedirect, Arc::new(RedirectMark(target)));
        }
        Ok(())
    }
}

struct RedirectMark(HttpTemplate);

impl Handler for RedirectMark {
    fn run(&self, r: &mut Request) -> Flow {
        let mut target = self.0.eval(r);
        match target.first() {
            None => Flow::Declined,
            Some(b'@') => Flow::Named(target),
            Some(_) => {
                let split = target.iter().position(|c| *c == b'?');
                let args = split.and_then(|at| target.get(at + 1..)).unwrap_or_default().to_vec();
                target.truncate(split.unwrap_or(target.len()));
                special::go_to(r, target, args)
            }
        }
    }
}
