//! limit_conn (nginx: `ngx_http_limit_conn_module`): how many requests with the same key are answered at the same time. The
//! counting stands in `session_engine::limit_conn`.

use conf_schema::value::{Between, Flag, List};
use conf_schema::{Area, Problem, Table, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use session_engine::limit_conn::{self, Counted, Limit, LogLevel, Verdict};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

type Zone = limit_conn::Zone<Request>;

directives! {
    /// What the module is told in a block.
    pub struct ConnConf from ConnInput {
        /// The most requests with the same key that are answered at the same time, by a zone.
        limit_conn: List<Limit>,
        /// Whether requests are only counted and noted, and none refused.
        limit_conn_dry_run: Flag = "off",
        /// How grave refusals are in the error log.
        limit_conn_log_level: LogLevel = "error",
        /// The status of refused requests.
        limit_conn_status: Between<400, 599> = "503",
        /// Declares a zone: what is counted, and how much memory the counts may take.
        limit_conn_zone: Zone,
    }
}

static VARIABLES: &[Builtin] =
    &[Builtin::one("limit_conn_status", status, "PASSED, REJECTED or REJECTED_DRY_RUN, where a limit was looked at.")];

fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.shared::<Counted>().map(|counted| out.extend_from_slice(counted.status.as_bytes())).is_some()
}

/// The feature.
pub struct LimitConn;

impl Feature for LimitConn {
    fn table(&self) -> Table {
        ConnConf::table("limit_conn", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ConnConf>() else { return Ok(()) };
        let Some(limits) = &conf.limit_conn else { return Ok(()) };
        let check = limit_conn::Check::new(block.cx, limits, conf.limit_conn_dry_run, conf.limit_conn_log_level)?;
        block.handle(HandlerOrder::LimitConn, Arc::new(Check { check, status: conf.limit_conn_status.0 as u16 }));
        Ok(())
    }
}

struct Check {
    check: limit_conn::Check<Request>,
    status: u16,
}

impl Handler for Check {
    fn run(&self, r: &mut Request) -> Flow {
        if r.shared::<Counted>().is_some() {
            return Flow::Declined;
        }
        match self.check.count(r) {
            Verdict::NotCounted => Flow::Declined,
            Verdict::Passed(counted) => {
                r.alone = true;
                r.share(Rc::new(counted));
                Flow::Declined
            }
            Verdict::Refused(counted) => {
                r.share(Rc::new(counted));
                if self.check.dry_run() { Flow::Declined } else { Flow::Status(self.status) }
            }
        }
    }
}
