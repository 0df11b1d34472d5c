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

/// Lets the network fragment datagrams that exceed the path's MTU, which is the default of sockets, after another
/// program or library has forbidden it.
pub fn allow_fragments(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)?;
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
    }
    Ok(())
}

/// Sets whether the kernel attaches control messages to datagrams: segments (GRO), ECN bits, times, and, unless the
/// socket is bound to all addresses, the destination. nginx drops datagrams with messages that it does not expect.
pub fn set_messages(socket: &impl AsFd, on: bool) -> io::Result<()> {
    let address = socket2::SockRef::from(socket).local_addr()?;
    let Some(address) = address.as_socket() else { return Ok(()) };
    let value = i32::from(on);
    set(socket, libc::SOL_UDP, libc::UDP_GRO, value)?;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, value)?;
    let with_destination = !address.ip().is_unspecified();
    if address.is_ipv6() {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, value)?;
        if with_destination {
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, value)?;
        }
    } else if with_destination {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, value)?;
    }
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, value)
}
