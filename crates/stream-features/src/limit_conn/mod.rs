//! limit_conn (nginx: `ngx_stream_limit_conn_module`): maximum concurrent sessions per key; see
//! `area::limit_conn`.

use crate::Builtin;
use crate::area::StreamArea;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler, PreaccessOrder};
use crate::session::StreamSession;
use area::limit_conn::{self, ConnLimit, CountVerdict, CountedSession, LogLevel};
use conf_schema::value::{Flag, ValueList};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;

type StreamConnZone = limit_conn::ConnZone<StreamArea>;

directives! {
    pub struct ConnConf from ConnInput {
        /// Maximum number of concurrent sessions per key of the zone.
        limit_conn: ValueList<ConnLimit>,
        /// Counts and logs sessions above the limit without rejecting them.
        limit_conn_dry_run: Flag = "off",
        /// Error log level of rejected sessions.
        limit_conn_log_level: LogLevel = "error",
        /// Defines a zone: the key to count by, and the size of its memory. With `sync` the zones of all servers of the
        /// `shared_store` count together.
        limit_conn_zone: StreamConnZone,
    }
}

static VARIABLES: &[Builtin] =
    &[Builtin::one("limit_conn_status", status, "`PASSED`, `REJECTED` or `REJECTED_DRY_RUN`, if a limit was checked.")];

fn status(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<CountedSession>().map(|counted| out.extend_from_slice(counted.status.as_bytes())).is_some()
}

pub struct LimitConn;

impl Feature for LimitConn {
    fn table(&self) -> FeatureTable {
        ConnConf::table("limit_conn", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ConnConf>() else { return Ok(()) };
        let Some(limits) = &conf.limit_conn else { return Ok(()) };
        let check = limit_conn::ConnCheck::new(block.cx, limits, conf.limit_conn_dry_run, conf.limit_conn_log_level)?;
        block.server.preaccess.push((PreaccessOrder::LimitConn, Arc::new(StreamConnCheck(check))));
        Ok(())
    }
}

struct StreamConnCheck(limit_conn::ConnCheck<StreamArea>);

impl Handler for StreamConnCheck {
    fn run(&self, s: &mut StreamSession) -> Flow {
        match self.0.count(s) {
            CountVerdict::NotCounted | CountVerdict::Crowded => Flow::Declined,
            CountVerdict::Passed(counted) => {
                s.keep(counted);
                Flow::Declined
            }
            CountVerdict::Refused(counted) => {
                s.keep(counted);
                if self.0.dry_run() { Flow::Declined } else { Flow::End(503) }
            }
        }
    }
}
