//! A request's plan, connection, server and location.

use crate::connection::ClientConnection;
use crate::plan::HttpPlan;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Default)]
pub struct Scope {
    pub plan: Option<Rc<Arc<HttpPlan>>>,
    pub connection: Option<Rc<ClientConnection>>,
    pub server: usize,
    /// Index of the location (or `if` block) in the plan.
    pub location: usize,
}

impl Scope {
    pub(super) fn reset(&mut self) {
        *self = Scope::default();
    }
}
