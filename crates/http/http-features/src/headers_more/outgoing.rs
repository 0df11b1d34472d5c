//! Fields of responses.

use super::lines::{MoreField, MoreLine, split_charset};
use http_engine::response::OutField;
use http_engine::{Filter, Request, ResponseBody, Str};
use observe::clock::parse_http_time;
use std::sync::Arc;

pub struct OutgoingLines(pub Vec<Arc<MoreLine>>);

impl Filter for OutgoingLines {
    fn name(&self) -> &'static str {
        "headers_more"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        for line in &self.0 {
            let status = r.out.status();
            if !line.has_type(r.out.content_type()) || (!line.statuses.is_empty() && !line.statuses.contains(&status)) {
                continue;
            }
            for item in &line.fields {
                let value = match &item.value {
                    None => Vec::new(),
                    Some(value) => {
                        let value = value.eval(r);
                        let Some(value) = r.field_value(&line.directive, &item.name, value) else { continue };
                        value
                    }
                };
                set(r, item, value, line.append);
            }
        }
        Ok(body)
    }
}

/// An empty value removes the field.
fn set(r: &mut Request, item: &MoreField, value: Vec<u8>, append: bool) {
    let gone = value.is_empty();
    if append {
        if !gone {
            r.out.add(Str::Shared(item.name.clone()), value);
        }
        return;
    }
    if item.wildcard {
        return clear_all(r, item);
    }
    let out = &mut r.out;
    match item.name.to_ascii_lowercase().as_slice() {
        b"server" => {
            out.set_server(value);
            out.omit_server(gone);
        }
        b"date" => {
            out.set_date(value);
            out.omit_date(gone);
        }
        b"etag" => out.set_etag(value),
        b"location" => {
            out.set_location(value);
            r.reply.forget_location();
        }
        b"content-encoding" => out.set_content_encoding(value),
        b"last-modified" => {
            out.set_last_modified(parse_http_time(&value));
            out.set_last_modified_text(value);
        }
        b"content-type" => {
            let (media, charset) = split_media(value);
            out.set_content_type(media);
            out.set_charset(charset);
        }
        // Removed only: the body becomes chunked.
        b"content-length" => {
            out.set_content_length(None);
            r.reply.expect_trailers();
        }
        b"accept-ranges" if gone || value == b"bytes" => {
            out.allow_ranges(out.allows_ranges() && !gone);
            out.set_accept_ranges(Some(!gone));
        }
        _ => plain(r, item, value),
    }
    r.out.settle();
}

/// Sets a listed field: the first of its name gets the value, others are removed.
fn plain(r: &mut Request, item: &MoreField, value: Vec<u8>) {
    let mut value = Some(value).filter(|value| !value.is_empty());
    r.out.fields_mut().retain_mut(|field| {
        if !item.is(field.name.bytes()) {
            return true;
        }
        let Some(value) = value.take() else { return false };
        *field = OutField { name: Str::Shared(item.name.clone()), value: value.into() };
        true
    });
    if let Some(value) = value {
        r.out.add(Str::Shared(item.name.clone()), value);
    }
}

fn clear_all(r: &mut Request, item: &MoreField) {
    r.out.fields_mut().retain(|field| !item.is(field.name.bytes()));
    let out = &mut r.out;
    if item.is(b"ETag") {
        out.set_etag(Str::default());
    }
    if item.is(b"Location") {
        out.set_location(Str::default());
    }
    if item.is(b"Content-Encoding") {
        out.set_content_encoding(Str::default());
    }
    if item.is(b"Last-Modified") {
        out.set_last_modified_text(Str::default());
    }
}

fn split_media(value: Vec<u8>) -> (Str, Str) {
    match split_charset(&value) {
        (_, b"") => (value.into(), Str::default()),
        (media, charset) => (media.to_vec().into(), charset.to_vec().into()),
    }
}
