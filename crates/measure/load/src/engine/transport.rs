//! Interface to a network and a clock, with a real and a virtual implementation.

use super::failure::LoadFailure;

pub type TransportSlot = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Bytes transferred; a read of 0 is the peer's end.
    Done(usize),
    Wait,
    Failed(LoadFailure),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Timed calls, and their CPU time in nanoseconds.
    pub calls: u64,
    pub cpu: u64,
    pub sources: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub slot: TransportSlot,
    pub readable: bool,
    pub writable: bool,
    /// End or reset: reading must continue until it is reported.
    pub ended: bool,
}

/// Non-blocking connections in numbered slots, and time. Edge-triggered: after an event, reads until a short read or
/// [`Io::Wait`].
pub trait Transport {
    fn now(&self) -> u64;
    /// Starts a connection in a free slot; an event reports success or failure.
    fn connect(&mut self, slot: TransportSlot) -> Result<(), LoadFailure>;
    /// Result of connecting, after the first event.
    fn established(&mut self, slot: TransportSlot) -> Result<(), LoadFailure>;
    /// Reason why a connection was refused; `None` if none was, or only for lack of room in a queue.
    fn refusal(&self) -> Option<String> {
        None
    }
    fn receive(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io;
    /// Discards up to `buffer.len()` bytes; may overwrite `buffer`.
    fn discard(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io;
    fn send(&mut self, slot: TransportSlot, bytes: &[u8]) -> Io;
    /// Passes received datagrams to `take`; `Done` if there may be more. For protocols over datagrams only.
    fn receive_datagrams(&mut self, _slot: TransportSlot, _take: &mut dyn FnMut(&[u8])) -> Io {
        Io::Wait
    }
    /// Sends datagrams of `segment` octets each, the last of which may be shorter.
    fn send_datagrams(&mut self, slot: TransportSlot, bytes: &[u8], _segment: usize) -> Io {
        self.send(slot, bytes)
    }
    /// Closes; `reset` sends an RST, which leaves no port in TIME_WAIT.
    fn close(&mut self, slot: TransportSlot, reset: bool);
    fn connect_cost(&mut self) -> Cost;
    fn cpu(&self) -> u64;
    /// Part of [`Transport::cpu`] spent polling in vain.
    fn spun(&self) -> u64;
    /// Waiting for an occupied processor.
    fn waited(&self) -> u64;
    /// Waits for events until `deadline` and puts them into `ready` (cleared first).
    fn wait(&mut self, deadline: u64, ready: &mut Vec<Ready>);
}
