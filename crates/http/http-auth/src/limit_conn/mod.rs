//! limit_conn (nginx: `ngx_http_limit_conn_module`): maximum concurrent requests per key; see
//! `area::limit_conn`.

use area::limit_conn::{self, ConnLimit, CountVerdict, CountedSession, LogLevel};
use conf_schema::value::{Between, Flag, ValueList};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpArea, Request};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

type HttpConnZone = limit_conn::ConnZone<HttpArea>;

directives! {
    pub struct ConnConf from ConnInput {
        /// Maximum number of concurrent requests per key of the zone.
        limit_conn: ValueList<ConnLimit>,
        /// Counts and logs requests above the limit without rejecting them.
        limit_conn_dry_run: Flag = "off",
        /// Error log level of rejected requests.
        limit_conn_log_level: LogLevel = "error",
        /// Status of rejected requests.
        limit_conn_status: Between<400, 599> = "503",
        /// Defines a zone: the key to count by, and the size of its memory. With `sync` the zones of all servers of the
        /// `shared_store` count together.
        limit_conn_zone: HttpConnZone,
    }
}

static VARIABLES: &[Builtin] =
    &[Builtin::one("limit_conn_status", status, "`PASSED`, `REJECTED` or `REJECTED_DRY_RUN`, if a limit was checked.")];

fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.shared::<CountedSession>().map(|counted| out.extend_from_slice(counted.status.as_bytes())).is_some()
}

pub struct LimitConn;

impl Feature for LimitConn {
    fn table(&self) -> FeatureTable {
        ConnConf::table("limit_conn", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ConnConf>() else { return Ok(()) };
        let Some(limits) = &conf.limit_conn else { return Ok(()) };
        let check = limit_conn::ConnCheck::new(block.cx, limits, conf.limit_conn_dry_run, conf.limit_conn_log_level)?;
        block.handle(
            HandlerOrder::LimitConn,
            Arc::new(HttpConnCheck(Arc::new(HttpConnLimits { check, status: conf.limit_conn_status.0 as u16 }))),
        );
        Ok(())
    }
}

struct HttpConnCheck(Arc<HttpConnLimits>);

struct HttpConnLimits {
    check: limit_conn::ConnCheck<HttpArea>,
    status: u16,
}

impl HttpConnLimits {
    fn apply(&self, r: &mut Request, verdict: CountVerdict) -> Flow {
        match verdict {
            CountVerdict::NotCounted | CountVerdict::Crowded => Flow::Declined,
            CountVerdict::Passed(counted) => {
                r.incoming.hold_alone();
                r.share(Rc::new(counted));
                Flow::Declined
            }
            CountVerdict::Refused(counted) => {
                r.share(Rc::new(counted));
                if self.check.dry_run() { Flow::Declined } else { Flow::Status(self.status) }
            }
        }
    }
}

impl Handler for HttpConnCheck {
    fn run(&self, r: &mut Request) -> Flow {
        if r.shared::<CountedSession>().is_some() {
            return Flow::Declined;
        }
        let limits = &self.0;
        match limits.check.try_count(r) {
            // A client may close one connection and open the next before the loop has seen the close: looks at the
            // sockets before a refusal, as nginx does between accepting and reading.
            CountVerdict::Crowded => {
                let limits = limits.clone();
                Flow::Later(Box::new(move |mut r| {
                    Box::pin(async move {
                        // The first one may end in this turn, if it began among the events.
                        runtime::task::yield_now().await;
                        runtime::task::yield_now().await;
                        let verdict = limits.check.count(&mut r);
                        let flow = limits.apply(&mut r, verdict);
                        (r, flow)
                    })
                }))
            }
            verdict => limits.apply(r, verdict),
        }
    }
}
