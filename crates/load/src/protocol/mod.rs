//! Protocol cores in the client role, behind one interface, so that the engine does not know which of them it drives.
//!
//! HTTP/1.1 is [`h1`]. HTTP/2 ([`h2`]) is a multiplexing core: it takes further requests while others are in flight, names the one that
//! an answer belongs to, and what it has to send gathers until the engine takes it.

pub mod h1;
pub mod h2;

use std::ops::Range;

use figures::rng::Rng;

use crate::engine::failure::Failure;
use crate::engine::job::Job;
use crate::engine::request::Prepared;
use crate::engine::session::Variables;

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which request in flight it answers, counted from the oldest one.
    pub lane: usize,
    pub status: u16,
    /// Bytes of the body after decoding, and of head and framing.
    pub body: u64,
    pub overhead: u64,
    /// Whether the connection may carry another request.
    pub reusable: bool,
}

/// What a piece of input amounted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing complete yet; all input is taken.
    More,
    /// Body bytes (a range of the input) of the answer to request `lane`; only for requests that asked to see them.
    Body { lane: usize, range: Range<usize> },
    /// The answer to request `lane` begins.
    Began { lane: usize },
    /// An answer is complete.
    Answer(Answer),
    /// Request `lane` gets no answer; the connection goes on. `code`: of the reset that said so.
    Failed { lane: usize, class: Failure, code: Option<u16> },
    /// The server has done nothing about request `lane`: it may be sent again.
    Unprocessed { lane: usize },
    /// More may be asked of this connection than before, or no more at all.
    Room,
}

/// One step of [`Protocol::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are dealt with; the next call gets the rest.
    pub consumed: usize,
    pub event: Event,
}

/// Where an encoded request is.
#[derive(Debug)]
pub enum Encoded<'a> {
    /// In a ready buffer that need not be copied.
    Ready(&'a [u8]),
    /// Appended to the output.
    Written,
    /// In the core's own output ([`Protocol::output`]).
    Kept,
}

/// One end of one connection. Sans-io: bytes in, bytes out, no clock.
pub trait Protocol: Sized {
    /// What all connections of a world share (caches, tables).
    type Shared;

    /// What it is called in TLS (ALPN).
    const NAME: &'static [u8];
    /// Answers come in any order, and a request can fail or be given up without its connection.
    const MULTIPLEXED: bool;

    /// What the connections of a world share, for a job.
    fn shared(job: &Job, requests: &[Prepared]) -> Self::Shared;

    /// A fresh connection.
    fn new(shared: &Self::Shared) -> Self;

    /// Whether another request can be submitted now.
    fn has_room(&self) -> bool {
        true
    }
    /// Whether the server has said what it allows.
    fn is_settled(&self) -> bool {
        true
    }
    /// No request can be submitted any more; those in flight may still be answered.
    fn is_going(&self) -> bool {
        false
    }
    /// What the core wants to send, and that so much of it was taken.
    fn output(&self) -> &[u8] {
        &[]
    }
    fn advance(&mut self, _count: usize) {}
    /// Gives request `lane` up. False: that takes the whole connection.
    fn cancel(&mut self, _lane: usize) -> bool {
        false
    }
    /// The body of the last answer, where bodies are not told by [`Event::Body`].
    fn take_body(&mut self, _body: &mut Vec<u8>) {}

    /// Encodes a request. `lane` of later answers counts from the oldest request without answer.
    fn submit<'a>(
        &mut self,
        request: &'a Prepared,
        sequence: u64,
        variables: &Variables,
        rng: &mut Rng,
        output: &mut Vec<u8>,
    ) -> Encoded<'a>;

    /// The head of the last answer to a request that asked to see it ([`Prepared::wants_head`]).
    fn head(&self) -> &[u8];

    /// Takes a prefix of the input. Called again with the rest until everything is consumed; never consumes nothing without an
    /// event for non-empty input.
    ///
    /// # Errors
    /// [`Failure::Protocol`] when the peer broke the protocol; the connection cannot be used any more.
    fn receive(&mut self, input: &[u8], shared: &mut Self::Shared) -> Result<Step, Failure>;

    /// Whether an answer is complete but not yet reported, because its last bytes had to be shown first: then
    /// [`Protocol::receive`] has to be called even without input.
    fn is_due(&self) -> bool;

    /// The peer will send no more: the answer that this completes, if any.
    ///
    /// # Errors
    /// [`Failure::ClosedEarly`] or [`Failure::Truncated`] when requests are left without answer.
    fn end_of_input(&mut self) -> Result<Option<Answer>, Failure>;

    /// Body bytes to come whose content nobody wants: the transport may discard them unread and report them by
    /// [`Protocol::skip`].
    fn skippable(&self) -> u64;

    /// `count` (at most [`Protocol::skippable`]) bytes were discarded.
    fn skip(&mut self, count: u64) -> Event;
}
