//! allow, deny (nginx: `ngx_http_access_module`); see `area::access`.

use area::access::{self, AccessList, DeniesOthers};
use conf_schema::{ContextArea, FeatureTable, Problem};
use http_engine::values::Satisfy;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

pub struct AccessRules;

impl Feature for AccessRules {
    fn table(&self) -> FeatureTable {
        access::access_table(ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(list) = access::access_list(&**conf) {
            if list.denies_others() {
                block.location.extensions.push(Arc::new(DeniesOthers));
            }
            block.handle(HandlerOrder::Access, Arc::new(AccessCheck(list)));
        }
        Ok(())
    }
}

struct AccessCheck(AccessList);

impl Handler for AccessCheck {
    fn run(&self, r: &mut Request) -> Flow {
        match self.0.refuses(r.connection().peer.map(|peer| peer.ip())) {
            None => Flow::Declined,
            Some(false) => Flow::Allowed,
            Some(true) => {
                if r.loc().core.conf.satisfy == Satisfy::All {
                    r.log(Severity::Error, format_args!("access forbidden by rule"));
                }
                Flow::Status(403)
            }
        }
    }
}
