//! What the engine needs from a network and a clock: a small interface with two implementations, real and virtual.

use super::failure::Failure;

/// The number of a connection slot. A slot is used again after a connection was closed.
pub type Slot = usize;

/// The outcome of a read or write that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// So many bytes; 0 for a read means that the peer has ended its side.
    Done(usize),
    /// Nothing possible now; an event will follow.
    Wait,
    Failed(Failure),
}

/// What connecting takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Calls that were timed, and the CPU time of all of them in nanoseconds.
    pub calls: u64,
    pub cpu: u64,
    /// Local addresses, where they were chosen.
    pub sources: u64,
}

/// Something happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub slot: Slot,
    pub readable: bool,
    pub writable: bool,
    /// The peer has ended its side or reset the connection: reading must go on until it says so.
    pub ended: bool,
}

/// Non-blocking stream connections in numbered slots, and the time. Events are edge-triggered: after one, the engine reads
/// until a read is short or says [`Io::Wait`].
pub trait Transport {
    /// Nanoseconds since an arbitrary start; never goes back.
    fn now(&self) -> u64;
    /// Starts a connection in a free slot. An event says when it is made or has failed.
    ///
    /// # Errors
    /// The class, when it fails at once.
    fn connect(&mut self, slot: Slot) -> Result<(), Failure>;
    /// After the first event on a new connection: whether it stands.
    ///
    /// # Errors
    /// The class of the failure.
    fn established(&mut self, slot: Slot) -> Result<(), Failure>;
    /// Reads into `buffer`.
    fn receive(&mut self, slot: Slot, buffer: &mut [u8]) -> Io;
    /// Discards up to `buffer.len()` bytes without looking at them; `buffer` may be written to.
    fn discard(&mut self, slot: Slot, buffer: &mut [u8]) -> Io;
    /// Writes a prefix of `bytes`.
    fn send(&mut self, slot: Slot, bytes: &[u8]) -> Io;
    /// Closes; with `reset` by an RST, which leaves no port behind in TIME_WAIT.
    fn close(&mut self, slot: Slot, reset: bool);
    /// What calls of [`Transport::connect`] took since the last question.
    fn connect_cost(&mut self) -> Cost;
    /// CPU time that this thread has used so far, in nanoseconds.
    fn cpu(&self) -> u64;
    /// Of that, the time in which it only looked whether there is something to do.
    fn spun(&self) -> u64;
    /// Time that this thread has waited for a processor although it could have run, in nanoseconds.
    fn waited(&self) -> u64;
    /// Waits for events until the time `deadline` and puts them into `ready` (cleared first).
    fn wait(&mut self, deadline: u64, ready: &mut Vec<Ready>);
}
