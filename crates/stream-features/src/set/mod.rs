//! set (nginx: `ngx_stream_set_module`): assigns variables before access is checked.

use crate::Template;
use crate::Variables;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Handler, PreaccessOrder};
use crate::session::StreamSession;
use conf_schema::value::List;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use session_engine::variable::VarId;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct SetConf from SetInput {
        /// Sets a variable.
        set: List<Assignment>,
    }
}

#[derive(Clone)]
pub struct Assignment {
    variable: VarId,
    value: Template,
}

impl Value for Assignment {
    const SYNTAX: &'static str = "$variable value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(name), Some(value)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let shown = name.text().into_owned();
        let Some(name) = shown.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{shown}\""))
                .at(0)
                .hint("a variable name begins with \"$\""));
        };
        let variable = cx.get::<Variables>().script(name).map_err(|p| p.at(0))?;
        Ok(Assignment { variable, value: Template::compile(cx, d, &value.bytes).map_err(|p| p.at(1))? })
    }
}

pub struct Set;

impl Feature for Set {
    fn table(&self) -> Table {
        SetConf::table("set", Area::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(List(all)) = conf.downcast_ref::<SetConf>().and_then(|conf| conf.set.clone()) {
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
