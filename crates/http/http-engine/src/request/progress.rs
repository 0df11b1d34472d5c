//! Progress of a request in the engine, and its detours.

use super::{FolderPage, ScriptState};
use crate::order::Phase;
use std::rc::Rc;

/// Position in the phases, and the state of detours.
#[derive(Default)]
pub struct RequestProgress {
    /// The current phase.
    pub phase: Phase,
    /// Index of the next handler in the current phase's list.
    pub handler: usize,
    /// A passing `if` block was replaced by one without a handler: no target, as in nginx.
    pub handler_lost: bool,
    /// May use `internal` locations.
    pub internal: bool,
    /// Remaining internal redirects and rewrite cycles; 0 ends the request with 500.
    pub uri_changes_left: u8,
    /// Under `satisfy any`: the status if no check grants access.
    pub access_status: u16,
    /// Nesting of `if` blocks in a rewrite script, and its escaping of captures.
    pub script: ScriptState,
    /// Processing an error page: its errors get the built-in page, unless `recursive_error_pages` is on.
    pub error_page: bool,
    /// Status that an error page keeps (nginx: `r->err_status`).
    pub error_status: u16,
    /// A folder's error pages, which precede those of the configuration.
    pub folder_pages: Option<Rc<[(u16, FolderPage)]>>,
    /// Running `post_action` after the response; its own response is discarded.
    pub post_action: bool,
    /// A filter replaced the response by an error (nginx: `filter_finalize`).
    pub filter_failed: bool,
    /// `post_action` ran after such an error: the log line is final.
    pub settled: bool,
}

impl RequestProgress {
    pub(super) fn reset(&mut self) {
        *self = RequestProgress::default();
    }
}
