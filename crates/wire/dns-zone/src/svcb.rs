//! HTTPS and SVCB records (RFC 9460): alias mode, and service mode with parameters.

use crate::name::DomainName;
use crate::record::{RecordData, RecordFault, fault, parse_name};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

const MANDATORY: u16 = 0;
const KEYS: &[(&str, u16)] = &[
    ("mandatory", MANDATORY),
    ("alpn", 1),
    ("no-default-alpn", 2),
    ("port", 3),
    ("ipv4hint", 4),
    ("ipv6hint", 6),
    ("dohpath", 7),
];

fn number(key: &str) -> Option<u16> {
    KEYS.iter().find(|(name, _)| *name == key).map(|(_, number)| *number)
}

/// Reads `priority name [key=value ...]`.
pub(crate) fn parse(words: &[&str], origin: &DomainName) -> Result<RecordData, RecordFault> {
    let [priority_text, name, parameters @ ..] = words else {
        return Err(RecordFault {
            word: None,
            reason: "invalid number of values".into(),
            hint: "priority name [key=value ...]".into(),
        });
    };
    let priority: u16 = priority_text.parse().map_err(|_| {
        fault(0, format!("invalid priority \"{priority_text}\""), "0 for an alias, otherwise 1 to 65535")
    })?;
    // A single dot is the owner itself (section 2.5).
    let target = parse_name(name, origin).map_err(|(reason, hint)| fault(1, reason, hint))?;
    let mut values: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for (at, word) in parameters.iter().enumerate().map(|(at, word)| (at + 2, word)) {
        if priority == 0 {
            return Err(fault(at, "an alias (priority 0) has no parameters", "priority 1 or more for a service"));
        }
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(code) = number(key) else {
            let known: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            return Err(fault(at, format!("unknown key \"{key}\""), format!("one of: {}", known.join(", "))));
        };
        let bytes = encode(code, value).ok_or_else(|| fault(at, format!("invalid value in \"{word}\""), form(code)))?;
        if values.insert(code, bytes).is_some() {
            return Err(fault(at, format!("duplicate key \"{key}\""), ""));
        }
    }
    let mandatory = values.get(&MANDATORY).cloned().unwrap_or_default();
    for pair in mandatory.chunks_exact(2) {
        let code = pair.iter().fold(0u16, |sum, octet| sum << 8 | u16::from(*octet));
        if !values.contains_key(&code) {
            let name = KEYS.iter().find(|(_, number)| *number == code).map_or("", |(name, _)| *name);
            return Err(fault(2, format!("the mandatory key \"{name}\" has no value"), ""));
        }
    }
    if values.contains_key(&2) && !values.contains_key(&1) {
        return Err(fault(2, "\"no-default-alpn\" needs \"alpn\"", ""));
    }
    let mut bytes = priority.to_be_bytes().to_vec();
    bytes.extend_from_slice(target.wire());
    for (code, value) in values {
        bytes.extend_from_slice(&code.to_be_bytes());
        bytes.extend_from_slice(&(value.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&value);
    }
    Ok(RecordData { bytes: bytes.into(), target: None })
}

/// Values of a parameter, in bytes.
const VALUE_BYTES_MAX: usize = 1024;

fn encode(code: u16, value: &str) -> Option<Vec<u8>> {
    if value.len() > VALUE_BYTES_MAX || value.is_empty() != (code == 2) {
        return None;
    }
    let mut bytes = Vec::new();
    match code {
        MANDATORY => {
            let mut keys = value.split(',').map(number).collect::<Option<Vec<u16>>>()?;
            keys.sort_unstable();
            let count = keys.len();
            keys.dedup();
            if keys.len() != count || keys.contains(&MANDATORY) {
                return None;
            }
            bytes.extend(keys.into_iter().flat_map(u16::to_be_bytes));
        }
        1 => {
            for id in value.split(',') {
                let length = u8::try_from(id.len()).ok().filter(|length| *length > 0)?;
                bytes.push(length);
                bytes.extend_from_slice(id.as_bytes());
            }
        }
        3 => bytes.extend(value.parse::<u16>().ok()?.to_be_bytes()),
        4 => {
            for ip in value.split(',') {
                bytes.extend(ip.parse::<Ipv4Addr>().ok()?.octets());
            }
        }
        6 => {
            for ip in value.split(',') {
                bytes.extend(ip.parse::<Ipv6Addr>().ok()?.octets());
            }
        }
        // RFC 9461, section 5: a template with the variable "dns".
        7 => {
            if !value.starts_with('/') || !value.contains("{?dns}") {
                return None;
            }
            bytes.extend_from_slice(value.as_bytes());
        }
        _ => {}
    }
    Some(bytes)
}

fn form(code: u16) -> &'static str {
    match code {
        MANDATORY => "keys of this record, separated by commas: mandatory=alpn,port",
        1 => "protocols, separated by commas: alpn=h3,h2",
        2 => "\"no-default-alpn\" has no value",
        3 => "a port: port=8443",
        4 => "IPv4 addresses, separated by commas: ipv4hint=192.0.2.1",
        6 => "IPv6 addresses, separated by commas: ipv6hint=2001:db8::1",
        _ => "a path with the variable \"dns\": dohpath=/dns-query{?dns}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Result<Vec<u8>, RecordFault> {
        let origin = DomainName::parse("example.org", None).expect("a name");
        parse(&words.split_whitespace().collect::<Vec<_>>(), &origin).map(|data| data.bytes.to_vec())
    }

    #[test]
    fn aliases_and_services() {
        assert_eq!(line("0 a.").as_deref(), Ok(&b"\0\0\x01a\0"[..]));
        // In the order of keys, whatever the order of the words (section 2.2).
        let service = line("1 . port=8443 alpn=h2,h3 ipv4hint=192.0.2.1 mandatory=port,alpn");
        let wanted =
            b"\0\x01\0\0\0\0\x04\0\x01\0\x03\0\x01\0\x06\x02h2\x02h3\0\x03\0\x02\x20\xfb\0\x04\0\x04\xc0\0\x02\x01";
        assert_eq!(service.as_deref(), Ok(&wanted[..]));
    }

    #[test]
    fn faults_of_parameters() {
        for (words, word, reason) in [
            ("x a.", Some(0), "invalid priority \"x\""),
            ("0 a. port=1", Some(2), "an alias (priority 0) has no parameters"),
            ("1 . ech=AAAA", Some(2), "unknown key \"ech\""),
            ("1 . port=70000", Some(2), "invalid value in \"port=70000\""),
            ("1 . port=1 port=2", Some(3), "duplicate key \"port\""),
            ("1 . mandatory=port", Some(2), "the mandatory key \"port\" has no value"),
            ("1 . no-default-alpn", Some(2), "\"no-default-alpn\" needs \"alpn\""),
            ("1 . alpn=h2,", Some(2), "invalid value in \"alpn=h2,\""),
            ("1 . ipv6hint=192.0.2.1", Some(2), "invalid value in \"ipv6hint=192.0.2.1\""),
            ("1", None, "invalid number of values"),
        ] {
            let found = line(words).expect_err(words);
            assert_eq!((found.word, found.reason.as_str()), (word, reason), "{words}");
        }
    }
}
