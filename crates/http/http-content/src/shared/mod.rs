//! Code that several features of this crate use.

pub mod film;
pub mod pooled;

/// Another feature names the index of a directory, and none of its names exists: `index` does not apply.
pub struct NamedIndex {
    pub folder: Vec<u8>,
}
