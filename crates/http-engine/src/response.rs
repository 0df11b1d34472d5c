//! What will be sent: the head as facts, the body as pieces that the connection pulls.

use crate::request::Request;
use bytes::Bytes;
use http_types::Span;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes that are often constant.
#[derive(Clone, Debug)]
pub enum Str {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
    /// A part of what several point into: see [`OutHead::take_text`].
    Part(Rc<Vec<u8>>, Span),
    Owned(Vec<u8>),
}

const _: () = assert!(size_of::<Str>() == size_of::<Vec<u8>>(), "a head has dozens of them");

impl Str {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Str::Static(s) => s,
            Str::Shared(s) => s,
            Str::Part(text, span) => span.of(text),
            Str::Owned(s) => s,
        }
    }
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Str::Static(s) => s.is_empty(),
            Str::Shared(s) => s.is_empty(),
            Str::Part(_, span) => span.is_empty(),
            Str::Owned(s) => s.is_empty(),
        }
    }
    /// See [`crate::clean::ends_line`]. Constants and the fields of a head that has been parsed hold no line end.
    #[inline]
    pub fn ends_line(&self) -> bool {
        match self {
            Str::Static(_) | Str::Part(..) => {
                debug_assert!(!crate::clean::ends_line(self.bytes()));
                false
            }
            Str::Shared(s) => crate::clean::ends_line(s),
            Str::Owned(s) => crate::clean::ends_line(s),
        }
    }
}

impl Default for Str {
    fn default() -> Self {
        Str::Static(b"")
    }
}

impl From<Vec<u8>> for Str {
    fn from(v: Vec<u8>) -> Self {
        // Not shrunk: it lives for one response.
        Str::Owned(v)
    }
}

impl From<&'static str> for Str {
    fn from(v: &'static str) -> Self {
        Str::Static(v.as_bytes())
    }
}

/// One field of a response that has no slot of its own.
#[derive(Clone, Debug)]
pub struct OutField {
    pub name: Str,
    pub value: Str,
}

/// Fields that have a slot of their own in [`OutHead`] and stand among the others all the same, in the order in which they were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Location,
    Server,
    Date,
    LastModified,
    Etag,
    ContentEncoding,
    AcceptRanges,
}

impl Slot {
    /// Where several were set since the last other field, this is their order.
    const ALL: [Slot; 7] = [
        Slot::Location,
        Slot::Server,
        Slot::Date,
        Slot::LastModified,
        Slot::Etag,
        Slot::ContentEncoding,
        Slot::AcceptRanges,
    ];
}

/// The places of slots among the fields: a slot, and before which field it stands.
#[derive(Clone, Copy, Debug)]
struct Places {
    known: [(Slot, usize); Slot::ALL.len()],
    count: usize,
    /// A bit for each slot that has its place.
    settled: u8,
}

impl Default for Places {
    fn default() -> Self {
        Places { known: [(Slot::Location, 0); Slot::ALL.len()], count: 0, settled: 0 }
    }
}

/// The response head before it is written (nginx: `r->headers_out`).
#[derive(Debug, Default)]
pub struct OutHead {
    /// 0 until somebody has decided.
    pub status: u16,
    /// Replaces the standard reason phrase: code and words ("200 Fine"), as an upstream sent them.
    pub status_line: Option<Str>,
    pub content_type: Str,
    /// Appended as `; charset=...`.
    pub charset: Str,
    /// The charset that the client is to get it in, whatever the location says (`X-Accel-Charset`).
    pub wanted_charset: Str,
    pub content_length: Option<u64>,
    /// Unix seconds.
    pub last_modified: Option<i64>,
    /// The same as somebody else wrote it, to be passed on.
    pub last_modified_text: Str,
    /// With its quotes, and `W/` where it is weak.
    pub etag: Str,
    pub location: Str,
    /// Replace the generated fields when they are not empty.
    pub server: Str,
    pub date: Str,
    /// None is to be generated either.
    pub no_server: bool,
    pub no_date: bool,
    /// The body may be answered in ranges.
    pub ranges_allowed: bool,
    /// But not in several at once.
    pub single_range: bool,
    /// `Accept-Ranges` was decided against or for (`None`: derived from `ranges_allowed`).
    pub accept_ranges: Option<bool>,
    pub content_encoding: Str,
    /// `Expires` comes of `add_header` alone: decisions about proxies do not look at it, as in nginx.
    pub expires_added: bool,
    /// `Vary: Accept-Encoding` is due.
    pub vary_encoding: bool,
    /// Lines that another server has written, each with its line end: sent as they stand, before `fields`. Only where
    /// no filter and no variable asks for a field ([`crate::HttpPlan::asks_for_fields`]).
    pub lines: Vec<u8>,
    pub fields: Vec<OutField>,
    pub trailers: Vec<OutField>,
    places: Places,
    /// What [`Str::Part`]s point into; kept for the next response where none does any more.
    text: Rc<Vec<u8>>,
}

/// The text of a longer head is not kept for the next response.
const TEXT_BYTES_KEPT: usize = 16 * 1024;

impl OutHead {
    pub fn clear(&mut self) {
        self.fields.clear();
        self.lines.clear();
        self.trailers.clear();
        (self.places.count, self.places.settled) = (0, 0);
        self.status = 0;
        (self.status_line, self.content_length, self.last_modified, self.accept_ranges) = (None, None, None, None);
        (self.ranges_allowed, self.single_range, self.vary_encoding) = (false, false, false);
        (self.no_server, self.no_date, self.expires_added) = (false, false, false);
        // (Most are empty: to see that costs less than to drop what is there.)
        let empty = |text: &mut Str| {
            if !matches!(text, Str::Static([])) {
                *text = Str::default();
            }
        };
        empty(&mut self.content_type);
        empty(&mut self.charset);
        empty(&mut self.wanted_charset);
        empty(&mut self.etag);
        empty(&mut self.location);
        empty(&mut self.server);
        empty(&mut self.date);
        empty(&mut self.content_encoding);
        empty(&mut self.last_modified_text);
        if self.text.capacity() > TEXT_BYTES_KEPT {
            self.text = Rc::default();
        }
    }
    /// A copy of the text of a head that another server has written, in one piece: its fields become [`Str::Part`]s of it, and cost
    /// no allocation each.
    pub fn take_text(&mut self, text: &[u8]) -> Rc<Vec<u8>> {
        match Rc::get_mut(&mut self.text) {
            Some(own) => {
                own.clear();
                own.extend_from_slice(text);
            }
            // (A response that was replaced: something of it is still there.)
            None => self.text = Rc::new(text.to_vec()),
        }
        self.text.clone()
    }
    pub fn add(&mut self, name: impl Into<Str>, value: impl Into<Str>) {
        self.settle();
        self.fields.push(OutField { name: name.into(), value: value.into() });
    }
    /// As [`OutHead::add`], by a caller who settles each slot that it fills.
    #[inline]
    pub fn add_settled(&mut self, name: Str, value: Str) {
        self.fields.push(OutField { name, value });
    }
    /// Slots that were filled since the last time have their place here, behind the fields so far.
    pub fn settle(&mut self) {
        Slot::ALL.into_iter().for_each(|slot| self.settle_slot(slot));
    }
    /// The same of one that alone may have been filled.
    #[inline]
    pub fn settle_slot(&mut self, slot: Slot) {
        let bit = 1 << slot as u8;
        if self.places.settled & bit != 0 || !self.holds(slot) {
            return;
        }
        self.places.settled |= bit;
        if let Some(place) = self.places.known.get_mut(self.places.count) {
            *place = (slot, self.fields.len());
            self.places.count += 1;
        }
    }
    #[inline]
    fn holds(&self, slot: Slot) -> bool {
        match slot {
            Slot::Location => !self.location.is_empty(),
            Slot::Server => !self.server.is_empty(),
            Slot::Date => !self.date.is_empty(),
            Slot::LastModified => !self.last_modified_text.is_empty(),
            Slot::Etag => !self.etag.is_empty(),
            Slot::ContentEncoding => !self.content_encoding.is_empty(),
            Slot::AcceptRanges => self.accept_ranges == Some(true),
        }
    }
    /// Slots that are filled, each with the index of the field that it stands before. Complete after [`OutHead::settle`].
    pub fn slots(&self) -> impl Iterator<Item = (Slot, usize)> + '_ {
        let known = self.places.known.get(..self.places.count).unwrap_or_default();
        known.iter().copied().filter(|(slot, _)| self.holds(*slot))
    }
    /// The value of a field that is in the list (not of those with a slot of their own).
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields.iter().find(|f| f.name.bytes().eq_ignore_ascii_case(name)).map(|f| f.value.bytes())
    }
    pub fn remove(&mut self, name: &[u8]) {
        self.fields.retain(|f| !f.name.bytes().eq_ignore_ascii_case(name));
    }
    /// Gives a field another value where it stands; further ones of the name go. It is added where there is none.
    pub fn replace(&mut self, name: &'static str, value: impl Into<Str>) {
        let mut value = Some(value.into());
        self.fields.retain_mut(|field| {
            if !field.name.bytes().eq_ignore_ascii_case(name.as_bytes()) {
                return true;
            }
            let Some(value) = value.take() else { return false };
            field.value = value;
            true
        });
        if let Some(value) = value {
            self.add(name, value);
        }
    }
    /// What no longer holds once a filter changes the body's bytes: length, ranges, and the strong ETag becomes weak.
    pub fn body_changes(&mut self) {
        self.content_length = None;
        self.accept_ranges = None;
        self.ranges_allowed = false;
        self.remove(b"Accept-Ranges");
        self.weaken_etag();
    }
    /// A strong ETag becomes a weak one; what is none (`add_header ETag own`) does not stay.
    pub fn weaken_etag(&mut self) {
        let tag = self.etag.bytes();
        match tag {
            [b'"', ..] => self.etag = [b"W/", tag].concat().into(),
            [b'W', b'/', _, ..] => {}
            _ => self.etag = Str::default(),
        }
    }
}

/// An open file that several responses may share.
#[derive(Debug)]
pub struct OpenFile {
    /// Caches share it among threads.
    pub file: Arc<File>,
    pub size: u64,
    /// Unix seconds.
    pub modified: i64,
    pub inode: u64,
    pub device: u64,
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    pub file: Rc<OpenFile>,
    pub start: u64,
    pub length: u64,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Bytes),
    File(FilePart),
    /// Send what has been given so far; nothing more will come for a while.
    Flush,
}

impl Piece {
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(b) => b.len() as u64,
            Piece::File(f) => f.length,
            Piece::Flush => 0,
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is read of a file at one go.
const READ_BYTES: u64 = 32 * 1024;

impl FilePart {
    /// Reads the next bytes of the part; empty at its end.
    ///
    /// # Errors
    /// As the file system gives them; a file that has become shorter is one.
    pub fn read(&mut self) -> std::io::Result<Bytes> {
        use std::os::unix::fs::FileExt;
        let mut buf = vec![0; self.length.min(READ_BYTES) as usize];
        self.file.file.read_exact_at(&mut buf, self.start)?;
        self.start += buf.len() as u64;
        self.length -= buf.len() as u64;
        Ok(buf.into())
    }
}

impl Piece {
    /// The whole piece in memory; for those that are known to be small.
    ///
    /// # Errors
    /// As [`FilePart::read`].
    pub fn into_bytes(self) -> std::io::Result<Bytes> {
        match self {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::Flush => Ok(Bytes::new()),
            Piece::File(mut part) => {
                let mut all = Vec::with_capacity(part.length as usize);
                while part.length > 0 {
                    all.extend_from_slice(&part.read()?);
                }
                Ok(all.into())
            }
        }
    }
}

/// Why a body ended early: the connection is closed, the client sees a truncated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError;

/// A body that comes piece by piece; pulled by the connection, so that a slow client slows the source.
pub trait BodySource {
    /// The next piece, or `None` at the end. The request is there for variables and trailers.
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>>;
    /// Only these bytes are wanted. `true`: the source gives only them from now on; `false`: it gives all, as before. Asked
    /// before the first piece.
    fn window(&mut self, span: &std::ops::Range<u64>) -> bool {
        let _ = span;
        false
    }
    /// Called while the client takes nothing: a source that reads ahead does so here, within its bounds.
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        let _ = (cx, r);
    }
}

/// A response body.
#[derive(Default)]
pub enum Body {
    #[default]
    Empty,
    Bytes(Bytes),
    File(FilePart),
    /// Several pieces whose lengths are known (multipart ranges, additions).
    Pieces(std::collections::VecDeque<Piece>),
    Source(Box<dyn BodySource>),
}

impl Body {
    /// Its length, when it is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(b) => Some(b.len() as u64),
            Body::File(f) => Some(f.length),
            Body::Pieces(p) => Some(p.iter().map(Piece::len).sum()),
            Body::Source(_) => None,
        }
    }
    /// See [`BodySource::poll_ahead`].
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        if let Body::Source(source) = self {
            source.poll_ahead(cx, r);
        }
    }
    /// The next piece of any kind of body.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        match self {
            Body::Source(source) => source.poll_piece(cx, r),
            Body::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(Ok)),
            _ => Poll::Ready(match std::mem::take(self) {
                Body::Bytes(b) if !b.is_empty() => Some(Ok(Piece::Bytes(b))),
                Body::File(f) if f.length > 0 => Some(Ok(Piece::File(f))),
                _ => None,
            }),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({:?})", self.length())
    }
}
