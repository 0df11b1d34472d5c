//! Steps of a request, for `tidegate explain URL` and `tidegate_explain`; an untraced request pays one check of a
//! pointer.
//! A rehearsal passes on, counts and changes nothing: it notes the skipped action and ends.

use crate::order::HandlerOrder;
use conf_schema::At;
use std::cell::RefCell;

/// Maximum number of steps per request; further ones are dropped.
pub const STEPS_MAX: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Server,
    /// A location that was considered.
    Candidate,
    Location,
    Rewrite,
    /// An internal redirect, a named location, an error page.
    Redirect,
    Check(HandlerOrder),
    Handler,
    Status,
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

#[derive(Clone, Debug)]
pub struct TraceStep {
    pub kind: StepKind,
    pub at: At,
    pub location: usize,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Trace {
    steps: RefCell<Vec<TraceStep>>,
    /// Passes on, counts and changes nothing.
    pub rehearsal: bool,
    /// Directive that would respond, at which a rehearsal ended.
    pub ends_at: std::cell::Cell<Option<(&'static str, At)>>,
}

impl Trace {
    pub fn rehearsal() -> Trace {
        Trace { rehearsal: true, ..Trace::default() }
    }
    pub fn add(&self, step: TraceStep) {
        let mut steps = self.steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
    }
    pub fn steps(&self) -> Vec<TraceStep> {
        self.steps.borrow().clone()
    }
}
