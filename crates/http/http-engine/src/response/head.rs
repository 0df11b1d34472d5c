//! The head of a response, which handlers and filters fill and the connection writes.

use super::Str;
use std::rc::Rc;

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
    pub(crate) status: u16,
    /// Replaces the standard reason phrase: code and phrase ("200 Fine") of an upstream response.
    pub(crate) status_line: Option<Str>,
    /// `Content-Type` without the charset; empty: not sent.
    pub(crate) content_type: Str,
    /// Appended as `; charset=...`.
    pub(crate) charset: Str,
    /// Charset to convert to, regardless of the location (`X-Accel-Charset`).
    pub(crate) wanted_charset: Str,
    /// Length of the body in bytes, sent as `Content-Length`; `None`: unknown.
    pub(crate) content_length: Option<u64>,
    /// An upstream server did not declare the body's length, so that the client is not told either, even if the body is
    /// in memory.
    pub(crate) undeclared_length: bool,
    /// `Last-Modified` in seconds since 1970.
    pub(crate) last_modified: Option<i64>,
    /// `Last-Modified` in an upstream server's words, passed unchanged.
    pub(crate) last_modified_text: Str,
    /// With quotes, and with `W/` if weak.
    pub(crate) etag: Str,
    /// `Location`; a path becomes an absolute URL when the head is written (`absolute_redirect`).
    pub(crate) location: Str,
    /// Replace the generated fields unless empty.
    pub(crate) server: Str,
    /// `Date` in place of the generated one, unless empty.
    pub(crate) date: Str,
    /// Suppress the generated fields.
    pub(crate) no_server: bool,
    /// Suppresses the generated `Date`.
    pub(crate) no_date: bool,
    /// Byte ranges may be applied to the body, by the range filter.
    pub(crate) ranges_allowed: bool,
    /// Only a single range per response.
    pub(crate) single_range: bool,
    /// Explicit decision about `Accept-Ranges` (`None`: derived from `ranges_allowed`).
    pub(crate) accept_ranges: Option<bool>,
    /// `Content-Encoding` of the body; empty: none.
    pub(crate) content_encoding: Str,
    /// `Expires` comes from `add_header` only: `gzip_proxied` ignores it, as in nginx.
    pub(crate) expires_added: bool,
    /// Adds `Vary: Accept-Encoding`.
    pub(crate) vary_encoding: bool,
    /// Upstream field lines sent unchanged before `fields`, if no filter or variable reads fields
    /// ([`crate::HttpPlan::asks_for_fields`]).
    pub(crate) lines: Vec<u8>,
    /// All fields without a member of their own, in the order in which they are sent.
    pub(crate) fields: Vec<OutField>,
    /// Trailers: fields behind the body.
    pub(crate) trailers: Vec<OutField>,
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
        // Most heads have few slots: a step of the loop is a comparison.
        for slot in &HeadSlot::ALL {
            self.settle_slot(*slot);
        }
    }
    /// [`OutHead::settle`] for a single slot.
    #[inline(always)]
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
    /// Returns whether a slot has a value.
    #[inline(always)]
    pub fn holds(&self, slot: HeadSlot) -> bool {
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
    /// Slots with the index of the field that each precedes, in this order. Complete after [`OutHead::settle`]; a slot that was
    /// emptied since is still among them.
    #[inline]
    pub fn slots(&self) -> &[(HeadSlot, usize)] {
        self.places.known.get(..self.places.count).unwrap_or_default()
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
