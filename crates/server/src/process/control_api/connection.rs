//! One connection of the control API: reads a request line, waits for the master, writes a response.

use super::request::{Call, LINE_BYTES_MAX, LineReader, Status};
use crate::conf;
use crate::say;
use observe::os_error;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for a client to send its request line, to take the response, and to close the connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of octets behind the request line that are read, in a turn and in all. Closing a connection with unread
/// octets would reset it and lose the response; a client that sends on and on would keep the master busy.
const DISCARDED_A_TURN: usize = 64 * 1024;
const DISCARDED_MAX: usize = 1024 * 1024;

pub struct ApiConnection {
    pub ticket: u64,
    socket: OwnedFd,
    state: ConnectionState,
    ends: Instant,
}

enum ConnectionState {
    Reading { octets: Vec<u8>, line: LineReader },
    Waiting,
    Writing { head: Vec<u8>, body: Arc<str>, sent: usize },
    Closing { discarded: usize },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    Stays,
    Asks(Call),
    Ends,
}

impl ApiConnection {
    pub fn new(ticket: u64, socket: OwnedFd) -> ApiConnection {
        let state = ConnectionState::Reading { octets: Vec::new(), line: LineReader::new() };
        ApiConnection { ticket, socket, state, ends: Instant::now() + PATIENCE }
    }

    /// Returns the descriptor to poll; `None` while the master works on the request: its response shows whether the client
    /// has left.
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        let wanted = match self.state {
            ConnectionState::Reading { .. } | ConnectionState::Closing { .. } => PollFlags::IN,
            ConnectionState::Writing { .. } => PollFlags::OUT,
            ConnectionState::Waiting => return None,
        };
        Some(PollFd::new(&self.socket, wanted))
    }

    /// Tells whether the master works on the request of this connection.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, ConnectionState::Waiting)
    }

    pub fn ends_at(&self) -> Option<Instant> {
        (!self.is_waiting()).then_some(self.ends)
    }

    pub fn turn(&mut self, now: Instant) -> Turn {
        if self.ends_at().is_some_and(|at| at <= now) {
            return Turn::Ends;
        }
        match &mut self.state {
            ConnectionState::Reading { .. } => self.read(),
            ConnectionState::Waiting => Turn::Stays,
            ConnectionState::Writing { .. } => self.write(),
            ConnectionState::Closing { .. } => self.discard(),
        }
    }

    fn read(&mut self) -> Turn {
        let ConnectionState::Reading { octets, line } = &mut self.state else { return Turn::Stays };
        let mut chunk = [0; LINE_BYTES_MAX];
        loop {
            match rustix::net::recv(&self.socket, &mut chunk[..], RecvFlags::empty()) {
                Ok((0, _)) => return Turn::Ends,
                Ok((count, _)) => octets.extend_from_slice(&chunk[..count]),
                Err(Errno::AGAIN) => return Turn::Stays,
                Err(Errno::INTR) => continue,
                Err(e) => return lost("recv()", e),
            }
            match line.read(octets) {
                None => {}
                Some(Ok(call)) => {
                    self.state = ConnectionState::Waiting;
                    return Turn::Asks(call);
                }
                Some(Err(status)) => {
                    if status == Status::BadRequest {
                        say!(Error, "control: failed to parse request");
                    }
                    return self.respond(status, "".into());
                }
            }
        }
    }

    pub fn respond(&mut self, status: Status, body: Arc<str>) -> Turn {
        let allow = match status {
            Status::NotAllowed(methods) => format!("Allow: {methods}\r\n"),
            _ => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {}\r\nServer: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             {allow}\r\n",
            status.line(),
            conf::PROGRAM.replace(' ', "/"),
            body.len(),
        );
        self.state = ConnectionState::Writing { head: head.into_bytes(), body, sent: 0 };
        self.ends = Instant::now() + PATIENCE;
        self.write()
    }

    fn write(&mut self) -> Turn {
        let ConnectionState::Writing { head, body, sent } = &mut self.state else { return Turn::Stays };
        while *sent < head.len() + body.len() {
            let rest = head.get(*sent..).filter(|rest| !rest.is_empty());
            let rest = rest.or_else(|| body.as_bytes().get(*sent - head.len()..)).unwrap_or_default();
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    *sent += count;
                    self.ends = Instant::now() + PATIENCE;
                }
                Err(Errno::AGAIN) => return Turn::Stays,
                Err(Errno::INTR) => {}
                Err(e) => return lost("send()", e),
            }
        }
        self.state = ConnectionState::Closing { discarded: 0 };
        match rustix::net::shutdown(&self.socket, Shutdown::Write) {
            Ok(()) => self.discard(),
            Err(_) => Turn::Ends,
        }
    }

    /// Reads up to the end of a client that has its response.
    fn discard(&mut self) -> Turn {
        let ConnectionState::Closing { discarded } = &mut self.state else { return Turn::Stays };
        let mut chunk = [0; LINE_BYTES_MAX];
        for _ in 0..DISCARDED_A_TURN / LINE_BYTES_MAX {
            match rustix::net::recv(&self.socket, &mut chunk[..], RecvFlags::empty()) {
                Ok((0, _)) => return Turn::Ends,
                Ok((count, _)) => *discarded += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Turn::Stays,
                Err(_) => return Turn::Ends,
            }
            if *discarded >= DISCARDED_MAX {
                return Turn::Ends;
            }
        }
        Turn::Stays
    }
}

fn lost(call: &str, e: Errno) -> Turn {
    let e = io::Error::from(e);
    match e.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            say!(Info, "control: {call} failed {}", os_error(&e))
        }
        _ => say!(Error, "control: {call} failed {}", os_error(&e)),
    }
    Turn::Ends
}
