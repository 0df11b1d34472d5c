//! allow, deny (nginx: `ngx_http_access_module`); see `session_engine::access`.

use conf_schema::{Area, Problem, Table};
use http_engine::values::Satisfy;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use observe::Level;
use session_engine::access::{self, DeniesOthers, List};
use std::any::Any;
use std::sync::Arc;

pub struct Access;

impl Feature for Access {
    fn table(&self) -> Table {
        access::table(Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(list) = access::list(&**conf) {
            if list.denies_others() {
                block.location.extensions.push(Arc::new(DeniesOthers));
            }
            block.handle(HandlerOrder::Access, Arc::new(Check(list)));
        }
        Ok(())
    }
}

struct Check(List);

impl Handler for Check {
    fn run(&self, r: &mut Request) -> Flow {
        match self.0.refuses(r.connection().peer.map(|peer| peer.ip())) {
            None => Flow::Declined,
            Some(false) => Flow::Allowed,
            Some(true) => {
                if r.loc().core.conf.satisfy == Satisfy::All {
                    r.log(Level::Error, format_args!("access forbidden by rule"));
                }
                Flow::Status(403)
            }
        }
    }
}
