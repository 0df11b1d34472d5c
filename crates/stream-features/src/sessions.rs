//! Sessions of a worker thread: creation, counting, termination.

use crate::client::SessionClient;
use crate::engine;
use crate::plan::StreamPlan;
use crate::session::{SessionFacts, StreamSession};
use crate::udp::Flows;
use area::sessions::{AreaSessions as All, Cause, SessionControl, SessionSlot};
use net::Address;
use observe::Severity;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use transport::Stream;

pub trait Host {
    /// Passes a connection to a listener of any area; returns it if there is none.
    fn pass(&self, passed: PassedClient, to: &Address) -> Result<(), PassedClient>;
    /// For new sessions.
    fn plan(&self) -> Option<Rc<Arc<StreamPlan>>>;
    fn number(&self) -> Option<u64>;
}

pub type ProxyHeader = Box<(wire_proxy::Header, Vec<u8>)>;

pub struct PassedClient {
    pub stream: Stream,
    /// Possibly from a trusted proxy.
    pub peer: Option<SocketAddr>,
    pub proxy: Option<ProxyHeader>,
    pub passes: u8,
}

#[derive(Default)]
pub struct StreamSessions {
    all: Rc<All>,
    datagrams: RefCell<HashSet<u64>>,
    /// The worker ends and accepts no sessions.
    pub(crate) ended: Cell<bool>,
    pub(crate) flows: Flows,
}

/// Removed on drop.
pub(crate) struct SessionPlace {
    place: SessionSlot,
    number: u64,
    /// `Some`: a datagram session.
    datagrams: Option<Rc<StreamSessions>>,
}

impl SessionPlace {
    pub fn control(&self) -> &SessionControl {
        &self.place.control
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        if let Some(sessions) = &self.datagrams {
            sessions.datagrams.borrow_mut().remove(&self.number);
        }
    }
}

pub struct AcceptedClient {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    pub local: Rc<Address>,
    pub listener: usize,
    pub number: u64,
}

impl StreamSessions {
    pub fn count(&self) -> usize {
        self.all.count()
    }
    /// Sessions of datagram sockets, whose clients have no descriptors.
    pub fn datagram_count(&self) -> usize {
        self.datagrams.borrow().len()
    }
    pub(crate) fn place(self: &Rc<Self>, number: u64, udp: bool) -> SessionPlace {
        if udp {
            self.datagrams.borrow_mut().insert(number);
        }
        SessionPlace { place: self.all.place(number), number, datagrams: udp.then(|| self.clone()) }
    }
    pub fn begin(self: &Rc<Self>, plan: &Rc<Arc<StreamPlan>>, accepted: AcceptedClient, host: &Rc<dyn Host>) {
        let AcceptedClient { fd, peer, local, listener, number } = accepted;
        let facts = SessionFacts { plan: plan.clone(), listener, number, peer, local, udp: false };
        let session = Box::new(StreamSession::new(facts));
        let stream = match Stream::accepted(fd, peer.is_some()) {
            Ok(stream) => stream,
            Err(e) => {
                session.log_event_queue(&e);
                return;
            }
        };
        self.start(session, stream, host);
    }
    fn start(self: &Rc<Self>, session: Box<StreamSession>, stream: Stream, host: &Rc<dyn Host>) {
        let (place, host) = (self.place(session.number, false), host.clone());
        runtime::task::spawn_local(engine::serve(session, SessionClient::Stream(stream), place, host));
    }
    /// Starts the session of a connection that another listener has passed.
    pub fn resume(
        self: &Rc<Self>,
        plan: &Rc<Arc<StreamPlan>>,
        passed: PassedClient,
        listener: usize,
        local: Rc<Address>,
        number: u64,
        host: &Rc<dyn Host>,
    ) {
        let facts = SessionFacts { plan: plan.clone(), listener, number, peer: passed.peer, local, udp: false };
        let mut session = Box::new(StreamSession::new(facts));
        session.passes = passed.passes;
        session.proxy = passed.proxy;
        session.tls = passed.stream.facts();
        self.start(session, passed.stream, host);
    }
    /// Ends sessions with smaller numbers.
    pub fn cut_off(&self, below: u64) {
        self.all.close(Cause::Timeout, |number| number < below);
    }
    /// Ends datagram sessions. The worker waits for the others.
    pub fn begin_quit(&self) {
        self.ended.set(true);
        self.flows.forget();
        let datagrams = self.datagrams.borrow();
        self.all.close(Cause::Shutdown, |number| datagrams.contains(&number));
    }
    /// Assigns further datagrams to new sessions, under the new plan. Existing sessions may still respond.
    pub fn replan(&self) {
        self.flows.forget();
    }
}

impl StreamSession {
    fn log_event_queue(&self, e: &std::io::Error) {
        self.note(Severity::Alert, format_args!("epoll_ctl() failed {}", observe::os_error(e)));
    }
}
