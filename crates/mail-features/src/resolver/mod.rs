//! resolver, resolver_timeout: who is asked for the host names of SMTP clients (nginx: `ngx_mail_core_module`).

use crate::build::{Feature, ServerBuild};
use conf_schema::value::Msec;
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use session_engine::upstreams::{ResolverLine, Resolving};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What a block is told of names.
    pub struct ResolverConf from ResolverInput {
        /// The name servers that are asked, in turn, for the name of a client's address, and for the addresses of that name: SMTP
        /// servers are told the name (XCLIENT), and the authentication server is.
        resolver: Line = "off",
        /// How long a question may take.
        resolver_timeout: Msec = "30s",
    }
}

/// `resolver off`, or as in the other areas.
#[derive(Clone)]
pub struct Line(Option<ResolverLine>);

impl Value for Line {
    const SYNTAX: &'static str = "off | address ... [valid=time] [ipv4=on|off] [ipv6=on|off]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first() {
            Some(word) if word.bytes == b"off" => Ok(Line(None)),
            _ => ResolverLine::parse(cx, d).map(|line| Line(Some(line))),
        }
    }
}

/// The feature.
pub struct Resolver;

impl Feature for Resolver {
    fn table(&self) -> Table {
        ResolverConf::table("resolver", Area::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<ResolverConf>() {
            let timeout = conf.resolver_timeout.duration();
            let line = conf.resolver.0.as_ref();
            block.server.resolving =
                line.map(|ResolverLine(resolver)| Resolving { resolver: resolver.clone(), timeout });
        }
        Ok(())
    }
}
