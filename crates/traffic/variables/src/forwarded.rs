//! Client addresses behind a chain of trusted proxies (nginx: `ngx_http_get_forwarded_addr`).

use conf_schema::value::{Cidr, cidr};
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedNetwork {
    Network(Cidr),
    /// Any client of a UNIX-domain socket.
    Unix,
}

pub fn is_trusted(proxies: &[TrustedNetwork], address: Option<IpAddr>) -> bool {
    let plain = address.map(|ip| match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        v4 => v4,
    });
    proxies.iter().any(|proxy| match (proxy, plain) {
        (TrustedNetwork::Unix, None) => true,
        (TrustedNetwork::Network(network), Some(ip)) => {
            let (v6, number) = cidr::address_number(ip);
            network.contains(v6, number)
        }
        _ => false,
    })
}

/// Follows header addresses from the last to the first while `peer` is trusted (without `recursive`, once). `None`:
/// `peer` remains.
pub fn forwarded_client<'a>(
    peer: Option<SocketAddr>,
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    proxies: &[TrustedNetwork],
    recursive: bool,
) -> Option<SocketAddr> {
    let mut current = peer;
    let mut found = None;
    for line in lines.rev() {
        for name in line.rsplit(|c| matches!(c, b' ' | b',')).filter(|name| !name.is_empty()) {
            if !is_trusted(proxies, current.map(|a| a.ip())) {
                return found;
            }
            let Some(address) = address_port(name) else { return found };
            current = Some(address);
            found = current;
            if !recursive {
                return found;
            }
        }
    }
    found
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`; port 0 means none.
pub fn address_port(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, 0));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return inner.parse().ok().map(|ip| SocketAddr::new(IpAddr::V6(ip), 0));
    }
    text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(list: &[&str]) -> Vec<TrustedNetwork> {
        list.iter().map(|text| TrustedNetwork::Network(Cidr::parse(text.as_bytes()).expect("a network").0)).collect()
    }

    fn run(lines: &[&str], list: &[&str], recursive: bool) -> Option<String> {
        let peer = Some("127.0.0.1:1000".parse().expect("address"));
        forwarded_client(peer, lines.iter().map(|l| l.as_bytes()), &proxies(list), recursive)
            .map(|a| a.ip().to_string())
    }

    #[test]
    fn chains_of_proxies_are_followed() {
        let local = ["127.0.0.1", "192.0.2.0/24"];
        for (lines, list, recursive, want) in [
            (&["10.0.0.1, 192.0.2.7"][..], &local[..], false, Some("192.0.2.7")),
            (&["10.0.0.1, 192.0.2.7"], &local, true, Some("10.0.0.1")),
            (&["10.0.0.1", "192.0.2.7"], &local, true, Some("10.0.0.1")),
            (&["10.0.0.2, 10.0.0.1, 192.0.2.7"], &local, true, Some("10.0.0.1")),
            (&["x, 192.0.2.7"], &local, true, Some("192.0.2.7")),
            (&["10.0.0.1"], &["192.0.2.0/24"], true, None),
            (&["nonsense"], &local, true, None),
            (&[" , "], &local, true, None),
            (&["2001:db8::1"], &local, false, Some("2001:db8::1")),
        ] {
            assert_eq!(run(lines, list, recursive).as_deref(), want, "{lines:?}");
        }
    }

    #[test]
    fn addresses_with_ports() {
        for (text, want) in [
            ("192.0.2.1", Some("192.0.2.1:0")),
            ("192.0.2.1:80", Some("192.0.2.1:80")),
            ("[2001:db8::1]:80", Some("[2001:db8::1]:80")),
            ("[2001:db8::1]", Some("[2001:db8::1]:0")),
            ("192.0.2.1:0", None),
            ("192.0.2.1:", None),
            ("unix:", None),
        ] {
            assert_eq!(address_port(text.as_bytes()).map(|a| a.to_string()).as_deref(), want, "{text}");
        }
    }
}
