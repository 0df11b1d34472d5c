//! QPACK decoder: reads the peer's encoder stream and field sections.

use super::{Broken, DynamicTable, ENTRY_OVERHEAD, Entry, fixed, integer, put_integer, skip_string, string};
use http_types::{List, ListLimits};

/// Result of decoding a field section.
#[derive(Clone, Debug)]
pub enum DecodedSection {
    /// The decoded section.
    List {
        /// Its fields.
        list: List,
        /// The section's Required Insert Count. Above 0, the peer waits for [`Decoder::acknowledge`].
        required: u64,
    },
    /// Entries are missing. The section can be decoded once [`Decoder::inserted`] has reached this number.
    Blocked(u64),
}

/// Reads field sections, and the encoder stream that fills its table.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    /// Maximum capacity that the peer's encoder may use, in octets (SETTINGS_QPACK_MAX_TABLE_CAPACITY).
    allowed: u64,
    /// Maximum encoded octets of one name and of one value.
    field_max: usize,
    /// Beginning of an incomplete instruction.
    pending: Vec<u8>,
    /// Insertions that were acknowledged to the peer.
    told: u64,
}

/// nginx's message for a name or a value that is larger than one buffer of `large_client_header_buffers`.
const TOO_LARGE: &str = "client sent too large field line";
/// Maximum octets of an instruction without its strings: two lengths.
const INSTRUCTION_OVERHEAD: usize = 32;

impl Decoder {
    /// Creates a decoder. `allowed`: octets of the table in this side's SETTINGS; `field_max`: octets of one name, and
    /// of one value.
    pub fn new(allowed: u64, field_max: usize) -> Decoder {
        Decoder { allowed, field_max, ..Decoder::default() }
    }
    /// Insertions so far.
    pub fn inserted(&self) -> u64 {
        self.table.inserted
    }
    /// Octets of the table as RFC 9204 counts them.
    pub fn table_size(&self) -> u64 {
        self.table.size
    }
    /// Octets of an unfinished instruction.
    pub fn held(&self) -> usize {
        self.pending.len()
    }

    /// Processes octets of the peer's encoder stream.
    ///
    /// # Errors
    /// QPACK_ENCODER_STREAM_ERROR, with words for the log.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if self.pending.is_empty() {
            let used = self.instructions(bytes)?;
            self.pending.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(bytes);
            let used = self.instructions(&pending)?;
            if used > 0 {
                pending = pending.get(used..).unwrap_or_default().to_vec();
            }
            self.pending = pending;
        }
        // A string that fits into the table has at most 30 bits per octet.
        if self.pending.len() > self.allowed as usize * 4 + INSTRUCTION_OVERHEAD {
            return Err(TOO_LARGE);
        }
        Ok(())
    }

    fn instructions(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut rest = bytes;
        loop {
            let before = rest.len();
            match self.instruction(&mut rest) {
                Ok(()) if rest.len() == before => return Ok(bytes.len()),
                Ok(()) => {}
                Err(Broken::Cut) => return Ok(bytes.len() - before),
                Err(Broken::Code(words) | Broken::Large(words)) => return Err(words),
            }
        }
    }

    /// Executes one instruction (RFC 9204, 4.3); leaves `rest` unchanged if the instruction is incomplete.
    fn instruction(&mut self, rest: &mut &[u8]) -> Result<(), Broken> {
        const CAPACITY: Broken = Broken::Code("not enough dynamic table capacity");
        const REFERENCE: Broken = Broken::Code("client sent invalid dynamic table reference");
        let Some(first) = rest.first().copied() else { return Ok(()) };
        let mut after = *rest;
        const LARGE: Broken = Broken::Large(TOO_LARGE);
        let max = self.field_max;
        match first {
            0x80.. => {
                let index = integer(&mut after, 6)?;
                skip_string(&mut &*after, 7)?;
                let mut text = if first & 0x40 != 0 {
                    fixed::entry_at(index).ok_or(REFERENCE)?.0.to_vec()
                } else {
                    self.relative(index).ok_or(REFERENCE)?.name().to_vec()
                };
                let name = text.len();
                string(&mut after, 7, max, &mut text)?.ok_or(LARGE)?;
                self.insert(Entry { text: text.into(), name }).ok_or(CAPACITY)?;
            }
            0x40..=0x7f => {
                // Decodes nothing before both strings are complete: they may arrive octet by octet.
                let mut ahead = after;
                skip_string(&mut ahead, 5)?;
                skip_string(&mut ahead, 7)?;
                let mut text = Vec::new();
                string(&mut after, 5, max, &mut text)?.ok_or(LARGE)?;
                let name = text.len();
                string(&mut after, 7, max, &mut text)?.ok_or(LARGE)?;
                self.insert(Entry { text: text.into(), name }).ok_or(CAPACITY)?;
            }
            0x20..=0x3f => {
                let capacity = integer(&mut after, 5)?;
                if capacity > self.allowed {
                    return Err(Broken::Code("client exceeded http3_max_table_capacity limit"));
                }
                self.table.set_capacity(capacity);
            }
            _ => {
                let index = integer(&mut after, 5)?;
                let entry = self.relative(index).ok_or(REFERENCE)?.clone();
                self.insert(entry).ok_or(CAPACITY)?;
            }
        }
        *rest = after;
        Ok(())
    }

    /// Returns the entry of a relative index of the encoder stream; 0 is the newest entry.
    fn relative(&self, index: u64) -> Option<&Entry> {
        self.table.get(self.table.inserted.checked_sub(index.checked_add(1)?)?)
    }

    fn insert(&mut self, entry: Entry) -> Option<()> {
        self.table.insert(entry).then_some(())
    }

    /// Appends an Insert Count Increment with the insertions that were not acknowledged yet (RFC 9204, 4.4.3).
    pub fn tell_insertions(&mut self, out: &mut Vec<u8>) {
        let more = self.table.inserted - self.told;
        if more > 0 {
            put_integer(more, 6, 0, out);
            self.told = self.table.inserted;
        }
    }

    /// Appends the acknowledgment of a section that refers to the table (RFC 9204, 4.4.1), which also acknowledges the
    /// section's insertions.
    pub fn acknowledge(&mut self, stream: u64, required: u64, out: &mut Vec<u8>) {
        put_integer(stream, 7, 0x80, out);
        self.told = self.told.max(required);
    }

    /// Appends a Stream Cancellation: the stream's sections are not read any more (RFC 9204, 4.4.2).
    pub fn cancel(&self, stream: u64, out: &mut Vec<u8>) {
        if self.allowed > 0 {
            put_integer(stream, 6, 0x40, out);
        }
    }

    /// Decodes a complete section.
    ///
    /// # Errors
    /// [`Broken`]: QPACK_DECOMPRESSION_FAILED.
    pub fn decode(&self, section: &[u8], limits: &ListLimits) -> Result<DecodedSection, Broken> {
        let mut rest = section;
        let required = self.required(integer(&mut rest, 8)?)?;
        let is_negative = rest.first().ok_or(Broken::Cut)? & 0x80 != 0;
        let delta = integer(&mut rest, 7)?;
        if required > self.table.inserted {
            return Ok(DecodedSection::Blocked(required));
        }
        let base = if is_negative {
            required.checked_sub(delta).and_then(|base| base.checked_sub(1))
        } else {
            required.checked_add(delta)
        };
        let base = base.ok_or(Broken::Code("client sent negative base"))?;
        let mut list = List::default();
        let section = Section { table: &self.table, required, base, limits };
        while let Some(octet) = rest.first().copied() {
            match octet {
                0x80.. => {
                    let index = integer(&mut rest, 6)?;
                    let (name, value) = section.field(octet & 0x40 != 0, index)?;
                    section.keep(name, value, &mut list);
                }
                0x40..=0x7f => {
                    let index = integer(&mut rest, 4)?;
                    let (name, _) = section.field(octet & 0x10 != 0, index)?;
                    section.literal(Some(name), &mut rest, &mut list)?;
                }
                0x20..=0x3f => section.literal(None, &mut rest, &mut list)?,
                0x10..=0x1f => {
                    let index = integer(&mut rest, 4)?;
                    let entry = section.post_base(index)?;
                    section.keep(entry.name(), entry.value(), &mut list);
                }
                _ => {
                    let index = integer(&mut rest, 3)?;
                    let entry = section.post_base(index)?;
                    section.literal(Some(entry.name()), &mut rest, &mut list)?;
                }
            }
        }
        Ok(DecodedSection::List { list, required })
    }

    /// Reads a section's Required Insert Count (RFC 9204, 4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, Broken> {
        const WRONG: Broken = Broken::Code("client sent invalid insert count");
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = self.allowed / ENTRY_OVERHEAD;
        let full_range = 2 * entries_max;
        if encoded > full_range {
            return Err(WRONG);
        }
        let value_max = self.table.inserted + entries_max;
        let wrapped = value_max / full_range * full_range;
        let mut required = wrapped + encoded - 1;
        if required > value_max {
            required = required.checked_sub(full_range).ok_or(WRONG)?;
        }
        if required == 0 { Err(WRONG) } else { Ok(required) }
    }
}

/// State of a section during decoding.
struct Section<'a> {
    table: &'a DynamicTable,
    required: u64,
    base: u64,
    limits: &'a ListLimits,
}

const REFERENCE: Broken = Broken::Code("client sent invalid dynamic table reference");

impl<'a> Section<'a> {
    fn absolute(&self, absolute: u64) -> Result<&'a Entry, Broken> {
        if absolute >= self.required {
            return Err(REFERENCE);
        }
        self.table.get(absolute).ok_or(REFERENCE)
    }
    fn post_base(&self, index: u64) -> Result<&'a Entry, Broken> {
        self.absolute(self.base.checked_add(index).ok_or(REFERENCE)?)
    }
    fn field(&self, is_static: bool, index: u64) -> Result<(&'a [u8], &'a [u8]), Broken> {
        if is_static {
            return fixed::entry_at(index).ok_or(Broken::Code("client sent invalid static table reference"));
        }
        let absolute = self.base.checked_sub(1).and_then(|newest| newest.checked_sub(index)).ok_or(REFERENCE)?;
        let entry = self.absolute(absolute)?;
        Ok((entry.name(), entry.value()))
    }
    fn keep(&self, name: &[u8], value: &[u8], list: &mut List) {
        if list.fits(name.len(), value.len(), self.limits) {
            let name = list.put(name);
            let value = list.put(value);
            list.fields.push((name, value));
        }
    }
    /// Reads a literal field; `name` comes from a table or from the literal itself.
    fn literal(&self, name: Option<&[u8]>, rest: &mut &[u8], list: &mut List) -> Result<(), Broken> {
        let start = list.arena.len();
        let max = self.limits.field_max;
        let name_fits = name.is_some() || string(rest, 3, max, &mut list.arena)?.is_some();
        let middle = list.arena.len();
        let value_fits = string(rest, 7, max, &mut list.arena)?.is_some();
        if !name_fits || !value_fits {
            return Err(Broken::Large(TOO_LARGE));
        }
        // The text is already at the end of the arena, so the total excludes it. Only a field that fits is worth a copy of a
        // name in a table, to which two octets refer.
        let text = list.arena.split_off(start);
        let (own_name, value) = text.split_at(middle - start);
        self.keep(name.unwrap_or(own_name), value, list);
        Ok(())
    }
}
