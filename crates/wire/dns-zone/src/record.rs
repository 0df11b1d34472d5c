//! Types of records, and their data as configurations write them.

use crate::name::{DomainName, NameError};
use crate::svcb;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Type of a record (RFC 1035, section 3.2.2, and IANA's registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordType(pub u16);

#[allow(missing_docs, reason = "the names of the registry")]
impl RecordType {
    pub const A: RecordType = RecordType(1);
    pub const NS: RecordType = RecordType(2);
    pub const CNAME: RecordType = RecordType(5);
    pub const SOA: RecordType = RecordType(6);
    pub const PTR: RecordType = RecordType(12);
    pub const HINFO: RecordType = RecordType(13);
    pub const MX: RecordType = RecordType(15);
    pub const TXT: RecordType = RecordType(16);
    pub const AAAA: RecordType = RecordType(28);
    pub const SRV: RecordType = RecordType(33);
    pub const OPT: RecordType = RecordType(41);
    pub const DS: RecordType = RecordType(43);
    pub const SVCB: RecordType = RecordType(64);
    pub const HTTPS: RecordType = RecordType(65);
    pub const IXFR: RecordType = RecordType(251);
    pub const AXFR: RecordType = RecordType(252);
    pub const ANY: RecordType = RecordType(255);
    pub const CAA: RecordType = RecordType(257);
}

/// Types that a line of a zone may have.
pub const LINE_TYPES: &[(&str, RecordType)] = &[
    ("A", RecordType::A),
    ("AAAA", RecordType::AAAA),
    ("CAA", RecordType::CAA),
    ("CNAME", RecordType::CNAME),
    ("HTTPS", RecordType::HTTPS),
    ("MX", RecordType::MX),
    ("NS", RecordType::NS),
    ("PTR", RecordType::PTR),
    ("SOA", RecordType::SOA),
    ("SRV", RecordType::SRV),
    ("SVCB", RecordType::SVCB),
    ("TXT", RecordType::TXT),
];

impl RecordType {
    /// Finds a type of [`LINE_TYPES`] by its name, in any case.
    pub fn of_line(text: &str) -> Option<RecordType> {
        LINE_TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, kind)| *kind)
    }
}

impl fmt::Display for RecordType {
    /// Writes the name, or `TYPE` and the number (RFC 3597, section 5).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MORE: &[(&str, RecordType)] = &[
            ("ANY", RecordType::ANY),
            ("AXFR", RecordType::AXFR),
            ("DS", RecordType::DS),
            ("HINFO", RecordType::HINFO),
            ("IXFR", RecordType::IXFR),
            ("OPT", RecordType::OPT),
            ("NAPTR", RecordType(35)),
            ("DNSKEY", RecordType(48)),
        ];
        match LINE_TYPES.iter().chain(MORE).find(|(_, kind)| kind == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordData {
    /// In wire form, without compression.
    pub(crate) bytes: Box<[u8]>,
    /// Name in the data: of an alias, or of a server whose addresses responses add.
    pub(crate) target: Option<DomainName>,
}

impl RecordData {
    pub(crate) fn plain(bytes: Vec<u8>) -> RecordData {
        RecordData { bytes: bytes.into(), target: None }
    }
    fn named(mut head: Vec<u8>, target: DomainName) -> RecordData {
        head.extend_from_slice(target.wire());
        RecordData { bytes: head.into(), target: Some(target) }
    }
}

/// Fault of a line's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// Position of the offending word among those given; `None`: their number.
    pub word: Option<usize>,
    /// Whole sentence.
    pub reason: String,
    /// Suggestion; empty without one.
    pub hint: String,
}

pub(crate) fn fault(word: usize, reason: impl Into<String>, hint: impl Into<String>) -> RecordFault {
    RecordFault { word: Some(word), reason: reason.into(), hint: hint.into() }
}

/// Longest time to live in seconds (RFC 2181, section 8).
pub const TTL_MAX: u32 = i32::MAX as u32;

/// Reads a time in seconds: a number, or numbers with the units s, m, h, d and w. At most [`TTL_MAX`].
pub fn parse_seconds(text: &str) -> Option<u32> {
    let mut total = 0u32;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, behind) = rest.split_at_checked(end)?;
        let number: u32 = digits.parse().ok()?;
        let unit = match behind.chars().next() {
            None if rest.len() == text.len() => 1,
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some('w') => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = behind.get(1..).unwrap_or_default();
    }
    (!text.is_empty() && total <= TTL_MAX).then_some(total)
}

/// Parses a name of a line, which must not repeat the zone's name by mistake.
///
/// # Errors
/// As [`DomainName::parse`], and a relative name that ends with the zone's name.
pub fn parse_name(text: &str, origin: &DomainName) -> Result<DomainName, (String, String)> {
    let name = DomainName::parse(text, Some(origin))
        .map_err(|NameError { reason, hint }| (format!("the name \"{text}\" {reason}"), hint.to_string()))?;
    let zone = origin.to_string();
    let lower = text.to_ascii_lowercase();
    if lower == zone || lower.strip_suffix(&zone).is_some_and(|rest| rest.ends_with('.')) && zone != "." {
        let short = lower.strip_suffix(&zone).map_or("@", |rest| rest.trim_end_matches('.'));
        let short = if short.is_empty() { "@" } else { short };
        return Err((
            format!("the name \"{text}\" is relative to the zone and means \"{name}.\""),
            format!("write \"{short}\", or \"{text}.\" with a final dot"),
        ));
    }
    Ok(name)
}

fn number<N: std::str::FromStr>(words: &[&str], at: usize, subject: &str, most: u64) -> Result<N, RecordFault> {
    let text = words.get(at).copied().unwrap_or_default();
    text.parse().map_err(|_| fault(at, format!("invalid {subject} \"{text}\""), format!("a number from 0 to {most}")))
}

fn target(words: &[&str], at: usize, origin: &DomainName) -> Result<DomainName, RecordFault> {
    let text = words.get(at).copied().unwrap_or_default();
    parse_name(text, origin).map_err(|(reason, hint)| fault(at, reason, hint))
}

/// Reads the data of a line's records; `origin` is the zone's name. Lines of `A`, `AAAA`, `NS` and `PTR` have one or more
/// records, others one.
///
/// # Errors
/// Invalid words, and a wrong number of them, with the form of the type.
pub fn parse_record(kind: RecordType, words: &[&str], origin: &DomainName) -> Result<Vec<RecordData>, RecordFault> {
    let form = form(kind);
    let wrong_number = || RecordFault {
        word: None,
        reason: format!("invalid number of values for a record of type {kind}"),
        hint: format!("{kind} {form}"),
    };
    if words.is_empty() {
        return Err(wrong_number());
    }
    let exactly = |count: usize| if words.len() == count { Ok(()) } else { Err(wrong_number()) };
    let one = match kind {
        RecordType::A => {
            let parse = |(at, text): (usize, &&str)| match text.parse::<Ipv4Addr>() {
                Ok(ip) => Ok(RecordData::plain(ip.octets().to_vec())),
                Err(_) => Err(fault(at, format!("invalid IPv4 address \"{text}\""), hint_of_family(text, false))),
            };
            return words.iter().enumerate().map(parse).collect();
        }
        RecordType::AAAA => {
            let parse = |(at, text): (usize, &&str)| match text.parse::<Ipv6Addr>() {
                Ok(ip) => Ok(RecordData::plain(ip.octets().to_vec())),
                Err(_) => Err(fault(at, format!("invalid IPv6 address \"{text}\""), hint_of_family(text, true))),
            };
            return words.iter().enumerate().map(parse).collect();
        }
        RecordType::NS | RecordType::PTR => {
            let parse = |at| target(words, at, origin).map(|name| RecordData::named(Vec::new(), name));
            return (0..words.len()).map(parse).collect();
        }
        RecordType::CNAME => {
            exactly(1)?;
            RecordData::named(Vec::new(), target(words, 0, origin)?)
        }
        RecordType::MX => {
            exactly(2)?;
            let preference: u16 = number(words, 0, "preference", 65_535)?;
            RecordData::named(preference.to_be_bytes().to_vec(), target(words, 1, origin)?)
        }
        RecordType::SRV => {
            exactly(4)?;
            let mut head = Vec::new();
            for (at, subject) in ["priority", "weight", "port"].into_iter().enumerate() {
                head.extend(number::<u16>(words, at, subject, 65_535)?.to_be_bytes());
            }
            RecordData::named(head, target(words, 3, origin)?)
        }
        RecordType::TXT => RecordData::plain(texts(words)?),
        RecordType::CAA => {
            exactly(3)?;
            RecordData::plain(authorization(words)?)
        }
        RecordType::HTTPS | RecordType::SVCB => svcb::parse(words, origin)?,
        RecordType::SOA => RecordData::plain(authority(words, origin)?),
        _ => return Err(fault(0, format!("records of type {kind} are not supported"), "")),
    };
    Ok(vec![one])
}

fn hint_of_family(text: &str, v6: bool) -> &'static str {
    match (text.parse::<std::net::IpAddr>().is_ok(), v6) {
        (true, true) => "IPv4 addresses are records of type A",
        (true, false) => "IPv6 addresses are records of type AAAA",
        (false, true) => "such as 2001:db8::1",
        (false, false) => "such as 192.0.2.1",
    }
}

fn form(kind: RecordType) -> &'static str {
    match kind {
        RecordType::A | RecordType::AAAA => "address ...",
        RecordType::NS | RecordType::PTR => "name ...",
        RecordType::CNAME => "name",
        RecordType::MX => "preference name",
        RecordType::SRV => "priority weight port name",
        RecordType::TXT => "\"text\" ...",
        RecordType::CAA => "flags tag \"value\"",
        RecordType::HTTPS | RecordType::SVCB => "priority name [key=value ...]",
        RecordType::SOA => "server mailbox [serial=number] [refresh=time] [retry=time] [expire=time] [negative=time]",
        _ => "",
    }
}

/// Bytes of a character string (RFC 1035, section 3.3), and of a record's texts together.
const TEXT_BYTES_MAX: usize = 255;
const TEXTS_BYTES_MAX: usize = 4096;

/// Texts of more than 255 bytes become several strings, which readers join.
fn texts(words: &[&str]) -> Result<Vec<u8>, RecordFault> {
    let mut bytes = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for part in word.as_bytes().chunks(TEXT_BYTES_MAX) {
            bytes.push(part.len() as u8);
            bytes.extend_from_slice(part);
        }
        if word.is_empty() {
            bytes.push(0);
        }
        if bytes.len() > TEXTS_BYTES_MAX {
            return Err(fault(at, format!("the texts have more than {TEXTS_BYTES_MAX} bytes"), ""));
        }
    }
    Ok(bytes)
}

/// RFC 8659, section 4.
fn authorization(words: &[&str]) -> Result<Vec<u8>, RecordFault> {
    let flags: u8 = number(words, 0, "flags", 255)?;
    let (tag, value) = (words.get(1).copied().unwrap_or_default(), words.get(2).copied().unwrap_or_default());
    if !(1..=15).contains(&tag.len()) || !tag.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return Err(fault(1, format!("invalid tag \"{tag}\""), "issue, issuewild or iodef"));
    }
    if value.len() > TEXTS_BYTES_MAX {
        return Err(fault(2, "the value is too long", ""));
    }
    let mut bytes = vec![flags, tag.len() as u8];
    bytes.extend_from_slice(tag.to_ascii_lowercase().as_bytes());
    bytes.extend_from_slice(value.as_bytes());
    Ok(bytes)
}

/// Times of an SOA record in seconds.
pub(crate) struct AuthorityTimes {
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub negative: u32,
}

impl Default for AuthorityTimes {
    fn default() -> Self {
        AuthorityTimes { serial: 1, refresh: 3600, retry: 600, expire: 604_800, negative: 60 }
    }
}

pub(crate) fn authority_bytes(server: &DomainName, mailbox: &DomainName, times: &AuthorityTimes) -> Vec<u8> {
    let mut bytes = [server.wire(), mailbox.wire()].concat();
    for number in [times.serial, times.refresh, times.retry, times.expire, times.negative] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn authority(words: &[&str], origin: &DomainName) -> Result<Vec<u8>, RecordFault> {
    let (server, mailbox) = (target(words, 0, origin)?, words.get(1).copied());
    let Some(mailbox) = mailbox else {
        return Err(RecordFault {
            word: None,
            reason: "an SOA record needs a mailbox".into(),
            hint: format!("SOA {}", form(RecordType::SOA)),
        });
    };
    if mailbox.contains('@') && mailbox != "@" {
        let hint = format!("written with a dot: \"{}.\"", mailbox.replacen('@', ".", 1));
        return Err(fault(1, format!("invalid mailbox \"{mailbox}\""), hint));
    }
    let mailbox = target(words, 1, origin)?;
    let mut times = AuthorityTimes::default();
    for (at, word) in words.iter().enumerate().skip(2) {
        let Some((key, value)) = word.split_once('=') else {
            return Err(fault(at, format!("invalid parameter \"{word}\""), form(RecordType::SOA)));
        };
        let invalid = || fault(at, format!("invalid value in \"{word}\""), "a number, or a time such as 60, 10m or 7d");
        if key == "serial" {
            times.serial = value.parse().map_err(|_| invalid())?;
            continue;
        }
        let seconds = parse_seconds(value).ok_or_else(invalid)?;
        match key {
            "refresh" => times.refresh = seconds,
            "retry" => times.retry = seconds,
            "expire" => times.expire = seconds,
            "negative" => times.negative = seconds,
            _ => return Err(fault(at, format!("invalid parameter \"{word}\""), form(RecordType::SOA))),
        }
    }
    Ok(authority_bytes(&server, &mailbox, &times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, words: &str) -> Result<Vec<Vec<u8>>, RecordFault> {
        let origin = DomainName::parse("example.org", None).expect("a name");
        let words: Vec<&str> = words.split_whitespace().collect();
        let records = parse_record(RecordType::of_line(kind).expect("a type"), &words, &origin)?;
        Ok(records.into_iter().map(|record| record.bytes.to_vec()).collect())
    }

    #[test]
    fn data_of_every_type() {
        assert_eq!(line("a", "192.0.2.1 192.0.2.2"), Ok(vec![vec![192, 0, 2, 1], vec![192, 0, 2, 2]]));
        assert_eq!(line("AAAA", "::1").expect("a record")[0].len(), 16);
        assert_eq!(line("CNAME", "a.").as_deref(), Ok(&[b"\x01a\0".to_vec()][..]));
        assert_eq!(line("MX", "10 m."), Ok(vec![b"\0\x0a\x01m\0".to_vec()]));
        assert_eq!(line("SRV", "1 2 3 s."), Ok(vec![b"\0\x01\0\x02\0\x03\x01s\0".to_vec()]));
        assert_eq!(line("TXT", "ab c"), Ok(vec![b"\x02ab\x01c".to_vec()]));
        assert_eq!(line("TXT", &"x".repeat(300)).expect("a record")[0].len(), 302);
        assert_eq!(line("CAA", "0 Issue ca.example"), Ok(vec![b"\0\x05issueca.example".to_vec()]));
        let soa = line("SOA", "ns1 host serial=7 negative=5m").expect("a record");
        assert!(soa[0].ends_with(&[0, 0, 1, 44]) && soa[0].starts_with(b"\x03ns1\x07example\x03org\0\x04host"));
    }

    #[test]
    fn faults_name_the_word_and_a_way_out() {
        for (kind, words, word, reason) in [
            ("A", "::1", Some(0), "invalid IPv4 address \"::1\""),
            ("A", "1.2.3.4 x", Some(1), "invalid IPv4 address \"x\""),
            ("MX", "m.", None, "invalid number of values for a record of type MX"),
            ("MX", "70000 m.", Some(0), "invalid preference \"70000\""),
            ("CNAME", "a..b", Some(0), "the name \"a..b\" has an empty label"),
            (
                "CNAME",
                "app.Example.org",
                Some(0),
                "the name \"app.Example.org\" is relative to the zone and means \"app.example.org.example.org.\"",
            ),
            ("CAA", "0 is-sue x", Some(1), "invalid tag \"is-sue\""),
            ("SOA", "ns1 me@example.org", Some(1), "invalid mailbox \"me@example.org\""),
            ("SOA", "ns1 me retry=x", Some(2), "invalid value in \"retry=x\""),
            ("SOA", "ns1 me 7", Some(2), "invalid parameter \"7\""),
        ] {
            let found = line(kind, words).expect_err(words);
            assert_eq!((found.word, found.reason.as_str()), (word, reason), "{kind} {words}");
        }
        assert_eq!(
            line("CNAME", "example.org").expect_err("relative").hint,
            "write \"@\", or \"example.org.\" with a final dot"
        );
    }

    #[test]
    fn times_with_units() {
        for (text, seconds) in [("0", Some(0)), ("300", Some(300)), ("5m", Some(300)), ("1h30m", Some(5400))] {
            assert_eq!(parse_seconds(text), seconds, "{text}");
        }
        for text in ["", "m", "5x", "-1", "1.5h", "5m3", "2147483648", "99999999999w"] {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
    }
}
