//! Probes one server: connects, sends a text and tests the answer, as far as the check says so.

use super::GroupCheck;
use super::matching::ExpectedAnswer;
use crate::plan::StreamPlan;
use crate::session::{SessionFacts, StreamSession};
use crate::udp::{self, DATAGRAM_MAX};
use net::Address;
use net::outbound::Outbound;
use observe::os_error;
use runtime::time::with_timeout;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use transport::{ConnectOptions, Stream};
use upstream::Peer;
use upstream_directives::checks::{Probe, ProbeFailure};

/// Text for UDP servers without a `send` line, as nginx sends it.
const DATAGRAM: &[u8] = b"nginx health check";

/// Probes for one line of a server.
pub struct Round {
    pub plan: Weak<StreamPlan>,
    pub server: usize,
    pub check: Arc<GroupCheck>,
}

impl Probe for Round {
    type Kept = ();
    async fn probe(&self, peer: &Arc<Peer>, (): &mut ()) -> Result<(), ProbeFailure> {
        let Some(plan) = self.plan.upgrade() else { return Ok(()) };
        let address = self.check.schedule.address(peer);
        let limit = self.check.limit;
        if self.check.udp {
            return datagram(&self.check, &address).await;
        }
        match with_timeout(limit, self.connection(plan, &address)).await {
            Ok(found) => found,
            Err(_) => Err("timed out".to_string().into()),
        }
    }
}

impl Round {
    async fn connection(&self, plan: Arc<StreamPlan>, address: &Address) -> Result<(), ProbeFailure> {
        let Some(content) = plan.servers.get(self.server).and_then(|server| server.content.clone()) else {
            return Ok(());
        };
        let mut stream =
            Stream::connect(address, &ConnectOptions::default()).await.map_err(|e| ProbeFailure::connecting(&e))?;
        let matching = self.check.matching.as_deref();
        let mut session = session(plan, self.server);
        content.begin_check(&mut session, &mut stream, address, matching.is_some()).await?;
        let Some(matching) = matching else { return Ok(()) };
        if let Some(text) = &matching.send {
            stream.write_all(text).await.map_err(|e| failed("send()", &e))?;
        }
        let Some(expected) = &matching.expect else { return Ok(()) };
        let bytes_max = content.check_bytes_max();
        let mut answer = Vec::with_capacity(bytes_max);
        loop {
            let n = stream.read_buf(&mut answer).await.map_err(|e| failed("recv()", &e))?;
            answer.truncate(bytes_max);
            if expected.is_in(&answer)? {
                return Ok(());
            }
            if n == 0 || answer.len() >= bytes_max {
                return Err("unexpected answer".to_string().into());
            }
        }
    }
}

/// Creates a session without a client, for the variables of TLS settings.
fn session(plan: Arc<StreamPlan>, server: usize) -> StreamSession {
    let local = Rc::new(Address::Unix("".into()));
    let facts = SessionFacts { plan: Rc::new(plan), listener: 0, number: 0, peer: None, local, udp: false };
    let mut session = StreamSession::new(facts);
    session.server = server;
    session
}

fn failed(call: &str, e: &io::Error) -> String {
    format!("{call} failed {}", os_error(e))
}

/// Without an expected answer, a server passes unless an ICMP message about its port arrives in time.
async fn datagram(check: &GroupCheck, address: &Address) -> Result<(), ProbeFailure> {
    let socket = udp::open_outbound(address, &ConnectOptions::default()).map_err(|e| ProbeFailure::connecting(&e))?;
    let matching = check.matching.as_deref();
    let text = matching.and_then(|matching| matching.send.as_deref()).unwrap_or(DATAGRAM);
    socket.try_send(text).map_err(|e| failed("send()", &e))?;
    let expected = matching.and_then(|matching| matching.expect.as_ref());
    match with_timeout(check.limit, answer(&socket, expected)).await {
        Ok(found) => Ok(found?),
        Err(_) if expected.is_none() => Ok(()),
        Err(_) => Err("timed out".to_string().into()),
    }
}

/// Waits for an answer that holds the expected text.
async fn answer(socket: &Outbound, expected: Option<&ExpectedAnswer>) -> Result<(), String> {
    let mut buf = Vec::with_capacity(DATAGRAM_MAX);
    loop {
        buf.clear();
        match socket.try_recv(&mut buf) {
            Ok(_) => match expected {
                Some(expected) if !expected.is_in(&buf)? => {}
                _ => return Ok(()),
            },
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => poll_fn(|cx| socket.poll_readable(cx)).await,
            Err(e) => return Err(failed("recv()", &e)),
        }
    }
}
