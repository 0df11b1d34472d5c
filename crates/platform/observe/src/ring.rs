//! `error_log memory:SIZE`: the newest lines in memory, for debugging under load (nginx: `ngx_log_memory_writer`).

use std::fmt;
use std::sync::{Mutex, PoisonError};

pub struct Ring {
    inner: Mutex<Inner>,
}

struct Inner {
    bytes: Box<[u8]>,
    written: usize,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory:{}", self.size())
    }
}

impl Ring {
    pub fn new(size: usize) -> Ring {
        Ring { inner: Mutex::new(Inner { bytes: vec![0; size.max(1)].into(), written: 0 }) }
    }

    pub fn size(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes.len()
    }

    pub fn write(&self, line: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let size = inner.bytes.len();
        let line = &line[line.len().saturating_sub(size)..];
        let at = inner.written % size;
        let first = line.len().min(size - at);
        inner.bytes[at..at + first].copy_from_slice(&line[..first]);
        inner.bytes[..line.len() - first].copy_from_slice(&line[first..]);
        inner.written += line.len();
    }

    /// Oldest first; the oldest line may be truncated at its start.
    pub fn contents(&self) -> Vec<u8> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let size = inner.bytes.len();
        if inner.written <= size {
            return inner.bytes[..inner.written].to_vec();
        }
        let at = inner.written % size;
        [&inner.bytes[at..], &inner.bytes[..at]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_stay() {
        let ring = Ring::new(8);
        ring.write(b"abc");
        assert_eq!(ring.contents(), b"abc");
        ring.write(b"defgh");
        assert_eq!(ring.contents(), b"abcdefgh");
        ring.write(b"ij");
        assert_eq!(ring.contents(), b"cdefghij");
        ring.write(b"0123456789");
        assert_eq!(ring.contents(), b"23456789");
    }
}
