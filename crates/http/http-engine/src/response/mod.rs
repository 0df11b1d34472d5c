//! The response: its head as fields and facts, and the pieces of its body, which the connection pulls.

mod head;
mod head_facts;

pub use head::{HeadSlot, OutField, OutHead, charset_of};

use bytes::Bytes;
use http_types::Span;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a field's name or value, with cheap copies where possible.
#[derive(Clone, Debug)]
pub enum Str {
    /// A constant.
    Static(&'static [u8]),
    /// A text that is shared by requests, such as one of the plan.
    Shared(Arc<[u8]>),
    /// A range of a shared text: see [`OutHead::take_text`].
    Part(Rc<Vec<u8>>, Span),
    /// A text of its own.
    Owned(Vec<u8>),
}

const _: () = assert!(size_of::<Str>() == size_of::<Vec<u8>>(), "a head has dozens of them");

impl Str {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Str::Static(s) => s,
            Str::Shared(s) => s,
            Str::Part(text, span) => span.of(text),
            Str::Owned(s) => s,
        }
    }
    /// Tells whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Str::Static(s) => s.is_empty(),
            Str::Shared(s) => s.is_empty(),
            Str::Part(_, span) => span.is_empty(),
            Str::Owned(s) => s.is_empty(),
        }
    }
    /// See [`crate::line_ends::ends_line`]. Constants and fields of a parsed head contain no line end.
    #[inline]
    pub fn ends_line(&self) -> bool {
        match self {
            Str::Static(_) | Str::Part(..) => {
                debug_assert!(!crate::line_ends::ends_line(self.bytes()));
                false
            }
            Str::Shared(s) => crate::line_ends::ends_line(s),
            Str::Owned(s) => crate::line_ends::ends_line(s),
        }
    }
}

impl Default for Str {
    fn default() -> Self {
        Str::Static(b"")
    }
}

impl From<Vec<u8>> for Str {
    fn from(v: Vec<u8>) -> Self {
        // Not shrunk: short-lived, for one response.
        Str::Owned(v)
    }
}

impl From<&'static str> for Str {
    fn from(v: &'static str) -> Self {
        Str::Static(v.as_bytes())
    }
}

/// An open file with its facts at the time of its lookup.
#[derive(Debug)]
pub struct OpenFile {
    /// Caches share the file among threads.
    pub file: Arc<File>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
    /// Number of the file in its file system.
    pub inode: u64,
    /// Number of the file system.
    pub device: u64,
    /// The whole file, if this thread's cache holds it. Readers use it; the kernel sends long parts from its own cache.
    pub content: Option<Bytes>,
}

/// A range of a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub file: Rc<OpenFile>,
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file.
    File(FilePart),
    /// Flushes the pieces so far; more will come only after a while.
    Flush,
}

impl Piece {
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(b) => b.len() as u64,
            Piece::File(f) => f.length,
            Piece::Flush => 0,
        }
    }
    /// Tells whether the piece has no bytes ([`Piece::Flush`] has none).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const READ_BYTES: u64 = 32 * 1024;

impl FilePart {
    /// Returns the part's bytes if the thread's cache holds the file; `None` also for a part beyond its end.
    pub fn cached(&self) -> Option<Bytes> {
        let (start, length) = (usize::try_from(self.start).ok()?, usize::try_from(self.length).ok()?);
        let content = self.file.content.as_ref()?;
        (start.checked_add(length)? <= content.len()).then(|| content.slice(start..start + length))
    }
    /// Next bytes of the part; empty at the end. Fails with `UnexpectedEof` on a truncated file.
    pub fn read(&mut self) -> std::io::Result<Bytes> {
        self.read_most(READ_BYTES)
    }
    /// [`FilePart::read`] of so many bytes at most.
    pub fn read_most(&mut self, most: u64) -> std::io::Result<Bytes> {
        use std::os::unix::fs::FileExt;
        let next = FilePart { length: self.length.min(most), ..self.clone() };
        let bytes = match next.cached() {
            Some(bytes) => bytes,
            None => {
                let mut buf = vec![0; next.length as usize];
                self.file.file.read_exact_at(&mut buf, self.start)?;
                buf.into()
            }
        };
        self.start += bytes.len() as u64;
        self.length -= bytes.len() as u64;
        Ok(bytes)
    }
}

impl Piece {
    /// Returns the bytes; reads a file's part from the disk. Fails with `UnexpectedEof` on a truncated file.
    pub fn into_bytes(self) -> std::io::Result<Bytes> {
        match self {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::Flush => Ok(Bytes::new()),
            Piece::File(mut part) => {
                let mut all = Vec::with_capacity(part.length as usize);
                while part.length > 0 {
                    all.extend_from_slice(&part.read()?);
                }
                Ok(all.into())
            }
        }
    }
}

/// A body ended early: the connection is closed, and the client sees a truncated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError;
