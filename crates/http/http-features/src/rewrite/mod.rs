//! rewrite, set, if, return, break (nginx: `ngx_http_rewrite_module`, `ngx_http_script.c`). The directives of a block
//! form a script.
//! Values are written into a growing buffer: there is no separate length pass to disagree with.

mod condition;
mod script;

use crate::shared::script_steps;
use conf_schema::value::Flag;
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::session::QuietlyUninitialized;
use http_engine::{BlockPlan, Feature, HandlerOrder};
use script::{Op, Script};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct RewriteConf from RewriteInput {
        /// Ends processing and responds with a status, a text or a redirect.
        /// Differs: line breaks and NUL in the target of a redirect are percent-encoded. The status 0 is sent as 200.
        r#return: RewriteLine,
        /// Replaces the URI if a regular expression matches it.
        /// Differs: line breaks and NUL in the target of a redirect are percent-encoded. Dot segments of a replaced URI
        /// are resolved; a URI above the root gets 400.
        rewrite: RewriteLine,
        /// Sets a variable.
        set: RewriteLine,
        /// Applies directives if a condition holds.
        r#if: RewriteLine,
        /// Ends the rewrite directives of this block.
        r#break: RewriteLine,
        /// Logs the processing of rewrite directives at level `notice`.
        rewrite_log: Flag = "off",
        /// Logs the use of variables without a value.
        uninitialized_variable_warn: Flag = "on",
    }
}

#[derive(Clone)]
pub struct RewriteLine(Arc<Vec<Op>>);

impl ValueKind for RewriteLine {
    const SYNTAX: &'static str = "...";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let op = script::parse_operation(cx, d)?;
        // `order` sorts lines of different directives.
        Ok(RewriteLine(Arc::new(vec![op])))
    }
    fn append(&mut self, later: Self) {
        Arc::make_mut(&mut self.0).extend(later.0.iter().cloned());
    }
}

pub struct RewriteRules;

impl Feature for RewriteRules {
    fn table(&self) -> FeatureTable {
        RewriteConf::table("rewrite", ContextArea::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RewriteConf>() else { return Ok(()) };
        if !conf.uninitialized_variable_warn {
            block.location.extensions.push(Arc::new(QuietlyUninitialized));
        }
        let lines = [&conf.r#return, &conf.rewrite, &conf.set, &conf.r#if, &conf.r#break];
        let mut ops: Vec<Op> = lines.into_iter().flatten().flat_map(|line| line.0.iter().cloned()).collect();
        let steps = script_steps::take_steps(block.cx).into_iter();
        ops.extend(steps.map(|step| Op { order: step.order, at: step.at, kind: script::OpKind::Step(Box::new(step)) }));
        if ops.is_empty() {
            return Ok(());
        }
        ops.sort_by_key(|op| op.order);
        let script = Arc::new(Script { ops, children: block.children.to_vec(), log: conf.rewrite_log });
        // An `if` block's script runs within the enclosing one.
        let order = if block.context == Contexts::server { HandlerOrder::ServerScript } else { HandlerOrder::Script };
        block.handle(order, script);
        Ok(())
    }
}
