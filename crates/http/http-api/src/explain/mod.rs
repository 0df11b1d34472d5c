//! tidegate_explain: reports the handling of a request to permitted clients, in a response field.
//! The steps are the engine's (`http_engine::trace`). Other requests are not traced, and servers without the directive
//! have no handler or filter.

use conf_schema::value::{Cidr, cidr};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::trace::{StepKind, Trace, TraceStep};
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Flow, Handler, HandlerOrder, Request, ResponseBody};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// Field of the request and of the response.
const FIELD: &str = "X-Tidegate-Explain";
/// Longest response value in bytes; the excess is cut with a notice.
const BYTES_MAX: usize = 4096;

directives! {
    pub struct ExplainConf from ExplainInput {
        /// Lets clients with these addresses trace requests: a request with the field `X-Tidegate-Explain` gets the
        /// same field back, with server, location, rewrites, checks and handler, each with file and line. The field
        /// reveals the configuration: list only trusted addresses.
        tidegate_explain: AllowedClients = "off",
    }
}

#[derive(Clone)]
struct AllowedClients {
    networks: Arc<[Cidr]>,
    files: Arc<[PathBuf]>,
}

impl ValueKind for AllowedClients {
    const SYNTAX: &'static str = "off | address | CIDR ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut networks = Vec::new();
        if !(d.args.len() == 1 && d.args.iter().all(|word| word.bytes == b"off")) {
            for (index, word) in d.args.iter().enumerate() {
                networks.push(Cidr::word(cx, d, &word.bytes).map_err(|p| p.at(index))?);
            }
        }
        Ok(AllowedClients { networks: networks.into(), files: cx.files.as_slice().into() })
    }
}

pub struct ExplainFeature;

impl Feature for ExplainFeature {
    fn table(&self) -> FeatureTable {
        ExplainConf::table("explain", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ExplainConf>() else { return Ok(()) };
        let allowed = &conf.tidegate_explain;
        if allowed.networks.is_empty() {
            return Ok(());
        }
        let part = Arc::new(Explain(allowed.clone()));
        if block.context == Contexts::server {
            block.handle(HandlerOrder::ServerExplain, part.clone());
        }
        block.location.filters.push((FilterOrder::Explain, part));
        Ok(())
    }
}

struct Explain(AllowedClients);

impl Handler for Explain {
    fn run(&self, r: &mut Request) -> Flow {
        if r.trace().is_some() || r.is_subrequest() {
            return Flow::Declined;
        }
        let asks = r.headers().any(|(name, _)| name.eq_ignore_ascii_case(FIELD.as_bytes()));
        let peer = r.connection().peer.map(|peer| cidr::address_number(peer.ip().to_canonical()));
        let known = |(v6, number)| self.0.networks.iter().any(|network| network.contains(v6, number));
        if asks && peer.is_some_and(known) {
            r.set_trace(Some(Box::default()));
            r.note(StepKind::Server, r.loc().at, |r| match &*r.srv().name {
                b"" => "without a name".into(),
                name => String::from_utf8_lossy(name).into_owned(),
            });
        }
        Flow::Declined
    }
}

impl Filter for Explain {
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if let Some(trace) = r.trace().filter(|trace| !trace.rehearsal) {
            let text = self.text(trace);
            r.out.remove(FIELD.as_bytes());
            r.out.add(FIELD, text);
        }
        Ok(body)
    }
    fn name(&self) -> &'static str {
        "explain"
    }
}

impl Explain {
    /// Formats `kind text (FILE:LINE); ...` in printable ASCII.
    fn text(&self, trace: &Trace) -> Vec<u8> {
        let mut out = Vec::new();
        for step in trace.steps().iter().filter(|step| step.kind != StepKind::Log) {
            let text = self.step(step);
            if out.len() + text.len() > BYTES_MAX {
                out.extend_from_slice(b"; ...");
                break;
            }
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend(text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' }));
        }
        out
    }
    fn step(&self, step: &TraceStep) -> String {
        let word = match step.kind {
            StepKind::Check(order) => format!("check {order:?}"),
            kind => kind.word().to_string(),
        };
        let file = self.0.files.get(step.at.span.file.0 as usize).filter(|_| step.at.line > 0);
        match file {
            Some(file) => format!("{word} {} ({}:{})", step.text, file.display(), step.at.line),
            None => format!("{word} {}", step.text),
        }
    }
}
