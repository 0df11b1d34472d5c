//! Request, phases, filters, variables and the plan of the http area.

use conf_schema::{Block, Complaint, Cx, Table};
use net::listen::ListenSpec;

/// What the http block says, ready to run. Immutable; a reload builds a new one.
#[derive(Debug, Default)]
pub struct HttpPlan {
    /// Every socket that the servers listen on, one entry an address.
    pub listeners: Vec<ListenSpec>,
}

/// The tables of the engine itself and of every feature.
pub fn tables() -> Vec<Table> {
    Vec::new()
}

/// Builds the plan of a checked http block. Warnings are added to `cx.warnings`.
///
/// # Errors
/// What is wrong with the whole (a missing zone, conflicting listen options, ...).
pub fn build(http: Block<'_>, cx: &mut Cx) -> Result<HttpPlan, Vec<Complaint>> {
    let _ = (http, cx);
    Ok(HttpPlan::default())
}
