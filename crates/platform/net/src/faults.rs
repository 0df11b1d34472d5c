//! Faulty sockets of this thread, for tests (debug assertions only): each call meets an endless fault, and every socket
//! is ready. A loop that does not yield panics instead of hanging its test.

use std::cell::Cell;
use std::io;

/// Socket calls per poll of a task above which its loop does not yield; a budget allows 512.
const CALLS_MAX: u32 = 8 * 1024;

/// A fault of all sockets of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFault {
    /// EAGAIN despite readiness.
    Again,
    /// This error number.
    Error(i32),
    /// A peer that sends this octet and accepts data without end.
    Endless(u8),
}

thread_local! {
    static FAULT: Cell<Option<SocketFault>> = const { Cell::new(None) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static RUNAWAYS: Cell<u32> = const { Cell::new(0) };
}

/// Ends the fault when it is dropped.
#[derive(Debug)]
pub struct InjectedFault(());

impl Drop for InjectedFault {
    fn drop(&mut self) {
        FAULT.set(None);
    }
}

/// For this thread.
pub fn inject_fault(fault: SocketFault) -> InjectedFault {
    FAULT.set(Some(fault));
    CALLS.set(0);
    InjectedFault(())
}

/// Makes sockets ready; counts as a call.
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

/// Loops of this thread that did not yield, including those whose panic was caught.
pub fn runaways() -> u32 {
    RUNAWAYS.get()
}

pub(crate) fn renew() {
    CALLS.set(0);
}

/// Applies the fault to a call. `room`: octets that it could move; `fill` produces them.
pub(crate) fn meet(room: usize, fill: impl FnOnce(u8, usize)) -> Option<io::Result<usize>> {
    let fault = FAULT.get()?;
    count();
    Some(match fault {
        SocketFault::Again => Err(io::ErrorKind::WouldBlock.into()),
        SocketFault::Error(number) => Err(io::Error::from_raw_os_error(number)),
        SocketFault::Endless(octet) => {
            fill(octet, room);
            Ok(room)
        }
    })
}
