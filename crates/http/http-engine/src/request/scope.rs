//! A request's plan, connection, server and location.

use crate::connection::ClientConnection;
use crate::plan::HttpPlan;
use std::rc::Rc;
use std::sync::Arc;

/// Plan, connection, server and location that a request runs with.
#[derive(Default)]
pub struct Scope {
    /// The plan at the arrival of the head's last byte. Set from the start, and kept to the end.
    #[allow(clippy::redundant_allocation)]
    pub(crate) plan: Option<Rc<Arc<HttpPlan>>>,
    /// The client connection. Set from the start.
    pub(crate) connection: Option<Rc<ClientConnection>>,
    /// Index of the server in the plan.
    pub(crate) server: usize,
    /// Index of the location (or `if` block) in the plan.
    pub(crate) location: usize,
}

impl Scope {
    pub(super) fn reset(&mut self) {
        *self = Scope::default();
    }
}
