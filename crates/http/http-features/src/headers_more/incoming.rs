//! Request fields; new values are appended to the head's bytes.

use super::lines::{LineForm, MoreField, MoreLine};
use http_engine::{Flow, Handler, Request};
use std::rc::Rc;
use std::sync::Arc;

use http_types::{Field, Fields, Known, Span, known_name};

pub struct IncomingLines(pub Vec<Arc<MoreLine>>);

/// Fields of a head at most, including added ones.
const FIELDS_MAX: usize = 10_000;

impl Handler for IncomingLines {
    fn run(&self, r: &mut Request) -> Flow {
        for line in &self.0 {
            if line.form != LineForm::Fields && !applies(r, line) {
                continue;
            }
            if !line.types.is_empty() {
                let media = r.header(Known::ContentType).filter(|media| !media.is_empty());
                if !media.is_some_and(|media| line.has_type(media)) {
                    continue;
                }
            }
            for item in &line.fields {
                let value = match &item.value {
                    None => Vec::new(),
                    Some(value) => {
                        let value = value.eval(r);
                        match r.field_value(&line.directive, &item.name, value) {
                            Some(value) => value,
                            None => continue,
                        }
                    }
                };
                match line.form {
                    LineForm::Add => add(r, item, value),
                    _ => set(r, item, &value, line.replace),
                }
            }
        }
        Flow::Declined
    }
}

/// Tells whether a line has not changed the head yet, in this request or in one that it is derived from, and takes note of it.
fn applies(r: &mut Request, line: &MoreLine) -> bool {
    let lines = r.incoming.applied_lines_mut();
    let is_new = !lines.contains(&line.number);
    if is_new {
        Rc::make_mut(lines).push(line.number);
    }
    is_new
}

/// Appends a value to those of its field.
fn add(r: &mut Request, item: &MoreField, value: Vec<u8>) {
    if value.is_empty() {
        return;
    }
    let separator: &[u8] = if item.is(b"cookie") { b"; " } else { b"," };
    let before: Vec<&[u8]> = r.headers().filter(|(name, _)| item.is(name)).map(|(_, value)| value).collect();
    let all = before.into_iter().chain([value.as_slice()]).filter(|value| !value.is_empty());
    let joined = all.collect::<Vec<_>>().join(separator);
    set(r, item, &joined, false);
}

/// Tells whether a field delimits the request; wildcards never match it.
fn frames(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// An empty value removes the field. `only`: does not add it.
fn set(r: &mut Request, item: &MoreField, value: &[u8], only: bool) {
    let mut place = None;
    let mut fields = Fields::default();
    for mut field in std::mem::take(&mut r.head.fields.all) {
        let name = field.name.of(&r.buf);
        if item.is(name) && !frames(name) {
            if value.is_empty() || place.is_some() {
                continue;
            }
            field.value = written(&mut r.buf, value);
            place = Some(field.value);
        }
        fields.push(field);
    }
    if place.is_none() && !value.is_empty() && !only && fields.all.len() < FIELDS_MAX {
        let (name, value) = (written(&mut r.buf, &item.name), written(&mut r.buf, value));
        fields.push(Field { name, value, known: known_name(&item.name) });
    }
    r.head.fields = fields;
    if item.is(b"host") {
        let mut host = Vec::new();
        match http_engine::path::host(value, &mut host) {
            Some(port) => {
                r.target.set_host(host);
                r.target.set_host_port(port);
            }
            None if value.is_empty() => {
                r.target.set_host(Vec::new());
                r.target.set_host_port(None);
            }
            // Not a host: keeps the request's.
            None => {}
        }
    }
}

fn written(buf: &mut Vec<u8>, text: &[u8]) -> Span {
    let start = buf.len() as u32;
    buf.extend_from_slice(text);
    Span { start, end: buf.len() as u32 }
}
