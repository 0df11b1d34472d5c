//! Format of a stored file: fixed facts, the key in a greppable line, the response's head as received, its body.
//!
//! ```text
//! magic  version  flags  status | lengths: key, head, etag, vary, tags, body | times | variant | checksum
//! "\nKEY: " key "\n"  etag  vary  tags  head  body
//! ```
//!
//! An entry without tags has version 1, one with tags version 2.
//! Numbers are little endian; the checksum covers all but itself and the body, whose length must match the file.

use crate::freshness::ETAG_MAX;
use crate::key::Hash;
use crate::tags::{EntryTags, TAGS_MAX, TagHash};
use crate::vary::VARY_MAX;
use md5::{Digest, Md5};

pub const MAGIC: &[u8; 8] = b"tidegate";
/// Changes with the layout: files of other versions are misses.
pub const VERSION: u16 = 1;
const TAGGED_VERSION: u16 = 2;
/// Number of tags that stands for [`EntryTags::TooMany`].
const TAGS_WITHOUT_BOUND: u16 = u16::MAX;
const CHECKSUM_AT: usize = 112;
/// Bytes of the fixed facts.
pub const FIXED: usize = CHECKSUM_AT + 16;
const LABEL: &[u8] = b"\nKEY: ";
/// Longest key or head in bytes; files that claim more are invalid.
pub const KEY_MAX: usize = 64 * 1024;
pub const HEAD_MAX: usize = 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub status: u16,
    /// Never served stale (RFC 9111 mode).
    pub must_revalidate: bool,
    pub valid_sec: i64,
    pub updating_sec: i64,
    pub error_sec: i64,
    /// -1: unknown.
    pub last_modified: i64,
    /// Time of storing or revalidation.
    pub date: i64,
    /// Age at `date` (RFC 9111 mode).
    pub age: i64,
    /// Milliseconds; compared with the times of purges.
    pub stored_ms: u64,
    pub etag: Vec<u8>,
    pub vary: Vec<u8>,
    /// Variant of the main key; meaningless without `vary`.
    pub variant: Hash,
    pub tags: EntryTags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub key: usize,
    pub etag: usize,
    pub vary: usize,
    pub tags: usize,
    pub head: usize,
    pub body: usize,
    pub body_len: u64,
}

impl Layout {
    fn new(key: usize, etag: usize, vary: usize, tags: usize, head: usize, body_len: u64) -> Layout {
        let at = FIXED + LABEL.len();
        let etag_at = at + key + 1;
        let vary_at = etag_at + etag;
        let tags_at = vary_at + vary;
        let head_at = tags_at + tags;
        let body = head_at + head;
        Layout { key: at, etag: etag_at, vary: vary_at, tags: tags_at, head: head_at, body, body_len }
    }
    /// Checks only magic and version.
    pub fn read(fixed: &[u8]) -> Result<Layout, LayoutError> {
        let fixed = fixed.get(..FIXED).ok_or(LayoutError::Small)?;
        let (version, tags) = (u16_at(fixed, 8), u16_at(fixed, 28));
        if &fixed[..8] != MAGIC || !matches!(version, VERSION | TAGGED_VERSION) {
            return Err(LayoutError::Version);
        }
        let tags_size = match tags {
            TAGS_WITHOUT_BOUND => 0,
            number => usize::from(number) * 8,
        };
        if (version == TAGGED_VERSION) != (tags != 0) || tags_size > TAGS_MAX * 8 {
            return Err(LayoutError::Damaged);
        }
        let (key, head) = (u32_at(fixed, 16) as usize, u32_at(fixed, 20) as usize);
        let (etag, vary) = (usize::from(u16_at(fixed, 24)), usize::from(u16_at(fixed, 26)));
        if key > KEY_MAX || head > HEAD_MAX || etag > ETAG_MAX || vary > VARY_MAX {
            return Err(LayoutError::Damaged);
        }
        Ok(Layout::new(key, etag, vary, tags_size, head, u64_at(fixed, 32)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    Small,
    Version,
    Damaged,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut word = [0; 2];
    word.copy_from_slice(&bytes[at..at + 2]);
    u16::from_le_bytes(word)
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Meta {
    pub fn encode(&self, key: &[u8], head: &[u8], body_len: u64) -> Vec<u8> {
        let layout = Layout::new(key.len(), self.etag.len(), self.vary.len(), self.tags.size(), head.len(), body_len);
        let mut out = Vec::with_capacity(layout.body);
        let version = if self.tags.is_empty() { VERSION } else { TAGGED_VERSION };
        let tags = match &self.tags {
            EntryTags::Listed(tags) => tags.len() as u16,
            EntryTags::TooMany => TAGS_WITHOUT_BOUND,
        };
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&u16::from(self.must_revalidate).to_le_bytes());
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&(head.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.etag.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.vary.len() as u16).to_le_bytes());
        out.extend_from_slice(&tags.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&body_len.to_le_bytes());
        for time in [self.valid_sec, self.updating_sec, self.error_sec, self.last_modified, self.date, self.age] {
            out.extend_from_slice(&time.to_le_bytes());
        }
        out.extend_from_slice(&self.stored_ms.to_le_bytes());
        out.extend_from_slice(&self.variant.0);
        debug_assert_eq!(out.len(), CHECKSUM_AT);
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(LABEL);
        out.extend_from_slice(key);
        out.push(b'\n');
        out.extend_from_slice(&self.etag);
        out.extend_from_slice(&self.vary);
        if let EntryTags::Listed(tags) = &self.tags {
            tags.iter().for_each(|tag| out.extend_from_slice(&tag.0.to_le_bytes()));
        }
        out.extend_from_slice(head);
        let sum = checksum(&out);
        out[CHECKSUM_AT..FIXED].copy_from_slice(&sum);
        out
    }

    /// Decodes [`Meta::encode`]; `bytes` end where the body begins.
    pub fn decode(bytes: &[u8]) -> Result<(Meta, Layout), LayoutError> {
        let layout = Layout::read(bytes)?;
        let all = bytes.get(..layout.body).ok_or(LayoutError::Small)?;
        if checksum(all) != all[CHECKSUM_AT..FIXED] || !all[FIXED..].starts_with(LABEL) {
            return Err(LayoutError::Damaged);
        }
        let time = |n: usize| u64_at(all, 40 + 8 * n) as i64;
        let mut variant = Hash::default();
        variant.0.copy_from_slice(&all[96..112]);
        let words = all[layout.tags..layout.head].chunks_exact(8);
        let tags = match u16_at(all, 28) {
            TAGS_WITHOUT_BOUND => EntryTags::TooMany,
            _ => EntryTags::Listed(words.map(|word| TagHash(u64_at(word, 0))).collect()),
        };
        let meta = Meta {
            must_revalidate: u16_at(all, 10) & 1 != 0,
            status: u16_at(all, 12),
            valid_sec: time(0),
            updating_sec: time(1),
            error_sec: time(2),
            last_modified: time(3),
            date: time(4),
            age: time(5),
            stored_ms: u64_at(all, 88),
            etag: all[layout.etag..layout.vary].to_vec(),
            vary: all[layout.vary..layout.tags].to_vec(),
            variant,
            tags,
        };
        Ok((meta, layout))
    }
}

fn checksum(all: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::new();
    md5.update(&all[..CHECKSUM_AT]);
    md5.update(&all[FIXED..]);
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            status: 206,
            must_revalidate: true,
            valid_sec: 1,
            updating_sec: 2,
            error_sec: -3,
            last_modified: -1,
            date: 4,
            age: 5,
            stored_ms: 6,
            etag: b"\"e\"".to_vec(),
            vary: b"Accept".to_vec(),
            variant: Hash::of(b"v"),
            tags: EntryTags::of(["a,b", "c"]),
        }
    }

    #[test]
    fn written_heads_are_read() {
        let bytes = meta().encode(b"http://a/b", b"HTTP/1.1 200 OK\r\n\r\n", 7);
        let (read, layout) = Meta::decode(&bytes).expect("an entry");
        assert_eq!(read, meta());
        assert_eq!(&bytes[layout.key..layout.key + 10], b"http://a/b");
        assert_eq!((&bytes[layout.head..layout.body], layout.body_len), (&b"HTTP/1.1 200 OK\r\n\r\n"[..], 7));
        assert!(bytes.windows(17).any(|w| w == b"\nKEY: http://a/b\n"), "a line that scripts can find");
    }

    #[test]
    fn tags_are_stored_and_only_tagged_entries_have_the_second_version() {
        let version = |tags: EntryTags| {
            let meta = Meta { tags, ..meta() };
            let bytes = meta.encode(b"k", b"HTTP/1.1 200 OK\r\n\r\n", 7);
            assert_eq!(Meta::decode(&bytes).expect("an entry").0, meta);
            (u16_at(&bytes, 8), bytes.len())
        };
        let (first, length) = version(EntryTags::default());
        assert_eq!(first, 1, "entries of earlier releases are read, and theirs are of this version");
        assert_eq!(version(EntryTags::of(["a b c"])), (2, length + 24));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| n.to_string()).collect();
        assert_eq!(version(EntryTags::of(&many[1..])), (2, length + 8 * TAGS_MAX));
        assert_eq!(version(EntryTags::of(&many)), (2, length));
    }

    #[test]
    fn any_wrong_byte_is_noticed() {
        let good = meta().encode(b"key", b"HTTP/1.1 200 OK\r\n\r\n", 7);
        for at in 0..good.len() {
            for bit in [1, 128] {
                let mut bytes = good.clone();
                bytes[at] ^= bit;
                assert!(Meta::decode(&bytes).is_err(), "byte {at}");
            }
            assert!(Meta::decode(&good[..at]).is_err(), "{at} bytes of it");
        }
        assert_eq!(Meta::decode(b"\x05\0\0\0nginx").err(), Some(LayoutError::Small));
        assert_eq!(Meta::decode(&[5; 400]).err(), Some(LayoutError::Version));
    }
}
