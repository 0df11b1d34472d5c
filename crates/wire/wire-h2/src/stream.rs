//! State of a stream.

use bytes::Bytes;
use http_types::{Priority, StreamHasher};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// Map by stream. Needs no collision-resistant hash: streams are bounded and their numbers increase.
pub type ByStream<T> = HashMap<u32, T, BuildHasherDefault<StreamHasher>>;

/// Octets up to which small pieces are joined.
const PIECE_BYTES: usize = 16 * 1024;

/// Appends a frame's content as a piece, or to a small last piece, so that tiny frames cost no extra memory. `false`:
/// joined.
pub fn append_content(body: &mut VecDeque<Bytes>, content: &[u8]) -> bool {
    if let Some(last) = body.back_mut()
        && join_piece(last, content)
    {
        return false;
    }
    body.push_back(Bytes::copy_from_slice(content));
    true
}

/// Appends to an unshared piece, if both are small.
pub fn join_piece(piece: &mut Bytes, content: &[u8]) -> bool {
    if piece.len() + content.len() > PIECE_BYTES {
        return false;
    }
    match std::mem::take(piece).try_into_mut() {
        Ok(mut own) => {
            own.extend_from_slice(content);
            *piece = own.freeze();
            true
        }
        Err(shared) => {
            *piece = shared;
            false
        }
    }
}

/// A stream of a server's connection.
#[derive(Debug)]
pub struct Stream {
    /// Number of the stream.
    pub id: u32,
    /// Send window; negative after the peer reduced its windows.
    pub send_window: i64,
    /// Octets that the client may send.
    pub recv_window: i64,
    /// The client has ended its side.
    pub recv_closed: bool,
    /// The response has ended.
    pub send_closed: bool,
    /// The final response's head was sent.
    pub answering: bool,
    /// Refused by its head: drops further content.
    pub deaf: bool,
    /// Declared and received octets of the body.
    pub promised: Option<u64>,
    /// Received octets of the body.
    pub received: u64,
    /// Unread pieces of the body.
    pub body: VecDeque<Bytes>,
    /// Unread octets.
    pub buffered: usize,
    /// Read octets.
    pub taken: u64,
    /// Read octets not yet returned to the window.
    pub credit: i64,
    /// The caller waits for the body: its window may grow.
    pub asked: bool,
    /// The caller waits for the window.
    pub blocked: bool,
    /// Priority by RFC 9218.
    pub priority: Priority,
}

impl Stream {
    /// Begins an open stream.
    pub fn new(id: u32, send_window: i64, recv_window: i64) -> Stream {
        Stream {
            id,
            send_window,
            recv_window,
            recv_closed: false,
            send_closed: false,
            answering: false,
            deaf: false,
            promised: None,
            received: 0,
            body: VecDeque::new(),
            buffered: 0,
            taken: 0,
            credit: 0,
            asked: false,
            blocked: false,
            priority: Priority::default(),
        }
    }
    /// Tells whether both sides have ended.
    pub fn is_closed(&self) -> bool {
        self.recv_closed && self.send_closed
    }
}
