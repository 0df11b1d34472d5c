//! Sessions of the mail area on a worker thread: whose listener a connection came to. What a session does stands in the crate
//! `mail-features`.

use crate::accept;
use crate::worker::{ListenSocket, Worker};
use http_engine::ListenerRef;
use mail_features::sessions::{Accepted, Passed};
use mail_features::{MailPlan, Mails as Sessions};
use metrics::process;
use net::listen::Address;
use net::socket;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Behind an `Rc`, so that a session's hold on its plan is not counted across threads.
#[allow(clippy::redundant_allocation)]
pub type PlanRef = Rc<Arc<MailPlan>>;

/// Where a listening socket's place among the listeners of the mail area is kept: the plan's generation, and the place.
pub type ListenPlace = Cell<(u32, Option<usize>)>;

/// What a worker keeps of the mail area.
pub struct Mails {
    plan: RefCell<Option<PlanRef>>,
    pub sessions: Sessions,
}

impl Mails {
    pub fn new(plan: Option<Arc<MailPlan>>) -> Mails {
        Mails { plan: RefCell::new(plan.map(Rc::new)), sessions: Sessions::default() }
    }
    /// Another plan: sessions that are there keep the one they began with.
    pub fn replan(&self, plan: Option<Arc<MailPlan>>) {
        *self.plan.borrow_mut() = plan.map(Rc::new);
    }
    /// The plan, if the area has the listener of a listening socket, and its index there.
    #[inline]
    pub fn place(&self, listen_socket: &ListenSocket) -> Option<(PlanRef, usize)> {
        let plan = self.plan.borrow();
        let plan = plan.as_ref()?;
        let (generation, place) = listen_socket.mail.get();
        let place = if generation == plan.generation {
            place
        } else {
            let found = plan.place(listen_socket.listener.address());
            listen_socket.mail.set((plan.generation, found));
            found
        };
        place.map(|place| (plan.clone(), place))
    }
    /// Takes a connection in that the stream area has passed on; `takes`: whether a listener is meant.
    ///
    /// # Errors
    /// The connection, when nobody listens there.
    pub fn pass(
        &self,
        passed: stream_features::sessions::Passed,
        to: &Address,
        takes: impl Fn(&Address) -> bool,
    ) -> Result<(), stream_features::sessions::Passed> {
        let plan = self.plan.borrow().clone();
        let place = plan.as_ref().and_then(|plan| plan.listeners.iter().position(|l| takes(&l.spec.address)));
        let (Some(plan), Some(listener)) = (plan, place) else { return Err(passed) };
        let stream_features::sessions::Passed { stream, peer, proxy, .. } = passed;
        let (local, number) = (Rc::new(to.clone()), Worker::next_number());
        self.sessions.resume(&plan, Passed { stream, peer, proxy, local, listener, number });
        Ok(())
    }
}

/// Begins the session of a connection that was accepted.
pub fn begin(
    worker: &Worker,
    accepted: socket::Accepted,
    listen_socket: &ListenerRef,
    plan: &PlanRef,
    listener: usize,
) {
    let local = accept::local_of(&accepted, listen_socket.address());
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Mail as usize);
    let accepted = Accepted { fd: accepted.fd, peer: accepted.peer, local, listener, number: Worker::next_number() };
    worker.mails.sessions.begin(plan, accepted);
}
