//! Which slice a request asks for (`slice`); kept with the request. Whoever asks the same once more (a cache that renews what
//! is stale) gives it to the request that does.

/// A slice of a response.
#[derive(Clone, Debug)]
pub struct Slice {
    pub start: u64,
    pub size: u64,
}

impl Slice {
    /// As a `Range` field says it.
    pub fn range(&self) -> String {
        format!("bytes={}-{}", self.start, self.start.saturating_add(self.size) - 1)
    }
}
