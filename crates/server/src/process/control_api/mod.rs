//! The control API of nginx (`-l`): an HTTP server of the master process that shows processes and the configuration, and
//! reloads (nginx: `ngx_control.c`).
//!
//! It never blocks: the master polls its sockets together with its other descriptors. Each connection carries one
//! request, of which only the request line counts.

mod connection;
mod request;

use crate::process::listeners::{ListenFailure, remove_path, remove_stale};
use crate::say;
use connection::{ApiConnection, Turn};
use net::Address;
use observe::os_error;
pub use request::{Call, Status};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Passes the listening socket to the next program (nginx: `NGX_CTRL_ENV`).
pub const VARIABLE: &str = "NGINX_CTRL";
/// Maximum number of connections; one more closes the oldest (nginx: `NGX_CTRL_MAX_FD`, with the listening socket).
const CONNECTIONS_MAX: usize = 63;
/// Pause after an error of `accept`, such as a lack of descriptors (nginx: 500 ms for its workers). The socket stays
/// readable, so that the master would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
const BACKLOG: i32 = 511;

pub struct ControlApi {
    listener: OwnedFd,
    address: Address,
    /// The previous program opened the socket.
    is_inherited: bool,
    connections: Vec<ApiConnection>,
    last_ticket: u64,
    /// End of a pause after an error of `accept`.
    accepts_at: Option<Instant>,
    /// The lack of room has been logged, and has lasted since.
    told_full: bool,
}

/// A complete request. [`ControlApi::respond`] takes its ticket.
pub struct PendingRequest {
    pub ticket: u64,
    pub call: Call,
}

impl ControlApi {
    /// Takes over the socket of the previous program, or opens one.
    ///
    /// # Errors
    /// The address is invalid or cannot be bound, which has been logged.
    pub fn open(text: &str) -> Result<ControlApi, ListenFailure> {
        let address = parse(text).map_err(|why| {
            say!(Emerg, "control: {why} in \"{text}\"");
            ListenFailure
        })?;
        let inherited = inherited();
        let is_inherited = inherited.is_some();
        let listener = match inherited {
            Some(listener) => listener,
            None => bind(&address).map_err(|(call, e)| {
                say!(Emerg, "control: {call} failed {}", os_error(&e));
                ListenFailure
            })?,
        };
        if let Address::Ip(ip) = address
            && !ip.ip().is_loopback()
        {
            say!(Warn, "control: every machine that reaches {ip} can read the configuration and reload it");
        }
        Ok(ControlApi {
            listener,
            address,
            is_inherited,
            connections: Vec::new(),
            last_ticket: 0,
            accepts_at: None,
            told_full: false,
        })
    }

    /// Returns descriptors to poll. `accepts` is false while a new binary accepts from the listening socket.
    pub fn poll_fds(&self, accepts: bool) -> impl Iterator<Item = PollFd<'_>> {
        let listener = (accepts && self.accepts_at.is_none()).then(|| PollFd::new(&self.listener, PollFlags::IN));
        listener.into_iter().chain(self.connections.iter().filter_map(ApiConnection::poll_fd))
    }

    /// Returns the earliest time at which a connection must have made progress, or a pause ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.connections.iter().filter_map(ApiConnection::ends_at).chain(self.accepts_at).min()
    }

    /// Accepts, reads and writes without blocking. Returns complete requests.
    pub fn turn(&mut self, accepts: bool) -> Vec<PendingRequest> {
        let (mut asked, now) = (Vec::new(), Instant::now());
        self.accepts_at = self.accepts_at.filter(|at| *at > now);
        if accepts && self.accepts_at.is_none() {
            self.accept(now);
        }
        self.connections.retain_mut(|connection| match connection.turn(now) {
            Turn::Stays => true,
            Turn::Asks(call) => {
                asked.push(PendingRequest { ticket: connection.ticket, call });
                true
            }
            Turn::Ends => false,
        });
        asked
    }

    /// Sends a response. A client that has left gets none.
    pub fn respond(&mut self, ticket: u64, status: Status, body: Arc<str>) {
        if let Some(at) = self.connections.iter().position(|connection| connection.ticket == ticket)
            && self.connections[at].respond(status, body) == Turn::Ends
        {
            self.connections.remove(at);
        }
    }

    /// Accepts as many connections as have room, and at least one. The others wait until the accepted ones have had a
    /// turn: requests that arrived together do not displace each other, and no client keeps the master here.
    fn accept(&mut self, now: Instant) {
        let room = CONNECTIONS_MAX.saturating_sub(self.connections.len());
        for _ in 0..room.max(1) {
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    self.make_room();
                    self.last_ticket += 1;
                    self.connections.push(ApiConnection::new(self.last_ticket, socket));
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(e) => {
                    say!(Error, "control: accept() failed {}", os_error(&e.into()));
                    self.accepts_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Closes the oldest connection of a full table, preferably one that does not wait for a reload.
    fn make_room(&mut self) {
        if self.connections.len() < CONNECTIONS_MAX {
            self.told_full = false;
            return;
        }
        if !std::mem::replace(&mut self.told_full, true) {
            say!(Warn, "control: too many client connections");
        }
        let oldest = self.connections.iter().position(|connection| !connection.is_waiting());
        self.connections.remove(oldest.unwrap_or(0));
    }

    /// Returns the listening socket, for a new binary.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Sets a flag without which nginx as the new binary would get no signals about connections.
    pub fn permit_signals(&self) {
        let _ = rustix::fs::fcntl_setfl(&self.listener, OFlags::NONBLOCK | OFlags::ASYNC);
    }

    /// Returns the address, if this program opened the socket.
    pub fn new_address(&self) -> Option<Address> {
        (!self.is_inherited).then(|| self.address.clone())
    }

    /// Removes the path of a UNIX-domain socket.
    pub fn remove_path(&self) {
        remove_path(&self.address);
    }
}

/// Reads `unix:PATH`, `PORT`, `ADDRESS:PORT` or `NAME:PORT`.
fn parse(text: &str) -> Result<Address, String> {
    let addresses = area::listen::parse_addresses(text, 0)?;
    match addresses.as_slice() {
        [Address::Unix(path)] => Ok(Address::Unix(path.clone())),
        // A name may have several addresses, a range has several ports, and a missing port is 0.
        [Address::Ip(first), rest @ ..] if first.port() != 0 && rest.iter().all(|one| has_port(one, first.port())) => {
            Ok(Address::Ip(*first))
        }
        _ => Err("invalid port".into()),
    }
}

fn has_port(address: &Address, port: u16) -> bool {
    matches!(address, Address::Ip(ip) if ip.port() == port)
}

fn inherited() -> Option<OwnedFd> {
    let number = std::env::var(VARIABLE).ok()?;
    let found = number.parse().map_err(io::Error::other).and_then(|number| {
        let fd = net::process::inherit_descriptor(number)?;
        if !SockRef::from(&fd).is_listener()? {
            return Err(io::Error::other("no listening socket"));
        }
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        Ok(fd)
    });
    match found {
        Ok(fd) => Some(fd),
        Err(e) => {
            say!(Alert, "control: invalid {VARIABLE} value \"{number}\" {}", os_error(&e));
            None
        }
    }
}

/// Errors contain the name of the call and its address.
fn bind(address: &Address) -> Result<OwnedFd, (String, io::Error)> {
    let named = |call: &str| {
        let call = format!("{call} to {address}");
        move |e: io::Error| (call, e)
    };
    let (domain, socket_address) = match address {
        Address::Ip(ip) => (Domain::for_address(*ip), SockAddr::from(*ip)),
        Address::Unix(path) => {
            remove_stale(path);
            (Domain::UNIX, SockAddr::unix(path).map_err(named("bind()"))?)
        }
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), None).map_err(named("socket()"))?;
    socket.set_reuse_address(true).map_err(named("setsockopt(SO_REUSEADDR)"))?;
    socket.bind(&socket_address).map_err(named("bind()"))?;
    if let Address::Unix(path) = address {
        // Before `listen`, so that other users cannot connect in between.
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, owner_only).map_err(named("chmod()"))?;
    }
    socket.listen(BACKLOG).map_err(named("listen()"))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn api(listener: OwnedFd) -> ControlApi {
        let address = Address::Unix("unused".into());
        ControlApi {
            listener,
            address,
            is_inherited: false,
            connections: Vec::new(),
            last_ticket: 0,
            accepts_at: None,
            told_full: false,
        }
    }

    /// An API with its port.
    fn open() -> (ControlApi, u16) {
        let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = bind(&Address::Ip(any_port)).expect("bound");
        let address = SockRef::from(&listener).local_addr().ok().and_then(|address| address.as_socket());
        (api(listener), address.expect("an address").port())
    }

    fn client(port: u16, octets: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        stream.write_all(octets).expect("sent");
        stream
    }

    #[test]
    fn an_error_of_accept_pauses() {
        // `accept` fails on each call, as without descriptors.
        let mut api = api(std::fs::File::open("/dev/null").expect("opens").into());
        assert_eq!((api.poll_fds(true).count(), api.next_end()), (1, None));
        assert!(api.turn(true).is_empty());
        assert_eq!(api.poll_fds(true).count(), 0, "poll would return at once");
        let pause = api.next_end().expect("an end of the pause");
        assert!(api.turn(true).is_empty());
        assert_eq!(api.next_end(), Some(pause), "no other call in between");
        api.accepts_at = Some(Instant::now());
        api.turn(true);
        assert!(api.next_end().is_some_and(|next| next > pause), "another call follows");
    }

    #[test]
    fn requests_that_arrive_together_do_not_displace_each_other() {
        let (mut api, port) = open();
        let clients: Vec<TcpStream> = (0..200).map(|_| client(port, b"GET /1 HTTP/1.1\r\n\r\n")).collect();
        while api.last_ticket < 200 {
            for PendingRequest { ticket, call } in api.turn(true) {
                assert_eq!(call, Call::Namespaces);
                api.respond(ticket, Status::Ok, "[]".into());
            }
        }
        for mut stream in clients {
            let mut response = [0; 15];
            stream.read_exact(&mut response).expect("a response");
            assert_eq!(&response, b"HTTP/1.1 200 OK");
        }
    }

    #[test]
    fn clients_that_wait_for_a_reload_stay() {
        let (mut api, port) = open();
        let mut patient = client(port, b"PATCH /1/control/config HTTP/1.1\r\n\r\n");
        let asked = std::iter::repeat_with(|| api.turn(true)).find(|asked| !asked.is_empty()).expect("a request");
        let idle: Vec<TcpStream> = (0..100).map(|_| client(port, b"GET")).collect();
        while api.last_ticket < 101 {
            api.turn(true);
        }
        api.respond(asked[0].ticket, Status::Ok, "{}".into());
        patient.read_exact(&mut [0; 15]).expect("a response");
        drop(idle);
    }

    #[test]
    fn a_client_that_sends_on_after_its_response_is_closed() {
        let (mut api, port) = open();
        let mut endless = client(port, b"PUT /1 HTTP/1.1\r\n\r\n");
        endless.set_nonblocking(true).expect("set");
        let mut sent = 0;
        let ended = loop {
            api.turn(true);
            match endless.write(&[0; 64 * 1024]) {
                Ok(count) => sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => break e,
            }
            assert!(sent < 64 << 20, "the master still reads");
        };
        assert!(matches!(ended.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{ended}");
        assert!(api.connections.is_empty());
    }

    #[test]
    fn addresses_are_local_or_paths() {
        let read = |text: &str| parse(text).map(|address| address.to_string());
        for text in ["unix:/run/control.sock", "127.0.0.1:9000", "[::1]:9000"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(read("9000").as_deref(), Ok("0.0.0.0:9000"));
        for text in ["127.0.0.1", "127.0.0.1:9000-9002", "9000-9001", "[::1]"] {
            assert_eq!(read(text), Err("invalid port".into()), "{text}");
        }
        assert!(read("unix:").is_err() && read("127.0.0.1:x").is_err());
    }
}
