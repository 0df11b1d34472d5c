//! Lines of other features that run in the script of a block, between its `set`, `if` and `rewrite` lines, in the order in which they
//! are written.

use conf_schema::{At, Cx};
use http_engine::variable::VarId;
use http_engine::{Request, Template};
use std::sync::Arc;

/// The number of the last line of a script; kept in `Cx` while a configuration is read.
#[derive(Default)]
struct Order(usize);

/// The place of the line that is being read among all lines of scripts.
pub fn next_order(cx: &mut Cx) -> usize {
    let order = cx.get::<Order>();
    order.0 += 1;
    order.0
}

/// A line that computes a variable.
#[derive(Clone)]
pub struct Step {
    pub order: usize,
    pub at: At,
    pub variable: VarId,
    /// Operands, evaluated in their order before the computation runs.
    pub arguments: Vec<Template>,
    /// How many of the arguments, from the first on, may be without a value: no warning is logged.
    pub quiet: usize,
    pub compute: Arc<dyn Compute>,
}

/// The outcome of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// The variable has what was written.
    Value,
    /// The variable stays as it is.
    Unchanged,
    /// The request is answered with 500; the cause has been logged.
    Failed,
}

/// Computes the value of a line.
pub trait Compute: Send + Sync {
    /// Computes a value of the arguments' values.
    fn compute(&self, r: &mut Request, values: &[Vec<u8>], out: &mut Vec<u8>) -> Computed;
}

/// The lines of the block that is being planned; kept in `Cx` until the block's script takes them.
#[derive(Default)]
struct Waiting(Vec<Step>);

/// Hands the lines of a block over to its script, which is planned later ([`http_engine::PlanOrder::Before`]).
pub fn hand_over(cx: &mut Cx, steps: impl Iterator<Item = Step>) {
    cx.get::<Waiting>().0.extend(steps);
}

/// Takes the lines of the block that is being planned.
pub fn take(cx: &mut Cx) -> Vec<Step> {
    cx.take::<Waiting>().0
}
