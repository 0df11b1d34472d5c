//! allow, deny (nginx: `ngx_stream_access_module`); `session_engine::access` implements the rules.

use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler};
use crate::session::StreamSession;
use conf_schema::{Area, Problem, Table};
use observe::Level;
use session_engine::Session;
use session_engine::access::{self, List};
use std::any::Any;
use std::sync::Arc;

pub struct Access;

impl Feature for Access {
    fn table(&self) -> Table {
        access::table(Area::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(list) = access::list(&**conf) {
            block.server.access.push(Arc::new(Check(list)));
        }
        Ok(())
    }
}

struct Check(List);

impl Handler for Check {
    fn run(&self, s: &mut StreamSession) -> Flow {
        match self.0.refuses(s.peer.map(|peer| peer.ip())) {
            None => Flow::Declined,
            Some(false) => Flow::Done,
            Some(true) => {
                s.log(Level::Error, format_args!("access forbidden by rule"));
                Flow::End(403)
            }
        }
    }
}
