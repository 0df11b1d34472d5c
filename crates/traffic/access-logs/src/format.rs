//! Log formats: compiled once, written without lookups by name.

use super::line::Escape;
use conf_schema::{Cx, Directive, Problem};
use conf_syntax::Word;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use variables::variable::{VarId, VariableTable, directive_place};
use variables::{AreaTypes, Session};

pub struct LineFormat<A> {
    ops: Box<[Op]>,
    escape: Escape,
    of: PhantomData<fn(A)>,
}

enum Op {
    Text(Box<[u8]>),
    Variable(VarId),
}

/// Formats of a configuration by name, while it is read.
pub struct Formats<A>(Vec<(Vec<u8>, Arc<LineFormat<A>>)>);

impl<A> Default for Formats<A> {
    fn default() -> Self {
        Formats(Vec::new())
    }
}

impl<A> Formats<A> {
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], &Arc<LineFormat<A>>)> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(name, format)| (&name[..], format))
    }
    pub fn add(&mut self, name: &[u8], format: LineFormat<A>) {
        self.0.push((name.to_vec(), Arc::new(format)));
    }
}

/// Includes the area's built-in one.
pub fn find_format<A: AreaTypes>(cx: &mut Cx, name: &[u8]) -> Option<Arc<LineFormat<A>>> {
    if let Some((_, format)) = cx.get::<Formats<A>>().find(name) {
        return Some(format.clone());
    }
    let (own, text) = A::LOG_FORMAT?;
    if !name.eq_ignore_ascii_case(own.as_bytes()) {
        return None;
    }
    let mut d = Directive::default();
    d.args.push(Word { bytes: text.into(), ..Word::default() });
    let format = LineFormat::compile(cx, &d, &d.args).ok()?;
    cx.get::<Formats<A>>().add(own.as_bytes(), format);
    find_format(cx, name)
}

impl<A: AreaTypes> LineFormat<A> {
    /// Compiles the words after the name. Fails on a `$` without a name and unknown escaping.
    pub fn compile(cx: &mut Cx, d: &Directive, words: &[Word]) -> Result<Self, Problem> {
        let mut words = words;
        let mut escape = Escape::Default;
        if let Some((first, rest)) = words.split_first()
            && let Some(way) = first.bytes.strip_prefix(b"escape=")
        {
            escape = match way {
                b"default" => Escape::Default,
                b"json" => Escape::Json,
                b"none" => Escape::None,
                other => {
                    let shown = String::from_utf8_lossy(other).into_owned();
                    return Err(Problem::says(format!("unknown log format escaping \"{shown}\""))
                        .at(1)
                        .hint("one of: default, json, none"));
                }
            };
            words = rest;
        }
        let mut ops = Vec::new();
        let mut text = Vec::new();
        for word in words {
            compile::<A>(cx, d, &word.bytes, &mut ops, &mut text)?;
        }
        flush(&mut text, &mut ops);
        Ok(LineFormat { ops: ops.into(), escape, of: PhantomData })
    }

    pub fn write(&self, r: &mut A::Session, out: &mut Vec<u8>) {
        for op in &self.ops {
            match op {
                Op::Text(text) => out.extend_from_slice(text),
                Op::Variable(id) => {
                    let start = out.len();
                    let found = r.variable(*id, out);
                    if !found {
                        out.truncate(start);
                        self.escape.missing(out);
                    } else if self.escape.needed(out.get(start..).unwrap_or_default()) {
                        SCRATCH.with_borrow_mut(|raw| {
                            raw.clear();
                            raw.extend_from_slice(out.get(start..).unwrap_or_default());
                            out.truncate(start);
                            self.escape.write(raw, out);
                        });
                    }
                }
            }
        }
    }
}

thread_local! {
    /// Buffer for values that need escaping.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn flush(text: &mut Vec<u8>, ops: &mut Vec<Op>) {
    if !text.is_empty() {
        ops.push(Op::Text(std::mem::take(text).into()));
    }
}

fn compile<A: AreaTypes>(
    cx: &mut Cx,
    d: &Directive,
    word: &[u8],
    ops: &mut Vec<Op>,
    text: &mut Vec<u8>,
) -> Result<(), Problem> {
    let is_name = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let mut rest = word;
    while let Some((&c, after)) = rest.split_first() {
        if c != b'$' {
            text.push(c);
            rest = after;
            continue;
        }
        let shown = String::from_utf8_lossy(rest).into_owned();
        let invalid = || Problem::says(format!("invalid parameter \"{shown}\""));
        let (bracket, body) = match after {
            [b'{', body @ ..] => (true, body),
            body => (false, body),
        };
        let length = body.iter().take_while(|c| is_name(c)).count();
        let (name, mut next) = body.split_at(length);
        let name = String::from_utf8_lossy(name).into_owned();
        if bracket {
            next = match next {
                [b'}', next @ ..] => next,
                _ if body.is_empty() => return Err(invalid()),
                _ => {
                    return Err(Problem::says(format!("the closing bracket in \"{name}\" variable is missing")));
                }
            };
        }
        if name.is_empty() {
            return Err(invalid());
        }
        flush(text, ops);
        ops.push(Op::Variable(cx.get::<VariableTable<A>>().read(&name, directive_place(d))));
        rest = next;
    }
    Ok(())
}
