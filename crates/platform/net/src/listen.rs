//! Listening addresses and their socket options (nginx: `listen`, `ngx_open_listening_sockets`).

pub mod options;

use crate::Address;
use std::collections::HashSet;
use std::time::Duration;

/// `so_keepalive=on|off|idle:interval:count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// The kernel probes idle connections (SO_KEEPALIVE).
    pub on: bool,
    /// Silence before the first probe; `None`: the system's default.
    pub idle: Option<Duration>,
    /// Time between probes; `None`: the system's default.
    pub interval: Option<Duration>,
    /// Unanswered probes that end the connection; `None`: the system's default.
    pub count: Option<u32>,
}

/// A listening address with the socket options of its `listen` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSpec {
    /// The address.
    pub address: Address,
    /// `None`: 511, as nginx on Linux.
    pub backlog: Option<u32>,
    /// `rcvbuf` in bytes; `None`: the system's default.
    pub receive_buffer: Option<usize>,
    /// `sndbuf` in bytes; `None`: the system's default.
    pub send_buffer: Option<usize>,
    /// `deferred`: connections are accepted with their first data (TCP_DEFER_ACCEPT).
    pub deferred: bool,
    /// `fastopen`: pending requests with data in their SYN (TCP_FASTOPEN).
    pub fastopen: Option<u32>,
    /// `so_keepalive`; `None`: the system's default.
    pub keepalive: Option<TcpKeepalive>,
    /// `ipv6only`: an IPv6 socket takes no IPv4 clients.
    pub ipv6_only: bool,
    /// As configured; with several worker threads each TCP listener has a socket per thread anyway.
    pub reuseport: bool,
    /// A socket of datagrams (`udp`, `quic`) instead of TCP.
    pub datagram: bool,
    /// Multipath TCP (RFC 8684).
    pub multipath: bool,
    /// The line has `bind` or another socket option: a socket of its own even beside a wildcard (`*:80`).
    pub bind: bool,
}

impl ListenSpec {
    /// Describes a TCP or UNIX-domain socket without options.
    pub fn new(address: Address) -> Self {
        ListenSpec {
            address,
            backlog: None,
            receive_buffer: None,
            send_buffer: None,
            deferred: false,
            fastopen: None,
            keepalive: None,
            ipv6_only: true,
            reuseport: false,
            datagram: false,
            multipath: false,
            bind: false,
        }
    }
}

/// Returns the specs that need a socket (nginx: `ngx_http_init_listening`). A wildcard's socket accepts the connections to
/// all TCP addresses of its port and family that have no socket options.
pub fn with_sockets<'a>(specs: impl Iterator<Item = &'a ListenSpec>) -> Vec<ListenSpec> {
    let specs: Vec<&ListenSpec> = specs.collect();
    let tcp = |spec: &ListenSpec| match &spec.address {
        Address::Ip(ip) if !spec.datagram => Some(*ip),
        _ => None,
    };
    let any: HashSet<(bool, u16)> = specs
        .iter()
        .filter_map(|spec| tcp(spec))
        .filter(|ip| ip.ip().is_unspecified())
        .map(|ip| (ip.is_ipv4(), ip.port()))
        .collect();
    let covered = |spec: &ListenSpec| {
        let ip = tcp(spec).filter(|ip| !spec.bind && !ip.ip().is_unspecified());
        ip.is_some_and(|ip| any.contains(&(ip.is_ipv4(), ip.port())))
    };
    specs.into_iter().filter(|spec| !covered(spec)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_the_addresses_of_its_port_and_family_without_options() {
        let spec = |text: &str| ListenSpec::new(Address::Ip(text.parse().expect(text)));
        let own = ListenSpec { bind: true, ..spec("127.0.0.2:80") };
        let udp = ListenSpec { datagram: true, ..spec("127.0.0.1:80") };
        let all = [
            spec("127.0.0.1:80"),
            own.clone(),
            udp.clone(),
            spec("0.0.0.0:80"),
            spec("127.0.0.1:81"),
            spec("[::1]:80"),
            ListenSpec::new(Address::Unix("/s".into())),
        ];
        let bound = with_sockets(all.iter());
        assert_eq!(bound, all[1..]);
    }
}
