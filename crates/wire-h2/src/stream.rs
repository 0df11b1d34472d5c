//! What a connection keeps of each stream.

use crate::priority::Priority;
use bytes::Bytes;
use http_types::StreamHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// What is kept by stream. Their numbers need no hash that is hard to guess: there are as many as may be open at a time, and each that is
/// opened has a higher number than all before.
pub type ByStream<T> = HashMap<u32, T, BuildHasherDefault<StreamHasher>>;

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
