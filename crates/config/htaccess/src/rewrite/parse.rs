//! Arguments of `RewriteCond` and `RewriteRule` (Apache: `cmd_rewritecond`, `cmd_rewriterule` and their flags).

use super::{Flags, RewriteCondition, RewriteRule, Test};
use crate::pattern::RulePattern;
use crate::syntax::raw_words;

const NUMBERS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl RewriteCondition {
    pub fn parse(line: u32, rest: &str) -> Result<RewriteCondition, String> {
        let words = raw_words(rest);
        let (Some(subject), Some(text)) = (words.first(), words.get(1)) else {
            return Err(format!("RewriteCond: bad argument line '{rest}'"));
        };
        let (mut or, mut ignore_case, mut no_vary) = (false, false, false);
        for (name, _) in flags(words.get(2).map_or("", String::as_str), "RewriteCond")? {
            match name.to_ascii_lowercase().as_str() {
                "or" | "ornext" => or = true,
                "nc" | "nocase" => ignore_case = true,
                "nv" | "novary" => no_vary = true,
                _ => return Err(format!("RewriteCond: unknown flag '{name}'")),
            }
        }
        supported(subject, "RewriteCond")?;
        supported(text, "RewriteCond")?;
        if subject.eq_ignore_ascii_case("expr") {
            return Err("RewriteCond expr: expressions are not supported".into());
        }
        let (negated, bare) = text.strip_prefix('!').map_or((false, text.as_str()), |bare| (true, bare));
        let mut letters = bare.chars();
        let test = match (letters.next(), letters.next(), letters.next()) {
            (Some('-'), Some(letter @ ('f' | 'd' | 's' | 'l' | 'h' | 'L' | 'x' | 'F' | 'U')), None) => {
                if matches!(letter, 'F' | 'U') {
                    return Err(format!("RewriteCond -{letter}: subrequests are not made"));
                }
                Test::File(letter)
            }
            (Some('-'), Some(_), Some(_)) if NUMBERS.iter().any(|sign| bare.starts_with(sign)) => {
                let sign = NUMBERS.iter().find(|sign| bare.starts_with(**sign)).copied().unwrap_or("-eq");
                Test::Number(sign, bare.get(3..).unwrap_or_default().to_string())
            }
            (Some('<'), Some('='), _) => Test::Text('l', bare.get(2..).unwrap_or_default().to_string()),
            (Some('>'), Some('='), _) => Test::Text('g', bare.get(2..).unwrap_or_default().to_string()),
            (Some(sign @ ('<' | '>' | '=')), _, _) => {
                let value = bare.get(1..).unwrap_or_default();
                Test::Text(sign, if value == "\"\"" { String::new() } else { value.to_string() })
            }
            _ => Test::Pattern(RulePattern::new(bare, ignore_case).map_err(|e| format!("RewriteCond: {e}"))?),
        };
        Ok(RewriteCondition { line, subject: subject.clone(), test, negated, or, ignore_case, no_vary })
    }
}

/// Variables of Apache that the machine does not have, or beginnings of their names. Others that it does not know are empty, as in
/// Apache.
const UNSUPPORTED: &[&str] = &[
    "%{API_VERSION",
    "%{AUTH_TYPE",
    "%{CONN_REMOTE_ADDR",
    "%{CONTEXT_PREFIX",
    "%{HANDLER",
    "%{HTTP2",
    "%{IPV6",
    "%{LA-F:",
    "%{LA-U:",
    "%{REMOTE_IDENT",
    "%{REQUEST_STATUS",
    "%{SCRIPT_GROUP",
    "%{SCRIPT_USER",
    "%{SERVER_ADMIN",
    "%{SSL:",
    "%{SSL_",
    "%{TIME",
];

/// Fails on variables and maps that would always be empty: a rule that depends on one would let requests pass that it refuses in Apache.
fn supported(text: &str, directive: &str) -> Result<(), String> {
    if let Some(start) = UNSUPPORTED.iter().find(|start| text.contains(**start)) {
        return Err(format!("{directive}: variables like {start}...}} are not supported"));
    }
    let map = text.split_once("${").and_then(|(_, rest)| rest.split_once('}'));
    match map {
        Some((name, _)) if name.contains(':') => Err(format!("{directive}: maps (\"${{{name}}}\") are not supported")),
        _ => Ok(()),
    }
}

fn flags<'a>(text: &'a str, directive: &str) -> Result<Vec<(&'a str, &'a str)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        return Err(format!("{directive}: bad flag delimiters"));
    };
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect())
}

impl RewriteRule {
    pub fn parse(line: u32, rest: &str, conditions: Vec<RewriteCondition>) -> Result<RewriteRule, String> {
        let words = raw_words(rest);
        let (Some(pattern), Some(target)) = (words.first(), words.get(1)) else {
            return Err(format!("RewriteRule: bad argument line '{rest}'"));
        };
        supported(target, "RewriteRule")?;
        supported(words.get(2).map_or("", String::as_str), "RewriteRule")?;
        let own = Flags::parse(words.get(2).map_or("", String::as_str))?;
        let pattern = RulePattern::new(pattern, own.ignore_case).map_err(|e| format!("RewriteRule: {e}"))?;
        let substitution = (target != "-").then(|| target.clone());
        if target.starts_with("proxy:") {
            return Err("RewriteRule: requests are not passed on from here".into());
        }
        Ok(RewriteRule { line, conditions, pattern, substitution, flags: own })
    }
}

impl Flags {
    fn parse(text: &str) -> Result<Flags, String> {
        let mut out = Flags::default();
        for (name, value) in flags(text, "RewriteRule")? {
            match name.to_ascii_lowercase().as_str() {
                "l" | "last" => out.last = true,
                "end" => out.end = true,
                "n" | "next" => out.next = true,
                "c" | "chain" => out.chain = true,
                "s" | "skip" => out.skip = value.parse().map_err(|_| format!("RewriteRule: bad skip '{value}'"))?,
                "f" | "forbidden" => out.status = Some(403),
                "g" | "gone" => out.status = Some(410),
                "r" | "redirect" => (out.status, out.redirects) = (Some(status(value)?), true),
                "qsa" | "qsappend" => out.append_args = true,
                "qsd" | "qsdiscard" => out.drop_args = true,
                "qsl" | "qslast" => out.last_question = true,
                "nc" | "nocase" => out.ignore_case = true,
                "ne" | "noescape" => out.no_escape = true,
                "b" => out.escape = Some(value.to_string()),
                "bnp" | "backrefnoplus" => out.escape_space_as_20 = true,
                "ns" | "nosubreq" => out.no_subrequests = true,
                "dpi" | "discardpath" => out.drop_path_info = true,
                "unsafeallow3f" => out.allow_question = true,
                // A directory has no later handler to pass through to.
                "pt" | "passthrough" | "unsafeprefixstat" | "unsafeprefixstatus" | "bctls" | "bne" => {}
                "t" | "type" => out.media_type = Some(value.to_string()),
                "e" | "env" => {
                    let (name, content) = value.split_once(':').unwrap_or((value, ""));
                    out.env.push((name.to_string(), content.to_string()));
                }
                "p" | "proxy" => {
                    return Err("RewriteRule: [P] is not supported: requests are not passed on from here".into());
                }
                "co" | "cookie" => return Err("RewriteRule: [CO] is not supported".into()),
                "h" | "handler" => return Err("RewriteRule: [H] is not supported".into()),
                _ => return Err(format!("RewriteRule: unknown flag '{name}'")),
            }
        }
        Ok(out)
    }
}

fn status(word: &str) -> Result<u16, String> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "" | "temp" => 302,
        "permanent" => 301,
        "seeother" => 303,
        other => match other.parse::<u16>() {
            Ok(code) if (300..=599).contains(&code) => code,
            _ => return Err(format!("RewriteRule: invalid HTTP response code '{word}' for flag 'R'")),
        },
    })
}
