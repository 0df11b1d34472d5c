//! Redirects, response fields and expiry times: the forms of `Redirect`, `Header` and `ExpiresDefault` (mod_alias,
//! mod_headers, mod_expires).

use crate::pattern::RulePattern;

#[derive(Debug)]
pub struct RedirectRule {
    pub status: u16,
    pub from: RedirectFrom,
    /// Empty for statuses other than redirects.
    pub to: String,
}

#[derive(Debug)]
pub enum RedirectFrom {
    Prefix(String),
    Pattern(RulePattern),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    pub always: bool,
    pub action: HeaderAction,
    pub name: String,
    pub value: String,
    /// `env=NAME`, `env=!NAME`.
    pub env: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    Set,
    SetIfEmpty,
    Add,
    Append,
    Merge,
    Unset,
}

/// Expiry in seconds after the access or the file's modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiresRule {
    pub from_modification: bool,
    pub seconds: i64,
}

pub(crate) fn redirect(name: &str, words: &[String]) -> Result<RedirectRule, String> {
    let mut words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut status = if name == "redirectpermanent" { 301 } else { 302 };
    if matches!(name, "redirect" | "redirectmatch")
        && let Some(first) = words.first()
    {
        let named = match first.to_ascii_lowercase().as_str() {
            "permanent" => Some(301),
            "temp" => Some(302),
            "seeother" => Some(303),
            "gone" => Some(410),
            number => number.parse().ok().filter(|code| (300..600).contains(code)),
        };
        if let Some(code) = named {
            status = code;
            words.remove(0);
        }
    }
    let is_redirect = (300..400).contains(&status);
    let (from, to) = match words.as_slice() {
        [from, to] if is_redirect => (*from, *to),
        [from] if !is_redirect => (*from, ""),
        _ => return Err(format!("{name}: bad arguments")),
    };
    // The groups of a pattern may make it one.
    if name != "redirectmatch" && is_redirect && !to.starts_with('/') && !to.contains("://") {
        return Err("Redirect to non-URL".into());
    }
    let from = if name == "redirectmatch" {
        RedirectFrom::Pattern(RulePattern::new(from, false)?)
    } else {
        RedirectFrom::Prefix(from.to_string())
    };
    Ok(RedirectRule { status, from, to: to.to_string() })
}

impl RedirectRule {
    /// Status and target of a path's redirect. Fails when a pattern exceeds its limits.
    pub fn of(&self, uri: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
        let mut target = Vec::new();
        match &self.from {
            RedirectFrom::Prefix(prefix) => {
                let Some(rest) = uri.strip_prefix(prefix.as_bytes()) else { return Ok(None) };
                // Matches whole names only.
                if !rest.is_empty() && !rest.starts_with(b"/") && !prefix.ends_with('/') {
                    return Ok(None);
                }
                target.extend_from_slice(self.to.as_bytes());
                crate::rewrite::escape_uri(rest, &mut target);
            }
            RedirectFrom::Pattern(pattern) => {
                let Some(groups) = pattern.groups(uri)? else { return Ok(None) };
                let mut made = Vec::new();
                let mut bytes = self.to.bytes().peekable();
                while let Some(byte) = bytes.next() {
                    match (byte, bytes.peek()) {
                        (b'$', Some(digit @ b'0'..=b'9')) => {
                            made.extend_from_slice(
                                groups.get(usize::from(digit - b'0')).map_or(&[][..], Vec::as_slice),
                            );
                            bytes.next();
                        }
                        (b'\\', Some(_)) => made.extend(bytes.next()),
                        (byte, _) => made.push(byte),
                    }
                }
                // The query and the fragment stay as they are.
                let path = made.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(made.len());
                let (path, rest) = made.split_at_checked(path).unwrap_or((&made, &[]));
                crate::rewrite::escape_uri(path, &mut target);
                target.extend_from_slice(rest);
            }
        }
        Ok(Some((self.status, target)))
    }
}

pub(crate) fn header(words: &[String]) -> Result<Option<HeaderRule>, String> {
    let mut words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut always = false;
    if let Some(first) =
        words.first().copied().filter(|w| w.eq_ignore_ascii_case("always") || w.eq_ignore_ascii_case("onsuccess"))
    {
        always = first.eq_ignore_ascii_case("always");
        words.remove(0);
    }
    let mut env = None;
    if let Some(last) = words.last().copied() {
        if let Some(name) = last.strip_prefix("env=") {
            env = Some(name.to_string());
            words.pop();
        } else if last.starts_with("expr=") {
            return Err("Header expr=: expressions are not supported".into());
        }
    }
    let (action, name, value) = match words.as_slice() {
        [action, name] => (*action, *name, ""),
        [action, name, value] => (*action, *name, *value),
        _ => return Err("Header: bad arguments".into()),
    };
    let action = match action.to_ascii_lowercase().as_str() {
        "set" => HeaderAction::Set,
        "setifempty" => HeaderAction::SetIfEmpty,
        "add" => HeaderAction::Add,
        "append" => HeaderAction::Append,
        "merge" => HeaderAction::Merge,
        "unset" => HeaderAction::Unset,
        // `echo` and `note` have no effect.
        "echo" | "note" => return Ok(None),
        _ => return Err(format!("Header {action} is not supported")),
    };
    let name = name.trim_end_matches(':');
    let bad = |text: &str| text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') || bad(value) {
        return Err(format!("Header: \"{name}\" is no field"));
    }
    Ok(Some(HeaderRule { always, action, name: name.to_string(), value: value.to_string(), env }))
}

/// Parses `access plus 1 month`, `A3600`, `modification plus 2 hours 30 minutes`.
///
/// # Errors
/// Apache's message about a malformed time.
pub fn parse_expires(text: &str) -> Result<ExpiresRule, String> {
    let wrong = || format!("bad expires code '{text}'");
    let short = text.strip_prefix('A').map(|rest| (false, rest)).or(text.strip_prefix('M').map(|rest| (true, rest)));
    if let Some((from_modification, rest)) = short
        && let Ok(seconds) = rest.parse()
    {
        return Ok(ExpiresRule { from_modification, seconds });
    }
    let mut words = text.split_whitespace();
    let from_modification = match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "access" | "now" => false,
        "modification" => true,
        _ => return Err(wrong()),
    };
    let mut words = words.peekable();
    words.next_if(|word| word.eq_ignore_ascii_case("plus"));
    let mut seconds = 0_i64;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().map_err(|_| wrong())?;
        let unit = match words.next().unwrap_or_default().to_ascii_lowercase().trim_end_matches('s') {
            "year" => 31_536_000,
            "month" => 2_592_000,
            "week" => 604_800,
            "day" => 86_400,
            "hour" => 3_600,
            "minute" => 60,
            "second" => 1,
            _ => return Err(wrong()),
        };
        seconds = number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
    }
    Ok(ExpiresRule { from_modification, seconds })
}
