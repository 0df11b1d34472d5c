//! Converts an upstream response head to the client's.

use super::PassPlan;
use super::conf::IgnoreHeaders;
use super::storage;
use crate::upstream_state::UpstreamState;
use conf_schema::value::parse_decimal;
use http_engine::order::FilterOrder;
use http_engine::response::HeadSlot;
use http_engine::{Flow, Request, Str, clean, path};
use http_types::{Field, Known, KnownSet, ResponseHead};
use observe::Severity;
use observe::clock::parse_http_time;
use std::rc::Rc;

/// Fills `Request::out` with the head of an upstream response. `Some`: replaced by this answer (X-Accel-Redirect, intercepted
/// errors).
pub fn take_head(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8]) -> Option<Flow> {
    let is_stored = plan.caching.is_some() && storage::is_storing(r);
    fill(plan, r, head, buf, is_stored)
}

/// [`take_head`] for a response from the cache.
pub fn take_stored(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8]) -> Option<Flow> {
    fill(plan, r, head, buf, true)
}

/// `is_stored`: the server's own range filter adds `Accept-Ranges` at the end of the head.
fn fill(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8], is_stored: bool) -> Option<Flow> {
    let conf = &plan.conf;
    let ignored = conf.ignore_headers;
    if conf.intercept_404 && head.status == 404 {
        if let Some(words) = plan.protocol.missing(r) {
            say(r, Severity::Info, &words);
        }
        return Some(Flow::Status(404));
    }
    if conf.intercept_errors
        && head.status >= 300
        && r.loc().core.conf.error_page.as_ref().is_some_and(|p| p.0.iter().any(|p| p.status == head.status))
    {
        if head.status == 401 {
            for value in head.fields.each(Known::WwwAuthenticate) {
                r.out.add("WWW-Authenticate", value.value.of(buf).to_vec());
            }
        }
        return Some(Flow::Status(head.status));
    }
    if let Some(target) = head.fields.first(Known::XAccelRedirect)
        && !ignored.has(IgnoreHeaders::REDIRECT)
    {
        return Some(internal(plan, r, head, buf, target.of(buf)));
    }
    r.out.set_status(head.status);
    let text = r.out.take_text(buf.get(..head.text_end()).unwrap_or(buf));
    let part = |span| Str::Part(text.clone(), span);
    // HTTP/2 and HTTP/3 have no reason phrase.
    r.out.set_status_line((!plan.protocol.multiplexes()).then(|| part(head.status_line)));
    for field in &head.fields.all {
        let (name, value) = (field.name.of(buf), field.value.of(buf));
        if ONCE.has(field.known)
            && let Some(first) = head.fields.first_field(field.known).filter(|first| first.value != field.value)
        {
            let line = |name: &[u8], value: &[u8]| {
                format!("\"{}: {}\"", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            };
            let (later, first) = (line(name, value), line(first.name.of(buf), first.value.of(buf)));
            let words = format!("upstream sent duplicate header line: {later}, previous value: {first}, ignored");
            say(r, Severity::Warn, &words);
            continue;
        }
        act(r, field.known, value, ignored);
        if plan.hidden.has(field.known, name) {
            continue;
        }
        pass(plan, r, field, buf, &text);
        if let Some(slot) = slot(field.known).filter(|slot| !(is_stored && *slot == HeadSlot::AcceptRanges)) {
            r.out.settle_slot(slot);
            // Names of HTTP/2 have no case. The range filter's own field replaces the server's.
            let is_renamed = plan.protocol.multiplexes() || (slot == HeadSlot::AcceptRanges && conf.force_ranges);
            if !is_renamed {
                r.out.spell(slot, part(field.name));
            }
        }
    }
    if plan.protocol.says_server_and_date() {
        r.out.omit_server(r.out.server().is_empty() && !plan.hidden.has(Known::Server, b""));
        r.out.omit_date(r.out.date().is_empty() && !plan.hidden.has(Known::Date, b""));
    }
    note_unknown_charset(r);
    r.out.allow_ranges(conf.force_ranges);
    // The server has evaluated the conditions.
    r.reply.ignore_conditions(true);
    None
}

/// Logs an `X-Accel-Charset` in a location without charsets, whose filter would do it otherwise.
fn note_unknown_charset(r: &Request) {
    let wanted = r.out.wanted_charset();
    if !wanted.is_empty()
        && !r.out.content_type().is_empty()
        && !r.loc().filters.iter().any(|(order, _)| *order == FilterOrder::Charset)
    {
        let wanted = String::from_utf8_lossy(wanted);
        say(r, Severity::Error, &format!("unknown charset \"{wanted}\" to override"));
    }
}

fn say(r: &Request, level: Severity, words: &str) {
    let url = UpstreamState::url(r);
    r.log_of(level, format_args!("{words} while reading response header from upstream"), url.as_deref());
}

/// Fields of which only the first one applies.
const ONCE: KnownSet = KnownSet::of(&[
    Known::Status,
    Known::ContentType,
    Known::Date,
    Known::LastModified,
    Known::Etag,
    Known::Server,
    Known::Location,
    Known::Refresh,
    Known::Expires,
    Known::XAccelExpires,
    Known::XAccelLimitRate,
    Known::XAccelRedirect,
]);

fn slot(known: Known) -> Option<HeadSlot> {
    Some(match known {
        Known::Location => HeadSlot::Location,
        Known::Server => HeadSlot::Server,
        Known::Date => HeadSlot::Date,
        Known::LastModified => HeadSlot::LastModified,
        Known::Etag => HeadSlot::Etag,
        Known::ContentEncoding => HeadSlot::ContentEncoding,
        Known::AcceptRanges => HeadSlot::AcceptRanges,
        _ => return None,
    })
}

/// Applies the effects of a field, whether or not it is passed on.
#[inline]
fn act(r: &mut Request, known: Known, value: &[u8], ignored: IgnoreHeaders) {
    match known {
        Known::XAccelLimitRate if !ignored.has(IgnoreHeaders::LIMIT_RATE) => {
            r.reply.set_limit_rate(std::str::from_utf8(value).ok().and_then(parse_decimal));
        }
        Known::XAccelCharset if !ignored.has(IgnoreHeaders::CHARSET) => r.out.set_wanted_charset(value.to_vec()),
        _ => {}
    }
}

/// Passes a field on. `text`: a copy of the head in `buf`.
fn pass(plan: &PassPlan, r: &mut Request, field: &Field, buf: &[u8], text: &Rc<Vec<u8>>) {
    let conf = &plan.conf;
    let value = field.value.of(buf);
    let part = |span| Str::Part(text.clone(), span);
    let (own_name, own_value) = (|| part(field.name), || part(field.value));
    match field.known {
        Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::ContentLength => {}
        Known::ContentType => r.out.set_content_type(own_value()),
        Known::LastModified => {
            r.out.set_last_modified(parse_http_time(value));
            r.out.set_last_modified_text(own_value());
        }
        Known::Etag => r.out.set_etag(own_value()),
        Known::Server => r.out.set_server(own_value()),
        Known::Date => r.out.set_date(own_value()),
        Known::ContentEncoding if !r.out.content_encoding().is_empty() => r.out.add(own_name(), own_value()),
        Known::ContentEncoding => r.out.set_content_encoding(own_value()),
        Known::AcceptRanges if conf.force_ranges => {}
        Known::AcceptRanges if value.eq_ignore_ascii_case(b"bytes") => r.out.set_accept_ranges(Some(true)),
        Known::Location => {
            // A rewritten URL is made absolute like our own; others are passed unchanged.
            match plan.protocol.redirect(r, value) {
                Some(new) => r.out.set_location(new),
                None => r.out.add(own_name(), own_value()),
            }
        }
        Known::Refresh => {
            // "0; url=http://...": rewrites the part after `url=`.
            let lower = value.to_ascii_lowercase();
            let at = lower.windows(4).position(|w| w == b"url=").map(|at| at + 4);
            let new = at.and_then(|at| {
                let (start, url) = value.split_at_checked(at)?;
                let url = plan.protocol.redirect(r, url)?;
                Some(clean::encode_line_ends(&[start, &url].concat()).into_owned())
            });
            r.out.add(own_name(), new.map_or_else(own_value, Str::from));
        }
        Known::SetCookie => {
            let new = plan.protocol.cookie(r, value);
            r.out.add(own_name(), new.map_or_else(own_value, Str::from));
        }
        _ => r.out.add_settled(own_name(), own_value()),
    }
}

/// Handles `X-Accel-Redirect`: the body comes from another location; some fields of the response are kept.
fn internal(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8], target: &[u8]) -> Flow {
    const KEPT: [Known; 7] = [
        Known::ContentType,
        Known::SetCookie,
        Known::CacheControl,
        Known::Expires,
        Known::AcceptRanges,
        Known::XAccelLimitRate,
        Known::Other,
    ];
    let text = r.out.take_text(buf.get(..head.text_end()).unwrap_or(buf));
    for field in &head.fields.all {
        let (name, value) = (field.name.of(buf), field.value.of(buf));
        let kept = KEPT.contains(&field.known) && field.known != Known::Other
            || name.eq_ignore_ascii_case(b"content-disposition");
        if kept {
            act(r, field.known, value, IgnoreHeaders::default());
            if !plan.hidden.has(field.known, name) {
                pass(plan, r, field, buf, &text);
                r.out.settle();
            }
        }
    }
    if target.starts_with(b"@") {
        r.accounting.set_action(Some("reading response header from upstream"));
        return Flow::Named(target.to_vec());
    }
    match path::unsafe_uri(target) {
        Ok((path, args)) => {
            if r.target.method() != http_types::Method::Head {
                r.target.set_method(http_types::Method::Get);
            }
            Flow::redirect(path, args)
        }
        Err(_) => {
            let shown = String::from_utf8_lossy(target).into_owned();
            say(r, Severity::Error, &format!("unsafe URI \"{shown}\" was detected"));
            r.out.set_content_type(Str::default());
            Flow::Status(404)
        }
    }
}

/// Keeps a response's trailers for `$upstream_trailer_*`; `lines`: as received, with line ends.
pub fn keep_trailers(r: &mut Request, lines: &[u8]) {
    if let Some(state) = UpstreamState::of(r).filter(|_| !lines.is_empty()) {
        state.trailers = lines.to_vec();
    }
}

/// As [`keep_trailers`], and adds them to the response (`proxy_pass_trailers`).
pub fn pass_trailers(plan: &PassPlan, r: &mut Request, lines: &[u8]) {
    keep_trailers(r, lines);
    for line in lines.split(|c| *c == b'\n') {
        let mut sides = line.splitn(2, |c| *c == b':');
        let (Some(name), Some(value)) = (sides.next(), sides.next().map(<[u8]>::trim_ascii)) else { continue };
        let plain =
            !name.is_empty() && name.iter().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c));
        let clean = !value.iter().any(|c| matches!(c, b'\r' | 0));
        if plain && clean && !plan.hidden.has_name(name) {
            let field = http_engine::response::OutField { name: name.to_vec().into(), value: value.to_vec().into() };
            r.out.trailers_mut().push(field);
        }
    }
}
