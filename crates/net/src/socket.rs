//! System calls on connected sockets: without waiting, without signals.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A borrowed descriptor of a socket whose entry in the poller is alive.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: callers pass a descriptor that the poller owns for as long as the call lasts: nothing in a thread closes sockets
    // while one of these functions runs.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Reads what is there; `Ok(0)` is the end.
///
/// # Errors
/// `WouldBlock` when nothing is there; a broken connection.
pub fn recv(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(borrow(fd), &mut *buf, rustix::net::RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reads into the spare room of a vector, at most `max` bytes.
///
/// # Errors
/// As [`recv`].
pub fn recv_vec(fd: RawFd, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    let start = buf.len();
    buf.resize(start + max, 0);
    let got = recv(fd, &mut buf[start..]);
    buf.truncate(start + *got.as_ref().unwrap_or(&0));
    got
}

/// Reads into the spare room that a vector has.
///
/// # Errors
/// As [`recv`].
pub fn recv_spare(fd: RawFd, buf: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match rustix::net::recv(borrow(fd), rustix::buffer::spare_capacity(buf), rustix::net::RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The same, and what was read can be read again (MSG_PEEK).
///
/// # Errors
/// As [`recv`].
pub fn peek_spare(fd: RawFd, buf: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match rustix::net::recv(borrow(fd), rustix::buffer::spare_capacity(buf), rustix::net::RecvFlags::PEEK) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Writes what the socket takes. `more`: another write follows at once (MSG_MORE).
///
/// # Errors
/// `WouldBlock`; a broken connection.
pub fn send(fd: RawFd, buf: &[u8], more: bool) -> io::Result<usize> {
    let flags = if more {
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::MORE
    } else {
        rustix::net::SendFlags::NOSIGNAL
    };
    loop {
        match rustix::net::send(borrow(fd), buf, flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Writes several buffers with one call.
///
/// # Errors
/// As [`send`].
pub fn send_vectored(fd: RawFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    // The system has less to look at than in a message of parts.
    if let [one] = bufs {
        return send(fd, one, more);
    }
    let flags = if more {
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::MORE
    } else {
        rustix::net::SendFlags::NOSIGNAL
    };
    loop {
        match rustix::net::sendmsg(borrow(fd), bufs, &mut rustix::net::SendAncillaryBuffer::default(), flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sends a part of a file from the page cache; advances `offset`. `Ok(0)`: the file is shorter than it was.
///
/// # Errors
/// As [`send`].
pub fn sendfile(fd: RawFd, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
    loop {
        match rustix::fs::sendfile(borrow(fd), file, Some(offset), length) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// An accepted connection and its peer (`None` for UNIX-domain sockets).
#[derive(Debug)]
pub struct Accepted {
    pub fd: OwnedFd,
    pub peer: Option<std::net::SocketAddr>,
}

/// Accepts one connection, non-blocking and close-on-exec.
///
/// # Errors
/// `WouldBlock` when nobody waits; EMFILE and friends are the caller's to wait out.
pub fn accept(listener: RawFd) -> io::Result<Accepted> {
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    loop {
        match rustix::net::acceptfrom_with(borrow(listener), flags) {
            Ok((fd, address)) => {
                let peer = address.and_then(|a| std::net::SocketAddr::try_from(a).ok());
                return Ok(Accepted { fd, peer });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The address that a connection was made to.
pub fn local_address(fd: &OwnedFd) -> Option<std::net::SocketAddr> {
    rustix::net::getsockname(fd).ok().and_then(|a| std::net::SocketAddr::try_from(a).ok())
}

/// Turns Nagle's algorithm off.
pub fn set_nodelay(fd: RawFd) {
    // Fails for UNIX-domain sockets, which have no such thing.
    let _ = rustix::net::sockopt::set_tcp_nodelay(borrow(fd), true);
}

/// TCP_CORK: packets are filled before they leave.
pub fn set_cork(fd: RawFd, on: bool) {
    let _ = rustix::net::sockopt::set_tcp_cork(borrow(fd), on);
}

/// The next close sends RST and frees the kernel's memory at once.
pub fn set_reset_on_close(fd: RawFd) {
    let _ = rustix::net::sockopt::set_socket_linger(borrow(fd), Some(std::time::Duration::ZERO));
}

/// Closes the writing side: the peer sees the end, and may still send.
pub fn shutdown_write(fd: RawFd) {
    let _ = rustix::net::shutdown(borrow(fd), rustix::net::Shutdown::Write);
}

/// Leaves the choice of the port to `connect` when the socket is bound to an address with port 0: one port then serves
/// connections to different peers, and it is looked for among those that are free towards this peer.
pub fn set_bind_address_no_port(fd: &impl AsRawFd) {
    let on: libc::c_int = 1;
    // SAFETY: the pointer is to a live integer of the length that is given. A kernel that does not know the option chooses
    // the port at `bind`, as without it.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Round-trip time and deviation (microseconds), congestion window (segments), receive space (bytes).
pub fn tcp_info(fd: RawFd) -> Option<[u32; 4]> {
    // SAFETY: `tcp_info` is plain integers, for which all zeroes is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = std::mem::size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointers are to a live struct of the length that is given.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    (result == 0).then_some([info.tcpi_rtt, info.tcpi_rttvar, info.tcpi_snd_cwnd, info.tcpi_rcv_space])
}
