//! The `If` field (RFC 4918, 10.4): lock tokens and entity tags that a client expects.

use super::locks::LockToken;

/// Maximum number of conditions per `If` field.
const CONDITIONS_MAX: usize = 128;
const SCHEME: &[u8] = b"urn:uuid:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfCondition {
    pub negated: bool,
    pub state: StateToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateToken {
    Token(LockToken),
    /// A foreign token (`<DAV:no-lock>`).
    Unknown,
    Etag(Vec<u8>),
}

/// Conditions that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfList {
    /// Resource as written; `None`: the request's.
    pub resource: Option<Vec<u8>>,
    pub conditions: Vec<IfCondition>,
}

/// Returns `None` for a list that is invalid or too long.
pub fn parse_if(text: &[u8]) -> Option<Vec<IfList>> {
    let (mut lists, mut resource) = (Vec::<IfList>::new(), None);
    let mut count = 0;
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        if let Some(tag) = rest.strip_prefix(b"<") {
            let (uri, after) = until(tag, b'>')?;
            (resource, rest) = (Some(uri.to_vec()), after.trim_ascii_start());
        }
        rest = rest.strip_prefix(b"(")?;
        let mut conditions = Vec::new();
        loop {
            rest = rest.trim_ascii_start();
            if let Some(after) = rest.strip_prefix(b")") {
                rest = after.trim_ascii_start();
                break;
            }
            let negated = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"not"));
            if negated {
                rest = rest.get(3..)?.trim_ascii_start();
            }
            let state = match rest.split_first()? {
                (b'<', after) => {
                    let (token, after) = until(after, b'>')?;
                    rest = after;
                    self::parse_token(token).map_or(StateToken::Unknown, StateToken::Token)
                }
                (b'[', after) => {
                    let (etag, after) = until(after, b']')?;
                    rest = after;
                    StateToken::Etag(etag.to_vec())
                }
                _ => return None,
            };
            conditions.push(IfCondition { negated, state });
            count += 1;
            if count > CONDITIONS_MAX {
                return None;
            }
        }
        if conditions.is_empty() {
            return None;
        }
        lists.push(IfList { resource: resource.clone(), conditions });
    }
    (!lists.is_empty()).then_some(lists)
}

fn until(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|c| *c == end)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Parses a token without brackets; `None`: not of this server.
pub fn parse_token(text: &[u8]) -> Option<LockToken> {
    let digits = text.strip_prefix(SCHEME)?;
    let mut token = [0; 16];
    let mut at = 0;
    for &c in digits.iter().filter(|c| **c != b'-') {
        let digit = char::from(c).to_digit(16)? as u8;
        let byte = token.get_mut(at / 2)?;
        *byte = *byte << 4 | digit;
        at += 1;
    }
    (at == 32).then_some(token)
}

pub fn token_text(token: &LockToken) -> String {
    let mut text = String::from_utf8_lossy(SCHEME).into_owned();
    for (index, byte) in token.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_fields_are_parsed() {
        let token = [0xab; 16];
        let text = format!("<{}>", token_text(&token));
        assert_eq!(super::parse_token(token_text(&token).as_bytes()), Some(token));
        let one = IfCondition { negated: false, state: StateToken::Token(token) };
        let not = IfCondition { negated: true, state: StateToken::Unknown };
        let tag = IfCondition { negated: false, state: StateToken::Etag(b"\"x\"".to_vec()) };
        let list = |resource: Option<&str>, conditions: &[&IfCondition]| IfList {
            resource: resource.map(|r| r.as_bytes().to_vec()),
            conditions: conditions.iter().map(|c| (*c).clone()).collect(),
        };
        for (written, lists) in [
            (format!("({text})"), vec![list(None, &[&one])]),
            (format!(" ({text} [\"x\"]) (Not<DAV:no-lock>)"), vec![list(None, &[&one, &tag]), list(None, &[&not])]),
            (format!("</a> ({text}) ( {text} )"), vec![list(Some("/a"), &[&one]), list(Some("/a"), &[&one])]),
            (format!("</a>({text})</b>([\"x\"])"), vec![list(Some("/a"), &[&one]), list(Some("/b"), &[&tag])]),
        ] {
            assert_eq!(parse_if(written.as_bytes()), Some(lists), "{written}");
        }
        for wrong in ["", "()", "(", "(<a", "<a>", "x", "(x)", "([a)", "(Not)", "(<a>) x"] {
            assert_eq!(parse_if(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse_if("(<a>)".repeat(CONDITIONS_MAX + 1).as_bytes()), None);
    }
}
