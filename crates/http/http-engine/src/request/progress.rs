//! Progress of a request in the engine, and its detours.

use super::{FolderPage, ScriptState};
use crate::order::Phase;
use std::rc::Rc;

/// Position in the phases, and the state of detours.
#[derive(Default)]
pub struct RequestProgress {
    /// The current phase.
    pub(crate) phase: Phase,
    /// Index of the next handler in the current phase's list.
    pub(crate) handler: usize,
    /// A passing `if` block was replaced by one without a handler: no target, as in nginx.
    pub(crate) handler_lost: bool,
    /// May use `internal` locations.
    pub(crate) internal: bool,
    /// Remaining internal redirects and rewrite cycles; 0 ends the request with 500.
    pub(crate) uri_changes_left: u8,
    /// Under `satisfy any`: the status if no check grants access.
    pub(crate) access_status: u16,
    /// Nesting of `if` blocks in a rewrite script, and its escaping of captures.
    pub(crate) script: ScriptState,
    /// Processing an error page: its errors get the built-in page, unless `recursive_error_pages` is on.
    pub(crate) error_page: bool,
    /// Status that an error page keeps (nginx: `r->err_status`).
    pub(crate) error_status: u16,
    /// A folder's error pages, which precede those of the configuration.
    pub(crate) folder_pages: Option<Rc<[(u16, FolderPage)]>>,
    /// Running `post_action` after the response; its own response is discarded.
    pub(crate) post_action: bool,
    /// A filter replaced the response by an error (nginx: `filter_finalize`).
    pub(crate) filter_failed: bool,
    /// `post_action` ran after such an error: the log line is final.
    pub(crate) settled: bool,
}

impl RequestProgress {
    /// Returns the current phase.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }
    /// Tells whether a passing `if` block was replaced by one without a handler.
    #[inline]
    pub fn is_handler_lost(&self) -> bool {
        self.handler_lost
    }
    /// Notes whether a passing `if` block was replaced by one without a handler: no target, as in nginx.
    #[inline]
    pub fn set_handler_lost(&mut self, is_lost: bool) {
        self.handler_lost = is_lost;
    }
    /// Tells whether the request may use `internal` locations.
    #[inline]
    pub fn is_internal(&self) -> bool {
        self.internal
    }
    /// Lets the request use `internal` locations.
    #[inline]
    pub fn allow_internal(&mut self) {
        self.internal = true;
    }
    /// Returns the remaining internal redirects and rewrite cycles.
    #[inline]
    pub fn uri_changes_left(&self) -> u8 {
        self.uri_changes_left
    }
    /// Returns the nesting of a rewrite script, to be changed by the script.
    #[inline]
    pub fn script_mut(&mut self) -> &mut ScriptState {
        &mut self.script
    }
    /// Returns the nesting of a rewrite script.
    #[inline]
    pub fn script(&self) -> ScriptState {
        self.script
    }
    /// Tells whether an error page is being processed.
    #[inline]
    pub fn is_error_page(&self) -> bool {
        self.error_page
    }
    /// Returns the status that an error page keeps; 0: none (nginx: `r->err_status`).
    #[inline]
    pub fn error_status(&self) -> u16 {
        self.error_status
    }
    /// Gives up the status that an error page keeps.
    #[inline]
    pub fn forget_error_status(&mut self) {
        self.error_status = 0;
    }
    /// Sets a folder's error pages, which precede those of the configuration.
    #[inline]
    pub fn set_folder_pages(&mut self, pages: Option<Rc<[(u16, FolderPage)]>>) {
        self.folder_pages = pages;
    }
    /// Tells whether `post_action` runs, whose own response is discarded.
    #[inline]
    pub fn is_post_action(&self) -> bool {
        self.post_action
    }
    pub(super) fn reset(&mut self) {
        *self = RequestProgress::default();
    }
}
