//! Framing and pace of the response, and the further use of its connection. The head is `Request::out`.

use crate::connection::Tunnel;
use crate::response::Str;

/// State of the response beside its head.
#[derive(Default)]
pub struct Reply {
    /// The connection serves further requests.
    pub keep_alive: bool,
    /// The response has no body: HEAD, 204, 304.
    pub head_only: bool,
    /// The body is sent in chunks (HTTP/1.1).
    pub chunked: bool,
    /// Trailers follow the body: uses chunks even if the length is known.
    pub expect_trailers: bool,
    /// The body must wait; output is held meanwhile.
    pub hold_output: bool,
    /// The body failed invisibly to the client: unsent output is dropped.
    pub abandoned: bool,
    /// Bytes of the body's next piece that the client's socket takes; 0: enough for any piece. A larger piece waits in memory.
    pub piece_room: u32,
    /// `$limit_rate` as set explicitly, in bytes per second.
    pub limit_rate: Option<u64>,
    /// Bytes that are sent without a limit, instead of `limit_rate_after`.
    pub limit_rate_after: Option<u64>,
    /// Takes over the connection after the response head (101, CONNECT) and copies bytes both ways.
    pub tunnel: Option<Box<dyn Tunnel>>,
    /// A handler has decided: ignores the request's conditions (nginx: `disable_not_modified`).
    pub ignore_conditions: bool,
    /// `If-None-Match` disables `If-Modified-Since` (RFC 9110, 13.1.3), unlike in nginx.
    pub etag_alone: bool,
    /// `Location` before a redirect to an error page; used unless the page sets one.
    pub old_location: Str,
}

impl Reply {
    pub(super) fn reset(&mut self) {
        *self = Reply::default();
    }
}
