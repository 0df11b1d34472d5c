//! Formats: compiled once, written without looking anything up by name.

use super::line::Escape;
use conf_schema::{Cx, Directive, Problem};
use conf_syntax::Word;
use http_engine::Request;
use http_engine::variable::{VarId, Variables, place};
use std::cell::RefCell;
use std::sync::Arc;

/// The format that is there without a `log_format`.
const COMBINED: &[u8] = b"$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\"";

/// A compiled format.
pub struct Format {
    ops: Box<[Op]>,
    escape: Escape,
}

enum Op {
    Text(Box<[u8]>),
    Variable(VarId),
}

/// The formats of a configuration by name, as far as it was read.
#[derive(Default)]
pub struct Formats(Vec<(Vec<u8>, Arc<Format>)>);

impl Formats {
    /// A format by its name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], &Arc<Format>)> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(name, format)| (&name[..], format))
    }
    pub fn add(&mut self, name: &[u8], format: Format) {
        self.0.push((name.to_vec(), Arc::new(format)));
    }
}

/// The format of a name; `combined` is always there.
pub fn find(cx: &mut Cx, name: &[u8]) -> Option<Arc<Format>> {
    if let Some((_, format)) = cx.get::<Formats>().find(name) {
        return Some(format.clone());
    }
    if !name.eq_ignore_ascii_case(b"combined") {
        return None;
    }
    let mut d = Directive::default();
    d.args.push(Word { bytes: COMBINED.to_vec(), ..Word::default() });
    let format = Format::compile(cx, &d, &d.args).ok()?;
    cx.get::<Formats>().add(b"combined", format);
    find(cx, name)
}

impl Format {
    /// Compiles the words after the name.
    ///
    /// # Errors
    /// A `$` without a name, an unknown way of escaping.
    pub fn compile(cx: &mut Cx, d: &Directive, words: &[Word]) -> Result<Format, Problem> {
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
            compile(cx, d, &word.bytes, &mut ops, &mut text)?;
        }
        flush(&mut text, &mut ops);
        Ok(Format { ops: ops.into(), escape })
    }

    /// Appends the line, without its end.
    pub fn write(&self, r: &mut Request, out: &mut Vec<u8>) {
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
    /// A value that needs escaping, while it is escaped.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn flush(text: &mut Vec<u8>, ops: &mut Vec<Op>) {
    if !text.is_empty() {
        ops.push(Op::Text(std::mem::take(text).into()));
    }
}

fn compile(cx: &mut Cx, d: &Directive, word: &[u8], ops: &mut Vec<Op>, text: &mut Vec<u8>) -> Result<(), Problem> {
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
        ops.push(Op::Variable(cx.get::<Variables>().read(&name, place(d))));
        rest = next;
    }
    Ok(())
}
