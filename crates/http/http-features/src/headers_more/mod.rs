//! more_set_headers and related (third-party module `headers-more`): sets and removes any field; `incoming.rs` in
//! requests, `outgoing.rs` in responses.

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
    pub struct MoreConf from MoreInput {
        /// Sets response fields: `-s` and `-t` limit it to statuses and media types, `-a` appends instead of replacing.
        /// Differs: `Content-Length`, `Transfer-Encoding` and `Connection` cannot be set, because they delimit the
        /// response.
        more_set_headers: Lines<SetOut>,
        /// Removes response fields; `*` at the end of a name matches any suffix.
        more_clear_headers: Lines<ClearOut>,
        /// Sets request fields before any handler runs: `-t` limits it to media types, `-r` only replaces existing
        /// fields.
        /// Differs: `Content-Length` and `Transfer-Encoding` cannot be set, because they delimit the request.
        more_set_input_headers: Lines<SetIn>,
        /// Removes request fields; `*` at the end of a name matches any suffix.
        more_clear_input_headers: Lines<ClearIn>,
    }
}

pub struct HeadersMore;

impl Feature for HeadersMore {
    fn table(&self) -> Table {
        let mut table = MoreConf::table("headers_more", Area::Http);
        // Lines of the enclosing block come first.
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
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MoreConf>() else { return Ok(()) };
        let incoming = joined(
            conf.more_set_input_headers.as_ref().map(Lines::all),
            conf.more_clear_input_headers.as_ref().map(Lines::all),
        );
        if !incoming.is_empty() {
            // After rewriting, before any handler reads the request.
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
    /// Including this block.
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

/// In the written order.
fn joined(set: Option<&[Arc<Line>]>, clear: Option<&[Arc<Line>]>) -> Vec<Arc<Line>> {
    let mut all: Vec<Arc<Line>> = set.into_iter().chain(clear).flatten().cloned().collect();
    all.sort_by_key(|line| (line.depth, line.number));
    all
}
