//! Expansion of a rule's texts (Apache: `do_expand`, `lookup_variable`), and escaping.

use super::{EXPANDED_BYTES_MAX, RuleEnvironment, Run};
use crate::pattern::MatchGroups;

/// Origin of the question mark at which a target is split (Apache: `unsafe_qmark`): one that comes from a request would let
/// the client choose the query.
pub(super) struct Questions {
    pub is_unsafe: bool,
    /// `[QSL]`: the last question mark splits.
    last: bool,
    is_decided: bool,
}

impl Questions {
    pub(super) fn new(last: bool) -> Questions {
        Questions { is_unsafe: false, last, is_decided: false }
    }
    fn literal(&mut self) {
        self.decide(false);
    }
    fn expanded(&mut self, text: &[u8]) {
        if text.contains(&b'?') {
            self.decide(true);
        }
    }
    fn decide(&mut self, is_unsafe: bool) {
        if self.last || !self.is_decided {
            (self.is_unsafe, self.is_decided) = (is_unsafe, true);
        }
    }
}

/// Field of a request that a condition's text asks for first (Apache: `vary_this`).
pub(super) fn request_field(text: &str) -> Option<String> {
    const NAMES: &[(&str, &str)] = &[
        ("%{HTTP_USER_AGENT}", "User-Agent"),
        ("%{HTTP_REFERER}", "Referer"),
        ("%{HTTP_COOKIE}", "Cookie"),
        ("%{HTTP_FORWARDED}", "Forwarded"),
        ("%{HTTP_PROXY_CONNECTION}", "Proxy-Connection"),
        ("%{HTTP_ACCEPT}", "Accept"),
    ];
    if let Some(name) = NAMES.iter().find_map(|(variable, name)| text.contains(variable).then_some(*name)) {
        return Some(name.to_string());
    }
    let name = text.split_once("%{HTTP:")?.1.split_once('}')?.0;
    // Caches distinguish hosts anyway (RFC 9110, 12.5.5).
    (!name.eq_ignore_ascii_case("Host")).then(|| name.to_string())
}

impl Run<'_> {
    /// Expands `$1`, `%1`, `%{NAME}` and backslashes; `${map:key}` is empty, since maps are declared in servers. Fails beyond
    /// [`EXPANDED_BYTES_MAX`].
    pub(super) fn expand(
        &self,
        text: &str,
        groups: &MatchGroups,
        last: &MatchGroups,
        escape: Option<(&str, bool)>,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<Vec<u8>, String> {
        self.expand_target(text, groups, last, escape, &mut Questions::new(false), asks)
    }

    /// [`Run::expand`], which notes where question marks come from.
    pub(super) fn expand_target(
        &self,
        text: &str,
        groups: &MatchGroups,
        last: &MatchGroups,
        escape: Option<(&str, bool)>,
        questions: &mut Questions,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<Vec<u8>, String> {
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len() + 32);
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if out.len() > EXPANDED_BYTES_MAX {
                return Err(format!("a text of a rule has more than {EXPANDED_BYTES_MAX} bytes"));
            }
            let next = bytes.get(at + 1).copied();
            let before = out.len();
            match (byte, next) {
                (b'\\', Some(literal)) => {
                    out.push(literal);
                    at += 2;
                }
                (b'$' | b'%', Some(digit @ b'0'..=b'9')) => {
                    let list = if byte == b'$' { groups } else { last };
                    let group = list.get(usize::from(digit - b'0')).map_or(&[][..], Vec::as_slice);
                    match escape {
                        Some((only, as_20)) => escape_group(group, only, as_20, &mut out),
                        None => out.extend_from_slice(group),
                    }
                    questions.expanded(out.get(before..).unwrap_or_default());
                    at += 2;
                }
                (b'%', Some(b'{')) => match text.get(at + 2..).and_then(|rest| rest.find('}')) {
                    Some(length) => {
                        let name = text.get(at + 2..at + 2 + length).unwrap_or_default();
                        out.extend(self.variable(name, asks));
                        questions.expanded(out.get(before..).unwrap_or_default());
                        at += length + 3;
                    }
                    None => {
                        out.push(byte);
                        at += 1;
                    }
                },
                (b'$', Some(b'{')) => match text.get(at..).and_then(|rest| rest.find('}')) {
                    Some(length) => at += length + 1,
                    None => {
                        out.push(byte);
                        at += 1;
                    }
                },
                _ => {
                    if byte == b'?' {
                        questions.literal();
                    }
                    out.push(byte);
                    at += 1;
                }
            }
        }
        Ok(out)
    }

    fn variable(&self, name: &str, asks: &mut dyn RuleEnvironment) -> Vec<u8> {
        if let Some(env) = name.strip_prefix("ENV:").or(name.strip_prefix("env:")) {
            return match self.env.iter().rev().find(|(own, _)| own == env) {
                Some((_, value)) => value.clone().unwrap_or_default(),
                None => asks.variable(name),
            };
        }
        match name {
            "REQUEST_FILENAME" | "SCRIPT_FILENAME" => self.filename.clone(),
            "PATH_INFO" => self.path_info.clone(),
            "REQUEST_URI" => self.uri.to_vec(),
            "QUERY_STRING" => self.args.clone(),
            _ => asks.variable(name),
        }
    }
}

/// Escapes a path (Apache: `ap_escape_uri`).
pub fn escape_uri(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"$-_.+!*'(),:;@&=/~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02x}").as_bytes());
        }
    }
}

fn escape_group(text: &[u8], only: &str, as_20: bool, out: &mut Vec<u8>) {
    for byte in text {
        let plain = byte.is_ascii_alphanumeric() || *byte == b'_';
        let escapes = if only.is_empty() { !plain } else { only.as_bytes().contains(byte) };
        match (escapes, byte) {
            (false, byte) => out.push(*byte),
            (true, b' ') if !as_20 => out.push(b'+'),
            (true, byte) => out.extend_from_slice(format!("%{byte:02x}").as_bytes()),
        }
    }
}
