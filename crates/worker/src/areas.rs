//! The stream and mail areas on a worker thread: their plans and their sessions.

use crate::serving::{ListenPlace, ListenSocket};
use mail_features::MailPlan;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use stream_features::{Host, StreamPlan, StreamSessions};

/// In an `Rc`, so that sessions' references are not counted across threads.
#[allow(clippy::redundant_allocation)]
pub type StreamPlanRef = Rc<Arc<StreamPlan>>;
/// See [`StreamPlanRef`].
#[allow(clippy::redundant_allocation)]
pub type MailPlanRef = Rc<Arc<MailPlan>>;

/// The areas of a thread beside the http area.
pub struct WorkerAreas {
    /// The stream area.
    pub stream: StreamArea,
    /// The mail area.
    pub mail: MailArea,
    host: RefCell<Option<Rc<dyn Host>>>,
}

impl WorkerAreas {
    /// Begins without sessions.
    pub fn new(stream: Option<Arc<StreamPlan>>, mail: Option<Arc<MailPlan>>) -> WorkerAreas {
        WorkerAreas { stream: StreamArea::new(stream), mail: MailArea::new(mail), host: RefCell::new(None) }
    }
    /// Returns the thread as stream sessions see it, made once.
    pub(crate) fn host(&self, make: impl FnOnce() -> Rc<dyn Host>) -> Rc<dyn Host> {
        self.host.borrow_mut().get_or_insert_with(make).clone()
    }
    /// Returns the number of sessions of both areas.
    pub fn session_count(&self) -> usize {
        self.stream.sessions.count() + self.mail.sessions.count()
    }
    /// Ends the sessions of connections with a lower number.
    pub fn cut_off(&self, below: u64) {
        self.stream.sessions.cut_off(below);
        self.mail.sessions.cut_off(below);
    }
}

/// The stream area of a thread: its current plan, and its sessions, which keep the plan that they began with.
pub struct StreamArea {
    plan: RefCell<Option<StreamPlanRef>>,
    /// The thread's sessions.
    pub sessions: Rc<StreamSessions>,
}

impl StreamArea {
    /// Begins without sessions.
    pub fn new(plan: Option<Arc<StreamPlan>>) -> StreamArea {
        StreamArea { plan: RefCell::new(plan.map(Rc::new)), sessions: Rc::default() }
    }
    /// Replaces the plan at a reload; sessions are told.
    pub fn replan(&self, plan: Option<Arc<StreamPlan>>) {
        *self.plan.borrow_mut() = plan.map(Rc::new);
        self.sessions.replan();
    }
    /// Returns the current plan; `None`: the configuration has no stream area.
    pub fn plan(&self) -> Option<StreamPlanRef> {
        self.plan.borrow().clone()
    }
    /// Returns `None` for a socket of another area.
    #[inline]
    pub fn place(&self, listen_socket: &ListenSocket) -> Option<(StreamPlanRef, usize)> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let find = || plan.place(listen_socket.listener.address(), false);
        Some((plan.clone(), cached(&listen_socket.stream, plan.generation, find)?))
    }
}

/// The mail area of a thread: its current plan, and its sessions, which keep the plan that they began with.
pub struct MailArea {
    plan: RefCell<Option<MailPlanRef>>,
    /// The thread's sessions.
    pub sessions: mail_features::Mails,
}

impl MailArea {
    /// Begins without sessions.
    pub fn new(plan: Option<Arc<MailPlan>>) -> MailArea {
        MailArea { plan: RefCell::new(plan.map(Rc::new)), sessions: mail_features::Mails::default() }
    }
    /// Replaces the plan at a reload.
    pub fn replan(&self, plan: Option<Arc<MailPlan>>) {
        *self.plan.borrow_mut() = plan.map(Rc::new);
    }
    /// Returns the current plan; `None`: the configuration has no mail area.
    pub fn plan(&self) -> Option<MailPlanRef> {
        self.plan.borrow().clone()
    }
    /// Returns `None` for a socket of another area.
    #[inline]
    pub fn place(&self, listen_socket: &ListenSocket) -> Option<(MailPlanRef, usize)> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let find = || plan.place(listen_socket.listener.address());
        Some((plan.clone(), cached(&listen_socket.mail, plan.generation, find)?))
    }
}

/// Finds a listener's place in a plan, cached per plan.
fn cached(cache: &ListenPlace, generation: u32, find: impl FnOnce() -> Option<usize>) -> Option<usize> {
    let (known, place) = cache.get();
    if known == generation {
        return place;
    }
    let found = find();
    cache.set((generation, found));
    found
}
