//! set (nginx: `ngx_stream_set_module`): assigns variables before access is checked.

use crate::StreamTemplate;
use crate::StreamVariables;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler, PreaccessOrder};
use crate::session::StreamSession;
use conf_schema::value::ValueList;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use std::any::Any;
use std::sync::Arc;
use variables::variable::VarId;

directives! {
    pub struct SetConf from SetInput {
        /// Sets a variable.
        set: ValueList<Assignment>,
    }
}

#[derive(Clone)]
pub struct Assignment {
    variable: VarId,
    value: StreamTemplate,
}

impl ValueKind for Assignment {
    const SYNTAX: &'static str = "$variable value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(name), Some(value)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let shown = name.text().into_owned();
        let Some(name) = shown.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{shown}\""))
                .at(0)
                .hint("a variable name begins with \"$\""));
        };
        let variable = cx.get::<StreamVariables>().script(name).map_err(|p| p.at(0))?;
        Ok(Assignment { variable, value: StreamTemplate::compile(cx, d, &value.bytes).map_err(|p| p.at(1))? })
    }
}

pub struct SetLine;

impl Feature for SetLine {
    fn table(&self) -> FeatureTable {
        SetConf::table("set", ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(ValueList(all)) = conf.downcast_ref::<SetConf>().and_then(|conf| conf.set.clone()) {
            block.server.preaccess.push((PreaccessOrder::Set, Arc::new(Assign(all))));
        }
        Ok(())
    }
}

struct Assign(Vec<Assignment>);

impl Handler for Assign {
    fn run(&self, s: &mut StreamSession) -> Flow {
        for one in &self.0 {
            let value = one.value.eval(s);
            s.set_variable(one.variable, value);
        }
        Flow::Declined
    }
}
