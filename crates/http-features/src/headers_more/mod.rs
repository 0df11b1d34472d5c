//! more_set_headers and its kin (the module `headers-more` by others): any field of a request or a response is set, or taken away.
//!
//! `lines.rs` reads the lines; `incoming.rs` changes requests, `outgoing.rs` responses.

mod incoming;
mod lines;
mod outgoing;
#[cfg(test)]
mod tests;

use conf_schema::{Area, Problem, Table, directives};
use http_engine::{BlockPlan, Feature, FilterOrder};
use lines::{ClearIn, ClearOut, Line, Lines, SetIn, SetOut};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct MoreConf from MoreInput {
        /// Sets fields of responses, whatever their status: `-s` and `-t` name the statuses and types that it is done for, `-a` adds to what is there.
        /// Differs: `Content-Length`, `Transfer-Encoding` and `Connection` cannot be set: they say how the response is framed.
        more_set_headers: Lines<SetOut>,
        /// Takes fields of responses away; a name that ends with `*` stands for all that begin so.
        more_clear_headers: Lines<ClearOut>,
        /// Sets fields of requests before they are handled: `-t` names the types that it is done for, `-r` replaces what is there and adds nothing.
        /// Differs: `Content-Length` and `Transfer-Encoding` cannot be set: they say how the request was framed.
        more_set_input_headers: Lines<SetIn>,
        /// Takes fields of requests away; a name that ends with `*` stands for all that begin so.
        more_clear_input_headers: Lines<ClearIn>,
    }
}

/// The feature.
pub struct HeadersMore;

impl Feature for HeadersMore {
    fn table(&self) -> Table {
        let mut table = MoreConf::table("headers_more", Area::Http);
        // Lines of the enclosing block are done before a block's own.
        table.inherit = |inner, outer| {
            if let (Some(inner), Some(outer)) = (inner.downcast_mut::<MoreInput>(), outer.downcast_ref::<MoreInput>()) {
                let depth = outer.depth();
                Lines::under(&mut inner.more_set_headers, &outer.more_set_headers, depth);
                Lines::under(&mut inner.more_clear_headers, &outer.more_clear_headers, depth);
                Lines::under(&mut inner.more_set_input_headers, &outer.more_set_input_headers, depth);
                Lines::under(&mut inner.more_clear_input_headers, &outer.more_clear_input_headers, depth);
            }
        };
        table
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MoreConf>() else { return Ok(()) };
        let incoming = joined(
            conf.more_set_input_headers.as_ref().map(Lines::all),
            conf.more_clear_input_headers.as_ref().map(Lines::all),
        );
        if !incoming.is_empty() {
            // After the rewrite rules, before anything that looks at the request.
            block.location.preaccess.insert(0, Arc::new(incoming::Incoming(incoming)));
        }
        let outgoing =
            joined(conf.more_set_headers.as_ref().map(Lines::all), conf.more_clear_headers.as_ref().map(Lines::all));
        if !outgoing.is_empty() {
            block.location.filters.push((FilterOrder::MoreHeaders, Arc::new(outgoing::Outgoing(outgoing))));
        }
        Ok(())
    }
}

impl MoreInput {
    /// How many blocks around it have lines, with its own.
    fn depth(&self) -> usize {
        let all = [
            self.more_set_headers.as_ref().map(|given| given.value.all()),
            self.more_clear_headers.as_ref().map(|given| given.value.all()),
            self.more_set_input_headers.as_ref().map(|given| given.value.all()),
            self.more_clear_input_headers.as_ref().map(|given| given.value.all()),
        ];
        all.iter().flatten().flat_map(|lines| lines.iter()).map(|line| line.depth + 1).max().unwrap_or(0)
    }
}

/// Lines of two directives, in the order in which they are written.
fn joined(set: Option<&[Arc<Line>]>, clear: Option<&[Arc<Line>]>) -> Vec<Arc<Line>> {
    let mut all: Vec<Arc<Line>> = set.into_iter().chain(clear).flatten().cloned().collect();
    all.sort_by_key(|line| (line.depth, line.number));
    all
}
