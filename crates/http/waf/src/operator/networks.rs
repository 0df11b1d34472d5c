//! `@ipMatch` and `@ipMatchFromFile`: addresses and networks.

use std::net::IpAddr;

/// A list of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks {
    /// Address and prefix length, in bits of 128; IPv4 is mapped into IPv6.
    networks: Vec<(u128, u32)>,
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl Networks {
    /// Parses networks divided by commas or white space, as `10.0.0.0/8`, `192.0.2.7` or `2001:db8::/32`.
    pub fn parse(text: &str) -> Result<Networks, String> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let networks = words.map(network).collect::<Result<_, _>>()?;
        Ok(Networks { networks })
    }

    /// Parses the lines of a file; lines that begin with `#` are left out.
    pub fn from_file(content: &[u8]) -> Result<Networks, String> {
        let text = std::str::from_utf8(content).map_err(|_| "the file is not UTF-8".to_string())?;
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.is_empty());
        let networks = lines.map(network).collect::<Result<_, _>>()?;
        Ok(Networks { networks })
    }

    /// Returns whether a network has the address; text that is no address is in none.
    pub fn contains(&self, text: &[u8]) -> bool {
        let address = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        address.is_some_and(|address: IpAddr| {
            let bits = mapped(address);
            self.networks.iter().any(|(network, length)| {
                let shift = 128 - length;
                shift == 128 || bits >> shift == network >> shift
            })
        })
    }
}

fn network(word: &str) -> Result<(u128, u32), String> {
    let (address, length) = word.split_once('/').map_or((word, None), |(address, length)| (address, Some(length)));
    let parsed: IpAddr = address.parse().map_err(|_| format!("\"{word}\" is no address or network"))?;
    let (most, added) = if parsed.is_ipv4() { (32, 96) } else { (128, 0) };
    let length = match length {
        None => most,
        Some(length) => match length.parse() {
            Ok(length) if length <= most => length,
            _ => return Err(format!("\"{word}\" has an invalid prefix length: 0 to {most} are valid")),
        },
    };
    Ok((mapped(parsed), length + added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses() {
        let networks = Networks::parse("10.0.0.0/8,192.0.2.7, 2001:db8::/32").expect("networks");
        for (address, is_in) in
            [("10.1.2.3", true), ("192.0.2.7", true), ("192.0.2.8", false), ("2001:db8::1", true), ("x", false)]
        {
            assert_eq!(networks.contains(address.as_bytes()), is_in, "{address}");
        }
        assert!(Networks::parse("0.0.0.0/0").expect("networks").contains(b"9.9.9.9"));
    }

    #[test]
    fn invalid_networks_are_errors() {
        assert!(Networks::parse("10.0.0.0/33").is_err());
        assert!(Networks::parse("example.com").is_err());
        assert_eq!(Networks::from_file(b"# x\n127.0.0.1\n").map(|found| found.contains(b"127.0.0.1")), Ok(true));
    }
}
