//! nginx's words and log level for connections that fail (`ngx_event_connect_peer`).

use crate::Peer;
use net::Address;
use std::io::{self, ErrorKind};

/// Returns the failed call: with the server's address if connect() itself failed, before any packet.
pub fn connect_call(peer: &Peer, e: &io::Error) -> String {
    match &peer.spec.address {
        Address::Ip(_) if !is_immediate(e) => "connect()".into(),
        _ => format!("connect() to {}", peer.text),
    }
}

fn is_immediate(e: &io::Error) -> bool {
    const ERRORS: &[i32] =
        &[libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT, libc::EACCES, libc::EPERM];
    e.raw_os_error().is_some_and(|code| ERRORS.contains(&code))
}

/// Tells whether an error is common for a server or network that is down; others get a higher log level.
pub fn is_usual(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::WouldBlock
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerSpec;

    #[test]
    fn calls_that_fail_at_once_name_the_address() {
        let peer = |address| Peer::new(PeerSpec::new("p", address), 0);
        let (tcp, unix) = (peer(Address::Ip(([192, 0, 2, 1], 80).into())), peer(Address::Unix("/run/a".into())));
        let call = |peer: &Peer, code| connect_call(peer, &io::Error::from_raw_os_error(code));
        assert_eq!(call(&tcp, libc::ECONNREFUSED), "connect()");
        assert_eq!(call(&tcp, libc::ENETUNREACH), "connect() to 192.0.2.1:80");
        assert_eq!(call(&unix, libc::ENOENT), "connect() to unix:/run/a");
        let usual = [libc::ECONNREFUSED, libc::ENETUNREACH, libc::ENOENT, libc::EACCES];
        assert_eq!(usual.map(|code| is_usual(&io::Error::from_raw_os_error(code))), [true, true, false, false]);
    }
}
