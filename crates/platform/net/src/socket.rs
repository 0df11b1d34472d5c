//! Non-blocking system calls on sockets, without signals. Each borrows its descriptor, so that no number outlives it:
//! clients' belong to poller entries (`poller/traffic.rs`), upstream ones to [`Outbound`](crate::outbound::Outbound).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Reads; `Ok(0)` is the end. Fails with `WouldBlock` without data.
pub(crate) fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.len(), |octet, n| buf[..n].fill(octet)) {
        return met;
    }
    loop {
        match rustix::net::recv(fd, &mut *buf, rustix::net::RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// [`recv`] into a vector's spare room.
pub(crate) fn recv_spare(fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.capacity() - buf.len(), |octet, n| buf.resize(buf.len() + n, octet)) {
        return met;
    }
    loop {
        match rustix::net::recv(fd, rustix::buffer::spare_capacity(buf), rustix::net::RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// [`recv_spare`] that leaves the bytes in the socket (MSG_PEEK).
pub(crate) fn peek_spare(fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.capacity() - buf.len(), |octet, n| buf.resize(buf.len() + n, octet)) {
        return met;
    }
    loop {
        match rustix::net::recv(fd, rustix::buffer::spare_capacity(buf), rustix::net::RecvFlags::PEEK) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns `None` as the address of a sender without one.
pub(crate) fn recv_from(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>)> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.len(), |octet, n| buf[..n].fill(octet)) {
        return met.map(|n| (n, None));
    }
    loop {
        match rustix::net::recvfrom(fd, &mut *buf, rustix::net::RecvFlags::empty()) {
            Ok((n, _, from)) => return Ok((n, from.and_then(|from| SocketAddr::try_from(from).ok()))),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(bytes.len(), |_, _| {}) {
        return met;
    }
    loop {
        match rustix::net::sendto(fd, bytes, rustix::net::SendFlags::NOSIGNAL, &to) {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Bytes of a write where segments are long. The loopback interface has segments of 64 KB, as large as a socket's first receive window:
/// one that fills it is acknowledged after 40 ms if it is alone, and the rest of a response waits. Of two, the second one is
/// acknowledged at once.
const PIECE_BYTES: usize = 28 * 1024;
/// A write that leaves whole: the window has room for another piece behind it, and a read of 32 KB with its head needs one call.
const WHOLE_BYTES: usize = 36 * 1024;
/// Bytes that leave in pieces; the rest of a write follows whole.
const LEADING_BYTES: usize = 2 * PIECE_BYTES;
/// Segments are long above this size, which no frame of Ethernet reaches.
const LONG_SEGMENT_BYTES: u32 = 16 * 1024;

/// Tells whether bytes leave in pieces of [`PIECE_BYTES`]; costs a system call for long writes only.
fn leaves_in_pieces(fd: BorrowedFd<'_>, length: usize) -> bool {
    length > WHOLE_BYTES && socket2::SockRef::from(&fd).tcp_mss().is_ok_and(|segment| segment > LONG_SEGMENT_BYTES)
}

/// Calls `send` with the ranges of the pieces, and of the rest behind [`LEADING_BYTES`], until one is not taken whole. Returns the bytes sent; fails as the first call.
fn in_pieces(
    length: usize,
    mut send: impl FnMut(std::ops::Range<usize>) -> Result<usize, rustix::io::Errno>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < length {
        let end = if done < LEADING_BYTES { length.min(done + PIECE_BYTES) } else { length };
        match send(done..end) {
            Ok(n) if done + n == end => done = end,
            Ok(n) => return Ok(done + n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) if done == 0 => return Err(e.into()),
            // The next write reports it.
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Returns the parts of buffers that make up a range of their concatenation.
fn range_of<'a>(bufs: &'a [IoSlice<'_>], range: &std::ops::Range<usize>) -> smallvec::SmallVec<[IoSlice<'a>; 4]> {
    let mut at = 0;
    let parts = bufs.iter().filter_map(|buf| {
        let start = at;
        at += buf.len();
        let part = buf.get(range.start.max(start) - start..range.end.min(at).saturating_sub(start))?;
        (!part.is_empty()).then(|| IoSlice::new(part))
    });
    parts.collect()
}

/// Writes as much as fits, at once. `more`: another write follows (MSG_MORE).
pub(crate) fn send(fd: BorrowedFd<'_>, buf: &[u8], more: bool) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.len(), |_, _| {}) {
        return met;
    }
    let flags = if more {
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::MORE
    } else {
        rustix::net::SendFlags::NOSIGNAL
    };
    loop {
        match rustix::net::send(fd, buf, flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// [`send`] of several buffers; in pieces where segments are long.
pub(crate) fn send_vectored(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    // Cheaper than a message of parts.
    if let [one] = bufs
        && one.len() <= WHOLE_BYTES
    {
        return send(fd, one, more);
    }
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(bufs.iter().map(|buf| buf.len()).sum(), |_, _| {}) {
        return met;
    }
    let flags = if more {
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::MORE
    } else {
        rustix::net::SendFlags::NOSIGNAL
    };
    let length = bufs.iter().map(|buf| buf.len()).sum();
    if leaves_in_pieces(fd, length) {
        return in_pieces(length, |range| {
            let flags = if range.end == length { flags } else { rustix::net::SendFlags::NOSIGNAL };
            match range_of(bufs, &range).as_slice() {
                [one] => rustix::net::send(fd, one, flags),
                many => rustix::net::sendmsg(fd, many, &mut rustix::net::SendAncillaryBuffer::default(), flags),
            }
        });
    }
    loop {
        match rustix::net::sendmsg(fd, bufs, &mut rustix::net::SendAncillaryBuffer::default(), flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sends a part of a file; advances `offset`. `Ok(0)`: the file was truncated.
pub(crate) fn sendfile(fd: BorrowedFd<'_>, file: &std::fs::File, offset: &mut u64, length: usize) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(length, |_, _| {}) {
        *offset += *met.as_ref().unwrap_or(&0) as u64;
        return met;
    }
    if leaves_in_pieces(fd, length) {
        return in_pieces(length, |range| rustix::fs::sendfile(fd, file, Some(offset), range.len()));
    }
    loop {
        match rustix::fs::sendfile(fd, file, Some(offset), length) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// `None`: a UNIX-domain socket.
#[derive(Debug)]
pub struct AcceptedSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// Address of the client; `None`: a UNIX-domain socket.
    pub peer: Option<std::net::SocketAddr>,
}

/// Accepts a connection, non-blocking and close-on-exec. Fails with `WouldBlock` when none is pending; callers wait on
/// EMFILE and similar errors.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<AcceptedSocket> {
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    loop {
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((fd, address)) => {
                let peer = address.and_then(|a| std::net::SocketAddr::try_from(a).ok());
                return Ok(AcceptedSocket { fd, peer });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns the local address of a socket; `None`: a UNIX-domain socket.
pub fn local_address(fd: &OwnedFd) -> Option<std::net::SocketAddr> {
    rustix::net::getsockname(fd).ok().and_then(|a| std::net::SocketAddr::try_from(a).ok())
}

pub(crate) fn set_nodelay(fd: BorrowedFd<'_>) {
    // Fails, irrelevantly, on UNIX-domain sockets.
    let _ = rustix::net::sockopt::set_tcp_nodelay(fd, true);
}

/// Makes the next close send RST, which frees kernel memory at once.
pub(crate) fn set_reset_on_close(fd: BorrowedFd<'_>) {
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO));
}

pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
}

/// Lets `connect` choose the port of a socket bound to port 0, so that one port serves connections to different peers.
pub fn set_bind_address_no_port(fd: &impl AsFd) {
    let on: libc::c_int = 1;
    // SAFETY: the pointer is to a live integer of the length that is given. A kernel that does not know the option
    // chooses the port at `bind`, as without it.
    unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Returns the bytes of the send buffer that are free (SO_MEMINFO), 0 if it is full; `None` if the kernel does not tell.
pub(crate) fn send_room(fd: BorrowedFd<'_>) -> Option<usize> {
    // Indexes of `SK_MEMINFO_WMEM_ALLOC`, `SK_MEMINFO_SNDBUF` and `SK_MEMINFO_WMEM_QUEUED` (linux/sock_diag.h).
    const ALLOCATED: usize = 2;
    const BUFFER: usize = 3;
    const QUEUED: usize = 5;
    let mut info = [0u32; 9];
    let mut length = std::mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointers are to a live array of the length that is given.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, info.as_mut_ptr().cast(), &mut length)
    };
    // TCP counts its queue, other sockets the packets that the peer has not read.
    (result == 0).then(|| info[BUFFER].saturating_sub(info[QUEUED].max(info[ALLOCATED])) as usize)
}

/// Round-trip time and deviation (microseconds), congestion window (segments), receive space (bytes).
pub(crate) fn tcp_info(fd: BorrowedFd<'_>) -> Option<[u32; 4]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_buffers_is_the_range_of_their_concatenation() {
        let bytes: Vec<u8> = (0..100).collect();
        let bufs = [&bytes[..7], &[], &bytes[7..50], &bytes[50..]].map(IoSlice::new);
        for range in [0..100, 0..7, 3..9, 7..50, 49..51, 60..61, 99..100] {
            let joined: Vec<u8> = range_of(&bufs, &range).iter().flat_map(|part| part.to_vec()).collect();
            assert_eq!(joined, bytes[range]);
        }
    }

    #[test]
    fn a_long_write_over_the_loopback_interface_leaves_in_pieces_and_arrives_whole() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        assert!(leaves_in_pieces(client.as_fd(), bytes.len()) && !leaves_in_pieces(client.as_fd(), WHOLE_BYTES));
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            std::io::Read::read_to_end(&mut server, &mut got).map(|_| got)
        });
        let (front, back) = bytes.split_at(100_001);
        let bufs = [IoSlice::new(front), IoSlice::new(back)];
        assert_eq!(send_vectored(client.as_fd(), &bufs, false).expect("sent"), bytes.len());
        drop(client);
        assert!(reader.join().expect("no panic").expect("read") == bytes);
    }

    #[test]
    fn an_error_after_the_first_piece_is_the_next_write_s() {
        let (length, again) = (3 * PIECE_BYTES, rustix::io::Errno::AGAIN);
        let after = |most: usize| {
            move |range: std::ops::Range<usize>| if range.start < most { Ok(range.len()) } else { Err(again) }
        };
        assert_eq!(in_pieces(length, after(2 * PIECE_BYTES)).expect("a part"), 2 * PIECE_BYTES);
        assert!(in_pieces(length, after(0)).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
        assert_eq!(in_pieces(length, |range| Ok(range.len().min(100))).expect("a part"), 100);
    }
}
