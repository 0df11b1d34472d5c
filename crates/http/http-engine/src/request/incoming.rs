//! The request's body, and the client that sends it.

use super::RequestBody;
use crate::connection::{BodyOctets, Watch};
use bytes::Bytes;
use http_types::BodyLength;
use std::rc::Rc;

/// The request's body, its client, and facts about its arrival.
#[derive(Default)]
pub struct IncomingHead {
    /// The body that is still to be read.
    pub body: RequestBody,
    /// Notifies a waiting handler that the client disconnected.
    pub watch: Option<Rc<dyn Watch>>,
    /// The part of the body that came with the head is malformed: 400 replaces a handler's response, but not an error.
    pub broken_body: bool,
    /// The part of the body that came with the head is malformed.
    pub malformed: bool,
    /// Length of the body as the head declares it; `None`: the head declares no body.
    pub body_length: Option<BodyLength>,
    /// The body, if a handler has read all of it into memory (`$request_body`).
    pub body_bytes: Option<Bytes>,
    /// Bytes read so far of a body without `Content-Length` (`$content_length`).
    pub body_received: Option<u64>,
    /// Bytes of the head, and in the end of the body, read from the client.
    pub length: u64,
    /// Counts the body's bytes that `length` does not have yet.
    pub octets: Option<Rc<dyn BodyOctets>>,
    /// Responded before `Expect: 100-continue` was satisfied; 100 must not be sent.
    pub expect_tested: bool,
    /// 100 (Continue) is due even before a built-in page: a `return` with a redirect discards the body first (nginx:
    /// `ngx_http_send_response`).
    pub continue_due: bool,
    /// `$connection_requests`: the number of the request on its connection; 0: its connection counts none.
    pub ordinal: u32,
    /// The head was read together with an earlier request (`$pipe`).
    pub pipelined: bool,
    /// Holds a shared resource (`limit_conn`): the connection's next request starts after this one.
    pub alone: bool,
    /// The arguments hold a secret, such as an authorization code: lines of the error log leave them out.
    pub has_secret: bool,
    /// Lines of the configuration that have changed the head's fields and apply once (`request_header_add`).
    pub changed_by: Option<Rc<Vec<usize>>>,
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
    pub(super) fn reset(&mut self) {
        *self = IncomingHead::default();
    }
}
