//! rewrite, set, if, return, break (nginx: `ngx_http_rewrite_module`, `ngx_http_script.c`).
//!
//! The directives of a block form a script that runs in order. A value is written once into a growing buffer: there is no pass
//! that computes a length for another pass to trust.

mod condition;
mod script;

use crate::shared::script_steps;
use conf_schema::value::Flag;
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature, HandlerOrder};
use script::{Op, Script};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the rewrite module is told in a block.
    pub struct RewriteConf from RewriteInput {
        /// Stops processing, and answers with a code, a text or a redirect.
        /// Differs: line ends and NUL in the target of a redirect are percent-encoded.
        r#return: Line,
        /// Changes the URI when a regular expression matches it.
        /// Differs: line ends and NUL in the target of a redirect are percent-encoded. Dot segments of a changed URI are resolved; one that leads
        /// above the root is answered with 400.
        rewrite: Line,
        /// Gives a variable a value.
        set: Line,
        /// Directives that hold when a condition does.
        r#if: Line,
        /// Stops the rewrite directives of this block.
        r#break: Line,
        /// Whether the rewrite directives log what they do (level notice).
        rewrite_log: Flag = "off",
        /// Whether variables without a value are noted in the error log.
        uninitialized_variable_warn: Flag = "on",
    }
}

/// One line of the script.
#[derive(Clone)]
pub struct Line(Arc<Vec<Op>>);

impl Value for Line {
    const SYNTAX: &'static str = "...";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let op = script::parse(cx, d)?;
        // The order among different directives is that of the numbers.
        Ok(Line(Arc::new(vec![op])))
    }
    fn append(&mut self, later: Self) {
        Arc::make_mut(&mut self.0).extend(later.0.iter().cloned());
    }
}

/// The feature.
pub struct Rewrite;

impl Feature for Rewrite {
    fn table(&self) -> Table {
        RewriteConf::table("rewrite", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RewriteConf>() else { return Ok(()) };
        let lines = [&conf.r#return, &conf.rewrite, &conf.set, &conf.r#if, &conf.r#break];
        let mut ops: Vec<Op> = lines.into_iter().flatten().flat_map(|line| line.0.iter().cloned()).collect();
        let steps = script_steps::take(block.cx).into_iter();
        ops.extend(steps.map(|step| Op { order: step.order, at: step.at, kind: script::Kind::Step(Box::new(step)) }));
        if ops.is_empty() {
            return Ok(());
        }
        ops.sort_by_key(|op| op.order);
        let script = Arc::new(Script {
            ops,
            children: block.children.to_vec(),
            log: conf.rewrite_log,
            warn: conf.uninitialized_variable_warn,
        });
        // An `if` block's script runs as a part of the enclosing one: it is found through its location.
        let order = if block.context == Contexts::server { HandlerOrder::ServerScript } else { HandlerOrder::Script };
        block.handle(order, script);
        Ok(())
    }
}
