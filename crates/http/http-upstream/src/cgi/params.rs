//! Parameters of a request: the configured ones, and the client's fields as `HTTP_*` (RFC 3875, 4.1.18).

use crate::caching::{CacheRequest, OWN_CONDITIONS};
use conf_schema::value::ValueList;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::{HttpTemplate, Request};
use http_types::Field;
use std::marker::PhantomData;

/// A line of `fastcgi_param` and its siblings.
#[derive(Clone)]
pub struct ParamLine {
    name: Vec<u8>,
    value: HttpTemplate,
    if_not_empty: bool,
}

impl ValueKind for ParamLine {
    const SYNTAX: &'static str = "parameter value [if_not_empty]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value, rest @ ..] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let if_not_empty = match rest.first() {
            None => false,
            Some(word) if word.bytes == b"if_not_empty" => true,
            Some(word) => return Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(2)),
        };
        let value = HttpTemplate::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
        Ok(ParamLine { name: name.bytes.clone(), value, if_not_empty })
    }
}

/// A protocol's encoding of parameters: [`Packing::begin`], name, [`Packing::value`], value, [`Packing::end`]. All
/// append; `end` may change the parameter.
pub trait Packing: 'static {
    /// Appends the bytes before a name of `name` bytes.
    fn begin(name: usize, out: &mut Vec<u8>);
    /// Appends the bytes between name and value.
    fn value(out: &mut Vec<u8>);
    /// Called after the value: the parameter starts at `start`, its value at `value`.
    fn end(start: usize, value: usize, out: &mut Vec<u8>);
}

/// Appends one parameter.
pub fn put_param<P: Packing>(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    P::begin(name.len(), out);
    out.extend_from_slice(name);
    P::value(out);
    let from = out.len();
    out.extend_from_slice(value);
    P::end(start, from, out);
}

enum ParamStep {
    Written(Vec<u8>),
    Computed { head: Vec<u8>, value: HttpTemplate, if_not_empty: bool },
}

/// The parameters of a location, with constant parts encoded at the start.
pub struct Params<P> {
    steps: Vec<ParamStep>,
    /// Names of configured `HTTP_*` parameters without this prefix: the client's fields of these names are not passed.
    said: Vec<Vec<u8>>,
    pass_fields: bool,
    of: PhantomData<fn(P)>,
}

const HTTP: &[u8] = b"HTTP_";

/// Converts a field name to a parameter's: `User-Agent` to `USER_AGENT`.
fn upper(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|c| if *c == b'-' { b'_' } else { c.to_ascii_uppercase() })
}

impl<P: Packing> Params<P> {
    /// Prepares the parameters. `pass_fields`: the client's fields follow as `HTTP_*`. Adds `HTTP_HOST` unless it is
    /// configured.
    pub fn new(cx: &mut Cx, lines: &Option<ValueList<ParamLine>>, pass_fields: bool) -> Result<Params<P>, Problem> {
        let all = lines.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
        let said = all.iter().filter_map(|line| line.name.strip_prefix(HTTP)).filter(|name| !name.is_empty());
        let said: Vec<Vec<u8>> = said.map(|name| upper(name).collect()).collect();
        let mut params = Params { steps: Vec::new(), said, pass_fields, of: PhantomData };
        // A configured empty `HTTP_*` suppresses the client's field and is not sent.
        let is_sent = |line: &&ParamLine| !line.name.starts_with(HTTP) || line.value.as_literal() != Some(b"");
        for line in all.iter().filter(is_sent) {
            params.step(&line.name, &line.value, line.if_not_empty);
        }
        if !params.says(b"HOST") {
            let nowhere = conf_schema::table::synthetic_directive("fastcgi_param", "HTTP_HOST $host");
            let host = HttpTemplate::compile(cx, &nowhere, b"$host$is_request_port$request_port")?;
            params.step(b"HTTP_HOST", &host, true);
        }
        Ok(params)
    }
    fn step(&mut self, name: &[u8], value: &HttpTemplate, if_not_empty: bool) {
        match value.as_literal() {
            Some(b"") if if_not_empty => {}
            Some(text) => match self.steps.last_mut() {
                Some(ParamStep::Written(before)) => put_param::<P>(name, text, before),
                _ => {
                    let mut written = Vec::new();
                    put_param::<P>(name, text, &mut written);
                    self.steps.push(ParamStep::Written(written));
                }
            },
            None => {
                let mut head = Vec::new();
                P::begin(name.len(), &mut head);
                head.extend_from_slice(name);
                P::value(&mut head);
                self.steps.push(ParamStep::Computed { head, value: value.clone(), if_not_empty });
            }
        }
    }
    /// Tells whether a parameter is configured for a field; `name`: case-insensitive, `-` equal to `_`.
    fn says(&self, name: &[u8]) -> bool {
        self.said.iter().any(|said| said.len() == name.len() && upper(name).eq(said.iter().copied()))
    }

    /// Writes the configured parameters, then the client's fields, in nginx's order. Omits `Proxy` (httpoxy) and fields
    /// with `_` that collide with others with `-`.
    pub fn write(&self, r: &mut Request, out: &mut Vec<u8>) {
        for step in &self.steps {
            match step {
                ParamStep::Written(text) => out.extend_from_slice(text),
                ParamStep::Computed { head, value, if_not_empty } => {
                    let start = out.len();
                    out.extend_from_slice(head);
                    let from = out.len();
                    value.write(r, out);
                    if *if_not_empty && out.len() == from {
                        out.truncate(start);
                    } else {
                        P::end(start, from, out);
                    }
                }
            }
        }
        let asking = CacheRequest::of(r);
        if let Some(asking) = asking {
            let (since, none_match) = (&asking.if_modified_since, &asking.if_none_match);
            for (name, value) in [(&b"IF_MODIFIED_SINCE"[..], since), (b"IF_NONE_MATCH", none_match)] {
                if let Some(value) = value.as_ref().filter(|_| !self.says(name)) {
                    put_param::<P>(&[HTTP, name].concat(), value, out);
                }
            }
        }
        if self.pass_fields {
            self.fields(r, asking.is_some(), out);
        }
    }

    fn fields(&self, r: &Request, is_stored: bool, out: &mut Vec<u8>) {
        let all = &r.head.fields.all;
        let again = Again::new(all, &r.buf);
        for (index, field) in all.iter().enumerate() {
            let own = field.name.of(&r.buf);
            let is = |other: &[u8]| own.eq_ignore_ascii_case(other);
            if is(b"host")
                || is(b"proxy")
                || (is_stored && OWN_CONDITIONS.iter().any(|own| is(own.as_bytes())))
                || self.says(own)
            {
                continue;
            }
            let alias = |other: &[u8]| other.len() == own.len() && !is(other) && upper(other).eq(upper(own));
            if own.contains(&b'_') && all.iter().any(|other| alias(other.name.of(&r.buf))) {
                continue;
            }
            // Repeated fields are joined at the position of the first one.
            let same = |other: &&Field| is(other.name.of(&r.buf));
            let again = again.may_be(own);
            if again && all.iter().take(index).any(|other| same(&other)) {
                continue;
            }
            let start = out.len();
            P::begin(HTTP.len() + own.len(), out);
            out.extend_from_slice(HTTP);
            out.extend(upper(own));
            P::value(out);
            let from = out.len();
            out.extend_from_slice(field.value.of(&r.buf));
            if again {
                let separator: &[u8] = if is(b"cookie") { b"; " } else { b", " };
                for other in all.iter().skip(index + 1).filter(same) {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(other.value.of(&r.buf));
                }
            }
            P::end(start, from, out);
        }
    }
}

/// Names that may be repeated: a bit per class of names, to avoid most comparisons.
struct Again(u64);

impl Again {
    fn new(all: &[Field], buf: &[u8]) -> Again {
        let (_, twice) = all.iter().fold((0, 0), |(once, twice), field| {
            let bit = Again::bit(field.name.of(buf));
            (once | bit, twice | once & bit)
        });
        Again(twice)
    }
    /// Returns the bit of a name, equal for names that differ in case only.
    fn bit(name: &[u8]) -> u64 {
        let (first, last) = (name.first().copied().unwrap_or(0), name.last().copied().unwrap_or(0));
        let kind = usize::from(first & 31) + 3 * usize::from(last & 31) + 5 * name.len();
        1 << (kind % 64)
    }
    fn may_be(&self, name: &[u8]) -> bool {
        self.0 & Again::bit(name) != 0
    }
}
