//! The parameters of a request: what the operator says, and the client's fields as `HTTP_*` (RFC 3875, 4.1.18).

use crate::shared::caching::{CacheRequest, OWN_CONDITIONS};
use conf_schema::value::List;
use conf_schema::{Cx, Directive, Problem, Value};
use http_engine::{Request, Template};
use std::collections::HashSet;

/// `fastcgi_param name value [if_not_empty]`
#[derive(Clone)]
pub struct ParamLine {
    name: Vec<u8>,
    value: Template,
    /// Left out where the value is empty.
    if_not_empty: bool,
}

impl Value for ParamLine {
    const SYNTAX: &'static str = "parameter value [if_not_empty]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value, rest @ ..] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let if_not_empty = match rest.first() {
            None => false,
            Some(word) if word.bytes == b"if_not_empty" => true,
            Some(word) => return Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(2)),
        };
        let value = Template::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
        Ok(ParamLine { name: name.bytes.clone(), value, if_not_empty })
    }
}

/// A location's parameters, prepared.
pub struct Params {
    lines: Vec<ParamLine>,
    /// What the operator says of `HTTP_*`, without that: the client's fields of these names are not passed on.
    said: HashSet<Vec<u8>>,
    /// What a program is told of the host, where the operator says nothing.
    host: Template,
    pass_fields: bool,
}

const HTTP: &[u8] = b"HTTP_";

/// A field's name as a parameter's: `User-Agent` is `USER_AGENT`.
fn upper(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|c| if *c == b'-' { b'_' } else { c.to_ascii_uppercase() })
}

impl Params {
    /// # Errors
    /// None that an operator could make.
    pub fn new(cx: &mut Cx, lines: &Option<List<ParamLine>>, pass_fields: bool) -> Result<Params, Problem> {
        let nowhere = conf_schema::table::synthetic("fastcgi_param", "HTTP_HOST $host");
        let host = Template::compile(cx, &nowhere, b"$host$is_request_port$request_port")?;
        let all = lines.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        let said = all.iter().filter_map(|line| line.name.strip_prefix(HTTP)).filter(|name| !name.is_empty());
        let said = said.map(|name| upper(name).collect()).collect();
        // One of a field that is said to be empty takes the client's away, and is not sent itself.
        let is_sent = |line: &ParamLine| !line.name.starts_with(HTTP) || line.value.as_literal() != Some(b"");
        Ok(Params { lines: all.into_iter().filter(is_sent).collect(), said, host, pass_fields })
    }

    /// Hands every parameter of a request on, in nginx's order: what is said, and then the client's fields.
    ///
    /// A field that is not passed on: `Proxy`, which would become the variable that tells programs of a proxy (httpoxy), and one
    /// whose name, spelled with `_`, would take the place of another's spelled with `-`.
    pub fn each(&self, r: &mut Request, put: &mut dyn FnMut(&[u8], &[u8])) {
        let mut value = Vec::new();
        for line in &self.lines {
            value.clear();
            line.value.write(r, &mut value);
            if !value.is_empty() || !line.if_not_empty {
                put(&line.name, &value);
            }
        }
        let said = |name: &[u8]| self.said.contains(name);
        if !said(b"HOST") {
            value.clear();
            self.host.write(r, &mut value);
            if !value.is_empty() {
                put(b"HTTP_HOST", &value);
            }
        }
        let asking = CacheRequest::of(r).map(|asking| (asking.if_modified_since.clone(), asking.if_none_match.clone()));
        if let Some((since, none_match)) = &asking {
            for (name, value) in [(&b"IF_MODIFIED_SINCE"[..], since), (b"IF_NONE_MATCH", none_match)] {
                if let Some(value) = value.as_ref().filter(|_| !said(name)) {
                    put(&[HTTP, name].concat(), value);
                }
            }
        }
        if self.pass_fields {
            self.fields(r, asking.is_some(), put);
        }
    }

    fn fields(&self, r: &Request, is_stored: bool, put: &mut dyn FnMut(&[u8], &[u8])) {
        let all = &r.head.fields.all;
        let mut name = Vec::with_capacity(32);
        for (index, field) in all.iter().enumerate() {
            let own = field.name.of(&r.buf);
            let is = |other: &[u8]| own.eq_ignore_ascii_case(other);
            if is(b"proxy") || (is_stored && OWN_CONDITIONS.iter().any(|own| is(own.as_bytes()))) {
                continue;
            }
            name.clear();
            name.extend_from_slice(HTTP);
            name.extend(upper(own));
            let bare = name.get(HTTP.len()..).unwrap_or_default();
            if bare == b"HOST" || self.said.contains(bare) {
                continue;
            }
            let alias = |other: &[u8]| !is(other) && upper(other).eq(bare.iter().copied());
            if own.contains(&b'_') && all.iter().any(|other| alias(other.name.of(&r.buf))) {
                continue;
            }
            // Fields that come again are one, where the first of them stands.
            let same = |other: &&http_types::Field| is(other.name.of(&r.buf));
            if all.iter().take(index).any(|other| same(&other)) {
                continue;
            }
            let first = field.value.of(&r.buf);
            let mut others = all.iter().skip(index + 1).filter(same).peekable();
            if others.peek().is_none() {
                put(&name, first);
                continue;
            }
            let separator: &[u8] = if is(b"cookie") { b"; " } else { b", " };
            let mut value = first.to_vec();
            for other in others {
                value.extend_from_slice(separator);
                value.extend_from_slice(other.value.of(&r.buf));
            }
            put(&name, &value);
        }
    }
}
