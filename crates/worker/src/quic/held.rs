//! Clients without a connection yet, whose certificate is being ordered (`acme_on_demand`). `quinn-proto` cannot
//! suspend a handshake, but it can leave a client unaccepted: nothing was sent, the client repeats its first flight by
//! its own timers, and the endpoint collects it. Empty unless a server of the plan gets certificates on demand.

use super::client::turn_now;
use http_engine::ClientConnection;
use quinn_proto::Incoming;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::quic::{ChosenRules, FirstFlight};
use tls::{Choice, ClientHello, Peek, Wait};

/// Maximum number of held clients per socket. Further clients replace one whose ClientHello is incomplete, or are not
/// held.
pub const HELD_MAX: usize = 256;
/// Maximum octets of repeated datagrams per held client.
pub const HELD_BYTES_MAX: u64 = 16 * 1024;
/// Maximum wait for the rest of a ClientHello; clients repeat a lost datagram after a second.
const HELLO_TIME: Duration = Duration::from_secs(3);
/// Maximum wait for a certificate. Browsers give up after about ten seconds.
const WAIT_TIME: Duration = Duration::from_secs(30);

/// Progress of a held client.
enum Stage {
    /// The ClientHello is incomplete.
    Hello(Box<FirstFlight>),
    Certificate(Box<ClientHello>, Arc<Wait>),
}

struct HeldClient {
    id: u64,
    incoming: Incoming,
    connection: Rc<ClientConnection>,
    stage: Stage,
    deadline: Instant,
}

/// See the module's documentation. The oldest client is the first.
#[derive(Default)]
pub struct HeldClients {
    clients: Vec<HeldClient>,
    last: u64,
}

/// Decision about a held client.
pub enum Decision {
    /// The client stays held, with a new wait.
    Keep(Option<Arc<Wait>>),
    /// The client must prove its address before it may wait.
    Retry(Box<Incoming>),
    /// The handshake can begin.
    Accept(Box<Incoming>),
    /// The client is no longer held.
    Unknown,
}

impl HeldClients {
    /// Tells whether no client is held.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Takes the oldest client whose ClientHello is incomplete, if no more can be held.
    pub fn make_room(&mut self) -> Option<Incoming> {
        if self.clients.len() < HELD_MAX {
            return None;
        }
        let at = self.clients.iter().position(|client| matches!(client.stage, Stage::Hello(_)))?;
        Some(self.clients.remove(at).incoming)
    }

    /// Holds a client whose first datagram has arrived.
    ///
    /// # Errors
    /// Returns the client, which must be accepted, because no further client can be held.
    pub fn hold(
        &mut self,
        incoming: Incoming,
        connection: Rc<ClientConnection>,
        datagram: &[u8],
    ) -> Result<u64, Box<Incoming>> {
        let Some(flight) = FirstFlight::new(datagram) else { return Err(Box::new(incoming)) };
        if self.clients.len() >= HELD_MAX {
            return Err(Box::new(incoming));
        }
        self.last += 1;
        let (id, stage) = (self.last, Stage::Hello(Box::new(flight)));
        self.clients.push(HeldClient { id, incoming, connection, stage, deadline: turn_now() + HELLO_TIME });
        Ok(id)
    }

    /// Processes a further datagram, which the endpoint has kept. Returns a client whose ClientHello has become
    /// complete.
    pub fn take_in(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<u64> {
        for client in &mut self.clients {
            if let Stage::Hello(flight) = &mut client.stage
                && client.incoming.remote_address() == from
                && flight.is_of(datagram)
            {
                flight.take_in(datagram);
                return (!matches!(flight.hello(), Peek::More(_))).then_some(client.id);
            }
        }
        None
    }

    /// Decides whether a client waits, from its ClientHello.
    pub fn decide(
        &mut self,
        id: u64,
        choose: impl FnOnce(&Rc<ClientConnection>, &ClientHello) -> Option<ChosenRules>,
    ) -> Decision {
        let Some(at) = self.clients.iter().position(|client| client.id == id) else { return Decision::Unknown };
        let Some(client) = self.clients.get_mut(at) else { return Decision::Unknown };
        let hello = match &client.stage {
            Stage::Hello(flight) => match flight.hello() {
                Peek::Hello(hello) => Some(hello),
                Peek::More(_) => return Decision::Keep(None),
                Peek::NotTls | Peek::Broken(_) => None,
            },
            Stage::Certificate(hello, _) => Some(hello.clone()),
        };
        let chosen = hello.as_ref().and_then(|hello| choose(&client.connection, hello));
        match (hello, chosen) {
            (Some(hello), Some(ChosenRules { choice: Choice::Wait(wait), h3, hq })) if h3 || hq => {
                if !client.incoming.remote_address_validated() {
                    return Decision::Retry(Box::new(self.clients.remove(at).incoming));
                }
                if matches!(client.stage, Stage::Hello(_)) {
                    client.deadline = turn_now() + WAIT_TIME;
                }
                client.stage = Stage::Certificate(hello, Arc::clone(&wait));
                Decision::Keep(Some(wait))
            }
            _ => Decision::Accept(Box::new(self.clients.remove(at).incoming)),
        }
    }

    /// Lists the clients whose wait has ended.
    pub fn over(&self) -> Vec<u64> {
        let is_over = |client: &&HeldClient| matches!(&client.stage, Stage::Certificate(_, wait) if wait.is_over());
        self.clients.iter().filter(is_over).map(|client| client.id).collect()
    }

    /// Removes and returns the clients whose maximum wait has passed.
    pub fn late(&mut self, now: Instant) -> Vec<Incoming> {
        self.clients.extract_if(.., |client| client.deadline <= now).map(|client| client.incoming).collect()
    }

    /// Returns the earliest end of a wait.
    pub fn deadline(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.deadline).min()
    }

    /// Takes all clients, to be refused.
    pub fn into_incoming(self) -> impl Iterator<Item = Incoming> {
        self.clients.into_iter().map(|client| client.incoming)
    }
}
