//! add_header, add_trailer, expires (nginx: `ngx_http_headers_filter_module`).
//! `Cache-Control`, `Expires`, `Last-Modified` and `ETag` are used elsewhere: their lines replace or join existing
//! values. Others are added.

mod expires;
#[cfg(test)]
mod tests;

use conf_schema::{ContextArea, Cx, Directive, FeatureTable, GivenDirective, Problem, ValueKind, directives, words};
use expires::ExpiresRule;
use http_engine::clean;
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, Filter, FilterOrder, HttpTemplate, Piece, Request, ResponseBody, Str,
};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

words! {
    /// Inheritance for a block with its own lines.
    pub enum Inherit {
        /// Inherits nothing, even into blocks without lines.
        Off = "off",
        /// Lines of a block replace those of the outer block.
        On = "on",
        /// The outer lines follow the own ones.
        Merge = "merge",
    }
}

directives! {
    pub struct HeadersConf from HeadersInput {
        /// Adds a field to responses with status 200, 201, 204, 206, 301-304, 307 or 308; with `always`, to all.
        /// Differs: a line break in a variable is not sent: in `Location` and `Refresh` it is percent-encoded, any
        /// other field is dropped, with an error log line. Line breaks in the value itself become spaces.
        add_header: HeaderFields,
        /// Inheritance of `add_header` lines: `on` inherits if the block has none of its own, `off` never, `merge` adds
        /// to them.
        add_header_inherit: Inherit = "on",
        /// Adds a trailer field, under the conditions of `add_header`. The body is then sent in chunks.
        add_trailer: HeaderFields,
        /// Inheritance of `add_trailer` lines, as `add_header_inherit`.
        add_trailer_inherit: Inherit = "on",
        /// Sets `Expires` and `Cache-Control: max-age` (or `no-cache`).
        expires: ExpiresRule = "off",
    }
}

#[derive(Clone)]
pub struct HeaderFields(Vec<Arc<HeaderField>>);

struct HeaderField {
    name: Arc<[u8]>,
    kind: FieldKind,
    value: HttpTemplate,
    always: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    Plain,
    LastModified,
    Etag,
}

impl ValueKind for HeaderFields {
    const SYNTAX: &'static str = "name value [always]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(name), Some(value)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let always = match d.args.get(2).map(|w| w.bytes.as_slice()) {
            None => false,
            Some(b"always") => true,
            Some(other) => {
                let shown = String::from_utf8_lossy(other).into_owned();
                return Err(Problem::says(format!("invalid parameter \"{shown}\"")).at(2).hint("only \"always\""));
            }
        };
        let kind = if name.bytes.eq_ignore_ascii_case(b"last-modified") {
            FieldKind::LastModified
        } else if name.bytes.eq_ignore_ascii_case(b"etag") {
            FieldKind::Etag
        } else {
            FieldKind::Plain
        };
        let value = HttpTemplate::compile(cx, d, &clean::one_line(&value.bytes)).map_err(|p| p.at(1))?;
        Ok(HeaderFields(vec![Arc::new(HeaderField { name: name.bytes.as_slice().into(), kind, value, always })]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

pub struct Headers;

impl Feature for Headers {
    fn table(&self) -> FeatureTable {
        let mut table = HeadersConf::table("headers", ContextArea::Http);
        table.inherit = inherit;
        table
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HeadersConf>() else { return Ok(()) };
        let fields = conf.add_header.clone().map(|f| f.0).unwrap_or_default();
        if !fields.is_empty() || !conf.expires.is_off() {
            let filter = Add { fields, expires: conf.expires.clone() };
            block.location.filters.push((FilterOrder::Headers, Arc::new(filter)));
        }
        if let Some(trailers) = &conf.add_trailer {
            let fields: Arc<[Arc<HeaderField>]> = trailers.0.clone().into();
            block.location.filters.push((FilterOrder::Headers, Arc::new(Announce(fields.clone()))));
            block.location.filters.push((FilterOrder::Trailers, Arc::new(Trail(fields))));
        }
        Ok(())
    }
}

/// Lists follow `add_header_inherit` and `add_trailer_inherit`.
fn inherit(inner: &mut dyn Any, outer: &dyn Any) {
    let (Some(inner), Some(outer)) = (inner.downcast_mut::<HeadersInput>(), outer.downcast_ref::<HeadersInput>())
    else {
        return;
    };
    let (headers, trailers) = (inner.add_header.take(), inner.add_trailer.take());
    inner.inherit(outer);
    inner.add_header = lists(headers, outer.add_header.clone(), &inner.add_header_inherit);
    inner.add_trailer = lists(trailers, outer.add_trailer.clone(), &inner.add_trailer_inherit);
}

fn lists(
    own: Option<Rc<GivenDirective<HeaderFields>>>,
    outer: Option<Rc<GivenDirective<HeaderFields>>>,
    how: &Option<Rc<GivenDirective<Inherit>>>,
) -> Option<Rc<GivenDirective<HeaderFields>>> {
    match (how.as_ref().map_or(Inherit::On, |given| given.value), own, outer) {
        (Inherit::Off, own, _) => own,
        (_, None, outer) => outer,
        (Inherit::Merge, Some(mut own), Some(outer)) => {
            Rc::make_mut(&mut own).value.append(outer.value.clone());
            Some(own)
        }
        (_, own, _) => own,
    }
}

/// Statuses that get lines without `always`.
fn is_safe(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

struct Add {
    fields: Vec<Arc<HeaderField>>,
    expires: ExpiresRule,
}

impl Filter for Add {
    fn name(&self) -> &'static str {
        "headers"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let safe = is_safe(r.out.status());
        if safe && !self.expires.is_off() {
            self.expires.apply(r);
        }
        for field in self.fields.iter().filter(|f| safe || f.always) {
            let value = match field.value.as_literal() {
                Some(text) => Some(text.to_vec()),
                None => {
                    let value = field.value.eval(r);
                    r.field_value("add_header", &field.name, value)
                }
            };
            if let Some(value) = value {
                field.add(r, value);
            }
        }
        Ok(body)
    }
}

impl HeaderField {
    fn add(&self, r: &mut Request, value: Vec<u8>) {
        match self.kind {
            FieldKind::Plain if value.is_empty() => {}
            FieldKind::Plain => {
                if self.name.eq_ignore_ascii_case(b"expires") && r.out.field(b"expires").is_none() {
                    r.out.note_added_expires();
                }
                r.out.add(Str::Shared(self.name.clone()), value);
            }
            FieldKind::Etag => r.out.set_etag(value),
            FieldKind::LastModified => {
                r.out.set_last_modified(observe::clock::parse_http_time(&value));
                r.out.set_last_modified_text(value);
            }
        }
        r.out.settle();
    }
}

/// Decision to send trailers, made before ranges: a resulting 416 is chunked, as in nginx, and has the `always`
/// trailers.
struct Announce(Arc<[Arc<HeaderField>]>);

impl Filter for Announce {
    fn name(&self) -> &'static str {
        "trailers announced"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let safe = is_safe(r.out.status());
        if self.0.iter().any(|f| safe || f.always) {
            r.reply.expect_trailers();
        }
        Ok(body)
    }
}

struct Trail(Arc<[Arc<HeaderField>]>);

impl Filter for Trail {
    fn name(&self) -> &'static str {
        "trailers"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if !r.reply.expects_trailers() {
            return Ok(body);
        }
        Ok(ResponseBody::Source(Box::new(TrailerBody { body, fields: Some(self.0.clone()) })))
    }
}

/// A body whose trailers are computed at its end.
struct TrailerBody {
    body: ResponseBody,
    fields: Option<Arc<[Arc<HeaderField>]>>,
}

impl BodySource for TrailerBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        let piece = ready!(self.body.poll_piece(cx, r));
        if piece.is_none()
            && let Some(fields) = self.fields.take()
        {
            let safe = is_safe(r.out.status());
            for field in fields.iter().filter(|f| safe || f.always) {
                let value = field.value.eval(r);
                if let Some(value) = r.field_value("add_trailer", &field.name, value).filter(|v| !v.is_empty()) {
                    let name = Str::Shared(field.name.clone());
                    r.out.trailers_mut().push(http_engine::response::OutField { name, value: value.into() });
                }
            }
        }
        Poll::Ready(piece)
    }
    fn needs_window(&self) -> bool {
        self.body.needs_window()
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
}
