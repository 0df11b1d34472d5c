//! The response: its head as fields and facts, and the pieces of its body, which the connection pulls.

use bytes::Bytes;
use http_types::Span;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a field's name or value, with cheap copies where possible.
#[derive(Clone, Debug)]
pub enum Str {
    /// A constant.
    Static(&'static [u8]),
    /// A text that is shared by requests, such as one of the plan.
    Shared(Arc<[u8]>),
    /// A range of a shared text: see [`OutHead::take_text`].
    Part(Rc<Vec<u8>>, Span),
    /// A text of its own.
    Owned(Vec<u8>),
}

const _: () = assert!(size_of::<Str>() == size_of::<Vec<u8>>(), "a head has dozens of them");

impl Str {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Str::Static(s) => s,
            Str::Shared(s) => s,
            Str::Part(text, span) => span.of(text),
            Str::Owned(s) => s,
        }
    }
    /// Tells whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Str::Static(s) => s.is_empty(),
            Str::Shared(s) => s.is_empty(),
            Str::Part(_, span) => span.is_empty(),
            Str::Owned(s) => s.is_empty(),
        }
    }
    /// See [`crate::line_ends::ends_line`]. Constants and fields of a parsed head contain no line end.
    #[inline]
    pub fn ends_line(&self) -> bool {
        match self {
            Str::Static(_) | Str::Part(..) => {
                debug_assert!(!crate::line_ends::ends_line(self.bytes()));
                false
            }
            Str::Shared(s) => crate::line_ends::ends_line(s),
            Str::Owned(s) => crate::line_ends::ends_line(s),
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
        // Not shrunk: short-lived, for one response.
        Str::Owned(v)
    }
}

impl From<&'static str> for Str {
    fn from(v: &'static str) -> Self {
        Str::Static(v.as_bytes())
    }
}

/// A field of the response.
#[derive(Clone, Debug)]
pub struct OutField {
    /// Name in the case in which it is sent.
    pub name: Str,
    /// Value without line ends.
    pub value: Str,
}

/// Slots of [`OutHead`] that are written among other fields, in the order of being set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSlot {
    /// [`OutHead::location`].
    Location,
    /// [`OutHead::server`].
    Server,
    /// [`OutHead::date`].
    Date,
    /// [`OutHead::last_modified`], or its text.
    LastModified,
    /// [`OutHead::etag`].
    Etag,
    /// [`OutHead::content_encoding`].
    ContentEncoding,
    /// `Accept-Ranges`, generated.
    AcceptRanges,
}

impl HeadSlot {
    /// Order of slots that were set between the same two fields.
    const ALL: [HeadSlot; 7] = [
        HeadSlot::Location,
        HeadSlot::Server,
        HeadSlot::Date,
        HeadSlot::LastModified,
        HeadSlot::Etag,
        HeadSlot::ContentEncoding,
        HeadSlot::AcceptRanges,
    ];

    /// Tells whether a field's name is spelled as usual. Comparisons of constant length take a few instructions.
    #[inline]
    fn is_usual(self, name: &[u8]) -> bool {
        match self {
            HeadSlot::Location => name == b"Location",
            HeadSlot::Server => name == b"Server",
            HeadSlot::Date => name == b"Date",
            HeadSlot::LastModified => name == b"Last-Modified",
            HeadSlot::Etag => name == b"ETag",
            HeadSlot::ContentEncoding => name == b"Content-Encoding",
            HeadSlot::AcceptRanges => name == b"Accept-Ranges",
        }
    }
}

/// Positions of slots: each slot with the index of the field that it precedes.
#[derive(Clone, Copy, Debug)]
struct Places {
    known: [(HeadSlot, usize); HeadSlot::ALL.len()],
    count: usize,
    /// Bit mask of slots with a position.
    settled: u8,
}

impl Default for Places {
    fn default() -> Self {
        Places { known: [(HeadSlot::Location, 0); HeadSlot::ALL.len()], count: 0, settled: 0 }
    }
}

/// Value of the parameter `charset` of a `Content-Type`, without quotes.
pub fn charset_of(content_type: &[u8]) -> Option<&[u8]> {
    content_type.split(|c| *c == b';').skip(1).find_map(|part| {
        let (name, value) = part.trim_ascii().split_at_checked(b"charset=".len())?;
        let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        name.eq_ignore_ascii_case(b"charset=").then_some(value)
    })
}

/// nginx: `r->headers_out`.
#[derive(Debug, Default)]
pub struct OutHead {
    /// Status code.
    pub status: u16,
    /// Replaces the standard reason phrase: code and phrase ("200 Fine") of an upstream response.
    pub status_line: Option<Str>,
    /// `Content-Type` without the charset; empty: not sent.
    pub content_type: Str,
    /// Appended as `; charset=...`.
    pub charset: Str,
    /// Charset to convert to, regardless of the location (`X-Accel-Charset`).
    pub wanted_charset: Str,
    /// Length of the body in bytes, sent as `Content-Length`; `None`: unknown.
    pub content_length: Option<u64>,
    /// An upstream server did not declare the body's length, so that the client is not told either, even if the body is
    /// in memory.
    pub undeclared_length: bool,
    /// `Last-Modified` in seconds since 1970.
    pub last_modified: Option<i64>,
    /// `Last-Modified` in an upstream server's words, passed unchanged.
    pub last_modified_text: Str,
    /// With quotes, and with `W/` if weak.
    pub etag: Str,
    /// `Location`; a path becomes an absolute URL when the head is written (`absolute_redirect`).
    pub location: Str,
    /// Replace the generated fields unless empty.
    pub server: Str,
    /// `Date` in place of the generated one, unless empty.
    pub date: Str,
    /// Suppress the generated fields.
    pub no_server: bool,
    /// Suppresses the generated `Date`.
    pub no_date: bool,
    /// Byte ranges may be applied to the body, by the range filter.
    pub ranges_allowed: bool,
    /// Only a single range per response.
    pub single_range: bool,
    /// Explicit decision about `Accept-Ranges` (`None`: derived from `ranges_allowed`).
    pub accept_ranges: Option<bool>,
    /// `Content-Encoding` of the body; empty: none.
    pub content_encoding: Str,
    /// `Expires` comes from `add_header` only: `gzip_proxied` ignores it, as in nginx.
    pub expires_added: bool,
    /// Adds `Vary: Accept-Encoding`.
    pub vary_encoding: bool,
    /// Upstream field lines sent unchanged before `fields`, if no filter or variable reads fields
    /// ([`crate::HttpPlan::asks_for_fields`]).
    pub lines: Vec<u8>,
    /// All fields without a member of their own, in the order in which they are sent.
    pub fields: Vec<OutField>,
    /// Trailers: fields behind the body.
    pub trailers: Vec<OutField>,
    places: Places,
    /// Names of slots that an upstream server spells in another case: Go, for example, writes `Etag`.
    spelled: Vec<(HeadSlot, Str)>,
    /// Text of the [`Str::Part`]s; reused for the next response if no longer referenced.
    text: Rc<Vec<u8>>,
}

/// Maximum size in bytes of a text that is kept for the next response.
const TEXT_BYTES_KEPT: usize = 16 * 1024;

impl OutHead {
    /// Resets the head and keeps its buffers.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.lines.clear();
        self.trailers.clear();
        self.spelled.clear();
        (self.places.count, self.places.settled) = (0, 0);
        self.status = 0;
        (self.status_line, self.content_length, self.last_modified, self.accept_ranges) = (None, None, None, None);
        (self.ranges_allowed, self.single_range, self.vary_encoding) = (false, false, false);
        (self.no_server, self.no_date, self.expires_added) = (false, false, false);
        self.undeclared_length = false;
        // Most are empty: cheaper than a drop.
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
    /// Copies the text of an upstream head in one piece. Its fields become [`Str::Part`]s without an allocation each.
    pub fn take_text(&mut self, text: &[u8]) -> Rc<Vec<u8>> {
        match Rc::get_mut(&mut self.text) {
            Some(own) => {
                own.clear();
                own.extend_from_slice(text);
            }
            None => self.text = Rc::new(text.to_vec()),
        }
        self.text.clone()
    }
    /// Appends a field, even if there are others of its name.
    pub fn add(&mut self, name: impl Into<Str>, value: impl Into<Str>) {
        self.settle();
        self.fields.push(OutField { name: name.into(), value: value.into() });
    }
    /// [`OutHead::add`] for callers that settle each slot they fill.
    #[inline]
    pub fn add_settled(&mut self, name: Str, value: Str) {
        self.fields.push(OutField { name, value });
    }
    /// Positions newly filled slots after the fields so far.
    pub fn settle(&mut self) {
        HeadSlot::ALL.into_iter().for_each(|slot| self.settle_slot(slot));
    }
    /// [`OutHead::settle`] for a single slot.
    #[inline]
    pub fn settle_slot(&mut self, slot: HeadSlot) {
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
    /// Keeps the name of a slot as an upstream server spells it.
    #[inline]
    pub fn spell(&mut self, slot: HeadSlot, name: Str) {
        if !slot.is_usual(name.bytes()) {
            self.spelled.push((slot, name));
        }
    }
    /// Returns the name of a slot as an upstream server spells it; `None`: as usual.
    #[inline]
    pub fn spelling(&self, slot: HeadSlot) -> Option<&[u8]> {
        self.spelled.iter().find(|(one, _)| *one == slot).map(|(_, name)| name.bytes())
    }
    /// Charset of the text: set by the location, or named by `Content-Type`; empty if neither.
    pub fn charset_name(&self) -> &[u8] {
        match self.charset.bytes() {
            [] => charset_of(self.content_type.bytes()).unwrap_or_default(),
            name => name,
        }
    }
    #[inline]
    fn holds(&self, slot: HeadSlot) -> bool {
        match slot {
            HeadSlot::Location => !self.location.is_empty(),
            HeadSlot::Server => !self.server.is_empty(),
            HeadSlot::Date => !self.date.is_empty(),
            HeadSlot::LastModified => !self.last_modified_text.is_empty(),
            HeadSlot::Etag => !self.etag.is_empty(),
            HeadSlot::ContentEncoding => !self.content_encoding.is_empty(),
            HeadSlot::AcceptRanges => self.accept_ranges == Some(true),
        }
    }
    /// Complete after [`OutHead::settle`].
    pub fn slots(&self) -> impl Iterator<Item = (HeadSlot, usize)> + '_ {
        let known = self.places.known.get(..self.places.count).unwrap_or_default();
        known.iter().copied().filter(|(slot, _)| self.holds(*slot))
    }
    /// Returns the value of a field in the list (not of those with a slot).
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields.iter().find(|f| f.name.bytes().eq_ignore_ascii_case(name)).map(|f| f.value.bytes())
    }
    /// Removes all fields of a name from the list, in any case of letters.
    pub fn remove(&mut self, name: &[u8]) {
        self.fields.retain(|f| !f.name.bytes().eq_ignore_ascii_case(name));
    }
    /// Sets a field: replaces the first one of its name, removes the others, or appends one.
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
    /// Adjusts the head to a filter that changes the body: no length, no ranges, a weak ETag.
    pub fn body_changes(&mut self) {
        self.content_length = None;
        self.accept_ranges = None;
        self.ranges_allowed = false;
        self.remove(b"Accept-Ranges");
        self.weaken_etag();
    }
    /// Weakens a strong ETag; removes a malformed one (`add_header ETag own`).
    pub fn weaken_etag(&mut self) {
        let tag = self.etag.bytes();
        match tag {
            [b'"', ..] => self.etag = [b"W/", tag].concat().into(),
            [b'W', b'/', _, ..] => {}
            _ => self.etag = Str::default(),
        }
    }
}

/// An open file with its facts at the time of its lookup.
#[derive(Debug)]
pub struct OpenFile {
    /// Caches share the file among threads.
    pub file: Arc<File>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
    /// Number of the file in its file system.
    pub inode: u64,
    /// Number of the file system.
    pub device: u64,
    /// The whole file, if this thread's cache holds it. Readers use it; the kernel sends long parts from its own cache.
    pub content: Option<Bytes>,
}

/// A range of a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub file: Rc<OpenFile>,
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file.
    File(FilePart),
    /// Flushes the pieces so far; more will come only after a while.
    Flush,
}

impl Piece {
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(b) => b.len() as u64,
            Piece::File(f) => f.length,
            Piece::Flush => 0,
        }
    }
    /// Tells whether the piece has no bytes ([`Piece::Flush`] has none).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const READ_BYTES: u64 = 32 * 1024;

impl FilePart {
    /// Returns the part's bytes if the thread's cache holds the file; `None` also for a part beyond its end.
    pub fn cached(&self) -> Option<Bytes> {
        let (start, length) = (usize::try_from(self.start).ok()?, usize::try_from(self.length).ok()?);
        let content = self.file.content.as_ref()?;
        (start.checked_add(length)? <= content.len()).then(|| content.slice(start..start + length))
    }
    /// Next bytes of the part; empty at the end. Fails with `UnexpectedEof` on a truncated file.
    pub fn read(&mut self) -> std::io::Result<Bytes> {
        use std::os::unix::fs::FileExt;
        let next = FilePart { length: self.length.min(READ_BYTES), ..self.clone() };
        let bytes = match next.cached() {
            Some(bytes) => bytes,
            None => {
                let mut buf = vec![0; next.length as usize];
                self.file.file.read_exact_at(&mut buf, self.start)?;
                buf.into()
            }
        };
        self.start += bytes.len() as u64;
        self.length -= bytes.len() as u64;
        Ok(bytes)
    }
}

impl Piece {
    /// Returns the bytes; reads a file's part from the disk. Fails with `UnexpectedEof` on a truncated file.
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

/// A body ended early: the connection is closed, and the client sees a truncated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError;
