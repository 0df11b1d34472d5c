//! more_set_headers and related (third-party module `headers-more`): sets and removes any field; `incoming.rs` in
//! requests, `outgoing.rs` in responses. `request_header_set`, `response_header_set` and related have one field a line.

mod incoming;
mod lines;
mod outgoing;
#[cfg(test)]
mod tests;

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, FilterOrder, HandlerOrder};
use lines::{
    AddRequest, AddResponse, ClearIn, ClearOut, MoreLine, MoreLines, RemoveRequest, RemoveResponse, SetIn, SetOut,
    SetRequest, SetResponse,
};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MoreConf from MoreInput {
        /// Sets response fields: `-s` and `-t` limit it to statuses and media types, `-a` appends instead of replacing.
        /// Differs: `Content-Length`, `Transfer-Encoding` and `Connection` cannot be set, because they delimit the
        /// response.
        more_set_headers: MoreLines<SetOut>,
        /// Removes response fields; `*` at the end of a name matches any suffix.
        more_clear_headers: MoreLines<ClearOut>,
        /// Sets request fields before any handler runs: `-t` limits it to media types, `-r` only replaces existing
        /// fields.
        /// Differs: `Content-Length` and `Transfer-Encoding` cannot be set, because they delimit the request.
        more_set_input_headers: MoreLines<SetIn>,
        /// Removes request fields; `*` at the end of a name matches any suffix.
        more_clear_input_headers: MoreLines<ClearIn>,
        /// Sets a request field, or replaces all of its name, for upstream servers of any kind and for everything behind rewriting: access
        /// checks, variables such as `$http_name`, the log. An empty value removes the field. Lines add up over levels, the outer ones
        /// first, and apply in their order with those of `request_header_add` and `request_header_remove`, each once for a request,
        /// whatever internal redirects follow. A subrequest has the fields of its parent. Fields that belong to the connection or
        /// delimit the message are refused. `proxy_set_header` and the like have precedence.
        request_header_set: MoreLines<SetRequest>,
        /// Appends a value to a request field, behind a comma (`; ` in `Cookie`), or adds the field. See `request_header_set`.
        request_header_add: MoreLines<AddRequest>,
        /// Removes request fields. See `request_header_set`.
        request_header_remove: MoreLines<RemoveRequest>,
        /// Sets a field of responses to clients, of any status and source, or replaces all of its name. An empty value removes the field.
        /// Lines add up over levels, the outer ones first, and apply in their order with those of `response_header_add` and
        /// `response_header_remove`, before `add_header`. Fields that belong to the connection or delimit the message are refused.
        response_header_set: MoreLines<SetResponse>,
        /// Adds a field to responses, beside those of its name. See `response_header_set`.
        response_header_add: MoreLines<AddResponse>,
        /// Removes fields of responses. See `response_header_set`.
        response_header_remove: MoreLines<RemoveResponse>,
    }
}

pub struct HeadersMore;

impl Feature for HeadersMore {
    fn table(&self) -> FeatureTable {
        let mut table = MoreConf::table("headers_more", ContextArea::Http);
        // Lines of the enclosing block come first.
        table.inherit = |inner, outer| {
            if let (Some(inner), Some(outer)) = (inner.downcast_mut::<MoreInput>(), outer.downcast_ref::<MoreInput>()) {
                let depth = outer.depth();
                MoreLines::under(&mut inner.more_set_headers, &outer.more_set_headers, depth);
                MoreLines::under(&mut inner.more_clear_headers, &outer.more_clear_headers, depth);
                MoreLines::under(&mut inner.more_set_input_headers, &outer.more_set_input_headers, depth);
                MoreLines::under(&mut inner.more_clear_input_headers, &outer.more_clear_input_headers, depth);
                MoreLines::under(&mut inner.request_header_set, &outer.request_header_set, depth);
                MoreLines::under(&mut inner.request_header_add, &outer.request_header_add, depth);
                MoreLines::under(&mut inner.request_header_remove, &outer.request_header_remove, depth);
                MoreLines::under(&mut inner.response_header_set, &outer.response_header_set, depth);
                MoreLines::under(&mut inner.response_header_add, &outer.response_header_add, depth);
                MoreLines::under(&mut inner.response_header_remove, &outer.response_header_remove, depth);
            }
        };
        table
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MoreConf>() else { return Ok(()) };
        let incoming = joined([
            conf.more_set_input_headers.as_ref().map(MoreLines::all),
            conf.more_clear_input_headers.as_ref().map(MoreLines::all),
            conf.request_header_set.as_ref().map(MoreLines::all),
            conf.request_header_add.as_ref().map(MoreLines::all),
            conf.request_header_remove.as_ref().map(MoreLines::all),
        ]);
        if !incoming.is_empty() {
            block.handle(HandlerOrder::RequestFields, Arc::new(incoming::IncomingLines(incoming)));
        }
        let outgoing = joined([
            conf.more_set_headers.as_ref().map(MoreLines::all),
            conf.more_clear_headers.as_ref().map(MoreLines::all),
            conf.response_header_set.as_ref().map(MoreLines::all),
            conf.response_header_add.as_ref().map(MoreLines::all),
            conf.response_header_remove.as_ref().map(MoreLines::all),
        ]);
        if !outgoing.is_empty() {
            block.location.filters.push((FilterOrder::MoreHeaders, Arc::new(outgoing::OutgoingLines(outgoing))));
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
            self.request_header_set.as_ref().map(|given| given.value.all()),
            self.request_header_add.as_ref().map(|given| given.value.all()),
            self.request_header_remove.as_ref().map(|given| given.value.all()),
            self.response_header_set.as_ref().map(|given| given.value.all()),
            self.response_header_add.as_ref().map(|given| given.value.all()),
            self.response_header_remove.as_ref().map(|given| given.value.all()),
        ];
        all.iter().flatten().flat_map(|lines| lines.iter()).map(|line| line.depth + 1).max().unwrap_or(0)
    }
}

/// In the written order.
fn joined<const N: usize>(kinds: [Option<&[Arc<MoreLine>]>; N]) -> Vec<Arc<MoreLine>> {
    let mut all: Vec<Arc<MoreLine>> = kinds.into_iter().flatten().flatten().cloned().collect();
    all.sort_by_key(|line| (line.depth, line.number));
    all
}
