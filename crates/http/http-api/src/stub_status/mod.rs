//! stub_status (nginx: `ngx_http_stub_status_module`).

use conf_schema::value::{Own, RepeatedValue};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request};
use http_types::Method;
use metrics::process;
use std::any::Any;
use std::io::Write as _;
use std::sync::Arc;

directives! {
    pub struct StatusConf from StatusInput {
        /// Responds with the numbers of connections and requests.
        stub_status: Own<RepeatedValue>,
    }
}

pub struct StubStatus;

static VARIABLES: &[Builtin] = &[
    Builtin::one("connections_active", active, "Client connections, including idle ones."),
    Builtin::one("connections_reading", reading, "Client connections with a request being read."),
    Builtin::one("connections_writing", writing, "Client connections with a response being produced or sent."),
    Builtin::one("connections_waiting", waiting, "Idle client connections waiting for a request."),
];

impl Feature for StubStatus {
    fn table(&self) -> FeatureTable {
        StatusConf::table("stub_status", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<StatusConf>().is_some_and(|conf| conf.stub_status.is_some()) {
            block.location.content = Some(Arc::new(StatusPage));
        }
        Ok(())
    }
}

struct StatusNumbers {
    active: u64,
    reading: u64,
    writing: u64,
}

impl StatusNumbers {
    fn read(r: &Request) -> StatusNumbers {
        // Counts the present request, even if too fast to be counted.
        let own = u64::from(!r.accounting.is_counted() && !r.is_subrequest());
        StatusNumbers {
            active: process::CONNECTIONS_ACTIVE.sum(),
            reading: process::CONNECTIONS_READING.sum(),
            writing: process::CONNECTIONS_WRITING.sum() + own,
        }
    }
    fn waiting(&self) -> u64 {
        self.active.saturating_sub(self.reading + self.writing)
    }
}

fn active(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{}", StatusNumbers::read(r).active).is_ok()
}

fn reading(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{}", StatusNumbers::read(r).reading).is_ok()
}

fn writing(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{}", StatusNumbers::read(r).writing).is_ok()
}

fn waiting(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{}", StatusNumbers::read(r).waiting()).is_ok()
}

struct StatusPage;

impl Handler for StatusPage {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let now = StatusNumbers::read(r);
        let (accepted, handled) = (process::CONNECTIONS_ACCEPTED.sum(), process::CONNECTIONS_HANDLED.sum());
        let requests = process::HTTP_REQUESTS.sum();
        let text = format!(
            "Active connections: {} \nserver accepts handled requests\n {accepted} {handled} {requests} \n\
             Reading: {} Writing: {} Waiting: {} \n",
            now.active,
            now.reading,
            now.writing,
            now.waiting()
        );
        r.respond(200, "text/plain", text)
    }
}
