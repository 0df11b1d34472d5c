//! Datagrams of unconnected sockets with source and destination, so that responses leave from the right address (nginx:
//! `ngx_recvmsg`, `ngx_set_srcaddr_cmsg`).

use crate::Address;
use crate::budget;
use socket2::{SockAddr, SockRef};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Bytes of a control message with its head, the larger of the two kinds.
const CONTROL_BYTES: usize = 64;

#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// A datagram in the caller's buffer.
#[derive(Debug)]
pub struct ReceivedDatagram {
    /// Bytes of the datagram.
    pub length: usize,
    /// `None`: an unnamed UNIX-domain socket, which cannot be answered.
    pub from: Option<Address>,
    /// Local destination, after [`tell_destination`].
    pub to: Option<IpAddr>,
}

/// Requests the destination address with each datagram: for sockets on wildcard addresses.
pub fn tell_destination(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    let on: libc::c_int = 1;
    // SAFETY: the pointer is to a live integer of the length given; the descriptor is borrowed and so open.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives a datagram, truncated to the buffer. Fails with `WouldBlock` when there is none.
pub fn receive(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<ReceivedDatagram> {
    let came = receive_now(socket, buf);
    budget::pass(came.as_ref().map_or(0, |came| came.length));
    came
}

fn receive_now(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<ReceivedDatagram> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(buf.len(), |octet, n| buf[..n].fill(octet)) {
        return met.map(|length| ReceivedDatagram { length, from: None, to: None });
    }
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut piece = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: every pointer in the head is to memory that lives until the calls below are over, with its length; a zeroed
    // head is a valid one. `try_init` hands the room for the name over and takes its length back.
    let (length, to, from) = unsafe {
        let mut to = None;
        let mut length = 0;
        let ((), name) = SockAddr::try_init(|name, name_length| {
            let mut head: libc::msghdr = MaybeUninit::zeroed().assume_init();
            head.msg_name = name.cast();
            head.msg_namelen = *name_length;
            head.msg_iov = &raw mut piece;
            head.msg_iovlen = 1;
            head.msg_control = control.0.as_mut_ptr().cast();
            head.msg_controllen = CONTROL_BYTES as _;
            let got = libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_DONTWAIT);
            if got < 0 {
                return Err(io::Error::last_os_error());
            }
            length = got as usize;
            *name_length = head.msg_namelen;
            to = destination(&head);
            Ok(())
        })?;
        (length, to, name)
    };
    let from = match (from.as_socket(), from.as_pathname()) {
        (Some(ip), _) => Some(Address::Ip(ip)),
        (None, Some(path)) => Some(Address::Unix(path.to_path_buf())),
        _ => None,
    };
    Ok(ReceivedDatagram { length, from, to })
}

/// The address in the control messages of a head that `recvmsg` has filled.
///
/// # Safety
/// The head's control pointer and length are those that the kernel has written.
unsafe fn destination(head: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the macros walk within the length that the kernel wrote; the data of each kind is copied out unaligned.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(head);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info: libc::in_pktinfo = std::ptr::read_unaligned(data.cast());
                    return Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr))));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info: libc::in6_pktinfo = std::ptr::read_unaligned(data.cast());
                    return Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(head, message);
        }
    }
    None
}

/// Sends a datagram; `source` is the local address for a wildcard socket. Fails with `WouldBlock` without room.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], to: &Address, source: Option<IpAddr>) -> io::Result<usize> {
    let sent = send_now(socket, bytes, to, source);
    budget::pass(*sent.as_ref().unwrap_or(&0));
    sent
}

fn send_now(socket: BorrowedFd<'_>, bytes: &[u8], to: &Address, source: Option<IpAddr>) -> io::Result<usize> {
    #[cfg(debug_assertions)]
    if let Some(met) = crate::faults::meet(bytes.len(), |_, _| {}) {
        return met;
    }
    let name = match to {
        Address::Ip(ip) => SockAddr::from(*ip),
        Address::Unix(path) => SockAddr::unix(path)?,
    };
    let Some(source) = source else {
        return SockRef::from(&socket).send_to_with_flags(bytes, &name, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    };
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: every pointer in the head is to memory that lives until the call is over, with its length. There is room for
    // one control message of either kind, and its data is written unaligned, within what CMSG_LEN reserves.
    let sent = unsafe {
        let mut head: libc::msghdr = MaybeUninit::zeroed().assume_init();
        head.msg_name = name.as_ptr().cast_mut().cast();
        head.msg_namelen = name.len();
        head.msg_iov = &raw mut piece;
        head.msg_iovlen = 1;
        head.msg_control = control.0.as_mut_ptr().cast();
        head.msg_controllen = CONTROL_BYTES as _;
        let message = libc::CMSG_FIRSTHDR(&raw const head);
        match source {
            IpAddr::V4(ip) => {
                let mut info: libc::in_pktinfo = MaybeUninit::zeroed().assume_init();
                info.ipi_spec_dst.s_addr = ip.to_bits().to_be();
                (*message).cmsg_level = libc::IPPROTO_IP;
                (*message).cmsg_type = libc::IP_PKTINFO;
                (*message).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) as _;
                head.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) as _;
                std::ptr::write_unaligned(libc::CMSG_DATA(message).cast(), info);
            }
            IpAddr::V6(ip) => {
                let mut info: libc::in6_pktinfo = MaybeUninit::zeroed().assume_init();
                info.ipi6_addr.s6_addr = ip.octets();
                (*message).cmsg_level = libc::IPPROTO_IPV6;
                (*message).cmsg_type = libc::IPV6_PKTINFO;
                (*message).cmsg_len = libc::CMSG_LEN(size_of::<libc::in6_pktinfo>() as u32) as _;
                head.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) as _;
                std::ptr::write_unaligned(libc::CMSG_DATA(message).cast(), info);
            }
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Local address of a session: the datagram's destination with the listener's port.
pub fn local_address(listener: SocketAddr, to: Option<IpAddr>) -> SocketAddr {
    to.map_or(listener, |ip| SocketAddr::new(ip, listener.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn pair(bind: &str, ask: bool) -> (UdpSocket, UdpSocket, SocketAddr) {
        let server = UdpSocket::bind(bind).expect("bind");
        let address = server.local_addr().expect("address");
        if ask {
            tell_destination(&server, address.is_ipv6()).expect("option");
        }
        let loopback = if address.is_ipv6() { "::1" } else { "127.0.0.1" };
        let client = UdpSocket::bind((loopback, 0)).expect("bind");
        (server, client, SocketAddr::new(loopback.parse().expect("address"), address.port()))
    }

    #[test]
    fn the_destination_is_told_and_the_answer_comes_from_it() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(_) = UdpSocket::bind(bind) else { continue };
            let (server, client, to) = pair(bind, true);
            client.connect(to).expect("connected");
            client.send(b"one").expect("sent");
            let mut buf = [0; 16];
            let came = receive(server.as_fd(), &mut buf).expect("a datagram");
            assert_eq!((&buf[..came.length], came.to), (&b"one"[..], Some(to.ip())));
            let from = came.from.expect("an address");
            send(server.as_fd(), b"two", &from, came.to).expect("sent");
            let n = client.recv(&mut buf).expect("from the very address that the client is connected to");
            assert_eq!(&buf[..n], b"two");
        }
    }

    #[test]
    fn nothing_there_is_no_wait() {
        let (server, client, to) = pair("127.0.0.1:0", false);
        let got = receive(server.as_fd(), &mut [0; 8]).map(|_| ());
        assert_eq!(got.expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
        client.send_to(b"", to).expect("sent");
        let came = receive(server.as_fd(), &mut [0; 8]).expect("an empty one");
        assert_eq!((came.length, came.to), (0, None));
        send(server.as_fd(), b"x", &came.from.expect("an address"), None).expect("sent");
    }
}
