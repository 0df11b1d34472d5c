//! The sockets of a thread towards its name servers: a few per server, shared by all pending queries and closed with the
//! last one.

use crate::message::{Message, Question, RecordType};
use crate::wire::random_byte;
use runtime::io::UdpSocket;
use runtime::task::JoinHandle;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::sync::oneshot;

/// Sockets of a thread per name server.
const SOCKETS_MAX: usize = 4;
/// Queries of a socket until the next one opens, so that the port is about as hard to guess as the id.
const QUERIES_PER_SOCKET: usize = 64;
/// Unrelated packets that a socket reads in addition to one late answer per query, until it gives up.
pub(super) const STRAY_PACKETS_MAX: usize = 100;
const UDP_BYTES: usize = 4096;

thread_local! {
    static SOCKETS: RefCell<HashMap<SocketAddr, Vec<Rc<QuerySocket>>>> = RefCell::new(HashMap::new());
}

struct PendingQuery {
    question: Question,
    answer: oneshot::Sender<io::Result<Message>>,
}

struct QuerySocket {
    server: SocketAddr,
    socket: UdpSocket,
    pending: RefCell<HashMap<u16, PendingQuery>>,
    sent: Cell<usize>,
    reader: RefCell<Option<JoinHandle<()>>>,
}

impl QuerySocket {
    /// Returns a socket for one more query to `server`: the last one until it has sent [`QUERIES_PER_SOCKET`], then a new
    /// one, and the least busy one of [`SOCKETS_MAX`]. Must be followed by [`QuerySocket::register`] before the next await.
    fn for_server(server: SocketAddr) -> io::Result<Rc<QuerySocket>> {
        SOCKETS.with_borrow_mut(|sockets| {
            let all = sockets.entry(server).or_default();
            if let Some(last) = all.last()
                && last.sent.get() < QUERIES_PER_SOCKET
            {
                return Ok(last.clone());
            }
            if all.len() >= SOCKETS_MAX
                && let Some(idle) = all.iter().min_by_key(|socket| socket.pending.borrow().len())
            {
                return Ok(idle.clone());
            }
            let socket = Rc::new(QuerySocket {
                server,
                socket: UdpSocket::connect(server)?,
                pending: RefCell::new(HashMap::new()),
                sent: Cell::new(0),
                reader: RefCell::new(None),
            });
            *socket.reader.borrow_mut() = Some(runtime::task::spawn_local(read_answers(socket.clone())));
            all.push(socket.clone());
            Ok(socket)
        })
    }

    /// Draws a free id. Fails for names that no query can have.
    fn register(self: &Rc<Self>, name: &str, kind: RecordType) -> io::Result<(QueryTicket, Vec<u8>)> {
        let mut pending = self.pending.borrow_mut();
        if pending.len() > usize::from(u16::MAX) / 2 {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let id = loop {
            let id = u16::from_le_bytes([random_byte(), random_byte()]);
            if !pending.contains_key(&id) {
                break id;
            }
        };
        let question = Question { id, name: name.to_string(), kind };
        let bytes = question.bytes().ok_or(io::ErrorKind::InvalidInput)?;
        let (sender, answer) = oneshot::channel();
        pending.insert(id, PendingQuery { question, answer: sender });
        self.sent.set(self.sent.get() + 1);
        Ok((QueryTicket { socket: self.clone(), id, answer }, bytes))
    }

    /// Passes an answer to its query. Returns `false` for unrelated packets.
    fn deliver(&self, packet: &[u8]) -> bool {
        let Some(answer) = Message::read(packet) else { return false };
        let mut pending = self.pending.borrow_mut();
        if !pending.get(&answer.id).is_some_and(|query| query.question.fits(&answer)) {
            return false;
        }
        if let Some(query) = pending.remove(&answer.id) {
            let _ = query.answer.send(Ok(answer));
        }
        true
    }

    /// Takes the socket out of use; pending queries go on.
    fn withdraw(&self) {
        let _ = SOCKETS.try_with(|sockets| {
            let mut sockets = sockets.borrow_mut();
            if let Some(all) = sockets.get_mut(&self.server) {
                all.retain(|socket| !std::ptr::eq(&**socket, self));
                if all.is_empty() {
                    sockets.remove(&self.server);
                }
            }
        });
    }

    fn fail_pending(&self, why: io::ErrorKind) {
        for (_, query) in self.pending.borrow_mut().drain() {
            let _ = query.answer.send(Err(why.into()));
        }
    }
}

/// A query's claim on its socket; the last one closes the socket.
struct QueryTicket {
    socket: Rc<QuerySocket>,
    id: u16,
    answer: oneshot::Receiver<io::Result<Message>>,
}

impl Drop for QueryTicket {
    fn drop(&mut self) {
        let mut pending = self.socket.pending.borrow_mut();
        // An answered query is gone already, and another one may have its id.
        self.answer.close();
        if pending.get(&self.id).is_some_and(|query| query.answer.is_closed()) {
            pending.remove(&self.id);
        }
        if pending.is_empty() {
            drop(pending);
            self.socket.withdraw();
            if let Some(reader) = self.socket.reader.take() {
                reader.abort();
            }
        }
    }
}

async fn read_answers(socket: Rc<QuerySocket>) {
    let mut buf = Vec::with_capacity(UDP_BYTES);
    let mut strays = 0;
    let why = loop {
        buf.clear();
        match socket.socket.recv(&mut buf).await {
            Ok(_) if socket.deliver(&buf) => {}
            Ok(_) => strays += 1,
            Err(e) => break e.kind(),
        }
        if strays >= STRAY_PACKETS_MAX + socket.sent.get() {
            break io::ErrorKind::InvalidData;
        }
    };
    socket.withdraw();
    socket.fail_pending(why);
}

/// Sends a query over UDP and returns its answer. Dropping the future forgets the query. Fails with `InvalidInput` for a
/// name that no query can have, as the socket does, and with `InvalidData` after too many unrelated packets.
pub(super) async fn query(server: SocketAddr, name: &str, kind: RecordType) -> io::Result<Message> {
    let socket = QuerySocket::for_server(server)?;
    let (mut ticket, bytes) = match socket.register(name, kind) {
        Ok(registered) => registered,
        Err(e) => {
            if socket.pending.borrow().is_empty() {
                socket.withdraw();
                socket.reader.take().into_iter().for_each(JoinHandle::abort);
            }
            return Err(e);
        }
    };
    drop(socket);
    ticket.socket.socket.send(&bytes).await?;
    (&mut ticket.answer).await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionReset.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::build;
    use std::time::Duration;

    fn sockets() -> usize {
        SOCKETS.with_borrow(|sockets| sockets.values().map(Vec::len).sum())
    }

    #[test]
    fn queries_of_a_silent_server_share_a_few_sockets_that_close_with_them() {
        runtime::block_on(async {
            let server = UdpSocket::bind(([127, 0, 0, 1], 0).into()).expect("bound");
            let address = server.local_addr().expect("an address");
            let names: Vec<String> = (0..1000).map(|n| format!("n{n}.test")).collect();
            let mut tasks = Vec::new();
            for name in names {
                let task = async move { query(address, &name, RecordType::A).await.map(drop) };
                tasks.push(runtime::task::spawn_local(task));
                runtime::task::yield_now().await;
            }
            assert_eq!(sockets(), SOCKETS_MAX);
            tasks.into_iter().for_each(JoinHandle::abort);
            while sockets() > 0 {
                runtime::task::yield_now().await;
            }
        });
    }

    #[test]
    fn answers_reach_their_queries_in_any_order_and_the_port_changes() {
        runtime::block_on(async {
            let server = UdpSocket::bind(([127, 0, 0, 1], 0).into()).expect("bound");
            let address = server.local_addr().expect("an address");
            let ports = runtime::task::spawn_local(async move {
                let (mut waiting, mut ports) = (Vec::new(), std::collections::HashSet::new());
                for _ in 0..2 * QUERIES_PER_SOCKET {
                    let mut buf = [0; 512];
                    let (n, from) = server.recv_from(&mut buf).await.expect("a query");
                    ports.insert(from.port());
                    waiting.push((build::answer(&buf[..n], 0, &[]), from));
                }
                for (answer, from) in waiting.into_iter().rev() {
                    server.send_to(&answer, from).await.expect("sent");
                }
                ports.len()
            });
            let mut tasks = Vec::new();
            for n in 0..2 * QUERIES_PER_SOCKET {
                tasks.push(runtime::task::spawn_local(async move {
                    let name = format!("n{n}.test");
                    let answer = query(address, &name, RecordType::A).await.expect("an answer");
                    assert_eq!(answer.question, Some((name, 1)));
                }));
            }
            for task in tasks {
                task.await.expect("no panic");
            }
            assert_eq!((ports.await.expect("no panic"), sockets()), (2, 0));
        });
    }

    #[test]
    fn unrelated_packets_end_a_query() {
        runtime::block_on(async {
            let server = UdpSocket::bind(([127, 0, 0, 1], 0).into()).expect("bound");
            let address = server.local_addr().expect("an address");
            let noise = runtime::task::spawn_local(async move {
                let mut buf = [0; 512];
                let (_, from) = server.recv_from(&mut buf).await.expect("a query");
                loop {
                    let _ = server.send_to(b"noise", from).await;
                    runtime::task::yield_now().await;
                }
            });
            let asked = runtime::time::with_timeout(Duration::from_secs(60), query(address, "n", RecordType::A));
            let failed = asked.await.expect("an end").expect_err("no answer");
            assert_eq!((failed.kind(), sockets()), (io::ErrorKind::InvalidData, 0));
            noise.abort();
        });
    }

    #[test]
    fn a_name_that_no_query_can_have_holds_no_socket() {
        runtime::block_on(async {
            let failed = query(([127, 0, 0, 1], 9).into(), "a..b", RecordType::A).await.expect_err("no such name");
            assert_eq!((failed.kind(), sockets()), (io::ErrorKind::InvalidInput, 0));
        });
    }
}
