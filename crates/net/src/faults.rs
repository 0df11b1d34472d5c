//! Sockets of this thread that misbehave, for tests (in builds with debug assertions alone): each call meets the same fault without end, and the poller says of every socket
//! that it is ready. A loop that does not yield then panics instead of hanging its test.

use std::cell::Cell;
use std::io;

/// Calls on sockets within one poll of a task, above which the loop that makes them does not yield. A budget is worth 512.
const CALLS_MAX: u32 = 8 * 1024;

/// Outcome of every call on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EAGAIN, although the socket was said to be ready.
    Again,
    /// An error number.
    Error(i32),
    /// A peer that has always sent something, and takes everything: this octet, as far as there is room.
    Endless(u8),
}

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static RUNAWAYS: Cell<u32> = const { Cell::new(0) };
}

/// Ends the fault when dropped.
#[derive(Debug)]
pub struct Injected(());

impl Drop for Injected {
    fn drop(&mut self) {
        FAULT.set(None);
    }
}

/// From now on, calls on sockets of this thread have this outcome.
pub fn inject(fault: Fault) -> Injected {
    FAULT.set(Some(fault));
    CALLS.set(0);
    Injected(())
}

/// The poller says that sockets are ready; that it is asked counts as a call.
pub(crate) fn is_ready() -> bool {
    if FAULT.get().is_none() {
        return false;
    }
    count();
    true
}

fn count() {
    CALLS.set(CALLS.get() + 1);
    if CALLS.get() > CALLS_MAX {
        RUNAWAYS.set(RUNAWAYS.get() + 1);
        panic!("{CALLS_MAX} calls on sockets, and the loop has not yielded");
    }
}

/// Loops of this thread that did not yield: their panics may have been caught.
pub fn runaways() -> u32 {
    RUNAWAYS.get()
}

/// A task begins its turn.
pub(crate) fn renew() {
    CALLS.set(0);
}

/// A call meets the fault, if there is one. `room`: how many octets it could move; `fill`: puts so many in their place.
pub(crate) fn meet(room: usize, fill: impl FnOnce(u8, usize)) -> Option<io::Result<usize>> {
    let fault = FAULT.get()?;
    count();
    Some(match fault {
        Fault::Again => Err(io::ErrorKind::WouldBlock.into()),
        Fault::Error(number) => Err(io::Error::from_raw_os_error(number)),
        Fault::Endless(octet) => {
            fill(octet, room);
            Ok(room)
        }
    })
}
