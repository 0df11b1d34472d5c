//! QPACK encoder: writes field sections, and the encoder stream that fills the peer's table.

use super::{Broken, DynamicTable, ENTRY_OVERHEAD, Entry, TABLE_CAPACITY_MAX, fixed, integer, put_integer, put_string};
use http_types::FieldLines;
use std::collections::VecDeque;

/// Maximum number of unacknowledged sections; further sections use no dynamic entry.
const OUTSTANDING_MAX: usize = 256;
/// Octets of queued instructions above which no entry is inserted.
const INSTRUCTIONS_MAX: usize = 8 * 1024;
/// Maximum octets of an incomplete instruction of the decoder stream (an integer).
const PENDING_MAX: usize = 16;

/// An unacknowledged section that refers to the dynamic table.
#[derive(Clone, Copy, Debug)]
struct OutstandingSection {
    stream: u64,
    /// Required Insert Count of the section.
    required: u64,
    /// Oldest entry that the section refers to, which must not be evicted.
    oldest: u64,
}

/// Writes field sections. Inserts repeated fields into the peer's table.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    table: DynamicTable,
    /// Maximum number of entries of the peer's table, for the Required Insert Count (RFC 9204, 4.5.1.1).
    entries_max: u64,
    /// Insertions that the peer has acknowledged.
    known: u64,
    /// Maximum number of sections that may wait for insertions (SETTINGS_QPACK_BLOCKED_STREAMS).
    blocked_max: u64,
    /// Insertions before the last section. Some peers send no Insert Count Increment and acknowledge only sections.
    /// Entries of this age have probably arrived; a reference to them lets the peer acknowledge them.
    earlier: u64,
    outstanding: VecDeque<OutstandingSection>,
    /// Instructions for the encoder stream.
    instructions: Vec<u8>,
    pending: Vec<u8>,
}

/// Tells whether a field may be inserted into the dynamic table. Excluded are fields whose values differ between
/// responses, or are worth guessing for an attacker.
fn is_kept(name: &[u8]) -> bool {
    !matches!(
        name,
        b"content-length"
            | b"content-range"
            | b"date"
            | b"etag"
            | b"last-modified"
            | b"location"
            | b"set-cookie"
            | b"age"
            | b"expires"
            | b":path"
            | b"x-request-id"
            | b"authorization"
            | b"cookie"
    )
}

impl Encoder {
    /// Frees buffers that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.outstanding.shrink_to(0);
        self.instructions.shrink_to(0);
        self.table.entries.shrink_to(0);
    }

    /// Applies the peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY and SETTINGS_QPACK_BLOCKED_STREAMS, once.
    pub fn allow(&mut self, capacity_max: u64, blocked_max: u64) {
        self.blocked_max = blocked_max;
        self.entries_max = capacity_max / ENTRY_OVERHEAD;
        let capacity = capacity_max.min(TABLE_CAPACITY_MAX);
        if capacity >= ENTRY_OVERHEAD {
            self.table.set_capacity(capacity);
            put_integer(capacity, 5, 0x20, &mut self.instructions);
        }
    }
    /// Returns the instructions for the encoder stream; the caller removes sent bytes.
    pub fn instructions(&mut self) -> &mut Vec<u8> {
        &mut self.instructions
    }
    /// Returns the number of unacknowledged sections.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Appends a section of `stream`. `first` precedes all other fields; names are in lower case.
    pub fn section(
        &mut self,
        stream: u64,
        first: Option<(&[u8], &[u8])>,
        fields: FieldLines<'_, '_>,
        out: &mut Vec<u8>,
    ) {
        let base = self.table.inserted;
        let may_refer = self.table.capacity > 0 && self.outstanding.len() < OUTSTANDING_MAX;
        let blocked = self.outstanding.iter().filter(|section| section.required > self.known).count() as u64;
        let usable = if blocked < self.blocked_max { self.earlier.max(self.known) } else { self.known };
        let usable = may_refer.then_some(usable);
        self.earlier = base;
        let mut refers: Option<(u64, u64)> = None;
        let start = out.len();
        // Insert Count and Base of a section without references; overwritten for other sections.
        out.extend_from_slice(&[0, 0]);
        if let Some((name, value)) = first {
            self.field(name, value, base, usable, &mut refers, out);
        }
        for (name, value) in fields {
            self.field(name, value, base, usable, &mut refers, out);
        }
        let Some((oldest, newest)) = refers else { return };
        let required = newest + 1;
        self.outstanding.push_back(OutstandingSection { stream, required, oldest });
        let mut prefix = Vec::with_capacity(8);
        put_integer(required % (2 * self.entries_max) + 1, 8, 0, &mut prefix);
        put_integer(base - required, 7, 0, &mut prefix);
        out.splice(start..start + 2, prefix);
    }

    /// Appends a field without a reference to the dynamic table.
    pub fn plain(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.field(name, value, 0, None, &mut None, out);
    }

    /// Appends a field. It may refer to the first `usable` insertions; `None` disables the dynamic table.
    fn field(
        &mut self,
        name: &[u8],
        value: &[u8],
        base: u64,
        usable: Option<u64>,
        refers: &mut Option<(u64, u64)>,
        out: &mut Vec<u8>,
    ) {
        let (exact, named) = fixed::find_entry(name, value);
        if let Some(at) = exact {
            return put_integer(at as u64, 6, 0xc0, out);
        }
        if let Some(usable) = usable.filter(|_| is_kept(name)) {
            match self.lookup(name, value) {
                Some(absolute) if absolute < usable => {
                    *refers = Some(match *refers {
                        None => (absolute, absolute),
                        Some((oldest, newest)) => (oldest.min(absolute), newest.max(absolute)),
                    });
                    return put_integer(base - 1 - absolute, 6, 0x80, out);
                }
                // The entry is in transit: sections after its acknowledgment will refer to it.
                Some(_) => {}
                None => self.insert(name, value, named, *refers),
            }
        }
        match named {
            Some(at) => put_integer(at as u64, 4, 0x50, out),
            None => put_string(name, 3, 0x20, out),
        }
        put_string(value, 7, 0, out);
    }

    /// Returns the newest entry of a field.
    fn lookup(&self, name: &[u8], value: &[u8]) -> Option<u64> {
        let is_it = |entry: &Entry| entry.name() == name && entry.value() == value;
        let at = self.table.entries.iter().rposition(is_it)?;
        Some(self.table.oldest() + at as u64)
    }

    /// Inserts a field, unless a referenced entry would have to be evicted (RFC 9204, 2.1.1).
    fn insert(&mut self, name: &[u8], value: &[u8], named: Option<usize>, refers: Option<(u64, u64)>) {
        let size = (name.len() + value.len()) as u64 + ENTRY_OVERHEAD;
        if size > self.table.capacity / 2 || self.instructions.len() > INSTRUCTIONS_MAX {
            return;
        }
        let in_use = self.outstanding.iter().map(|section| section.oldest);
        let may_go = in_use.chain(refers.map(|(oldest, _)| oldest)).fold(self.known, u64::min);
        let (mut free, mut gone) = (self.table.capacity - self.table.size, 0);
        while free < size {
            let absolute = self.table.oldest() + gone;
            match self.table.get(absolute) {
                Some(entry) if absolute < may_go => free += entry.size(),
                _ => return,
            }
            gone += 1;
        }
        match named {
            Some(at) => put_integer(at as u64, 6, 0xc0, &mut self.instructions),
            None => put_string(name, 5, 0x40, &mut self.instructions),
        }
        put_string(value, 7, 0, &mut self.instructions);
        self.table.insert(Entry::new(name, value));
    }

    /// Forgets the sections of a stream that the peer has cancelled (RFC 9204, 2.2.2.2).
    fn forget(&mut self, stream: u64) {
        self.outstanding.retain(|section| section.stream != stream);
    }

    /// Processes octets of the peer's decoder stream.
    ///
    /// # Errors
    /// QPACK_DECODER_STREAM_ERROR, with words for the log.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut rest = bytes;
        if !pending.is_empty() {
            pending.extend_from_slice(bytes);
            rest = &pending;
        }
        loop {
            let Some(first) = rest.first().copied() else { return Ok(()) };
            let mut after = rest;
            let bits = match first {
                0x80.. => 7,
                _ => 6,
            };
            let value = match integer(&mut after, bits) {
                Ok(value) => value,
                Err(Broken::Cut) if rest.len() <= PENDING_MAX => {
                    self.pending = rest.to_vec();
                    return Ok(());
                }
                Err(_) => return Err("client sent invalid decoder instruction"),
            };
            match first {
                0x80.. => self.acknowledged(value)?,
                0x40..=0x7f => self.forget(value),
                _ => {
                    if value == 0 || value > self.table.inserted - self.known {
                        return Err("client sent invalid insert count increment");
                    }
                    self.known += value;
                }
            }
            rest = after;
        }
    }

    fn acknowledged(&mut self, stream: u64) -> Result<(), &'static str> {
        let at = self.outstanding.iter().position(|section| section.stream == stream);
        let section = at.and_then(|at| self.outstanding.remove(at));
        let section = section.ok_or("client sent section acknowledgment for no section")?;
        self.known = self.known.max(section.required);
        Ok(())
    }
}
