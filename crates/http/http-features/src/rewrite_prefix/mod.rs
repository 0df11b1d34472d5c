//! rewrite_prefix: replaces the location's name in the path that goes to an upstream server.

use crate::shared::prefixes;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::path::CanonicalPath;
use http_engine::trace::StepKind;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct RewritePrefixConf from RewritePrefixInput {
        /// Replaces the location's name, a path or a prefix, at the start of the path: `$uri` changes as with `rewrite ... break`, after
        /// all directives of rewriting and before access checks, and `proxy_pass`, `grpc_pass` and the like without a URI pass the new
        /// path on. The query stays, no doubled slash arises at the seam, and the path is `/` at least. The prefix is decoded text without
        /// variables. Locations in the location do not inherit it, `if` blocks do.
        rewrite_prefix: Prefix,
    }
}

#[derive(Clone, Debug)]
pub struct Prefix {
    /// Of the location.
    name: Vec<u8>,
    new: Vec<u8>,
}

impl ValueKind for Prefix {
    const SYNTAX: &'static str = "prefix";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let new = conf_schema::value::word_at(d, 0)?.bytes.clone();
        if !new.starts_with(b"/") {
            let text = String::from_utf8_lossy(&new).into_owned();
            return Err(Problem::says(format!("invalid prefix \"{text}\""))
                .at(0)
                .hint("a path that begins with \"/\""));
        }
        CanonicalPath::configured(&new).map_err(|p| p.at(0))?;
        Ok(Prefix { name: prefixes::of_location(cx)?, new })
    }
}

pub struct RewritePrefix;

impl Feature for RewritePrefix {
    fn table(&self) -> FeatureTable {
        RewritePrefixConf::table("rewrite_prefix", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RewritePrefixConf>() else { return Ok(()) };
        // An inner location has inherited the prefix of another name.
        if let Some(prefix) = conf.rewrite_prefix.as_ref().filter(|prefix| prefix.name == block.location.name) {
            block.handle(HandlerOrder::RewritePrefix, Arc::new(prefix.clone()));
        }
        Ok(())
    }
}

impl Handler for Prefix {
    fn run(&self, r: &mut Request) -> Flow {
        let plain = |rest: &[u8], out: &mut Vec<u8>| out.extend_from_slice(rest);
        // After `rewrite ... break` the path need not begin with the name.
        let Some(path) = prefixes::replace_prefix(r.target.path(), &self.name, &self.new, plain) else {
            return Flow::Declined;
        };
        match CanonicalPath::made(path) {
            Ok(path) => {
                r.note(StepKind::Rewrite, r.loc().at, |r| {
                    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    format!("rewrite_prefix: \"{}\" to \"{}\"", shown(r.target.path()), shown(&path))
                });
                r.target.set_path(path);
                r.target.note_path_change();
                r.target.leave_location();
                Flow::Declined
            }
            Err(_) => {
                r.log(Severity::Error, format_args!("\"rewrite_prefix\" leads above the root"));
                Flow::Status(400)
            }
        }
    }
}
