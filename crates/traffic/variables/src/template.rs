//! Strings with variables, compiled with the configuration (nginx: `ngx_http_compile_complex_value`).

use crate::session::VarId;
use crate::variable::{VariableTable, directive_place};
use crate::{AreaTypes, Session};
use conf_schema::value::parse_size;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::marker::PhantomData;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Literal(Box<[u8]>),
    Variable(VarId),
    /// `$1` to `$9`
    Group(u8),
}

/// A compiled string. Evaluation appends to a growing buffer in one pass, so that lengths cannot disagree.
pub struct Template<A> {
    parts: Box<[Part]>,
    of: PhantomData<fn(A)>,
}

impl<A> Clone for Template<A> {
    fn clone(&self) -> Self {
        Template::new(self.parts.clone())
    }
}

impl<A> Default for Template<A> {
    fn default() -> Self {
        Template::new(Box::default())
    }
}

impl<A> PartialEq for Template<A> {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl<A> Eq for Template<A> {}

impl<A> std::fmt::Debug for Template<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|c| !(c.is_ascii_alphanumeric() || *c == b'_'));
    end.and_then(|end| text.split_at_checked(end)).unwrap_or((text, b""))
}

impl<A> Template<A> {
    fn new(parts: Box<[Part]>) -> Self {
        Template { parts, of: PhantomData }
    }
    pub fn literal(text: &[u8]) -> Self {
        if text.is_empty() {
            return Template::default();
        }
        Template::new(Box::new([Part::Literal(text.into())]))
    }
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
    pub fn as_literal(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

impl<A: AreaTypes> Template<A> {
    /// Compiles `text`; messages name `d`. Fails on a `$` without a name, or an unclosed `${`.
    pub fn compile(cx: &mut Cx, d: &Directive, text: &[u8]) -> Result<Self, Problem> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some((&c, after)) = rest.split_first() {
            if c != b'$' {
                literal.push(c);
                rest = after;
                continue;
            }
            if let Some((digit @ b'1'..=b'9', next)) = after.split_first() {
                flush(&mut literal, &mut parts);
                parts.push(Part::Group(digit - b'0'));
                rest = next;
                continue;
            }
            let (name, next) = if let Some(braced) = after.strip_prefix(b"{") {
                let (name, next) = word(braced);
                let Some(next) = next.strip_prefix(b"}") else {
                    let shown = String::from_utf8_lossy(name).into_owned();
                    return Err(Problem::says(format!("the closing bracket in \"{shown}\" variable is missing")));
                };
                (name, next)
            } else {
                word(after)
            };
            if name.is_empty() {
                return Err(Problem::says("invalid variable name").hint("here, \"$\" begins a variable name"));
            }
            flush(&mut literal, &mut parts);
            if let [digit @ b'1'..=b'9'] = name {
                parts.push(Part::Group(digit - b'0'));
            } else {
                let name = String::from_utf8_lossy(name).into_owned();
                parts.push(Part::Variable(cx.get::<VariableTable<A>>().read(&name, directive_place(d))));
            }
            rest = next;
        }
        flush(&mut literal, &mut parts);
        if parts.iter().any(|part| matches!(part, Part::Group(_))) {
            cx.get::<VariableTable<A>>().groups_used = true;
        }
        Ok(Template::new(parts.into()))
    }
    pub fn write(&self, r: &mut A::Session, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => {
                    r.variable(*id, out);
                }
                Part::Group(n) => {
                    if let Some(group) = r.captures().get(usize::from(*n)) {
                        out.extend_from_slice(group);
                    }
                }
            }
        }
    }
    pub fn eval(&self, r: &mut A::Session) -> Vec<u8> {
        if let [Part::Literal(text)] = &*self.parts {
            return text.to_vec();
        }
        let length = |part: &Part| if let Part::Literal(text) = part { text.len() } else { VALUE_BYTES };
        let mut out = Vec::with_capacity(self.parts.iter().map(length).sum());
        self.write(r, &mut out);
        out
    }
}

/// Bytes reserved per variable; most values are shorter.
const VALUE_BYTES: usize = 64;

fn flush(literal: &mut Vec<u8>, parts: &mut Vec<Part>) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal).into()));
    }
}

impl<A: AreaTypes> ValueKind for Template<A> {
    const SYNTAX: &'static str = "string";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        Template::compile(cx, d, &text).map_err(|p| p.at(0))
    }
}

/// Evaluates `if=`: true unless the value is empty or `0`.
pub fn is_true(value: &[u8]) -> bool {
    !value.is_empty() && value != b"0"
}

/// A size that may contain variables (`limit_rate`, `proxy_upload_rate`).
#[derive(Debug)]
pub enum SizeTemplate<A> {
    Fixed(u64),
    Computed(Template<A>),
}

impl<A> Clone for SizeTemplate<A> {
    fn clone(&self) -> Self {
        match self {
            SizeTemplate::Fixed(n) => SizeTemplate::Fixed(*n),
            SizeTemplate::Computed(t) => SizeTemplate::Computed(t.clone()),
        }
    }
}

impl<A: AreaTypes> ValueKind for SizeTemplate<A> {
    const SYNTAX: &'static str = "size";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let template = Template::parse(cx, d)?;
        match template.as_literal() {
            Some(text) => parse_size(text).map(SizeTemplate::Fixed).ok_or_else(|| Problem::invalid().at(0)),
            None => Ok(SizeTemplate::Computed(template)),
        }
    }
}

impl<A: AreaTypes> SizeTemplate<A> {
    /// Returns the size; 0 for an invalid text, which is logged (nginx: `ngx_http_complex_value_size`).
    pub fn get(&self, s: &mut A::Session) -> u64 {
        match self {
            SizeTemplate::Fixed(n) => *n,
            SizeTemplate::Computed(t) => {
                let text = t.eval(s);
                parse_size(&text).unwrap_or_else(|| {
                    let shown = String::from_utf8_lossy(&text);
                    s.log(observe::Severity::Error, format_args!("invalid size \"{shown}\""));
                    0
                })
            }
        }
    }
}
