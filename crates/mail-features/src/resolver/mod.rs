//! resolver, resolver_timeout: name servers for the host names of SMTP clients (nginx: `ngx_mail_core_module`).

use crate::build::{Feature, ServerBuild};
use conf_schema::value::Msec;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use resolver::ResolveRules;
use std::any::Any;
use std::sync::Arc;
use upstream_directives::ResolverLine;

directives! {
    pub struct ResolverConf from ResolverInput {
        /// Name servers for the lookup of the client's host name, which is sent to SMTP servers (XCLIENT) and to the
        /// authentication server.
        resolver: ResolverWords = "off",
        /// Maximum time to resolve a name.
        resolver_timeout: Msec = "30s",
    }
}

#[derive(Clone)]
pub struct ResolverWords(Option<ResolverLine>);

impl ValueKind for ResolverWords {
    const SYNTAX: &'static str = "off | address ... [valid=time] [ipv4=on|off] [ipv6=on|off]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first() {
            Some(word) if word.bytes == b"off" => Ok(ResolverWords(None)),
            _ => ResolverLine::parse(cx, d).map(|line| ResolverWords(Some(line))),
        }
    }
}

pub struct MailResolver;

impl Feature for MailResolver {
    fn table(&self) -> FeatureTable {
        ResolverConf::table("resolver", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<ResolverConf>() {
            let timeout = conf.resolver_timeout.duration();
            let line = conf.resolver.0.as_ref();
            block.server.resolving =
                line.map(|ResolverLine(resolver)| ResolveRules { resolver: resolver.clone(), timeout });
        }
        Ok(())
    }
}
