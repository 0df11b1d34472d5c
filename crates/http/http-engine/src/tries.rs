//! The tries of a request's servers as spans, and the field that tells servers of them.

use crate::Request;
use crate::span::{TRIES_MAX, TraceIds, TrySpan, format_traceparent, new_id};
use http_types::{Field, Fields, Known, Span as Place};

impl Request {
    /// Returns the id of the span of a new try, which the server receives as its parent; 0 without a span.
    #[inline]
    pub fn begin_try(&mut self) -> u64 {
        match self.context.is_sampled() {
            false => 0,
            true => self.begin_try_span(),
        }
    }

    #[cold]
    fn begin_try_span(&mut self) -> u64 {
        let Some(span) = self.context.span().filter(|span| span.tries.get()).cloned() else { return 0 };
        if span.made.get() >= TRIES_MAX {
            return 0;
        }
        span.made.set(span.made.get() + 1);
        let id = new_id();
        if span.injected.get() {
            let ids = TraceIds { span: id, ..span.ids };
            self.set_incoming(Known::Traceparent, b"traceparent", &format_traceparent(&ids, true));
        }
        u64::from_be_bytes(id)
    }

    /// Replaces all request fields of a name by one; an empty value removes them.
    pub fn set_incoming(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let is_there = match known {
            Known::Other => {
                self.head.fields.all.iter().any(|field| field.name.of(&self.buf).eq_ignore_ascii_case(name))
            }
            known => self.head.fields.first_field(known).is_some(),
        };
        if is_there {
            let mut others = Fields::default();
            for field in std::mem::take(&mut self.head.fields.all) {
                if !field.name.of(&self.buf).eq_ignore_ascii_case(name) {
                    others.push(field);
                }
            }
            self.head.fields = others;
        }
        if !value.is_empty() {
            let mut put = |text: &[u8]| {
                let start = self.buf.len() as u32;
                self.buf.extend_from_slice(text);
                Place { start, end: self.buf.len() as u32 }
            };
            let (at, value) = (put(name), put(value));
            self.head.fields.push(Field { name: at, value, known });
        }
    }

    /// Hands the tries of an ended subrequest to its main request.
    #[cold]
    pub(crate) fn hand_over_tries(&mut self) {
        if let Some(span) = self.context.span().cloned() {
            let mut tries = self.upstream.tries();
            let path: Box<str> = String::from_utf8_lossy(&self.target.path).into();
            let method: Box<str> = String::from_utf8_lossy(self.method_name()).into();
            for one in &mut tries {
                (one.subrequest, one.method) = (Some(path.clone()), method.clone());
            }
            span.ended.borrow_mut().append(&mut tries);
        }
    }

    /// Takes the tries of a request and its subrequests, in the order of their start.
    pub fn take_tries(&mut self) -> Vec<TrySpan> {
        let mut all = self.upstream.tries();
        let method: Box<str> = String::from_utf8_lossy(self.method_name()).into();
        for one in &mut all {
            one.method = method.clone();
        }
        if let Some(span) = self.context.span() {
            all.append(&mut span.ended.borrow_mut());
        }
        all.sort_by_key(|one| one.started);
        all
    }
}
