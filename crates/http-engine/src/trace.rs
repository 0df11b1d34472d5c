//! What becomes of one request, step by step: for `tidegate explain URL` and for the response field that `tidegate_explain` allows.
//!
//! The engine notes steps where it decides; a request without a trace pays for one look at a pointer. In a rehearsal nothing
//! is passed on, counted or changed: what would be is noted, and the request ends there.

use crate::plan::HandlerOrder;
use crate::request::{Flow, Request};
use conf_schema::At;
use std::cell::RefCell;

/// More steps of one request are not kept.
pub const STEPS_MAX: usize = 500;

/// What kind of decision a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Server,
    /// A location that was looked at.
    Candidate,
    /// The location that was chosen.
    Location,
    Rewrite,
    /// An internal redirect, a named location, an error page.
    Redirect,
    /// A handler before the content.
    Check(HandlerOrder),
    /// What answers.
    Handler,
    Status,
    /// A line of the error log.
    Log,
}

impl StepKind {
    pub fn word(self) -> &'static str {
        match self {
            StepKind::Server => "server",
            StepKind::Candidate => "candidate",
            StepKind::Location => "location",
            StepKind::Rewrite => "rewrite",
            StepKind::Redirect => "redirect",
            StepKind::Check(_) => "check",
            StepKind::Handler => "handler",
            StepKind::Status => "status",
            StepKind::Log => "log",
        }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    pub kind: StepKind,
    /// The directive that decided.
    pub at: At,
    /// Index of the location that the request is in.
    pub location: usize,
    pub text: String,
}

/// The steps of a request.
#[derive(Debug, Default)]
pub struct Trace {
    steps: RefCell<Vec<Step>>,
    /// Nothing is passed on, counted or changed.
    pub rehearsal: bool,
    /// What would answer, where a rehearsal ends: the directive.
    pub ends_at: std::cell::Cell<Option<(&'static str, At)>>,
}

impl Trace {
    pub fn rehearsal() -> Trace {
        Trace { rehearsal: true, ..Trace::default() }
    }
    pub fn add(&self, step: Step) {
        let mut steps = self.steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
    }
    pub fn steps(&self) -> Vec<Step> {
        self.steps.borrow().clone()
    }
}

/// What a handler said, in words.
pub fn said(flow: &Flow) -> String {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match flow {
        Flow::Declined => "nothing to say".into(),
        Flow::Allowed => "allows".into(),
        Flow::Content(_) => "answers".into(),
        Flow::Status(status) => format!("ends with {status}"),
        Flow::Redirect { path, .. } => format!("goes on with \"{}\"", shown(path)),
        Flow::Named(name) => format!("goes on in \"{}\"", shown(name)),
        Flow::Rewritten => "the path has changed".into(),
        Flow::Close => "closes the connection".into(),
        Flow::Later(_) | Flow::Exchange(_) => "needs to wait".into(),
    }
}

impl Request {
    /// Notes a step, if this request is traced.
    #[inline]
    pub fn note(&self, kind: StepKind, at: At, words: impl FnOnce(&Request) -> String) {
        if let Some(trace) = &self.trace {
            trace.add(Step { kind, at, location: self.location, text: words(self) });
        }
    }
    /// Nothing may be passed on, counted or changed.
    #[inline]
    pub fn is_rehearsal(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.rehearsal)
    }
}

/// What a rehearsal passes over: it asks others, counts, or changes something.
pub fn has_effects(order: HandlerOrder) -> bool {
    matches!(
        order,
        HandlerOrder::ServerEarlyBody
            | HandlerOrder::ServerOcsp
            | HandlerOrder::LimitReq
            | HandlerOrder::LimitConn
            | HandlerOrder::Degradation
            | HandlerOrder::AuthRequest
            | HandlerOrder::DavGuard
            | HandlerOrder::Mirror
            | HandlerOrder::Dav
    )
}
