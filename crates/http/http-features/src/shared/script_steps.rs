//! Lines of other features that run in a block's script, in order with `set`, `if` and `rewrite`.

use conf_schema::{At, Cx};
use http_engine::variable::VarId;
use http_engine::{HttpTemplate, Request};
use std::sync::Arc;

/// Number of the last script line, in `Cx`.
#[derive(Default)]
struct ScriptOrder(usize);

/// Index of the current line among all script lines.
pub fn next_order(cx: &mut Cx) -> usize {
    let order = cx.get::<ScriptOrder>();
    order.0 += 1;
    order.0
}

#[derive(Clone)]
pub struct ScriptStep {
    pub order: usize,
    pub at: At,
    pub variable: VarId,
    /// Operands, evaluated in order before the computation.
    pub arguments: Vec<HttpTemplate>,
    /// Leading arguments that may lack a value without a warning.
    pub quiet: usize,
    pub compute: Arc<dyn Compute>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputedValue {
    Value,
    Unchanged,
    /// Responds with 500; the cause is logged.
    Failed,
}

pub trait Compute: Send + Sync {
    fn compute(&self, r: &mut Request, values: &[Vec<u8>], out: &mut Vec<u8>) -> ComputedValue;
}

/// Lines of the block being planned, in `Cx`.
#[derive(Default)]
struct WaitingLines(Vec<ScriptStep>);

/// Passes a block's lines to its script, which is planned later ([`http_engine::PlanOrder::Before`]).
pub fn hand_over(cx: &mut Cx, steps: impl Iterator<Item = ScriptStep>) {
    cx.get::<WaitingLines>().0.extend(steps);
}

pub fn take_steps(cx: &mut Cx) -> Vec<ScriptStep> {
    cx.take::<WaitingLines>().0
}
