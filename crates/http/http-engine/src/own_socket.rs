//! Sockets of features, opened where no server listens: TCP sockets for requests, UDP sockets for datagrams.

use area::listen::Listen;
use net::Address;
use net::listen::ListenSpec;
use std::net::SocketAddr;
use std::sync::Arc;

/// The address of a feature's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSocket {
    /// IP address and port; the unspecified address if [`OwnSocket::any_address`].
    pub address: SocketAddr,
    /// The configuration has the port only: sockets with any address of it suffice.
    pub any_address: bool,
}

impl OwnSocket {
    /// Tells whether another socket takes the place of this one.
    pub fn covered_by(&self, socket: &Address) -> bool {
        match socket {
            Address::Ip(ip) => {
                ip.port() == self.address.port()
                    && (self.any_address || ip.ip().is_unspecified() || ip.ip() == self.address.ip())
            }
            Address::Unix(_) => false,
        }
    }
    /// Tells whether a server listens there, by its `listen` lines or at the `implied` address.
    pub(crate) fn is_open(&self, listens: &[Listen], implied: &Address) -> bool {
        if listens.is_empty() {
            return self.covered_by(implied);
        }
        listens.iter().filter(|l| !l.quic).flat_map(|l| &l.specs).any(|spec| self.covered_by(&spec.address))
    }
}

/// Writes the response to a datagram; `false`: the datagram is not for this feature.
pub type AnswerDatagram = Arc<dyn Fn(&[u8], &mut Vec<u8>) -> bool + Send + Sync>;

/// Datagrams that a feature answers one by one: on a socket of its own or, before a session, on those of the stream area.
pub struct Datagrams {
    /// The address.
    pub socket: OwnSocket,
    /// The address with its socket options, as the process opens it.
    pub spec: ListenSpec,
    /// Answers the feature's datagrams.
    pub answer: AnswerDatagram,
    /// Answers the others on a socket that no session has.
    pub refuse: AnswerDatagram,
}

impl Datagrams {
    /// Describes datagrams at an address. `answer` comes first; `refuse` answers the rest on a socket of the feature's
    /// own.
    pub fn new(socket: OwnSocket, answer: AnswerDatagram, refuse: AnswerDatagram) -> Datagrams {
        let spec = ListenSpec { datagram: true, ..ListenSpec::new(Address::Ip(socket.address)) };
        Datagrams { socket, spec, answer, refuse }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sockets_take_the_place() {
        let ip = |text: &str| Address::Ip(text.parse().expect(text));
        let own = |text: &str, any_address| OwnSocket { address: text.parse().expect(text), any_address };
        assert!(own("0.0.0.0:53", true).covered_by(&ip("127.0.0.1:53")));
        assert!(!own("127.0.0.1:53", false).covered_by(&ip("127.0.0.2:53")));
        assert!(own("127.0.0.1:53", false).covered_by(&ip("0.0.0.0:53")));
        assert!(!own("0.0.0.0:53", true).covered_by(&ip("127.0.0.1:54")));
        assert!(!own("0.0.0.0:53", true).covered_by(&Address::Unix("/s".into())));
    }
}
