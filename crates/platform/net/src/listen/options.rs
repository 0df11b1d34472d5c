//! Socket options that socket2 and rustix lack.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

fn set(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer is to a live integer of the length given; the descriptor is borrowed and so open.
    let done =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `TCP_DEFER_ACCEPT`: delays the wake-up until the first bytes, at most some seconds; 0 disables.
pub fn set_defer_accept(socket: &impl AsFd, seconds: i32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// `TCP_FASTOPEN` with its queue length.
pub fn set_fastopen(socket: &impl AsFd, queue: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, i32::try_from(queue).unwrap_or(i32::MAX))
}
