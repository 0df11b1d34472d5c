//! Addresses and networks as keys.

use std::net::IpAddr;

/// A network: family, prefix length and address without host bits. The bytes identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub v6: bool,
    pub length: u8,
    address: [u8; 16],
}

impl Network {
    /// Parses an address or a CIDR range. IPv4-mapped IPv6 addresses are IPv4 addresses, as in geo.
    pub fn parse(text: &[u8]) -> Option<Network> {
        let text = std::str::from_utf8(text).ok()?;
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => {
                let digits = (1..=3).contains(&length.len()) && length.bytes().all(|c| c.is_ascii_digit());
                (address, Some(length.parse::<u8>().ok().filter(|_| digits)?))
            }
            None => (text, None),
        };
        match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(v4) => Network::new(false, &v4.octets(), length.unwrap_or(32)),
            IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), length.unwrap_or(128)) {
                (Some(v4), length @ 96..=128) => Network::new(false, &v4.octets(), length - 96),
                (_, length) => Network::new(true, &v6.octets(), length),
            },
        }
    }
    fn new(v6: bool, octets: &[u8], length: u8) -> Option<Network> {
        if usize::from(length) > octets.len() * 8 {
            return None;
        }
        let mut address = [0; 16];
        for (to, from) in address.iter_mut().zip(octets) {
            *to = *from;
        }
        let network = Network { v6, length: 128, address };
        Some(network.within(length))
    }
    /// Returns the network of this prefix length that contains this one; `length` must not be longer.
    pub fn within(&self, length: u8) -> Network {
        let mut address = self.address;
        for (index, octet) in address.iter_mut().enumerate() {
            let kept = usize::from(length).saturating_sub(index * 8).min(8);
            *octet &= !(0xffu16 >> kept) as u8;
        }
        Network { v6: self.v6, length, address }
    }
    pub fn id(&self) -> [u8; 18] {
        let mut id = [0; 18];
        let [family, length, address @ ..] = &mut id;
        *family = u8::from(self.v6);
        *length = self.length;
        *address = self.address;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn networks_are_read_strictly() {
        let id = |text: &str| Network::parse(text.as_bytes()).map(|n| (n.v6, n.length, n.address));
        assert_eq!(id("10.1.2.3/8"), id("10.0.0.0/8"));
        assert_eq!(id("::ffff:10.1.2.3"), id("10.1.2.3"));
        assert_eq!(id("::ffff:10.0.0.0/104"), id("10.0.0.0/8"));
        assert_eq!(id("0.0.0.0/0").map(|n| n.1), Some(0));
        assert_ne!(id("::/0"), id("0.0.0.0/0"));
        for wrong in
            ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/008 ", "x", "\u{fe}"]
        {
            assert_eq!(id(wrong), None, "{wrong}");
        }
        assert_eq!(Network::parse(b"\xff"), None);
    }

    #[test]
    fn larger_networks_contain_smaller_ones() {
        let at = |text: &str| Network::parse(text.as_bytes()).expect(text);
        assert_eq!(at("10.255.255.255").within(9), at("10.128.0.0/9"));
        assert_eq!(at("2001:db8::ffff").within(32), at("2001:db8::/32"));
        assert_eq!(at("10.1.2.3").within(0), at("0.0.0.0/0"));
        assert_eq!(at("10.1.2.3").within(32), at("10.1.2.3/32"));
    }
}
