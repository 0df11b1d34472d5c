//! What a connection keeps of each stream.

use crate::priority::Priority;
use bytes::Bytes;
use http_types::StreamHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// What is kept by stream. Their numbers need no hash that is hard to guess: there are as many as may be open at a time, and each that is
/// opened has a higher number than all before.
pub type ByStream<T> = HashMap<u32, T, BuildHasherDefault<StreamHasher>>;

/// Octets that small pieces of a body are put together to.
const PIECE_BYTES: usize = 16 * 1024;

/// Appends what came in one frame: as a piece of its own, or to the last one while that is small, so that frames of few octets cost
/// no more memory than large ones. `false`: it became a part of the last piece.
pub fn append(body: &mut VecDeque<Bytes>, content: &[u8]) -> bool {
    if let Some(last) = body.back_mut()
        && join(last, content)
    {
        return false;
    }
    body.push_back(Bytes::copy_from_slice(content));
    true
}

/// Appends to a piece that nobody else holds, if both are small.
pub fn join(piece: &mut Bytes, content: &[u8]) -> bool {
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

/// A stream that is not closed on both sides.
#[derive(Debug)]
pub struct Stream {
    pub id: u32,
    /// What may still be sent; negative after the peer has made its windows smaller.
    pub send_window: i64,
    /// What the peer may still send.
    pub recv_window: i64,
    /// The peer has ended its side.
    pub recv_closed: bool,
    /// We have ended ours.
    pub send_closed: bool,
    /// Its request was refused by its head: what follows is dropped.
    pub deaf: bool,
    /// The request's `content-length`, and what has come of it.
    pub promised: Option<u64>,
    pub received: u64,
    /// Body that nobody has taken yet.
    pub body: VecDeque<Bytes>,
    pub buffered: usize,
    pub taken: u64,
    /// Taken, and not yet given back to the peer's window.
    pub credit: i64,
    /// Somebody reads the body.
    pub asked: bool,
    /// The caller waits for its window to open.
    pub blocked: bool,
    pub priority: Priority,
}

impl Stream {
    pub fn new(id: u32, send_window: i64, recv_window: i64) -> Stream {
        Stream {
            id,
            send_window,
            recv_window,
            recv_closed: false,
            send_closed: false,
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
    pub fn is_closed(&self) -> bool {
        self.recv_closed && self.send_closed
    }
}
