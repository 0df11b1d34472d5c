//! The control API of nginx (`-l`): an HTTP server of the master process that shows processes and the configuration, and
//! reloads (nginx: `ngx_control.c`).
//!
//! It never blocks: the master polls its sockets together with its other descriptors. Each connection carries one
//! request, of which only the request line counts.

mod connection;
mod request;

use crate::process::listeners::{Failed, remove_stale};
use crate::say;
use connection::{Connection, Turn};
use net::Address;
use observe::os;
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
use std::time::Instant;

/// Passes the listening socket to the next program (nginx: `NGX_CTRL_ENV`).
pub const VARIABLE: &str = "NGINX_CTRL";
/// Maximum number of connections; one more closes the oldest (nginx: `NGX_CTRL_MAX_FD`, with the listening socket).
const CONNECTIONS_MAX: usize = 63;
const BACKLOG: i32 = 511;

pub struct ControlApi {
    listener: OwnedFd,
    address: Address,
    connections: Vec<Connection>,
    last_ticket: u64,
}

/// A complete request. [`ControlApi::respond`] takes its ticket.
pub struct Asked {
    pub ticket: u64,
    pub call: Call,
}

impl ControlApi {
    /// Takes over the socket of the previous program, or opens one.
    ///
    /// # Errors
    /// The address is invalid or cannot be bound, which has been logged.
    pub fn open(text: &str) -> Result<ControlApi, Failed> {
        let address = parse(text).map_err(|why| {
            say!(Emerg, "control: {why} in \"{text}\"");
            Failed
        })?;
        let listener = match inherited() {
            Some(listener) => listener,
            None => bind(&address).map_err(|(call, e)| {
                say!(Emerg, "control: {call} failed {}", os(&e));
                Failed
            })?,
        };
        if let Address::Ip(ip) = address
            && !ip.ip().is_loopback()
        {
            say!(Warn, "control: every machine that reaches {ip} can read the configuration and reload it");
        }
        Ok(ControlApi { listener, address, connections: Vec::new(), last_ticket: 0 })
    }

    /// Descriptors to poll. `accepts` is false while a new binary accepts from the listening socket.
    pub fn poll_fds(&self, accepts: bool) -> impl Iterator<Item = PollFd<'_>> {
        let listener = accepts.then(|| PollFd::new(&self.listener, PollFlags::IN));
        listener.into_iter().chain(self.connections.iter().filter_map(Connection::poll_fd))
    }

    /// The earliest time at which a connection must have made progress.
    pub fn next_end(&self) -> Option<Instant> {
        self.connections.iter().filter_map(Connection::ends_at).min()
    }

    /// Accepts, reads and writes without blocking. Returns complete requests.
    pub fn turn(&mut self, accepts: bool) -> Vec<Asked> {
        if accepts {
            self.accept();
        }
        let (mut asked, now) = (Vec::new(), Instant::now());
        self.connections.retain_mut(|connection| match connection.turn(now) {
            Turn::Stays => true,
            Turn::Asks(call) => {
                asked.push(Asked { ticket: connection.ticket, call });
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

    fn accept(&mut self) {
        loop {
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if self.connections.len() == CONNECTIONS_MAX {
                        say!(Warn, "control: too many client connections");
                        self.connections.remove(0);
                    }
                    self.last_ticket += 1;
                    self.connections.push(Connection::new(self.last_ticket, socket));
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(e) => {
                    say!(Error, "control: accept() failed {}", os(&e.into()));
                    return;
                }
            }
        }
    }

    /// Returns the listening socket, for a new binary.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Sets a flag without which nginx as the new binary would get no signals about connections.
    pub fn permit_signals(&self) {
        let _ = rustix::fs::fcntl_setfl(&self.listener, OFlags::NONBLOCK | OFlags::ASYNC);
    }

    /// Removes the path of a UNIX-domain socket.
    pub fn remove_path(&self) {
        if let Address::Unix(path) = &self.address
            && let Err(e) = std::fs::remove_file(path)
            && e.kind() != io::ErrorKind::NotFound
        {
            say!(Emerg, "control: unlink() {} failed {}", path.display(), os(&e));
        }
    }
}

/// Reads `unix:PATH`, `PORT`, `ADDRESS:PORT` or `NAME:PORT`.
fn parse(text: &str) -> Result<Address, String> {
    let addresses = session_engine::listen::addresses(text, 0)?;
    match addresses.as_slice() {
        // A range of ports has several, and a missing port is 0.
        [Address::Ip(ip)] if ip.port() != 0 => Ok(Address::Ip(*ip)),
        [Address::Unix(path)] => Ok(Address::Unix(path.clone())),
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
        let fd = net::process::inherit(number)?;
        if !SockRef::from(&fd).is_listener()? {
            return Err(io::Error::other("no listening socket"));
        }
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        Ok(fd)
    });
    match found {
        Ok(fd) => Some(fd),
        Err(e) => {
            say!(Alert, "control: invalid {VARIABLE} value \"{number}\" {}", os(&e));
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

    #[test]
    fn addresses() {
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
