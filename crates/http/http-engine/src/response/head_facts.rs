//! Facts of a response's head, as handlers and filters read and set them. A text is empty where there is no such fact.

use super::{OutField, OutHead, Str};

/// Status, length and type.
impl OutHead {
    /// Returns the status code; 0: none yet.
    #[inline]
    pub fn status(&self) -> u16 {
        self.status
    }
    /// Sets the status code. [`OutHead::set_status_line`] may still name another reason.
    #[inline]
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
    }
    /// Replaces code and phrase of the status line ("200 Fine"); `None`: the standard phrase.
    #[inline]
    pub fn set_status_line(&mut self, line: Option<Str>) {
        self.status_line = line;
    }
    /// Returns `Content-Type` without the charset.
    #[inline]
    pub fn content_type(&self) -> &[u8] {
        self.content_type.bytes()
    }
    /// Sets `Content-Type` without the charset; empty: not sent.
    #[inline]
    pub fn set_content_type(&mut self, media: impl Into<Str>) {
        self.content_type = media.into();
    }
    /// Returns the charset that is appended to `Content-Type`.
    #[inline]
    pub fn charset(&self) -> &[u8] {
        self.charset.bytes()
    }
    /// Sets the charset that is appended to `Content-Type`; empty: none.
    #[inline]
    pub fn set_charset(&mut self, charset: impl Into<Str>) {
        self.charset = charset.into();
    }
    /// Returns the charset to convert to, regardless of the location (`X-Accel-Charset`).
    #[inline]
    pub fn wanted_charset(&self) -> &[u8] {
        self.wanted_charset.bytes()
    }
    /// Sets the charset to convert to, regardless of the location.
    #[inline]
    pub fn set_wanted_charset(&mut self, charset: impl Into<Str>) {
        self.wanted_charset = charset.into();
    }
    /// Returns the body's length in bytes; `None`: unknown.
    #[inline]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }
    /// Sets the body's length in bytes, which the client is told; `None`: unknown.
    #[inline]
    pub fn set_content_length(&mut self, length: Option<u64>) {
        self.content_length = length;
    }
    /// Tells whether an upstream server did not declare the body's length, so that the client is not told either.
    #[inline]
    pub fn is_length_undeclared(&self) -> bool {
        self.undeclared_length
    }
    /// Has the client not told the body's length, even if the body is in memory.
    #[inline]
    pub fn set_length_undeclared(&mut self, is_undeclared: bool) {
        self.undeclared_length = is_undeclared;
    }
    /// Returns `Content-Encoding` of the body.
    #[inline]
    pub fn content_encoding(&self) -> &[u8] {
        self.content_encoding.bytes()
    }
    /// Sets `Content-Encoding` of the body; empty: none.
    #[inline]
    pub fn set_content_encoding(&mut self, coding: impl Into<Str>) {
        self.content_encoding = coding.into();
    }
}

/// Validators and ranges.
impl OutHead {
    /// Returns the time of the last change, in seconds since 1970.
    #[inline]
    pub fn last_modified(&self) -> Option<i64> {
        self.last_modified
    }
    /// Sets the time of the last change, in seconds since 1970.
    #[inline]
    pub fn set_last_modified(&mut self, seconds: Option<i64>) {
        self.last_modified = seconds;
    }
    /// Returns `Last-Modified` in an upstream server's words.
    #[inline]
    pub fn last_modified_text(&self) -> &[u8] {
        self.last_modified_text.bytes()
    }
    /// Sets `Last-Modified` in an upstream server's words, which are passed unchanged.
    #[inline]
    pub fn set_last_modified_text(&mut self, text: impl Into<Str>) {
        self.last_modified_text = text.into();
    }
    /// Returns the entity tag with its quotes, and with `W/` if weak.
    #[inline]
    pub fn etag(&self) -> &[u8] {
        self.etag.bytes()
    }
    /// Sets the entity tag with its quotes; empty: none.
    #[inline]
    pub fn set_etag(&mut self, tag: impl Into<Str>) {
        self.etag = tag.into();
    }
    /// Removes `ETag` and `Last-Modified`: the body no longer is the one that they describe.
    pub fn drop_validators(&mut self) {
        self.etag = Str::default();
        self.drop_last_modified();
    }
    /// Removes `Last-Modified`.
    pub fn drop_last_modified(&mut self) {
        self.last_modified = None;
        self.last_modified_text = Str::default();
    }
    /// Tells whether the range filter may apply ranges to the body.
    #[inline]
    pub fn allows_ranges(&self) -> bool {
        self.ranges_allowed
    }
    /// Has the range filter apply ranges to the body, or not.
    #[inline]
    pub fn allow_ranges(&mut self, is_allowed: bool) {
        self.ranges_allowed = is_allowed;
    }
    /// Tells whether the body can only be sent as a single range.
    #[inline]
    pub fn is_single_range(&self) -> bool {
        self.single_range
    }
    /// Limits responses to a single range, or not.
    #[inline]
    pub fn set_single_range(&mut self, is_single: bool) {
        self.single_range = is_single;
    }
    /// Returns the explicit decision about `Accept-Ranges`; `None`: follows [`OutHead::allows_ranges`].
    #[inline]
    pub fn accept_ranges(&self) -> Option<bool> {
        self.accept_ranges
    }
    /// Decides about `Accept-Ranges`; `None`: follows [`OutHead::allows_ranges`].
    #[inline]
    pub fn set_accept_ranges(&mut self, decision: Option<bool>) {
        self.accept_ranges = decision;
    }
    /// Has `Accept-Ranges` sent unless there is a decision about it.
    #[inline]
    pub fn offer_ranges(&mut self) {
        self.accept_ranges.get_or_insert(true);
    }
}

/// Fields with a place of their own.
impl OutHead {
    /// Returns `Location`.
    #[inline]
    pub fn location(&self) -> &[u8] {
        self.location.bytes()
    }
    /// Sets `Location`; a path becomes an absolute URL when the head is written (`absolute_redirect`).
    #[inline]
    pub fn set_location(&mut self, url: impl Into<Str>) {
        self.location = url.into();
    }
    /// Returns the `Server` that replaces the generated one.
    #[inline]
    pub fn server(&self) -> &[u8] {
        self.server.bytes()
    }
    /// Replaces the generated `Server`; empty: not replaced.
    #[inline]
    pub fn set_server(&mut self, server: impl Into<Str>) {
        self.server = server.into();
    }
    /// Has no `Server` generated, or one as usual.
    #[inline]
    pub fn omit_server(&mut self, is_omitted: bool) {
        self.no_server = is_omitted;
    }
    /// Returns the `Date` that replaces the generated one.
    #[inline]
    pub fn date(&self) -> &[u8] {
        self.date.bytes()
    }
    /// Replaces the generated `Date`; empty: not replaced.
    #[inline]
    pub fn set_date(&mut self, date: impl Into<Str>) {
        self.date = date.into();
    }
    /// Has no `Date` generated, or one as usual.
    #[inline]
    pub fn omit_date(&mut self, is_omitted: bool) {
        self.no_date = is_omitted;
    }
    /// Tells whether `Expires` comes from `add_header` only: `gzip_proxied` ignores it, as in nginx.
    #[inline]
    pub fn has_added_expires(&self) -> bool {
        self.expires_added
    }
    /// Notes that `Expires` comes from `add_header` only.
    #[inline]
    pub fn note_added_expires(&mut self) {
        self.expires_added = true;
    }
    /// Has `Vary: Accept-Encoding` sent, or not.
    #[inline]
    pub fn vary_by_encoding(&mut self, varies: bool) {
        self.vary_encoding = varies;
    }
}

/// Lists of fields.
impl OutHead {
    /// Returns an upstream server's field lines, which are sent unchanged before the other fields. For responses whose
    /// fields no filter or variable reads ([`crate::HttpPlan::asks_for_fields`]).
    #[inline]
    pub fn lines_mut(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }
    /// Returns all fields without a place of their own, in the order in which they are sent.
    #[inline]
    pub fn fields(&self) -> &[OutField] {
        &self.fields
    }
    /// Returns the fields without a place of their own, to be changed. [`OutHead::add`] appends one in its order.
    #[inline]
    pub fn fields_mut(&mut self) -> &mut Vec<OutField> {
        &mut self.fields
    }
    /// Returns the fields behind the body.
    #[inline]
    pub fn trailers(&self) -> &[OutField] {
        &self.trailers
    }
    /// Returns the fields behind the body, to be changed.
    #[inline]
    pub fn trailers_mut(&mut self) -> &mut Vec<OutField> {
        &mut self.trailers
    }
}
