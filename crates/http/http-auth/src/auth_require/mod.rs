//! auth_require (nginx: `ngx_http_auth_require_module`): access by the values of variables.

use crate::shared::requirement::Requirement;
use conf_schema::value::ValueList;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct AuthRequireConf from AuthRequireInput {
        /// Admits a request if no value is empty or `0`; otherwise it gets 403, or the status of `error`. Several
        /// lines are checked in their order, each with its own status. Checks that set variables come before
        /// (`auth_jwt`, `auth_oidc`, `auth_request`).
        auth_require: ValueList<Require>,
    }
}

/// `auth_require`
#[derive(Clone)]
pub struct Require(Arc<Requirement>);

impl ValueKind for Require {
    const SYNTAX: &'static str = "$value ... [error=4xx | 5xx]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let is_allowed = |status| (400..600).contains(&status);
        let requirement = Requirement::parse(cx, d, 403, is_allowed, "\"error\" is a status from 400 to 599")?;
        Ok(Require(Arc::new(requirement)))
    }
}

/// The feature.
pub struct AuthRequire;

impl Feature for AuthRequire {
    fn table(&self) -> FeatureTable {
        AuthRequireConf::table("auth_require", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(ValueList(lines)) =
            conf.downcast_ref::<AuthRequireConf>().and_then(|conf| conf.auth_require.as_ref())
        {
            let check = RequireCheck(lines.iter().map(|line| line.0.clone()).collect());
            block.handle(HandlerOrder::AuthRequire, Arc::new(check));
        }
        Ok(())
    }
}

struct RequireCheck(Box<[Arc<Requirement>]>);

impl Handler for RequireCheck {
    fn run(&self, r: &mut Request) -> Flow {
        match self.0.iter().find(|requirement| !requirement.holds(r)) {
            Some(requirement) => Flow::Status(requirement.status),
            None => {
                http_engine::failed_logins::forgive_failure(r);
                Flow::Allowed
            }
        }
    }
}
