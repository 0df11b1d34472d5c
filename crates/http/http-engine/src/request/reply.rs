//! Framing and pace of the response, and the further use of its connection. The head is `Request::out`.

use crate::connection::Tunnel;
use crate::response::Str;

/// State of the response beside its head.
#[derive(Default)]
pub struct Reply {
    /// The connection serves further requests.
    pub(crate) keep_alive: bool,
    /// The response has no body: HEAD, 204, 304.
    pub(crate) head_only: bool,
    /// The body is sent in chunks (HTTP/1.1).
    pub(crate) chunked: bool,
    /// Trailers follow the body: uses chunks even if the length is known.
    pub(crate) expect_trailers: bool,
    /// The body must wait; output is held meanwhile.
    pub(crate) hold_output: bool,
    /// The body failed invisibly to the client: unsent output is dropped.
    pub(crate) abandoned: bool,
    /// Bytes of the body's next piece that the client's socket takes; 0: enough for any piece. A larger piece waits in memory.
    pub(crate) piece_room: u32,
    /// `$limit_rate` as set explicitly, in bytes per second.
    pub(crate) limit_rate: Option<u64>,
    /// Bytes that are sent without a limit, instead of `limit_rate_after`.
    pub(crate) limit_rate_after: Option<u64>,
    /// Takes over the connection after the response head (101, CONNECT) and copies bytes both ways.
    pub(crate) tunnel: Option<Box<dyn Tunnel>>,
    /// A handler has decided: ignores the request's conditions (nginx: `disable_not_modified`).
    pub(crate) ignore_conditions: bool,
    /// `If-None-Match` disables `If-Modified-Since` (RFC 9110, 13.1.3), unlike in nginx.
    pub(crate) etag_alone: bool,
    /// `Location` before a redirect to an error page; used unless the page sets one.
    pub(crate) old_location: Str,
}

impl Reply {
    /// Tells whether the connection serves further requests.
    #[inline]
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }
    /// Has the connection serve further requests, or close after this response.
    #[inline]
    pub fn set_keep_alive(&mut self, keeps: bool) {
        self.keep_alive = keeps;
    }
    /// Tells whether the response has no body: HEAD, 204, 304.
    #[inline]
    pub fn is_head_only(&self) -> bool {
        self.head_only
    }
    /// Has the response sent without its body.
    #[inline]
    pub fn send_head_only(&mut self) {
        self.head_only = true;
    }
    /// Tells whether the body is sent in chunks (HTTP/1.1).
    #[inline]
    pub fn is_chunked(&self) -> bool {
        self.chunked
    }
    /// Tells whether trailers may follow the body, which then is sent in chunks even if its length is known.
    #[inline]
    pub fn expects_trailers(&self) -> bool {
        self.expect_trailers
    }
    /// Announces that trailers may follow the body. Before the head is written.
    #[inline]
    pub fn expect_trailers(&mut self) {
        self.expect_trailers = true;
    }
    /// Tells whether output is held because the body waits.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.hold_output
    }
    /// Holds output while the body waits, or ends that.
    #[inline]
    pub fn hold_output(&mut self, is_held: bool) {
        self.hold_output = is_held;
    }
    /// Tells whether unsent output is to be dropped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }
    /// Drops unsent output: the body failed invisibly to the client.
    #[inline]
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }
    /// Returns the bytes of the next piece that the client's socket takes; 0: enough for any piece.
    #[inline]
    pub fn piece_room(&self) -> u32 {
        self.piece_room
    }
    /// Sets the bytes of the next piece that the client's socket takes. A larger piece waits in memory.
    #[inline]
    pub fn set_piece_room(&mut self, octets: u32) {
        self.piece_room = octets;
    }
    /// Returns `$limit_rate` as set explicitly, in bytes per second.
    #[inline]
    pub fn limit_rate(&self) -> Option<u64> {
        self.limit_rate
    }
    /// Sets `$limit_rate` in bytes per second; 0: no limit.
    #[inline]
    pub fn set_limit_rate(&mut self, bytes_per_second: Option<u64>) {
        self.limit_rate = bytes_per_second;
    }
    /// Returns the bytes that are sent without a limit, if set explicitly.
    #[inline]
    pub fn limit_rate_after(&self) -> Option<u64> {
        self.limit_rate_after
    }
    /// Sets the bytes that are sent without a limit, instead of `limit_rate_after`.
    #[inline]
    pub fn set_limit_rate_after(&mut self, octets: u64) {
        self.limit_rate_after = Some(octets);
    }
    /// Tells whether a tunnel takes over the connection after the head.
    #[inline]
    pub fn has_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }
    /// Has a tunnel take over the connection after the head (101, CONNECT).
    #[inline]
    pub fn set_tunnel(&mut self, tunnel: Box<dyn Tunnel>) {
        self.tunnel = Some(tunnel);
    }
    /// Takes the tunnel, to run it after the head was sent.
    #[inline]
    pub fn take_tunnel(&mut self) -> Option<Box<dyn Tunnel>> {
        self.tunnel.take()
    }
    /// Tells whether the request's conditions are ignored.
    #[inline]
    pub fn ignores_conditions(&self) -> bool {
        self.ignore_conditions
    }
    /// Has the request's conditions ignored, because the handler has decided, or not (nginx: `disable_not_modified`).
    #[inline]
    pub fn ignore_conditions(&mut self, ignores: bool) {
        self.ignore_conditions = ignores;
    }
    /// Tells whether `If-None-Match` disables `If-Modified-Since` (RFC 9110, 13.1.3), unlike in nginx.
    #[inline]
    pub fn is_etag_alone(&self) -> bool {
        self.etag_alone
    }
    /// Has `If-None-Match` disable `If-Modified-Since`.
    #[inline]
    pub fn set_etag_alone(&mut self, is_alone: bool) {
        self.etag_alone = is_alone;
    }
    /// Forgets the `Location` of before a redirect to an error page.
    #[inline]
    pub fn forget_location(&mut self) {
        self.old_location = Str::default();
    }
    pub(super) fn reset(&mut self) {
        *self = Reply::default();
    }
}
