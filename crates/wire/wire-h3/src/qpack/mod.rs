//! QPACK (RFC 9204): encodes and decodes field sections, with a dynamic table on both sides.
//! The encoder refers only to acknowledged entries, so that its sections never block the peer. The decoder reports
//! sections whose entries are still in transit ([`Decoder::decode`]); the caller keeps them.

mod decoder;
mod encoder;
mod fixed;

pub use decoder::{DecodedSection, Decoder};
pub use encoder::Encoder;

use http_types::huffman;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of an entry in addition to its text, in octets (RFC 9204, 3.2.1).
const ENTRY_OVERHEAD: u64 = 32;
/// Maximum octets of a dynamic table, on both sides (nginx: `NGX_HTTP_V3_MAX_TABLE_CAPACITY`).
pub const TABLE_CAPACITY_MAX: u64 = 4096;

/// Reasons why octets cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Octets are missing.
    Cut,
    /// The octets are invalid; the text is for the error log.
    Code(&'static str),
    /// A name or a value is longer than allowed.
    Large(&'static str),
}

/// An entry of a dynamic table. Name and value are one allocation, which duplicates share.
#[derive(Clone, Debug)]
struct Entry {
    text: Arc<[u8]>,
    name: usize,
}

impl Entry {
    fn new(name: &[u8], value: &[u8]) -> Entry {
        Entry { text: [name, value].concat().into(), name: name.len() }
    }
    fn name(&self) -> &[u8] {
        self.text.get(..self.name).unwrap_or_default()
    }
    fn value(&self) -> &[u8] {
        self.text.get(self.name..).unwrap_or_default()
    }
    fn size(&self) -> u64 {
        self.text.len() as u64 + ENTRY_OVERHEAD
    }
}

/// A dynamic table, oldest entry first. Absolute indices count all insertions (RFC 9204, 3.2.4).
#[derive(Clone, Debug, Default)]
struct DynamicTable {
    entries: VecDeque<Entry>,
    size: u64,
    capacity: u64,
    /// Returns the number of insertions, which is the absolute index of the next entry.
    inserted: u64,
}

impl DynamicTable {
    /// Returns the absolute index of the oldest entry.
    fn oldest(&self) -> u64 {
        self.inserted - self.entries.len() as u64
    }
    fn get(&self, absolute: u64) -> Option<&Entry> {
        let at = absolute.checked_sub(self.oldest())?;
        self.entries.get(usize::try_from(at).ok()?)
    }
    fn evict(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.size -= entry.size();
        }
    }
    fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        while self.size > capacity {
            self.evict();
        }
    }
    /// Inserts an entry. Returns `false`, without a change, if the entry is larger than the table.
    fn insert(&mut self, entry: Entry) -> bool {
        let size = entry.size();
        if size > self.capacity {
            return false;
        }
        while self.size + size > self.capacity {
            self.evict();
        }
        self.size += size;
        self.inserted += 1;
        self.entries.push_back(entry);
        true
    }
}

/// Maximum octets of an integer: 62 bits and the prefix.
const INTEGER_OCTETS_MAX: u32 = 10;

/// Reads an integer with a prefix (RFC 7541, 5.1).
fn integer(rest: &mut &[u8], prefix_bits: u32) -> Result<u64, Broken> {
    const LARGE: Broken = Broken::Code("client exceeded integer size limit");
    let (first, mut tail) = rest.split_first().ok_or(Broken::Cut)?;
    let mask = (1u64 << prefix_bits) - 1;
    let mut value = u64::from(*first) & mask;
    if value == mask {
        for n in 0.. {
            if n == INTEGER_OCTETS_MAX {
                return Err(LARGE);
            }
            let (octet, after) = tail.split_first().ok_or(Broken::Cut)?;
            tail = after;
            let part = u64::from(octet & 0x7f);
            let shifted = part.checked_shl(7 * n).filter(|shifted| shifted >> (7 * n) == part).ok_or(LARGE)?;
            value = value.checked_add(shifted).filter(|value| *value <= crate::frame::VARINT_MAX).ok_or(LARGE)?;
            if octet & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

fn put_integer(mut value: u64, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1u64 << prefix_bits) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a string whose length has a prefix of `prefix_bits` below the Huffman flag, to the end of `arena`, and returns
/// its coded length. A string of more than `max` coded octets is skipped: `None`.
fn string(rest: &mut &[u8], prefix_bits: u32, max: usize, arena: &mut Vec<u8>) -> Result<Option<usize>, Broken> {
    let coded = rest.first().ok_or(Broken::Cut)? & (1 << prefix_bits) != 0;
    let length = usize::try_from(integer(rest, prefix_bits)?).unwrap_or(usize::MAX);
    let (text, after) = rest.split_at_checked(length).ok_or(Broken::Cut)?;
    *rest = after;
    if length > max {
        return Ok(None);
    }
    if coded {
        // The shortest code has 5 bits, which bounds the length of the text.
        huffman::decode(text, text.len().saturating_mul(8) / 5, arena)
            .map_err(|_| Broken::Code("client sent invalid encoded field line"))?;
    } else {
        arena.extend_from_slice(text);
    }
    Ok(Some(length))
}

/// Skips a string whose length has a prefix of `prefix_bits`.
fn skip_string(rest: &mut &[u8], prefix_bits: u32) -> Result<(), Broken> {
    let length = usize::try_from(integer(rest, prefix_bits)?).unwrap_or(usize::MAX);
    *rest = rest.get(length..).ok_or(Broken::Cut)?;
    Ok(())
}

/// Appends a string whose length has a prefix of `prefix_bits`, after the Huffman flag.
fn put_string(text: &[u8], prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        put_integer(coded as u64, prefix_bits, first | 1 << prefix_bits, out);
        huffman::encode(text, out);
    } else {
        put_integer(text.len() as u64, prefix_bits, first, out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests;
