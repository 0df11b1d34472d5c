//! degradation (nginx: `ngx_http_degradation_module`): refuses requests while much memory is in use.

use conf_schema::value::{Latest, parse_size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives, words};
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

words! {
    pub enum DegradeAnswer { Empty = "204", Close = "444" }
}

directives! {
    pub struct DegradationConf from DegradationInput {
        /// Amount of memory from which `degrade` applies.
        /// Differs: compares the resident memory of the process instead of the end of its heap (`sbrk`), which modern
        /// allocators hardly move.
        degradation: Latest<Limit>,
        /// Rejects requests while `degradation` applies: with status 204, or by closing the connection (444). Without
        /// it they are served.
        degrade: DegradeAnswer,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(u64);

impl ValueKind for Limit {
    const SYNTAX: &'static str = "sbrk=size";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(size) = word.strip_prefix("sbrk=") else {
            return Err(Problem::says(format!("invalid parameter \"{word}\"")).at(0).hint("sbrk=size"));
        };
        parse_size(size.as_bytes())
            .map(Limit)
            .ok_or_else(|| Problem::says(format!("invalid sbrk size \"{word}\"")).at(0))
    }
}

pub struct DegradationFeature;

impl Feature for DegradationFeature {
    fn table(&self) -> FeatureTable {
        DegradationConf::table("degradation", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<DegradationConf>() else { return Ok(()) };
        if let (Some(Latest(Limit(bytes))), Some(answer)) = (conf.degradation, conf.degrade)
            && bytes > 0
        {
            block.handle(HandlerOrder::Degradation, Arc::new(Degrade { bytes, answer }));
        }
        Ok(())
    }
}

struct Degrade {
    bytes: u64,
    answer: DegradeAnswer,
}

impl Handler for Degrade {
    fn run(&self, r: &mut Request) -> Flow {
        let (bytes, new) = resident();
        if bytes < self.bytes {
            return Flow::Declined;
        }
        if new {
            r.log(Severity::Notice, format_args!("degradation resident:{}M", bytes >> 20));
        }
        match self.answer {
            DegradeAnswer::Empty => Flow::Status(204),
            DegradeAnswer::Close => Flow::Close,
        }
    }
}

/// Read once a second; `true`: just now.
fn resident() -> (u64, bool) {
    static BYTES: AtomicU64 = AtomicU64::new(0);
    static SECOND: AtomicI64 = AtomicI64::new(0);
    let now = base::clock::unix_seconds();
    let new = SECOND.swap(now, Ordering::Relaxed) != now;
    if new {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kilobytes = line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        BYTES.store(kilobytes << 10, Ordering::Relaxed);
    }
    (BYTES.load(Ordering::Relaxed), new)
}
