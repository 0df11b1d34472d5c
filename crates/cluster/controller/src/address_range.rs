//! Ranges of addresses, as arguments name them.

use std::net::IpAddr;

/// Addresses of a pool at most.
const POOL_MAX: u32 = 65_536;

/// Parses `10.0.0.0/28`, `10.0.0.7` or `fd00::/120`. Network and broadcast addresses are left to their owners: every
/// address of the range can be given to a Gateway.
pub fn parse_range(text: &str) -> Result<Vec<IpAddr>, String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| format!("\"{address}\" is no IP address"))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits: u32 = match bits {
        None => width,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= width).ok_or("the length of the prefix is not valid")?,
    };
    let free = width - bits;
    if free > POOL_MAX.ilog2() {
        return Err(format!("a range has at most {POOL_MAX} addresses"));
    }
    let count: u128 = 1 << free;
    let all = (0..count).map(|offset| match address {
        IpAddr::V4(first) => {
            let first = u128::from(u32::from(first)) & !(count - 1);
            IpAddr::V4((u32::try_from(first + offset).unwrap_or(u32::MAX)).into())
        }
        IpAddr::V6(first) => IpAddr::V6(((u128::from(first) & !(count - 1)) + offset).into()),
    });
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_lists_of_addresses() {
        let texts =
            |range: &str| -> Vec<String> { parse_range(range).unwrap().iter().map(IpAddr::to_string).collect() };
        assert_eq!(texts("10.0.0.5"), ["10.0.0.5"]);
        assert_eq!(texts("10.0.0.5/30"), ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]);
        assert_eq!(texts("fd00::ff/127"), ["fd00::fe", "fd00::ff"]);
        for range in ["10.0.0.0/8", "10.0.0.0/33", "a", "10.0.0.0/x", "fd00::/64"] {
            assert!(parse_range(range).is_err(), "{range}");
        }
    }
}
