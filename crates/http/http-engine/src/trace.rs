//! Steps of a request, for `tidegate explain URL` and `tidegate_explain`; an untraced request pays one check of a
//! pointer.
//! A rehearsal passes on, counts and changes nothing: it notes the skipped action and ends.

use crate::order::HandlerOrder;
use conf_schema::At;
use std::cell::RefCell;

/// Maximum number of steps per request; further ones are dropped.
pub const STEPS_MAX: usize = 500;

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The server was selected.
    Server,
    /// A location that was considered.
    Candidate,
    /// The location was selected.
    Location,
    /// A `rewrite` directive, or another that changes the path.
    Rewrite,
    /// An internal redirect, a named location, an error page.
    Redirect,
    /// A handler before the content phase.
    Check(HandlerOrder),
    /// A content handler.
    Handler,
    /// The request ended with a status.
    Status,
    /// A line of the error log.
    Log,
}

impl StepKind {
    /// Returns the name of the kind, as `tidegate explain` prints it.
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

/// A step of a traced request.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// Its kind.
    pub kind: StepKind,
    /// Place of the directive or block in the configuration.
    pub at: At,
    /// Index of the current location.
    pub location: usize,
    /// Description, without the kind.
    pub text: String,
}

/// The steps of a traced request, in their order.
#[derive(Debug, Default)]
pub struct Trace {
    steps: RefCell<Vec<TraceStep>>,
    /// Passes on, counts and changes nothing.
    pub rehearsal: bool,
    /// Directive that would respond, at which a rehearsal ended.
    pub ends_at: std::cell::Cell<Option<(&'static str, At)>>,
}

impl Trace {
    /// Makes a trace of a request that must have no effects ([`Request::is_rehearsal`](crate::Request::is_rehearsal)).
    pub fn rehearsal() -> Trace {
        Trace { rehearsal: true, ..Trace::default() }
    }
    /// Appends a step; dropped after [`STEPS_MAX`].
    pub fn add(&self, step: TraceStep) {
        let mut steps = self.steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
    }
    /// Returns a copy of the steps so far.
    pub fn steps(&self) -> Vec<TraceStep> {
        self.steps.borrow().clone()
    }
}
