//! allow, deny (nginx: `ngx_stream_access_module`); `area::access` implements the rules.

use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler};
use crate::session::StreamSession;
use area::access::{self, AccessList};
use conf_schema::{ContextArea, FeatureTable, Problem};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;
use variables::Session;

pub struct StreamAccess;

impl Feature for StreamAccess {
    fn table(&self) -> FeatureTable {
        access::access_table(ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(list) = access::access_list(&**conf) {
            block.server.access.push(Arc::new(StreamAccessCheck(list)));
        }
        Ok(())
    }
}

struct StreamAccessCheck(AccessList);

impl Handler for StreamAccessCheck {
    fn run(&self, s: &mut StreamSession) -> Flow {
        match self.0.refuses(s.peer.map(|peer| peer.ip())) {
            None => Flow::Declined,
            Some(false) => Flow::Done,
            Some(true) => {
                s.log(Severity::Error, format_args!("access forbidden by rule"));
                Flow::End(403)
            }
        }
    }
}
