//! A proxy of TCP on 127.0.0.1 that a test tells to hold one direction, to cut an answer in its middle, to deliver single bytes, or to
//! deliver what one connection brings behind what another one brings, although it came first.
//!
//! It tells connections to Redis apart: those that subscribe, and those for commands.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which a blocked thread looks for the end of the proxy.
const LOOK: Duration = Duration::from_millis(5);

/// Kind of a connection, by what the client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    Commands = 0,
    /// The client has sent `SUBSCRIBE`.
    Subscription = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer = 0,
    ToClient = 1,
}

/// A proxy in front of one server. Its threads end with the value.
pub struct FaultProxy {
    port: u16,
    state: Arc<ProxyState>,
    accepting: Option<JoinHandle<()>>,
}

struct ProxyState {
    server: u16,
    rules: Mutex<Rules>,
    /// Woken when the rules change.
    changed: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Rules {
    /// By kind and direction.
    held: [[bool; 2]; 2],
    /// Bytes that were delivered, by kind and direction.
    delivered: [[u64; 2]; 2],
    /// Bytes of a delivery at most; 0: all that are there.
    piece: usize,
    /// For each kind, bytes to a client after which its connection is cut, once.
    cut: [Option<usize>; 2],
    /// Connections that were cut.
    cuts: usize,
    links: Vec<Arc<Link>>,
}

struct Link {
    client: TcpStream,
    server: TcpStream,
    subscribes: AtomicBool,
}

impl Link {
    fn kind(&self) -> LinkKind {
        if self.subscribes.load(Ordering::SeqCst) { LinkKind::Subscription } else { LinkKind::Commands }
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl ProxyState {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules());
        self.changed.notify_all();
    }

    /// Delivers bytes as the rules say. Returns `false` if the connection has ended.
    fn deliver(&self, link: &Link, direction: Direction, mut bytes: &[u8]) -> bool {
        let (way, mut target) = match direction {
            Direction::ToServer => (0, &link.server),
            Direction::ToClient => (1, &link.client),
        };
        while !bytes.is_empty() {
            let mut rules = self.rules();
            let kind = link.kind() as usize;
            if self.over.load(Ordering::SeqCst) {
                return false;
            }
            if rules.held[kind][way] {
                let waited = self.changed.wait_timeout(rules, LOOK);
                drop(waited);
                continue;
            }
            let mut length = if rules.piece == 0 { bytes.len() } else { bytes.len().min(rules.piece) };
            let mut is_cut = false;
            if direction == Direction::ToClient
                && let Some(left) = rules.cut[kind]
            {
                is_cut = left <= length;
                length = length.min(left);
                rules.cut[kind] = if is_cut { None } else { Some(left - length) };
                rules.cuts += usize::from(is_cut);
            }
            rules.delivered[kind][way] += length as u64;
            drop(rules);
            let (now, later) = bytes.split_at(length);
            if target.write_all(now).is_err() {
                return false;
            }
            if is_cut {
                link.close();
                return false;
            }
            bytes = later;
        }
        true
    }

    fn pump(&self, link: &Link, direction: Direction) {
        let mut source = match direction {
            Direction::ToServer => &link.client,
            Direction::ToClient => &link.server,
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    if direction == Direction::ToServer
                        && bytes.windows(9).any(|word| word.eq_ignore_ascii_case(b"SUBSCRIBE"))
                    {
                        link.subscribes.store(true, Ordering::SeqCst);
                    }
                    if !self.deliver(link, direction, bytes) {
                        break;
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
            if self.over.load(Ordering::SeqCst) {
                break;
            }
        }
        link.close();
    }
}

impl FaultProxy {
    /// Listens on a free port for connections to a port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(server: u16) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a listener that does not block");
        let (over, changed) = (AtomicBool::new(false), Condvar::new());
        let state = Arc::new(ProxyState { server, rules: Mutex::default(), changed, over });
        let its = state.clone();
        let accepting = std::thread::spawn(move || {
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            while !its.over.load(Ordering::SeqCst) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(LOOK);
                    continue;
                };
                let Ok(server) = TcpStream::connect(("127.0.0.1", its.server)) else { continue };
                for stream in [&client, &server] {
                    let _ = stream.set_nonblocking(false);
                    let _ = stream.set_nodelay(true);
                    let _ = stream.set_read_timeout(Some(LOOK));
                }
                let link = Arc::new(Link { client, server, subscribes: AtomicBool::new(false) });
                its.rules().links.push(link.clone());
                for direction in [Direction::ToServer, Direction::ToClient] {
                    let (its, link) = (its.clone(), link.clone());
                    threads.push(std::thread::spawn(move || its.pump(&link, direction)));
                }
            }
            its.rules().links.iter().for_each(|link| link.close());
            for thread in threads {
                let _ = thread.join();
            }
        });
        FaultProxy { port, state, accepting: Some(accepting) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Delivers nothing in a direction of all connections of a kind, until [`FaultProxy::release`]. Later connections are held, too.
    pub fn hold(&self, kind: LinkKind, direction: Direction) {
        self.state.change(|rules| rules.held[kind as usize][direction as usize] = true);
    }

    /// Delivers the held bytes, in their order.
    pub fn release(&self, kind: LinkKind, direction: Direction) {
        self.state.change(|rules| rules.held[kind as usize][direction as usize] = false);
    }

    /// Delivers at most so many bytes at once; 0: all that are there.
    pub fn set_piece(&self, bytes: usize) {
        self.state.change(|rules| rules.piece = bytes);
    }

    /// Ends the next connection of a kind whose client has got so many further bytes.
    pub fn cut_after(&self, kind: LinkKind, bytes: usize) {
        self.state.change(|rules| rules.cut[kind as usize] = Some(bytes));
    }

    /// Ends all connections.
    pub fn cut_all(&self) {
        self.state.change(|rules| rules.links.drain(..).for_each(|link| link.close()));
    }

    /// Holds nothing, cuts nothing, and delivers all that is there.
    pub fn heal(&self) {
        self.state.change(|rules| (rules.held, rules.piece, rules.cut) = ([[false; 2]; 2], 0, [None; 2]));
    }

    /// Bytes that were delivered in a direction of all connections of a kind.
    pub fn delivered(&self, kind: LinkKind, direction: Direction) -> u64 {
        self.state.rules().delivered[kind as usize][direction as usize]
    }

    /// Connections that were cut in the middle.
    pub fn cuts(&self) -> usize {
        self.state.rules().cuts
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        self.state.changed.notify_all();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}
