//! The request's body, and the client that sends it.

use super::RequestBody;
use crate::connection::{BodyOctets, BodyReader, Watch};
use bytes::Bytes;
use http_types::BodyLength;
use std::rc::Rc;

/// The request's body, its client, and facts about its arrival.
#[derive(Default)]
pub struct IncomingHead {
    /// The body that is still to be read.
    pub(crate) body: RequestBody,
    /// Notifies a waiting handler that the client disconnected.
    pub(crate) watch: Option<Rc<dyn Watch>>,
    /// The part of the body that came with the head is malformed: 400 replaces a handler's response, but not an error.
    pub(crate) broken_body: bool,
    /// The part of the body that came with the head is malformed.
    pub(crate) malformed: bool,
    /// Length of the body as the head declares it; `None`: the head declares no body.
    pub(crate) body_length: Option<BodyLength>,
    /// The body, if a handler has read all of it into memory (`$request_body`).
    pub(crate) body_bytes: Option<Bytes>,
    /// Bytes read so far of a body without `Content-Length` (`$content_length`).
    pub(crate) body_received: Option<u64>,
    /// Bytes of the head, and in the end of the body, read from the client.
    pub(crate) length: u64,
    /// Counts the body's bytes that `length` does not have yet.
    pub(crate) octets: Option<Rc<dyn BodyOctets>>,
    /// Responded before `Expect: 100-continue` was satisfied; 100 must not be sent.
    pub(crate) expect_tested: bool,
    /// 100 (Continue) is due even before a built-in page: a `return` with a redirect discards the body first (nginx:
    /// `ngx_http_send_response`).
    pub(crate) continue_due: bool,
    /// `$connection_requests`: the number of the request on its connection; 0: its connection counts none.
    pub(crate) ordinal: u32,
    /// The head was read together with an earlier request (`$pipe`).
    pub(crate) pipelined: bool,
    /// Holds a shared resource (`limit_conn`): the connection's next request starts after this one.
    pub(crate) alone: bool,
    /// The arguments hold a secret, such as an authorization code: lines of the error log leave them out.
    pub(crate) has_secret: bool,
    /// Lines of the configuration that have changed the head's fields and apply once (`request_header_add`).
    pub(crate) changed_by: Option<Rc<Vec<usize>>>,
}

impl IncomingHead {
    /// Takes note of a malformed body that no handler has read: the response is 400 (nginx: `ngx_http_discard_request_body`).
    pub fn take_broken_body(&mut self) -> bool {
        self.broken_body && matches!(self.body, RequestBody::Unread(_)) && std::mem::take(&mut self.broken_body)
    }
    /// Bytes of head and body read so far (`$request_length`).
    pub fn length_so_far(&self) -> u64 {
        self.length + self.octets.as_ref().map_or(0, |body| body.octets())
    }
    /// Adds the bytes of the body, which is not read any further.
    pub fn add_body(&mut self, octets: u64) {
        self.octets = None;
        self.length += octets;
    }
    /// Tells whether the request has a body that was not discarded.
    #[inline]
    pub fn has_body(&self) -> bool {
        !matches!(self.body, RequestBody::None)
    }
    /// Tells whether the request has a body whose reader no handler has taken.
    #[inline]
    pub fn is_body_unread(&self) -> bool {
        matches!(self.body, RequestBody::Unread(_))
    }
    /// Gives the reader of the body, from the connection or wrapped by a feature.
    #[inline]
    pub fn set_body(&mut self, reader: Box<dyn BodyReader>) {
        self.body = RequestBody::Unread(reader);
    }
    /// Takes the reader of the body; `None`: there is no body, or a handler has it.
    #[inline]
    pub fn take_body(&mut self) -> Option<Box<dyn BodyReader>> {
        if !self.is_body_unread() {
            return None;
        }
        match std::mem::replace(&mut self.body, RequestBody::Taken) {
            RequestBody::Unread(reader) => Some(reader),
            RequestBody::None | RequestBody::Taken => None,
        }
    }
    /// Notes that the request has no body.
    #[inline]
    pub fn set_bodiless(&mut self) {
        self.body = RequestBody::None;
    }
    /// Returns the body's length as the head declares it; `None`: the head declares no body.
    #[inline]
    pub fn body_length(&self) -> Option<BodyLength> {
        self.body_length
    }
    /// Sets the body's length that the head declares.
    #[inline]
    pub fn set_body_length(&mut self, length: Option<BodyLength>) {
        self.body_length = length;
    }
    /// Returns the whole body, if a handler has read it into memory (`$request_body`).
    #[inline]
    pub fn body_bytes(&self) -> Option<&Bytes> {
        self.body_bytes.as_ref()
    }
    /// Gives the whole body for `$request_body`; `None`: it is not in memory.
    #[inline]
    pub fn set_body_bytes(&mut self, bytes: Option<Bytes>) {
        self.body_bytes = bytes;
    }
    /// Notes the number of bytes read of a body without `Content-Length` (`$content_length`).
    #[inline]
    pub fn note_body_received(&mut self, octets: u64) {
        self.body_received = Some(octets);
    }
    /// Notes that the part of the body that came with the head is malformed.
    #[inline]
    pub fn note_malformed_body(&mut self) {
        (self.broken_body, self.malformed) = (true, true);
    }
    /// Returns the watch that notifies a waiting handler of the client's disconnection.
    #[inline]
    pub fn watch(&self) -> Option<&Rc<dyn Watch>> {
        self.watch.as_ref()
    }
    /// Sets the watch; `None`: a client that disconnects is not noticed.
    #[inline]
    pub fn set_watch(&mut self, watch: Option<Rc<dyn Watch>>) {
        self.watch = watch;
    }
    /// Returns the bytes of the head, and of the body once it is read.
    #[inline]
    pub fn length(&self) -> u64 {
        self.length
    }
    /// Sets the bytes of the head.
    #[inline]
    pub fn set_length(&mut self, octets: u64) {
        self.length = octets;
    }
    /// Gives the counter of the body's bytes, which [`IncomingHead::length_so_far`] adds until
    /// [`IncomingHead::add_body`].
    #[inline]
    pub fn count_body_by(&mut self, octets: Rc<dyn BodyOctets>) {
        self.octets = Some(octets);
    }
    /// Tells whether the client still has to be sent 100 (Continue) before it sends the body that is to be read.
    #[inline]
    pub fn wants_continue(&self) -> bool {
        !self.expect_tested || self.continue_due
    }
    /// Has 100 (Continue) sent even before a built-in page, as a `return` with a redirect discards the body first.
    #[inline]
    pub fn require_continue(&mut self) {
        self.continue_due = true;
    }
    /// Sets the number of the request on its connection, and whether its head was read together with an earlier one.
    #[inline]
    pub fn set_order(&mut self, ordinal: u32, is_pipelined: bool) {
        (self.ordinal, self.pipelined) = (ordinal, is_pipelined);
    }
    /// Tells whether the head was read together with an earlier request (`$pipe`).
    #[inline]
    pub fn is_pipelined(&self) -> bool {
        self.pipelined
    }
    /// Tells whether the connection's next request starts only after this one.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.alone
    }
    /// Has the connection's next request start after this one, which holds a shared resource (`limit_conn`).
    #[inline]
    pub fn hold_alone(&mut self) {
        self.alone = true;
    }
    /// Has lines of the error log leave out the arguments, which hold a secret.
    #[inline]
    pub fn hide_arguments(&mut self) {
        self.has_secret = true;
    }
    /// Returns the lines of the configuration that have changed the head and apply once (`request_header_add`).
    #[inline]
    pub fn applied_lines_mut(&mut self) -> &mut Rc<Vec<usize>> {
        self.changed_by.get_or_insert_default()
    }
    pub(super) fn reset(&mut self) {
        *self = IncomingHead::default();
    }
}
