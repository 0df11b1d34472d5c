//! Networks: `192.0.2.0/24`, `2001:db8::/32`, single addresses.

use crate::complaint::Problem;
use crate::cx::Cx;
use conf_syntax::Directive;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network; addresses are numbers, IPv4 in the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    pub v6: bool,
    pub address: u128,
    pub bits: u8,
}

impl Cidr {
    /// Parses a network (nginx: `ngx_ptocidr`); `true`: bits beyond the prefix were set, which are ignored.
    pub fn parse(text: &[u8]) -> Option<(Cidr, bool)> {
        let text = std::str::from_utf8(text).ok()?;
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let (v6, address) = address_number(address.parse().ok()?);
        let width = if v6 { 128 } else { 32 };
        let bits = match bits {
            None => width,
            Some(bits) if !bits.is_empty() && bits.bytes().all(|c| c.is_ascii_digit()) => {
                bits.parse::<u8>().ok().filter(|bits| *bits <= width)?
            }
            Some(_) => return None,
        };
        let mask = Self::mask(v6, bits);
        Some((Cidr { v6, address: address & mask, bits }, address & !mask != 0))
    }
    /// Parses a word of a directive, with nginx's warning. Fails with `invalid parameter "..."`.
    pub fn word(cx: &mut Cx, d: &Directive, text: &[u8]) -> Result<Cidr, Problem> {
        let shown = String::from_utf8_lossy(text);
        match Cidr::parse(text) {
            Some((cidr, stray)) => {
                if stray {
                    cx.warn(d, format!("low address bits of {shown} are meaningless"));
                }
                Ok(cidr)
            }
            None => Err(Problem::says(format!("invalid parameter \"{shown}\""))
                .hint("an address such as 192.0.2.1 or 2001:db8::1, or a network such as 192.0.2.0/24")),
        }
    }
    const fn mask(v6: bool, bits: u8) -> u128 {
        let width: u32 = if v6 { 128 } else { 32 };
        let all = if v6 { u128::MAX } else { u32::MAX as u128 };
        match width - bits as u32 {
            128 => 0,
            shift => all & (u128::MAX << shift),
        }
    }
    pub const fn last(&self) -> u128 {
        let all = if self.v6 { u128::MAX } else { u32::MAX as u128 };
        self.address | (all & !Self::mask(self.v6, self.bits))
    }
    /// Tells whether the network contains an address as returned by [`address_number`].
    pub const fn contains(&self, v6: bool, address: u128) -> bool {
        self.v6 == v6 && address & Self::mask(v6, self.bits) == self.address
    }
}

pub const fn address_number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(a) => (false, a.to_bits() as u128),
        IpAddr::V6(a) => (true, a.to_bits()),
    }
}

pub const fn number_address(v6: bool, number: u128) -> IpAddr {
    if v6 { IpAddr::V6(Ipv6Addr::from_bits(number)) } else { IpAddr::V4(Ipv4Addr::from_bits(number as u32)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_with_their_masks() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
            ("::/0", "::1", "127.0.0.1"),
        ] {
            let (cidr, stray) = Cidr::parse(text.as_bytes()).expect(text);
            let has = |a: &str| {
                let (v6, n) = address_number(a.parse().expect(a));
                cidr.contains(v6, n)
            };
            assert!(!stray && has(inside) && !has(outside), "{text}");
        }
        assert!(Cidr::parse(b"192.0.2.1/24").expect("parses").1);
        for wrong in ["", "x", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3.4/+1", "1.2.3.4/255.0.0.0"] {
            assert_eq!(Cidr::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
