//! The relation of a main request to its subrequests: shared state, and a subrequest's own.

use crate::response::Str;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use variables::SessionSlot;

/// A request's place in the tree of a main request and its subrequests.
#[derive(Default)]
pub struct Family {
    /// State to be shared; moves into the tree with the first subrequest.
    pub(crate) common: Common,
    pub(crate) tree: Option<Rc<RequestTree>>,
    /// A subrequest's own state; `None` for a main request.
    pub(crate) sub: Option<Box<Sub>>,
}

impl Family {
    pub(crate) fn reset(&mut self) {
        (self.tree, self.sub) = (None, None);
        self.common.slots.clear();
        self.common.extensions.clear();
    }
}

/// State that a main request and its subrequests share.
#[derive(Default)]
pub(crate) struct Common {
    /// Values of stored variables, by slot.
    pub slots: Vec<SessionSlot>,
    /// Values kept by type ([`Request::share`](crate::Request::share)).
    pub extensions: Vec<Rc<dyn Any>>,
}

/// [`Common`] once there is a subrequest, with counts of subrequests.
#[derive(Default)]
pub struct RequestTree {
    pub(crate) common: RefCell<Common>,
    pub(crate) made: Cell<u32>,
    pub(crate) background: Cell<u32>,
    pub(crate) waiting: RefCell<Option<Waker>>,
}

/// The state that only a subrequest has.
pub struct Sub {
    /// `$request_method`
    pub(crate) main_method: Box<[u8]>,
    /// Method of the subrequest as it was written, for methods other than GET.
    pub(crate) method: Box<[u8]>,
    /// Charset of the main response, to which included content is converted.
    pub(crate) main_charset: Str,
    /// Errors have no page: the response has the status and no body.
    pub(crate) bare_errors: bool,
    /// No filter applies: the response is a part of one that is filtered.
    pub(crate) as_it_comes: bool,
    /// Ignores the client's body, even if the main request has read it.
    pub(crate) without_body: bool,
    pub(crate) depth_left: u8,
    pub(crate) background: Option<InBackground>,
}

pub(crate) struct InBackground(pub(crate) Rc<RequestTree>);

impl Drop for InBackground {
    fn drop(&mut self) {
        let left = self.0.background.get().saturating_sub(1);
        self.0.background.set(left);
        if left == 0
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }
}
