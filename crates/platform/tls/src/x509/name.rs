//! Distinguished names of certificates: compares them as OpenSSL does, and formats them for `$ssl_client_s_dn` and its
//! `_legacy` form.

use crate::der::{OID, Reader, SEQUENCE, SET, dotted};
use std::fmt::Write;

/// Maximum number of attributes that are read from one name.
const ATTRIBUTES_MAX: usize = 256;

/// An attribute of a name. `joined`: it belongs to the same set as the attribute before it.
struct Attribute<'a> {
    oid: &'a [u8],
    tag: u8,
    value: &'a [u8],
    whole: &'a [u8],
    joined: bool,
}

fn attributes(name: &[u8]) -> Vec<Attribute<'_>> {
    let mut all = Vec::new();
    let mut outer = Reader::new(name);
    let Some(mut sets) = outer.enter(SEQUENCE) else { return all };
    while let Some(mut set) = sets.enter(SET) {
        let mut joined = false;
        while let Some(mut pair) = set.enter(SEQUENCE) {
            let (Some(oid), Some(value)) = (pair.body(OID), pair.next()) else { return all };
            if all.len() == ATTRIBUTES_MAX {
                return all;
            }
            all.push(Attribute { oid, tag: value.tag, value: value.body, whole: value.whole, joined });
            joined = true;
        }
    }
    all
}

/// Compares encoded names without regard to white space and ASCII case (`X509_NAME_cmp`).
pub fn same_name(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    let (a, b) = (attributes(a), attributes(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| {
            a.oid == b.oid
                && a.joined == b.joined
                && match (text(a.tag, a.value), text(b.tag, b.value)) {
                    (Some(a), Some(b)) => canonical(&a) == canonical(&b),
                    (None, None) => a.tag == b.tag && a.value == b.value,
                    _ => false,
                }
        })
}

fn canonical(text: &str) -> String {
    let words: Vec<&str> = text.split([' ', '\t', '\n', '\r', '\x0b', '\x0c']).filter(|w| !w.is_empty()).collect();
    words.join(" ").to_ascii_lowercase()
}

/// Decodes a value of a string type. Returns `None` for other types and for invalid bytes.
fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        0x0c => std::str::from_utf8(value).ok().map(str::to_string),
        // NumericString, PrintableString, IA5String, VisibleString; TeletexString, read as Latin-1 by OpenSSL.
        0x12 | 0x13 | 0x14 | 0x16 | 0x1a => Some(value.iter().map(|b| char::from(*b)).collect()),
        // BMPString (two octets per character), UniversalString (four).
        0x1e if value.len().is_multiple_of(2) => {
            let units: Vec<u16> =
                value.chunks_exact(2).map(|p| p.iter().fold(0, |n, b| n << 8 | u16::from(*b))).collect();
            String::from_utf16(&units).ok()
        }
        0x1c if value.len().is_multiple_of(4) => value
            .chunks_exact(4)
            .map(|p| char::from_u32(p.iter().fold(0, |n, b| n << 8 | u32::from(*b))))
            .collect::<Option<String>>(),
        _ => None,
    }
}

/// Returns the common names of an encoded name, in their order.
pub fn common_names(name: &[u8]) -> Vec<String> {
    attributes(name).iter().filter(|a| a.oid == [0x55, 0x04, 0x03]).filter_map(|a| text(a.tag, a.value)).collect()
}

fn short(oid: &[u8]) -> Option<&'static str> {
    Some(match oid {
        [0x55, 0x04, last] => match last {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "street",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            15 => "businessCategory",
            17 => "postalCode",
            20 => "telephoneNumber",
            41 => "name",
            42 => "GN",
            43 => "initials",
            44 => "generationQualifier",
            45 => "x500UniqueIdentifier",
            46 => "dnQualifier",
            65 => "pseudonym",
            72 => "role",
            97 => "organizationIdentifier",
            _ => return None,
        },
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, last] => match last {
            1 => "emailAddress",
            2 => "unstructuredName",
            8 => "unstructuredAddress",
            _ => return None,
        },
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, last] => match last {
            1 => "UID",
            3 => "mail",
            25 => "DC",
            _ => return None,
        },
        [0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x3c, 0x02, 0x01, last] => match last {
            1 => "jurisdictionL",
            2 => "jurisdictionST",
            3 => "jurisdictionC",
            _ => return None,
        },
        _ => return None,
    })
}

/// Formats a name as in RFC 2253: last attribute first, with escapes (`XN_FLAG_RFC2253`).
pub fn format_rfc2253(name: &[u8]) -> String {
    let all = attributes(name);
    let mut out = String::new();
    let mut sets: Vec<&[Attribute<'_>]> = Vec::new();
    let mut start = 0;
    for index in 1..=all.len() {
        if all.get(index).is_none_or(|a| !a.joined) {
            sets.push(all.get(start..index).unwrap_or_default());
            start = index;
        }
    }
    for (index, set) in sets.iter().rev().enumerate() {
        if index > 0 {
            out.push(',');
        }
        for (index, attribute) in set.iter().rev().enumerate() {
            if index > 0 {
                out.push('+');
            }
            match short(attribute.oid) {
                Some(name) => out.push_str(name),
                None => out.push_str(&dotted(attribute.oid)),
            }
            out.push('=');
            match (short(attribute.oid), text(attribute.tag, attribute.value)) {
                (Some(_), Some(text)) => escape(&text, &mut out),
                // Prints the encoding of types without a name and of values that are not text (RFC 2253, 2.4).
                _ => {
                    out.push('#');
                    out.push_str(&crate::hex_upper(attribute.whole));
                }
            }
        }
    }
    out
}

fn escape(text: &str, out: &mut String) {
    let bytes = text.as_bytes();
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' if index == 0 => out.push_str("\\#"),
            b' ' if index == 0 || index + 1 == bytes.len() => out.push_str("\\ "),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}

/// Formats a name as `/C=US/O=Example/CN=name`, first attribute first (`X509_NAME_oneline`).
pub fn format_oneline(name: &[u8]) -> String {
    let mut out = String::new();
    for attribute in attributes(name) {
        out.push('/');
        match short(attribute.oid) {
            Some(name) => out.push_str(name),
            None => out.push_str(&dotted(attribute.oid)),
        }
        out.push('=');
        // Keeps only the low octet of each character of a wide string, as OpenSSL does for ASCII.
        let wide = match attribute.tag {
            0x1e => attribute.value.iter().skip(1).step_by(2).copied().collect(),
            0x1c => attribute.value.iter().skip(3).step_by(4).copied().collect(),
            _ => attribute.value.to_vec(),
        };
        for byte in wide {
            match byte {
                b'/' | b'+' => {
                    out.push('\\');
                    out.push(char::from(byte));
                }
                b' '..=b'~' => out.push(char::from(byte)),
                _ => {
                    let _ = write!(out, "\\x{byte:02X}");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der::encode;

    fn name(sets: &[&[(&[u8], u8, &[u8])]]) -> Vec<u8> {
        let sets: Vec<u8> = sets
            .iter()
            .flat_map(|set| {
                let pairs: Vec<u8> = set
                    .iter()
                    .flat_map(|(oid, tag, value)| encode(SEQUENCE, &[encode(OID, oid), encode(*tag, value)].concat()))
                    .collect();
                encode(SET, &pairs)
            })
            .collect();
        encode(SEQUENCE, &sets)
    }

    const C: &[u8] = &[0x55, 4, 6];
    const O: &[u8] = &[0x55, 4, 10];
    const CN: &[u8] = &[0x55, 4, 3];

    #[test]
    fn both_forms_are_openssls() {
        let name =
            name(&[&[(C, 0x13, b"US")], &[(O, 0x0c, "Ac,me é".as_bytes())], &[(CN, 0x0c, b"#x "), (O, 0x13, b"y/+")]]);
        assert_eq!(format_rfc2253(&name), "O=y/\\++CN=\\#x\\ ,O=Ac\\,me \\C3\\A9,C=US");
        assert_eq!(format_oneline(&name), "/C=US/O=Ac,me \\xC3\\xA9/CN=#x /O=y\\/\\+");
    }

    #[test]
    fn types_without_a_name_are_shown_as_they_are() {
        let name = name(&[&[(&[0x2a, 0x03], 0x0c, b"v")]]);
        assert_eq!(format_rfc2253(&name), "1.2.3=#0C0176");
        assert_eq!(format_oneline(&name), "/1.2.3=v");
    }

    #[test]
    fn white_space_and_case_do_not_count() {
        let a = name(&[&[(CN, 0x13, b"The  Root")]]);
        let b = name(&[&[(CN, 0x0c, b" the root")]]);
        let c = name(&[&[(CN, 0x0c, b"the roots")]]);
        assert!(same_name(&a, &b) && !same_name(&a, &c));
    }
}
