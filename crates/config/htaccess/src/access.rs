//! Access control: `Require` of Apache 2.4, and `Order`, `Allow`, `Deny` of 2.2 (mod_authz_core, mod_authz_host,
//! mod_access_compat).

use crate::syntax::Line;
use std::net::IpAddr;

pub struct AccessClient<'a> {
    pub address: Option<IpAddr>,
    pub method: &'a str,
    pub server: Option<IpAddr>,
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Parses `10.1.2.3`, `10.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`.
    pub fn parse(text: &str) -> Option<Network> {
        let (head, mask) = text.split_once('/').map_or((text, None), |(head, mask)| (head, Some(mask)));
        if let Ok(address) = head.parse::<IpAddr>() {
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = match mask {
                None => width,
                Some(mask) => match mask.parse::<std::net::Ipv4Addr>() {
                    Ok(mask) => {
                        let bits = mask.to_bits().leading_ones();
                        (mask.to_bits().count_ones() == bits).then_some(bits as u8)?
                    }
                    Err(_) => mask.parse().ok().filter(|bits| *bits <= width)?,
                },
            };
            return Some(Network { address, bits });
        }
        let parts: Vec<u8> =
            head.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        if mask.is_some() || parts.is_empty() || parts.len() > 3 {
            return None;
        }
        let mut octets = [0; 4];
        octets.iter_mut().zip(&parts).for_each(|(octet, part)| *octet = *part);
        Some(Network { address: IpAddr::from(octets), bits: parts.len() as u8 * 8 })
    }
    pub fn has(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width - u32::from(self.bits);
            rest >= width || a >> rest == b >> rest
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
    pub fn shown(&self) -> String {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == width { self.address.to_string() } else { format!("{}/{}", self.address, self.bits) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Require {
    All(bool),
    Networks(Vec<Network>),
    Local,
    Methods(Vec<String>),
    Env(Vec<String>),
    Not(Box<Require>),
    AnyOf(Vec<Require>),
    AllOf(Vec<Require>),
    NoneOf(Vec<Require>),
}

impl Require {
    /// Fails on unsupported requirements: users, hosts, expressions.
    pub fn of(line: &Line) -> Result<Require, String> {
        if let Some(inner) = &line.section {
            let all = inner.iter().map(Require::of).collect::<Result<Vec<_>, _>>()?;
            return Ok(match line.name.to_ascii_lowercase().as_str() {
                "requireany" => Require::AnyOf(all),
                "requirenone" => Require::NoneOf(all),
                _ => Require::AllOf(all),
            });
        }
        let mut words = line.args.iter().map(String::as_str).peekable();
        if words.next_if(|word| word.eq_ignore_ascii_case("not")).is_some() {
            return Ok(Require::Not(Box::new(Require::words(&mut words)?)));
        }
        Require::words(&mut words)
    }
    fn words<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Require, String> {
        let what = words.next().unwrap_or_default().to_ascii_lowercase();
        let rest: Vec<&str> = words.collect();
        match (what.as_str(), rest.as_slice()) {
            ("all", [word]) if word.eq_ignore_ascii_case("granted") => Ok(Require::All(true)),
            ("all", [word]) if word.eq_ignore_ascii_case("denied") => Ok(Require::All(false)),
            ("ip", rest) if !rest.is_empty() => {
                let networks = rest.iter().map(|text| {
                    Network::parse(text).ok_or_else(|| format!("ip address '{text}' appears to be invalid"))
                });
                Ok(Require::Networks(networks.collect::<Result<_, _>>()?))
            }
            ("local", []) => Ok(Require::Local),
            ("method", rest) if !rest.is_empty() => {
                Ok(Require::Methods(rest.iter().map(|m| (*m).to_string()).collect()))
            }
            ("env", rest) if !rest.is_empty() => Ok(Require::Env(rest.iter().map(|m| (*m).to_string()).collect())),
            _ => Err(format!("\"Require {what}\" is not supported here: write it into the server's configuration")),
        }
    }
    pub fn allows(&self, client: &AccessClient<'_>) -> bool {
        match self {
            Require::All(granted) => *granted,
            Require::Networks(list) => client.address.is_some_and(|a| list.iter().any(|network| network.has(a))),
            Require::Local => {
                client.address.is_some_and(|a| a.to_canonical().is_loopback() || Some(a) == client.server)
            }
            Require::Methods(list) => list.iter().any(|method| method == client.method),
            Require::Env(names) => names.iter().any(|name| (client.env)(name).is_some()),
            Require::Not(inner) => !inner.allows(client),
            Require::AnyOf(list) => {
                // A lone "not" allows no client; beside other requirements it forbids.
                list.iter().any(|one| !matches!(one, Require::Not(_)) && one.allows(client))
            }
            Require::AllOf(list) => list.iter().all(|one| one.allows(client)),
            Require::NoneOf(list) => !list.iter().any(|one| one.allows(client)),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// `Order allow,deny`: clients must be allowed, and `Deny` decides last.
    pub deny_last: bool,
    pub allow: Vec<Subject>,
    pub deny: Vec<Subject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    All,
    Network(Network),
    Env(String),
}

impl Subject {
    /// Parses the words after "from". Fails on host names.
    pub fn list(args: &[String]) -> Result<Vec<Subject>, String> {
        let rest = match args.split_first() {
            Some((from, rest)) if from.eq_ignore_ascii_case("from") && !rest.is_empty() => rest,
            _ => return Err("allow and deny must be followed by 'from'".into()),
        };
        let one = |text: &String| {
            if text.eq_ignore_ascii_case("all") {
                return Ok(Subject::All);
            }
            if let Some(name) = text.strip_prefix("env=") {
                return Ok(Subject::Env(name.to_string()));
            }
            Network::parse(text)
                .map(Subject::Network)
                .ok_or_else(|| format!("names of hosts (\"{text}\") are not looked up"))
        };
        rest.iter().map(one).collect()
    }
    fn fits(&self, client: &AccessClient<'_>) -> bool {
        match self {
            Subject::All => true,
            Subject::Network(network) => client.address.is_some_and(|address| network.has(address)),
            Subject::Env(name) => match name.strip_prefix('!') {
                Some(name) => (client.env)(name).is_none(),
                None => (client.env)(name).is_some(),
            },
        }
    }
}

impl Ordered {
    pub fn allows(&self, client: &AccessClient<'_>) -> bool {
        let allowed = self.allow.iter().any(|who| who.fits(client));
        let denied = self.deny.iter().any(|who| who.fits(client));
        if self.deny_last { allowed && !denied } else { allowed || !denied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (text, inside, outside) in [
            ("10.1", "10.1.2.3", "10.2.0.0"),
            ("192.0.2.0/24", "192.0.2.9", "192.0.3.9"),
            ("10.0.0.0/255.0.0.0", "10.9.9.9", "11.0.0.1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::2"),
        ] {
            let network = Network::parse(text).expect(text);
            assert!(
                network.has(inside.parse().expect("address")) && !network.has(outside.parse().expect("address")),
                "{text}"
            );
        }
        for wrong in ["", "example.com", "1.2.3.4/33", "10.0.0.0/255.0.255.0", "1.2.3.4.5", "300.1"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
