//! The slice of a request (`slice`), also given to its copies (a cache's background update).

/// A range of a response, fetched by a request of its own.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Offset of the first byte.
    pub start: u64,
    /// Length in bytes; the last slice of a response is shorter.
    pub size: u64,
}

impl Slice {
    /// Returns the value of `Range`.
    pub fn range(&self) -> String {
        format!("bytes={}-{}", self.start, self.start.saturating_add(self.size) - 1)
    }
}
