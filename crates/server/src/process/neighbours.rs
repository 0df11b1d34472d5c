//! Socket pairs between consecutive worker processes, which pass QUIC datagrams to each other (`worker::relay`) during a
//! binary upgrade or a replacement of the worker process.

use crate::say;
use observe::os_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use worker::relay::Relay;

/// Names the descriptor of the pair for the next program's first worker.
pub const VARIABLE: &str = "TIDEGATE_QUIC";
/// Generations that this program's next worker is ahead of the one that a new binary starts with: both may live at the
/// same time.
const AHEAD: u8 = 64;
const KEY_BYTES: usize = 16;

#[derive(Debug)]
pub struct Neighbours {
    generation: u8,
    key: [u8; KEY_BYTES],
    /// Socket to the predecessor. With a new binary, its first message contains the generation and the key.
    older: Option<OwnedFd>,
}

impl Neighbours {
    /// Takes over the sockets that the previous program has left, if any.
    pub fn inherited() -> Neighbours {
        let alone = || Neighbours { generation: 0, key: net::random::bytes16(), older: None };
        let Ok(number) = std::env::var(VARIABLE) else { return alone() };
        let found = number.parse().ok().and_then(|number| net::process::inherit_descriptor(number).ok());
        let Some(older) = found else {
            say!(Warn, "invalid socket number \"{number}\" in {VARIABLE} environment variable, ignored");
            return alone();
        };
        match read_place(&older) {
            Some((generation, key)) => Neighbours { generation, key, older: Some(older) },
            None => {
                say!(Warn, "the socket #{number} in {VARIABLE} environment variable is no worker's, ignored");
                alone()
            }
        }
    }

    /// Returns the sockets of the worker process being started; `self` becomes those of the next one.
    pub fn place(&mut self) -> Relay {
        let (generation, key) = (self.generation, self.key);
        let older = self.older.take();
        if let Some(older) = &older {
            // Drops the message for a new binary, because this program knows its contents.
            let _ = read_place(older);
        }
        self.generation = generation.wrapping_add(1);
        let flags = SocketFlags::CLOEXEC;
        let newer = match socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) {
            Ok((newer, theirs)) => {
                let message = [&[self.generation][..], &key].concat();
                if rustix::net::send(&newer, &message, rustix::net::SendFlags::NOSIGNAL).is_ok() {
                    self.older = Some(theirs);
                }
                Some(newer)
            }
            Err(e) => {
                say!(
                    Alert,
                    "socketpair() failed {}, QUIC connections end with their worker process",
                    os_error(&e.into())
                );
                None
            }
        };
        Relay { generation, key, older, newer }
    }

    /// The socket for a new binary's first worker.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.older.as_ref().map(AsFd::as_fd)
    }
    /// A new binary has the socket; workers that this one starts are no neighbours of its workers.
    pub fn hand_over(&mut self) {
        self.older = None;
        self.generation = self.generation.wrapping_add(AHEAD);
    }
}

fn read_place(socket: &OwnedFd) -> Option<(u8, [u8; KEY_BYTES])> {
    let mut message = [0; 1 + KEY_BYTES];
    let (_, length) = rustix::net::recv(socket, &mut message[..], rustix::net::RecvFlags::DONTWAIT).ok()?;
    let (generation, key) = message.get(..length)?.split_first()?;
    Some((*generation, *key.first_chunk()?))
}
