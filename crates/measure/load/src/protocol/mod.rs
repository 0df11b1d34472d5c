//! Protocol cores in the client role, behind one interface: HTTP/1.1 ([`h1`]) WebSocket ([`ws`]), and multiplexing HTTP/2
//! ([`h2`], with gRPC's answers in [`grpc`]) and HTTP/3 ([`h3`]), whose output gathers until the engine takes it.

pub mod grpc;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod malformed;
pub mod ws;

use std::ops::Range;

use figures::rng::Rng;

use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::request::PreparedRequest;
use crate::engine::session::SessionVariables;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSummary {
    /// Index of the answered request in flight, counted from the oldest.
    pub lane: usize,
    pub status: u16,
    /// End of a call of gRPC.
    pub grpc: Option<grpc::GrpcEnd>,
    /// Bytes of the decoded body, and of head and framing.
    pub body: u64,
    pub overhead: u64,
    /// The connection may carry another request.
    pub reusable: bool,
}

/// Event in a piece of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All input is consumed; nothing is complete.
    More,
    /// Body bytes (a range of the input) of inspected requests.
    Body {
        lane: usize,
        range: Range<usize>,
    },
    Began {
        lane: usize,
    },
    Answer(ResponseSummary),
    /// Request without an answer on a live connection; `code` of its reset.
    Failed {
        lane: usize,
        class: LoadFailure,
        code: Option<u16>,
    },
    /// The server did not process the request: it may be sent again.
    Unprocessed {
        lane: usize,
    },
    Room,
    /// Octets that the connection must send, as an answer to the peer.
    Send(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolStep {
    pub consumed: usize,
    pub event: Event,
}

#[derive(Debug)]
pub enum EncodedRequest<'a> {
    Ready(&'a [u8]),
    /// Appended to the output.
    Written,
    /// The core's own output ([`ClientProtocol::output`]).
    Kept,
    /// The filled templates make no message; nothing is sent.
    Unsendable,
}

/// One end of a connection. Sans-I/O: bytes in, bytes out, no clock.
pub trait ClientProtocol: Sized {
    /// Data of a world's connections (caches, tables).
    type Shared;

    const NAME: &'static [u8];
    /// Answers come in any order; a request can fail alone.
    const MULTIPLEXED: bool;

    /// Runs over datagrams, with its own handshake and timers.
    const DATAGRAMS: bool = false;

    /// Connections are upgraded before their first request.
    const UPGRADES: bool = false;

    /// Request of the upgrade.
    fn upgrade_request(_shared: &Self::Shared) -> &[u8] {
        &[]
    }
    /// Checks the head of the answer to the upgrade; fails with the reason.
    fn check_upgrade(_shared: &Self::Shared, _head: &[u8]) -> Result<(), String> {
        Ok(())
    }
    /// Octets that end an open connection in good order.
    fn farewell() -> &'static [u8] {
        &[]
    }

    /// Fails on unusable TLS settings.
    fn shared(job: &Job, requests: &[PreparedRequest]) -> Result<Self::Shared, String>;

    fn new(shared: &Self::Shared) -> Self;

    /// Starts the handshake of a datagram protocol at `now`, in nanoseconds as all times here. Fails with
    /// [`LoadFailure::Tls`].
    fn begin(&mut self, _shared: &mut Self::Shared, _now: u64) -> Result<(), LoadFailure> {
        Ok(())
    }
    /// Tells whether requests can be sent.
    fn is_established(&self) -> bool {
        true
    }
    /// Takes in a datagram; [`ClientProtocol::receive`] with empty input reports its events.
    fn take_in(&mut self, _datagram: &[u8], _now: u64) {}
    /// Fills an empty output with the next datagrams, and returns the size of each.
    fn next_datagrams(&mut self, _now: u64) -> usize {
        0
    }
    /// Time of [`ClientProtocol::expire`].
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn expire(&mut self, _now: u64) {}
    /// Puts the closing of the connection into the output.
    fn close(&mut self, _now: u64) {}
    /// Why the connection or its handshake failed, or a response is malformed.
    fn complaint(&mut self) -> Option<String> {
        None
    }

    fn has_room(&self) -> bool {
        true
    }
    fn is_settled(&self) -> bool {
        true
    }
    /// Tells whether the connection takes no more requests; those in flight may still be answered.
    fn is_going(&self) -> bool {
        false
    }
    /// Bytes to send; [`ClientProtocol::advance`] consumes them.
    fn output(&self) -> &[u8] {
        &[]
    }
    fn advance(&mut self, _count: usize) {}
    /// Cancels request `lane`. False: needs the whole connection closed.
    fn cancel(&mut self, _lane: usize) -> bool {
        false
    }
    /// Body of the last answer, unless reported by [`Event::Body`].
    fn take_body(&mut self, _body: &mut Vec<u8>) {}

    /// Encodes a request. `lane` counts from the oldest unanswered request.
    fn submit<'a>(
        &mut self,
        request: &'a PreparedRequest,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        output: &mut Vec<u8>,
    ) -> EncodedRequest<'a>;

    /// Head of the last answer, for [`PreparedRequest::wants_head`].
    fn head(&self) -> &[u8];

    /// Consumes a prefix of the input, at least one byte or with an event. Fails with [`LoadFailure::Protocol`], which ends
    /// the connection.
    fn receive(&mut self, input: &[u8], shared: &mut Self::Shared) -> Result<ProtocolStep, LoadFailure>;

    /// Tells whether an answer is complete but unreported: then [`ClientProtocol::receive`] needs a call even without input.
    fn is_due(&self) -> bool;

    /// Handles the peer's end; returns the answer that it completes. Fails with [`LoadFailure::ClosedEarly`] or
    /// [`LoadFailure::Truncated`].
    fn end_of_input(&mut self) -> Result<Option<ResponseSummary>, LoadFailure>;

    /// Body bytes that the transport may discard unread; reported by [`ClientProtocol::skip`].
    fn skippable(&self) -> u64;

    /// Reports `count` discarded bytes, at most [`ClientProtocol::skippable`].
    fn skip(&mut self, count: u64) -> Event;
}
