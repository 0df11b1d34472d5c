//! Protocol cores in the client role, behind one interface, so that the engine does not know which of them it drives.
//!
//! HTTP/1.1 is the first ([`h1`]). A multiplexing core joins by implementing [`Protocol`]: it takes further requests while
//! others are in flight and names the one that an answer belongs to.

pub mod h1;

use std::ops::Range;

use figures::rng::Rng;

use crate::engine::failure::Failure;
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
    /// An answer is complete.
    Answer(Answer),
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
}

/// One end of one connection. Sans-io: bytes in, bytes out, no clock.
pub trait Protocol: Sized {
    /// What all connections of a world share (caches, tables).
    type Shared: Default;

    /// A fresh connection.
    fn new() -> Self;

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
