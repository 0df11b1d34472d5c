//! Memory that a thread uses again: requests, buffers, objects of tasks.

use crate::spares::Spares;
use http_engine::{Request, counting};
use std::cell::RefCell;

/// Octets per read.
pub const READ_BYTES: usize = 32 * 1024;
/// Recycled requests at most.
const SPARE_REQUESTS_MAX: usize = 64;

/// Spare memory of a thread. The buffers are borrowed for single calls, or by the inline path while it answers a
/// connection, and nothing that runs meanwhile may borrow them.
pub struct MemoryPools {
    /// Boxed, as tasks pass them.
    #[allow(clippy::vec_box)]
    requests: RefCell<Vec<Box<Request>>>,
    spares: Spares,
    read_buffer: RefCell<Vec<u8>>,
    out_buffer: RefCell<Vec<u8>>,
}

impl Default for MemoryPools {
    fn default() -> MemoryPools {
        MemoryPools {
            requests: RefCell::default(),
            spares: Spares::default(),
            read_buffer: RefCell::new(Vec::with_capacity(READ_BYTES)),
            out_buffer: RefCell::new(Vec::with_capacity(READ_BYTES)),
        }
    }
}

impl MemoryPools {
    /// Takes a recycled request, or makes one. `Request::begin` follows.
    #[inline]
    pub fn take_request(&self) -> Box<Request> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }
    /// Recycles a request that is logged or gets no log line.
    pub fn put_request(&self, mut r: Box<Request>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < SPARE_REQUESTS_MAX && r.buf.capacity() <= READ_BYTES {
            counting::given_up(&mut r);
            r.recycle();
            requests.push(r);
        }
    }
    /// Returns recycled objects of tasks.
    #[inline]
    pub fn spares(&self) -> &Spares {
        &self.spares
    }
    /// Returns the buffer for the bytes of one read on the inline path.
    #[inline]
    pub fn read_buffer(&self) -> &RefCell<Vec<u8>> {
        &self.read_buffer
    }
    /// Returns the buffer for the responses of one write on the inline path.
    #[inline]
    pub fn out_buffer(&self) -> &RefCell<Vec<u8>> {
        &self.out_buffer
    }
}
