//! Regular expressions and file name patterns.

use pcre2::bytes::{Regex, RegexBuilder};

/// Match steps before a failure, as elsewhere in the server.
pub const MATCH_STEPS_MAX: u32 = 1_000_000;

#[derive(Debug)]
pub struct RulePattern {
    regex: Regex,
    pub text: String,
    pub negated: bool,
}

/// Groups of a match: `$0` to `$9`.
pub type MatchGroups = Vec<Vec<u8>>;

impl RulePattern {
    /// Compiles a pattern; a leading `!` negates it. Fails with PCRE's message.
    pub fn new(text: &str, ignore_case: bool) -> Result<RulePattern, String> {
        let (negated, bare) = text.strip_prefix('!').map_or((false, text), |bare| (true, bare));
        let limited = format!("(*LIMIT_MATCH={MATCH_STEPS_MAX}){bare}");
        let built = RegexBuilder::new().caseless(ignore_case).jit_if_available(true).build(&limited);
        let regex = built.map_err(|e| format!("cannot compile regular expression '{bare}': {e}"))?;
        Ok(RulePattern { regex, text: bare.to_string(), negated })
    }
    /// Groups of a match; callers apply the negation. Fails beyond the match limits.
    pub fn groups(&self, subject: &[u8]) -> Result<Option<MatchGroups>, String> {
        let failed = |e: pcre2::Error| format!("\"{}\": {e}", self.text);
        let Some(found) = self.regex.captures(subject).map_err(failed)? else { return Ok(None) };
        Ok(Some((0..found.len()).map(|i| found.get(i).map_or(Vec::new(), |m| m.as_bytes().to_vec())).collect()))
    }
    pub fn holds(&self, subject: &[u8]) -> Result<bool, String> {
        Ok(self.groups(subject)?.is_some() != self.negated)
    }
}

/// Matches a name against a shell pattern: `*`, `?`, `[a-z]`.
pub fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    // Backtracking position after the last star.
    let (mut p, mut n, mut back) = (pattern, name, None);
    loop {
        match (p.first(), n.first()) {
            (Some(b'*'), _) => {
                p = p.get(1..).unwrap_or_default();
                back = Some((p, n));
                continue;
            }
            (Some(b'['), Some(byte)) => {
                if let Some((fits, rest)) = class(p, *byte)
                    && fits
                {
                    (p, n) = (rest, n.get(1..).unwrap_or_default());
                    continue;
                }
            }
            (Some(b'?'), Some(_)) => {
                (p, n) = (p.get(1..).unwrap_or_default(), n.get(1..).unwrap_or_default());
                continue;
            }
            (Some(a), Some(b)) if a == b => {
                (p, n) = (p.get(1..).unwrap_or_default(), n.get(1..).unwrap_or_default());
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        match back {
            Some((after, from)) if !from.is_empty() => {
                let from = from.get(1..).unwrap_or_default();
                back = Some((after, from));
                (p, n) = (after, from);
            }
            _ => return false,
        }
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let end = pattern.iter().skip(2).position(|c| *c == b']')? + 2;
    let inner = pattern.get(1..end)?;
    let (negated, inner) = match inner {
        [b'!' | b'^', rest @ ..] => (true, rest),
        inner => (false, inner),
    };
    let mut found = false;
    let mut rest = inner;
    while let Some((low, after)) = rest.split_first() {
        match after {
            [b'-', high, after @ ..] => {
                found |= (*low..=*high).contains(&byte);
                rest = after;
            }
            _ => {
                found |= *low == byte;
                rest = after;
            }
        }
    }
    Some((found != negated, pattern.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_patterns_match_names() {
        for (pattern, name, want) in [
            ("*.php", "a.php", true),
            ("*.php", "a.php5", false),
            (".ht*", ".htaccess", true),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("*a*b", "xaybzb", true),
            ("", "", true),
        ] {
            assert_eq!(matches_glob(pattern.as_bytes(), name.as_bytes()), want, "{pattern} {name}");
        }
    }
}
