//! The sessions of a worker thread: begun, counted, cut off.

use crate::client::Client;
use crate::engine;
use crate::plan::StreamPlan;
use crate::session::{Facts, StreamSession};
use crate::udp::Flows;
use net::listen::Address;
use observe::Level;
use session_engine::sessions::{Cause, Control, Place as AnyPlace, Sessions as All};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use upstream::Stream;

/// What sessions ask of their worker.
pub trait Host {
    /// Takes a connection in at a listener, whatever its area.
    ///
    /// # Errors
    /// The connection, when nobody listens there.
    fn pass(&self, passed: Passed, to: &Address) -> Result<(), Passed>;
    /// The plan that new sessions begin with.
    fn plan(&self) -> Option<Rc<Arc<StreamPlan>>>;
    /// The number of a new session (`$connection`); `None`: there may be no more of them at the moment.
    fn number(&self) -> Option<u64>;
}

/// A PROXY protocol header, and its bytes.
pub type ProxyHeader = Box<(wire_proxy::Header, Vec<u8>)>;

/// A connection on its way from one listener to another.
pub struct Passed {
    pub stream: Stream,
    /// The client, or whom a trusted proxy has named as such.
    pub peer: Option<SocketAddr>,
    /// What a PROXY protocol header has said, and its bytes.
    pub proxy: Option<ProxyHeader>,
    /// How often it was passed on, this time included.
    pub passes: u8,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Sessions {
    all: Rc<All>,
    /// Those of datagrams.
    datagrams: RefCell<HashSet<u64>>,
    /// No new sessions: the worker ends.
    pub(crate) ended: Cell<bool>,
    pub(crate) flows: Flows,
}

/// A session's place among the others; given up when it ends, however it does.
pub(crate) struct Place {
    place: AnyPlace,
    number: u64,
    /// `Some`: one of datagrams.
    datagrams: Option<Rc<Sessions>>,
}

impl Place {
    pub fn control(&self) -> &Control {
        &self.place.control
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(sessions) = &self.datagrams {
            sessions.datagrams.borrow_mut().remove(&self.number);
        }
    }
}

/// A connection that was accepted, or passed on.
pub struct Accepted {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The address that the client connected to.
    pub local: Rc<Address>,
    /// Index of the listener in the plan.
    pub listener: usize,
    /// `$connection`
    pub number: u64,
}

impl Sessions {
    pub fn count(&self) -> usize {
        self.all.count()
    }
    pub(crate) fn place(self: &Rc<Self>, number: u64, udp: bool) -> Place {
        if udp {
            self.datagrams.borrow_mut().insert(number);
        }
        Place { place: self.all.place(number), number, datagrams: udp.then(|| self.clone()) }
    }
    /// Begins the session of a connection.
    pub fn begin(self: &Rc<Self>, plan: &Rc<Arc<StreamPlan>>, accepted: Accepted, host: &Rc<dyn Host>) {
        let Accepted { fd, peer, local, listener, number } = accepted;
        let facts = Facts { plan: plan.clone(), listener, number, peer, local, udp: false };
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
        runtime::task::spawn_local(engine::serve(session, Client::Stream(stream), place, host));
    }
    /// Begins the session of a connection that another listener has passed on.
    pub fn resume(
        self: &Rc<Self>,
        plan: &Rc<Arc<StreamPlan>>,
        passed: Passed,
        listener: usize,
        local: Rc<Address>,
        number: u64,
        host: &Rc<dyn Host>,
    ) {
        let facts = Facts { plan: plan.clone(), listener, number, peer: passed.peer, local, udp: false };
        let mut session = Box::new(StreamSession::new(facts));
        session.passes = passed.passes;
        session.proxy = passed.proxy;
        session.tls = passed.stream.facts();
        self.start(session, passed.stream, host);
    }
    /// Ends the sessions whose numbers are smaller.
    pub fn cut_off(&self, below: u64) {
        self.all.close(Cause::Timeout, |number| number < below);
    }
    /// The worker ends when its sessions have. Those of datagrams have nobody to hear any more.
    pub fn begin_quit(&self) {
        self.ended.set(true);
        self.flows.forget();
        let datagrams = self.datagrams.borrow();
        self.all.close(Cause::Shutdown, |number| datagrams.contains(&number));
    }
    /// Datagrams belong to new sessions from now on: the plan has changed. The sessions that are there may still answer.
    pub fn replan(&self) {
        self.flows.forget();
    }
}

impl StreamSession {
    fn log_event_queue(&self, e: &std::io::Error) {
        self.note(Level::Alert, format_args!("epoll_ctl() failed {}", observe::os(e)));
    }
}
