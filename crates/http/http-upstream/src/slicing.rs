//! The slice of a request (`slice`), also given to its copies (a cache's background update).

#[derive(Clone, Debug)]
pub struct Slice {
    pub start: u64,
    pub size: u64,
}

impl Slice {
    pub fn range(&self) -> String {
        format!("bytes={}-{}", self.start, self.start.saturating_add(self.size) - 1)
    }
}
