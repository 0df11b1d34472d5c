//! W3C Trace Context, level 1: the fields `traceparent` and `tracestate` of a request.

/// Octets of `tracestate`, over all its fields; a longer one is discarded (3.3.1.5 requires 512).
pub const STATE_MAX: usize = 2048;
/// Members of `tracestate` (3.3.1.1).
pub const MEMBERS_MAX: usize = 32;
/// Octets of `traceparent` in version 00.
const PARENT_LENGTH: usize = 55;

/// A valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Not 0.
    pub trace_id: [u8; 16],
    /// Not 0.
    pub span_id: [u8; 8],
    pub sampled: bool,
}

fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    }
}

/// Reads lower-case digits, which are twice as many as the octets.
fn octets<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (octet, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *octet = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

/// Parses a `traceparent` value. Later versions are read as version 00, as far as they agree with it (3.2.4).
pub fn parse_parent(value: &[u8]) -> Option<Parent> {
    let value = value.trim_ascii();
    let (known, rest) = value.split_at_checked(PARENT_LENGTH)?;
    let [version] = octets::<1>(known.get(..2)?)?;
    if version == 0xff || (version == 0 && !rest.is_empty()) || !matches!(rest.first(), None | Some(b'-')) {
        return None;
    }
    if [2, 35, 52].iter().any(|dash| known.get(*dash) != Some(&b'-')) {
        return None;
    }
    let trace_id = octets::<16>(known.get(3..35)?)?;
    let span_id = octets::<8>(known.get(36..52)?)?;
    let [flags] = octets::<1>(known.get(53..)?)?;
    let valid = trace_id != [0; 16] && span_id != [0; 8];
    valid.then_some(Parent { trace_id, span_id, sampled: flags & 1 != 0 })
}

/// Tells a list member: `key=value`, with a vendor's or a tenant's key (3.3.1.3).
fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|c| *c == b'=') else { return false };
    let (key, value) = (member.get(..equals).unwrap_or_default(), member.get(equals + 1..).unwrap_or_default());
    let in_key = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-*/@".contains(c);
    let in_value = |c: &u8| (b' '..=b'~').contains(c) && !b",=".contains(c);
    (1..=256).contains(&key.len())
        && key.iter().all(in_key)
        && key.iter().filter(|c| **c == b'@').count() <= 1
        && (1..=256).contains(&value.len())
        && value.iter().all(in_value)
}

/// Removes spaces and tabs around a text (OWS of RFC 9110). A form feed is no white space there.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_text = |c: &u8| !matches!(c, b' ' | b'\t');
    let from = text.iter().position(is_text).unwrap_or(text.len());
    let to = text.iter().rposition(is_text).map_or(from, |last| last + 1);
    text.get(from..to).unwrap_or_default()
}

/// Joins the values of `tracestate` fields; empty if one of them is malformed.
pub fn join_state<'a>(values: impl Iterator<Item = &'a [u8]>) -> Box<[u8]> {
    let mut out = Vec::new();
    let mut members = 0;
    for value in values {
        let value = trimmed(value);
        for member in value.split(|c| *c == b',').map(trimmed).filter(|member| !member.is_empty()) {
            members += 1;
            if !is_member(member) || members > MEMBERS_MAX {
                return Box::default();
            }
        }
        if !value.is_empty() {
            if !out.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(value);
        }
        if out.len() > STATE_MAX {
            return Box::default();
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";

    #[test]
    fn valid_parents() {
        let got = parse_parent(VALID.as_bytes()).expect("valid");
        assert_eq!(got.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(got.span_id, [0xb9, 0xc7, 0xc9, 0x89, 0xf9, 0x79, 0x18, 0xe1]);
        assert!(got.sampled);
        let flags = |flags: &str| parse_parent(format!("{}{flags}", &VALID[..53]).as_bytes()).map(|p| p.sampled);
        assert_eq!([flags("00"), flags("02"), flags("03"), flags("ff")], [false, false, true, true].map(Some));
        assert_eq!(parse_parent(format!(" {VALID}\t").as_bytes()), Some(got));
        for later in [format!("01{}", &VALID[2..]), format!("cc{}-what-else", &VALID[2..])] {
            assert_eq!(parse_parent(later.as_bytes()), Some(got), "{later}");
        }
    }

    #[test]
    fn malformed_parents() {
        let changed = |at: usize, c: char| {
            let mut text = VALID.to_string();
            text.replace_range(at..=at, &c.to_string());
            text
        };
        let zero = |from: usize, to: usize| {
            let mut text = VALID.to_string();
            text.replace_range(from..to, &"0".repeat(to - from));
            text
        };
        let mut all = vec![
            String::new(),
            "00".into(),
            format!("{VALID}-00"),
            format!("{VALID}0"),
            format!("ff{}", &VALID[2..]),
            format!("01{}0", &VALID[2..]),
            VALID.to_uppercase(),
            zero(3, 35),
            zero(36, 52),
            VALID.replace('-', "_"),
            VALID.replacen("b9c7", "b9c", 1),
        ];
        all.extend((0..55).map(|at| changed(at, 'g')));
        all.extend((0..55).map(|at| VALID[..at].to_string()));
        for text in all {
            assert_eq!(parse_parent(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_parent(&[0xff; 55]), None);
    }

    fn joined(values: &[&str]) -> String {
        String::from_utf8(join_state(values.iter().map(|v| v.as_bytes())).into()).expect("text")
    }

    #[test]
    fn states_are_joined() {
        assert_eq!(joined(&["congo=ucfJifl5GOE,rojo=00f067aa0ba902b7"]), "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7");
        assert_eq!(joined(&["a=1", "", " b=2 ,, c=3"]), "a=1,b=2 ,, c=3");
        assert_eq!(joined(&["0tenant@vendor=x y"]), "0tenant@vendor=x y");
        assert_eq!(joined(&[]), "");
        let many = |n: usize| (0..n).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join(",");
        assert_eq!(joined(&[&many(32)]), many(32));
        let long = format!("a={}", "x".repeat(257));
        let huge = vec![format!("a={}", "x".repeat(256)); 9].join(",");
        for bad in ["a", "=", "a=", "=b", "A=b", "a=b=c", "a=b,c", "a=\u{e9}", "a@b@c=d", &many(33), &long, &huge] {
            assert_eq!(joined(&["ok=1", bad]), "", "{bad}");
        }
        assert_eq!(&*join_state([b"a=\x01".as_slice()].into_iter()), b"");
    }
}
