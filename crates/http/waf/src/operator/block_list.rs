//! `@rbl`: lists in DNS of addresses (RFC 5782) and of domains. The caller asks for the names.

use crate::failure::Refusal;
use std::net::{IpAddr, Ipv4Addr};

/// Octets of a name of DNS.
const NAME_OCTETS_MAX: usize = 253;
/// Octets of a label.
const LABEL_OCTETS_MAX: usize = 63;
/// The list of Project Honey Pot, whose names begin with a key.
const KEYED_ZONE: &str = "httpbl.org";

/// A list, by the zone of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockList {
    zone: Box<str>,
}

impl BlockList {
    /// Parses the parameter of `@rbl`.
    pub fn parse(text: &str) -> Result<BlockList, Refusal> {
        let zone = text.trim().trim_end_matches('.').to_ascii_lowercase();
        if !is_name(&zone) {
            let refusal = Refusal::new(format!("\"{text}\" is no name of a list in DNS"));
            return Err(refusal.suggest("write the zone of the list, as @rbl sbl-xbl.spamhaus.org"));
        }
        Ok(BlockList { zone: zone.into() })
    }

    /// Returns whether names of the list begin with the key of `SecHttpBlKey`.
    pub fn needs_key(&self) -> bool {
        self.zone.ends_with(KEYED_ZONE)
    }

    /// The name that DNS is asked for: an address with its parts in reverse order, or a domain, before the zone. `None` for a
    /// value that is neither, and for a list with a key without one.
    pub fn name_of(&self, value: &[u8], key: Option<&str>) -> Option<String> {
        let text = std::str::from_utf8(value).ok()?.trim().trim_end_matches('.');
        let listed = match text.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(address) => reversed(address),
                None => {
                    let nibbles = address.octets().into_iter().rev();
                    let parts: Vec<String> =
                        nibbles.map(|octet| format!("{:x}.{:x}", octet & 15, octet >> 4)).collect();
                    parts.join(".")
                }
            },
            Ok(IpAddr::V4(address)) => reversed(address),
            Err(_) => text.to_ascii_lowercase(),
        };
        let name = match (self.needs_key(), key) {
            (true, Some(key)) => format!("{key}.{listed}.{}", self.zone),
            (true, None) => return None,
            (false, _) => format!("{listed}.{}", self.zone),
        };
        is_name(&name).then_some(name)
    }

    /// The text of `TX:0` for a name that is listed, in the form of ModSecurity 2, which CRS 3 reads. `target` is the variable.
    pub fn finding(&self, name: &str, target: &str, answer: IpAddr) -> String {
        let octets = match answer {
            IpAddr::V4(answer) => answer.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        let [first, days, score, last] = octets;
        let found = format!("RBL lookup of {name} succeeded at {target}");
        if self.needs_key() {
            if first != 127 {
                return format!("RBL lookup of {name} failed: bad response");
            }
            let kind = visitor_kind(last);
            return format!("{found}. {kind}: {days} days since last activity, threat score {score}");
        }
        let reason = if self.zone.ends_with("uribl.com") {
            Some(match last {
                2 => "BLACK",
                4 => "GREY",
                8 => "RED",
                14 => "BLACK,GREY,RED",
                255 => "DNS IS BLOCKED",
                _ => "WHITE",
            })
        } else if self.zone.ends_with("spamhaus.org") {
            match last {
                2 | 3 => Some("Static UBE sources"),
                4..=7 => Some("Illegal 3rd party exploits"),
                10 | 11 => Some("Delivering unauthenticated SMTP email"),
                _ => None,
            }
        } else {
            None
        };
        match reason {
            Some(reason) => format!("{found} ({reason})."),
            None => format!("{found}."),
        }
    }
}

/// The kind of a visitor by the last octet of Project Honey Pot's answer.
fn visitor_kind(octet: u8) -> &'static str {
    match octet {
        0 => "Search Engine",
        1 => "Suspicious IP",
        2 => "Harvester IP",
        3 => "Suspicious harvester IP",
        4 => "Comment spammer IP",
        5 => "Suspicious comment spammer IP",
        6 => "Harvester and comment spammer IP",
        7 => "Suspicious harvester comment spammer IP",
        _ => " ",
    }
}

fn reversed(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("{d}.{c}.{b}.{a}")
}

/// Returns whether a text is a name that DNS can be asked for.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_OCTETS_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= NAME_OCTETS_MAX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_in_reverse_and_domains_as_they_are() {
        let list = BlockList::parse("Sbl-XBL.spamhaus.org.").expect("a list");
        for (value, name) in [
            ("192.0.2.7", Some("7.2.0.192.sbl-xbl.spamhaus.org")),
            ("::ffff:192.0.2.7", Some("7.2.0.192.sbl-xbl.spamhaus.org")),
            (
                "2001:db8::1",
                Some("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.sbl-xbl.spamhaus.org"),
            ),
            ("Example.COM", Some("example.com.sbl-xbl.spamhaus.org")),
            ("a b", None),
            ("a..b", None),
            ("", None),
        ] {
            assert_eq!(list.name_of(value.as_bytes(), Some("key")).as_deref(), name, "{value}");
        }
        assert_eq!(list.name_of(&[b'a'; 64], None), None);
        assert_eq!(list.name_of(&b"abc.".repeat(70), None), None);
    }

    #[test]
    fn a_list_with_a_key_is_asked_with_it_or_not_at_all() {
        let list = BlockList::parse("dnsbl.httpbl.org").expect("a list");
        assert_eq!(list.name_of(b"192.0.2.7", Some("abc")).as_deref(), Some("abc.7.2.0.192.dnsbl.httpbl.org"));
        assert_eq!(list.name_of(b"192.0.2.7", None), None);
    }

    #[test]
    fn findings_say_what_the_answer_means() {
        let finding = |zone: &str, answer: [u8; 4]| {
            BlockList::parse(zone).expect("a list").finding("n", "TX:REAL_IP", IpAddr::from(answer))
        };
        assert_eq!(
            finding("dnsbl.httpbl.org", [127, 3, 40, 5]),
            "RBL lookup of n succeeded at TX:REAL_IP. Suspicious comment spammer IP: 3 days since last activity, threat score 40"
        );
        assert_eq!(finding("dnsbl.httpbl.org", [10, 3, 40, 5]), "RBL lookup of n failed: bad response");
        assert_eq!(finding("multi.uribl.com", [127, 0, 0, 8]), "RBL lookup of n succeeded at TX:REAL_IP (RED).");
        assert_eq!(
            finding("zen.spamhaus.org", [127, 0, 0, 4]),
            "RBL lookup of n succeeded at TX:REAL_IP (Illegal 3rd party exploits)."
        );
        assert_eq!(finding("list.example", [127, 0, 0, 2]), "RBL lookup of n succeeded at TX:REAL_IP.");
    }

    #[test]
    fn a_zone_that_is_no_name_is_an_error() {
        assert!(BlockList::parse("").is_err() && BlockList::parse("a b").is_err());
    }
}
