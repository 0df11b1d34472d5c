//! The sessions of a worker thread: begun, counted, cut off.

use crate::engine;
use crate::plan::MailPlan;
use crate::session::{Facts, MailSession};
use net::listen::Address;
use observe::Level;
use session_engine::sessions::{Cause, Sessions};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use upstream::Stream;

/// What a worker keeps of the area's sessions.
#[derive(Default)]
pub struct Mails(Rc<Sessions>);

/// A connection that was accepted.
pub struct Accepted {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The address that the client connected to.
    pub local: Rc<Address>,
    /// Index of the listener in the plan.
    pub listener: usize,
    /// The connection's number.
    pub number: u64,
}

/// A connection that another listener has passed on.
pub struct Passed {
    pub stream: Stream,
    pub peer: Option<SocketAddr>,
    /// What a PROXY protocol header has said, and its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    pub local: Rc<Address>,
    pub listener: usize,
    pub number: u64,
}

impl Mails {
    pub fn count(&self) -> usize {
        self.0.count()
    }
    /// Begins the session of a connection.
    pub fn begin(&self, plan: &Rc<Arc<MailPlan>>, accepted: Accepted) {
        let Accepted { fd, peer, local, listener, number } = accepted;
        let session = MailSession::new(Facts { plan: plan.clone(), listener, number, peer, local });
        match Stream::accepted(fd, peer.is_some()) {
            Ok(stream) => self.start(session, stream),
            Err(e) => session.note(Level::Alert, format_args!("epoll_ctl() failed {}", observe::os(&e))),
        }
    }
    /// The same of one that was passed on.
    pub fn resume(&self, plan: &Rc<Arc<MailPlan>>, passed: Passed) {
        let Passed { stream, peer, proxy, local, listener, number } = passed;
        let mut session = MailSession::new(Facts { plan: plan.clone(), listener, number, peer, local });
        (session.proxy, session.tls) = (proxy, stream.facts());
        self.start(session, stream);
    }
    fn start(&self, session: MailSession, stream: Stream) {
        let place = self.0.place(session.number);
        runtime::task::spawn_local(engine::serve(Box::new(session), stream, place));
    }
    /// Ends the sessions whose numbers are smaller.
    pub fn cut_off(&self, below: u64) {
        self.0.close(Cause::Timeout, |number| number < below);
    }
}
