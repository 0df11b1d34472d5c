//! resolver, resolver_timeout: who is asked for the addresses of names that are known only when a request comes
//! (nginx: `ngx_http_core_module`, `ngx_resolver.c`).

use crate::shared::resolving::Resolving;
use conf_schema::value::{Msec, parse_sec};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature, listen};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

directives! {
    /// What a block is told of names.
    pub struct ResolverConf from ResolverInput {
        /// The name servers that are asked for addresses, in turn.
        resolver: Line,
        /// How long a name may take.
        resolver_timeout: Msec = "30s",
    }
}

/// `resolver address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]`
#[derive(Clone)]
pub struct Line(Arc<upstream::resolver::Resolver>);

impl Value for Line {
    const SYNTAX: &'static str = "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut servers, mut valid, mut ipv4, mut ipv6) = (Vec::new(), None, true, true);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid parameter: {text}")).at(index);
            let switch = |value: &str| match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(invalid()),
            };
            match text.split_once('=') {
                Some(("valid", value)) => {
                    let seconds = parse_sec(value.as_bytes()).ok_or_else(invalid)?;
                    valid = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                Some(("ipv4", value)) => ipv4 = switch(value)?,
                Some(("ipv6", value)) => ipv6 = switch(value)?,
                Some(("status_zone", zone)) if !zone.is_empty() => {}
                Some(_) => return Err(invalid()),
                None => {
                    let found = listen::addresses(&text, 53)
                        .map_err(|why| Problem::says(format!("{why} in resolver \"{text}\"")).at(index))?;
                    servers.extend(found.into_iter().filter_map(|a| match a {
                        net::listen::Address::Ip(ip) => Some(ip),
                        net::listen::Address::Unix(_) => None,
                    }));
                }
            }
        }
        if !ipv4 && !ipv6 {
            return Err(Problem::says("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
        }
        if servers.is_empty() {
            return Err(Problem::says("no name servers defined"));
        }
        Ok(Line(Arc::new(upstream::resolver::Resolver::new(servers, valid, ipv4, ipv6))))
    }
}

/// The feature.
pub struct Resolver;

impl Feature for Resolver {
    fn table(&self) -> Table {
        ResolverConf::table("resolver", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ResolverConf>() else { return Ok(()) };
        if let Some(Line(resolver)) = &conf.resolver {
            let timeout = conf.resolver_timeout.duration();
            block.location.things.push(Arc::new(Resolving { resolver: resolver.clone(), timeout }));
        }
        Ok(())
    }
}
