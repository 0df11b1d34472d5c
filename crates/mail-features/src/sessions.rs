//! Sessions of a worker thread: creation, counting, termination.

use crate::engine;
use crate::plan::MailPlan;
use crate::session::{MailSession, SessionFacts};
use area::sessions::{AreaSessions, Cause};
use net::Address;
use observe::Severity;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use transport::Stream;

#[derive(Default)]
pub struct Mails(Rc<AreaSessions>);

pub struct AcceptedSession {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    pub local: Rc<Address>,
    pub listener: usize,
    pub number: u64,
}

pub struct PassedSession {
    pub stream: Stream,
    pub peer: Option<SocketAddr>,
    /// With its bytes.
    pub proxy: Option<Box<(wire_proxy::Header, Vec<u8>)>>,
    pub local: Rc<Address>,
    pub listener: usize,
    pub number: u64,
}

impl Mails {
    pub fn count(&self) -> usize {
        self.0.count()
    }
    pub fn begin(&self, plan: &Rc<Arc<MailPlan>>, accepted: AcceptedSession) {
        let AcceptedSession { fd, peer, local, listener, number } = accepted;
        let session = MailSession::new(SessionFacts { plan: plan.clone(), listener, number, peer, local });
        match Stream::accepted(fd, peer.is_some()) {
            Ok(stream) => self.start(session, stream),
            Err(e) => session.note(Severity::Alert, format_args!("epoll_ctl() failed {}", observe::os_error(&e))),
        }
    }
    /// Resumes a session that another listener passed.
    pub fn resume(&self, plan: &Rc<Arc<MailPlan>>, passed: PassedSession) {
        let PassedSession { stream, peer, proxy, local, listener, number } = passed;
        let mut session = MailSession::new(SessionFacts { plan: plan.clone(), listener, number, peer, local });
        (session.proxy, session.tls) = (proxy, stream.facts());
        self.start(session, stream);
    }
    fn start(&self, session: MailSession, stream: Stream) {
        let place = self.0.place(session.number);
        runtime::task::spawn_local(engine::serve(Box::new(session), stream, place));
    }
    /// Ends sessions with smaller numbers.
    pub fn cut_off(&self, below: u64) {
        self.0.close(Cause::Timeout, |number| number < below);
    }
}
