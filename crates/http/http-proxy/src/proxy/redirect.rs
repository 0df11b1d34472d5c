//! proxy_redirect, proxy_cookie_domain, proxy_cookie_path: rewrites a server's references.

use super::SCHEME;
use conf_schema::value::ValueList;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::regex::HttpPattern;
use http_engine::{HttpTemplate, Request};
use http_upstream::target::PassTarget;
use std::sync::Arc;

#[derive(Clone)]
pub enum RedirectRule {
    Off,
    /// `proxy_redirect default`: derived from the location's name and the URL of `proxy_pass`.
    Default,
    Prefix(HttpTemplate, HttpTemplate),
    Regex(Arc<HttpPattern>, HttpTemplate),
}

impl ValueKind for RedirectRule {
    const SYNTAX: &'static str = "default | off | redirect replacement";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |i: usize| d.args.get(i).map(|w| w.bytes.clone()).unwrap_or_default();
        if d.args.len() == 1 {
            return match word(0).as_slice() {
                b"off" => Ok(RedirectRule::Off),
                b"default" => {
                    let block = cx.block;
                    match cx.get::<super::Passes>().0.get(&block) {
                        Some(true) => Ok(RedirectRule::Default),
                        Some(false) => Err(Problem::says(
                            "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
                        )),
                        None => Err(Problem::says(
                            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
                        )),
                    }
                }
                other => {
                    let shown = String::from_utf8_lossy(other).into_owned();
                    Err(Problem::says(format!("invalid parameter \"{shown}\"")).at(0))
                }
            };
        }
        let replacement = HttpTemplate::compile(cx, d, &word(1)).map_err(|p| p.at(1))?;
        match word(0).as_slice() {
            [b'~', b'*', rest @ ..] => {
                Ok(RedirectRule::Regex(Arc::new(HttpPattern::new(cx, rest, true)?), replacement))
            }
            [b'~', rest @ ..] => Ok(RedirectRule::Regex(Arc::new(HttpPattern::new(cx, rest, false)?), replacement)),
            text => Ok(RedirectRule::Prefix(HttpTemplate::compile(cx, d, text).map_err(|p| p.at(0))?, replacement)),
        }
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        let off = matches!(self, RedirectRule::Off) || matches!(later, RedirectRule::Off);
        if off { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

/// Rules of a location; none means `default`. Fails if `default` cannot be derived.
pub fn redirect_rules(
    said: &Option<ValueList<RedirectRule>>,
    target: &PassTarget,
    location: &[u8],
) -> Result<Vec<RedirectRule>, Problem> {
    let default = match target {
        PassTarget::Fixed(url, _) => {
            let (from, to) = match url.uri.as_deref() {
                Some(uri) => (format!("{}://{}{uri}", SCHEME.name(url.tls), url.host), location),
                // Without a URI part, paths are equal on both sides.
                None => (format!("{}://{}/", SCHEME.name(url.tls), url.host), &b"/"[..]),
            };
            Some(RedirectRule::Prefix(HttpTemplate::literal(from.as_bytes()), HttpTemplate::literal(to)))
        }
        PassTarget::Computed(_) => None,
    };
    let Some(ValueList(said)) = said else { return Ok(default.into_iter().collect()) };
    let mut out = Vec::new();
    for rule in said {
        match rule {
            RedirectRule::Off => return Ok(Vec::new()),
            RedirectRule::Default => match &default {
                Some(rule) => out.push(rule.clone()),
                None => {
                    return Err(Problem::says(
                        "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
                    ));
                }
            },
            rule => out.push(rule.clone()),
        }
    }
    Ok(out)
}

pub fn rewrite_location(rules: &[RedirectRule], r: &mut Request, value: &[u8]) -> Option<Vec<u8>> {
    for rule in rules {
        match rule {
            RedirectRule::Prefix(from, to) => {
                let from = from.eval(r);
                if let Some(rest) = value.strip_prefix(from.as_slice()) {
                    let mut out = to.eval(r);
                    out.extend_from_slice(rest);
                    return Some(out);
                }
            }
            RedirectRule::Regex(pattern, to) => {
                // Replaces the whole value, whichever part matched.
                if pattern.run(r, value) == Ok(true) {
                    return Some(to.eval(r));
                }
            }
            RedirectRule::Off | RedirectRule::Default => {}
        }
    }
    None
}

#[derive(Clone)]
pub enum CookieRule {
    Off,
    Exact(HttpTemplate, HttpTemplate),
    Regex(Arc<HttpPattern>, HttpTemplate),
}

impl ValueKind for CookieRule {
    const SYNTAX: &'static str = "off | from to";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |i: usize| d.args.get(i).map(|w| w.bytes.clone()).unwrap_or_default();
        let is_domain = d.name.bytes.ends_with(b"domain");
        if d.args.len() == 1 {
            if word(0) == b"off" {
                return Ok(CookieRule::Off);
            }
            let shown = String::from_utf8_lossy(&word(0)).into_owned();
            return Err(Problem::says(format!("invalid parameter \"{shown}\"")).at(0));
        }
        let to = HttpTemplate::compile(cx, d, &word(1)).map_err(|p| p.at(1))?;
        match word(0).as_slice() {
            [b'~', b'*', rest @ ..] => Ok(CookieRule::Regex(Arc::new(HttpPattern::new(cx, rest, true)?), to)),
            [b'~', rest @ ..] => Ok(CookieRule::Regex(Arc::new(HttpPattern::new(cx, rest, is_domain)?), to)),
            text => {
                let text = if is_domain { text.strip_prefix(b".").unwrap_or(text) } else { text };
                // A leading dot has no meaning (RFC 6265, 5.2.3): drops it from a constant name.
                let to = match to.as_literal().and_then(|t| t.strip_prefix(b".")).filter(|_| is_domain) {
                    Some(bare) => HttpTemplate::literal(bare),
                    None => to,
                };
                Ok(CookieRule::Exact(HttpTemplate::compile(cx, d, text).map_err(|p| p.at(0))?, to))
            }
        }
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        let off = matches!(self, CookieRule::Off) || matches!(later, CookieRule::Off);
        if off { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

#[derive(Clone)]
pub enum CookieFlags {
    Off,
    For { name: CookieName, flags: Vec<FlagWord> },
}

#[derive(Clone)]
pub enum CookieName {
    Is(HttpTemplate),
    Matches(Arc<HttpPattern>),
}

/// Constant, or computed per request.
#[derive(Clone)]
pub enum FlagWord {
    Known(CookieFlag),
    Computed(HttpTemplate),
}

/// Attribute and text of a flag; `true` sets it, `false` removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieFlag {
    attribute: &'static str,
    text: Option<&'static str>,
}

impl ValueKind for CookieFlags {
    const SYNTAX: &'static str = "off | cookie flag ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        if d.args.len() == 1 {
            if name == b"off" {
                return Ok(CookieFlags::Off);
            }
            let shown = String::from_utf8_lossy(&name).into_owned();
            return Err(Problem::says(format!("invalid parameter \"{shown}\"")).at(0));
        }
        let mut flags = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let template = HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?;
            flags.push(match template.as_literal() {
                None => FlagWord::Computed(template),
                Some(text) => match CookieFlag::named(text) {
                    Some(flag) => FlagWord::Known(flag),
                    None => {
                        // nginx accepts it without effect.
                        if !text.is_empty() {
                            cx.warn(d, format!("\"{}\" is no flag of \"proxy_cookie_flags\", ignored", word.text()));
                        }
                        continue;
                    }
                },
            });
        }
        let name = match name.as_slice() {
            [b'~', rest @ ..] => CookieName::Matches(Arc::new(HttpPattern::new(cx, rest, true)?)),
            text => CookieName::Is(HttpTemplate::compile(cx, d, text).map_err(|p| p.at(0))?),
        };
        Ok(CookieFlags::For { name, flags })
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        let off = matches!(self, CookieFlags::Off) || matches!(later, CookieFlags::Off);
        if off { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

impl CookieFlag {
    fn named(text: &[u8]) -> Option<CookieFlag> {
        let flag = |attribute, text| Some(CookieFlag { attribute, text });
        match text.to_ascii_lowercase().as_slice() {
            b"secure" => flag("secure", Some("Secure")),
            b"nosecure" => flag("secure", None),
            b"httponly" => flag("httponly", Some("HttpOnly")),
            b"nohttponly" => flag("httponly", None),
            b"samesite=strict" => flag("samesite", Some("SameSite=Strict")),
            b"samesite=lax" => flag("samesite", Some("SameSite=Lax")),
            b"samesite=none" => flag("samesite", Some("SameSite=None")),
            b"nosamesite" => flag("samesite", None),
            _ => None,
        }
    }
}

/// Part of a `Set-Cookie` value: name, and text after `=`.
type CookiePart = (Vec<u8>, Option<Vec<u8>>);

/// Rewrites a `Set-Cookie` value; `None`: unchanged, byte for byte.
pub fn rewrite_cookie(conf: &super::ProxyConf, r: &mut Request, value: &[u8]) -> Option<Vec<u8>> {
    if conf.proxy_cookie_domain.is_none() && conf.proxy_cookie_path.is_none() && conf.proxy_cookie_flags.is_none() {
        return None;
    }
    let part = |text: &[u8]| {
        let mut sides = text.splitn(2, |c| *c == b'=').map(spaceless);
        (sides.next().unwrap_or_default(), sides.next())
    };
    let mut parts: Vec<CookiePart> = value.split(|c| *c == b';').map(part).collect();
    parts.first()?.1.as_ref()?;
    let mut changed = false;
    for (name, old) in parts.iter_mut().skip(1) {
        let (rules, domain) = match name.to_ascii_lowercase().as_slice() {
            b"domain" => (&conf.proxy_cookie_domain, true),
            b"path" => (&conf.proxy_cookie_path, false),
            _ => continue,
        };
        if let Some(new) = old.as_ref().and_then(|old| attribute(rules, domain, r, old)) {
            *old = Some(new);
            changed = true;
        }
    }
    changed |= flags(&conf.proxy_cookie_flags, r, &mut parts);
    changed.then(|| {
        let text = |(name, value): CookiePart| match value {
            Some(value) => [name, b"=".to_vec(), value].concat(),
            None => name,
        };
        parts.into_iter().map(text).collect::<Vec<_>>().join(&b"; "[..])
    })
}

fn spaceless(text: &[u8]) -> Vec<u8> {
    let start = text.iter().position(|c| *c != b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|c| *c != b' ').map_or(start, |at| at + 1);
    text.get(start..end).unwrap_or_default().to_vec()
}

/// Sets and removes flags by the first matching line; tells whether one matched.
fn flags(lines: &Option<ValueList<CookieFlags>>, r: &mut Request, parts: &mut Vec<CookiePart>) -> bool {
    let Some(ValueList(lines)) = lines else { return false };
    let name = parts.first().map(|(name, _)| name.clone()).unwrap_or_default();
    let found = lines.iter().find_map(|line| match line {
        CookieFlags::For { name: CookieName::Is(t), flags } => t.eval(r).eq_ignore_ascii_case(&name).then_some(flags),
        CookieFlags::For { name: CookieName::Matches(p), flags } => (p.run(r, &name) == Ok(true)).then_some(flags),
        CookieFlags::Off => None,
    });
    // Ignores unknown flags, as in nginx.
    let named = |word: &FlagWord| match word {
        FlagWord::Known(flag) => Some(*flag),
        FlagWord::Computed(template) => CookieFlag::named(&template.eval(r)),
    };
    let wanted: Vec<CookieFlag> = found.into_iter().flatten().filter_map(named).collect();
    for attribute in ["secure", "httponly", "samesite"] {
        let mut of_it = wanted.iter().filter(|flag| flag.attribute == attribute);
        let is_it = |part: &CookiePart| part.0.eq_ignore_ascii_case(attribute.as_bytes());
        let at = parts.iter().skip(1).position(is_it).map(|at| at + 1);
        let Some(first) = of_it.clone().next() else { continue };
        let Some(text) = of_it.find_map(|flag| flag.text).or(first.text) else {
            let mut index = 0;
            parts.retain(|part| {
                index += 1;
                index == 1 || !is_it(part)
            });
            continue;
        };
        let new: CookiePart = match text.split_once('=') {
            Some((name, value)) => (name.into(), Some(value.into())),
            None => (text.into(), None),
        };
        match at.and_then(|at| parts.get_mut(at)) {
            Some(part) if new.1.is_some() && part.1.as_ref().is_none_or(|v| !same(v, &new.1)) => *part = new,
            Some(_) => {}
            None => parts.push(new),
        }
    }
    !wanted.is_empty()
}

fn same(value: &[u8], other: &Option<Vec<u8>>) -> bool {
    other.as_ref().is_some_and(|other| other.eq_ignore_ascii_case(value))
}

fn attribute(rules: &Option<ValueList<CookieRule>>, domain: bool, r: &mut Request, old: &[u8]) -> Option<Vec<u8>> {
    let ValueList(rules) = rules.as_ref()?;
    if rules.iter().any(|rule| matches!(rule, CookieRule::Off)) {
        return None;
    }
    for rule in rules {
        match rule {
            CookieRule::Off => {}
            CookieRule::Exact(from, to) => {
                let from = from.eval(r);
                if domain {
                    let bare = old.strip_prefix(b".").unwrap_or(old);
                    if bare.eq_ignore_ascii_case(&from) {
                        // Keeps the cookie's leading dot.
                        let dot: &[u8] = if bare.len() < old.len() { b"." } else { b"" };
                        return Some([dot, &to.eval(r)].concat());
                    }
                } else if let Some(rest) = old.strip_prefix(from.as_slice()) {
                    let mut out = to.eval(r);
                    out.extend_from_slice(rest);
                    return Some(out);
                }
            }
            CookieRule::Regex(..) => {
                let CookieRule::Regex(pattern, to) = rule else { continue };
                let rules = [RedirectRule::Regex(pattern.clone(), to.clone())];
                if let Some(out) = rewrite_location(&rules, r, old) {
                    return Some(out);
                }
            }
        }
    }
    None
}
