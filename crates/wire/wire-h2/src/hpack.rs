//! HPACK (RFC 7541).

use http_types::{List, ListLimits, ListPlace, huffman};
use std::collections::VecDeque;

/// Overhead of a dynamic table entry (4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Initial size of either table in octets (RFC 9113, 6.5.2).
pub const TABLE_SIZE_DEFAULT: usize = 4096;

/// Appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Entry of each name's first appearance in [`STATIC`], counted from 1, by [`slot`]; 0: no such name.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse an index out of bounds")]
const FIRST: [u8; 128] = {
    let mut first = [0; 128];
    let mut at = STATIC.len();
    while at > 0 {
        at -= 1;
        first[slot(STATIC[at].0.as_bytes())] = at as u8 + 1;
    }
    first
};

/// A place for each name of the static table; other names share them.
const fn slot(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [first, .., last] => (name.len() * 3 + *first as usize * 54 + *last as usize * 59) % 128,
        [only] => *only as usize % 128,
    }
}

/// Finds a field in the static table: the entry of its name, or 0, and the entry of name and value.
fn find_static(name: &[u8], value: &[u8]) -> (usize, Option<usize>) {
    let first = FIRST.get(slot(name)).map_or(0, |at| usize::from(*at));
    // The table's entries of a name follow one another.
    let named = STATIC.get(first.wrapping_sub(1)..).unwrap_or_default();
    let mut named = named.iter().take_while(|(known, _)| known.as_bytes() == name).enumerate().peekable();
    if named.peek().is_none() {
        return (0, None);
    }
    (first, named.find(|(_, (_, common))| common.as_bytes() == value).map(|(at, _)| first + at))
}

/// Undecodable header block: ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Ends within a field (nginx: FRAME_SIZE_ERROR).
    Cut,
    /// Any other fault (COMPRESSION_ERROR).
    Code,
}

#[derive(Clone, Debug)]
struct Entry {
    text: Box<[u8]>,
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
    /// Compares the lengths first, which differ in most entries.
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.name == name.len()
            && self.text.len() == name.len() + value.len()
            && self.value() == value
            && self.name() == name
    }
    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }
}

/// Dynamic table, newest first (2.3.2).
#[derive(Clone, Debug)]
struct Dynamic {
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
}

impl Dynamic {
    fn new() -> Dynamic {
        Dynamic { entries: VecDeque::new(), size: 0, max: TABLE_SIZE_DEFAULT }
    }
    fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(max);
    }
    fn evict(&mut self, most: usize) {
        while self.size > most {
            match self.entries.pop_back() {
                Some(entry) => self.size -= entry.size(),
                None => self.size = 0,
            }
        }
    }
    fn add(&mut self, entry: Entry) {
        let size = entry.size();
        if size > self.max {
            self.evict(0);
            return;
        }
        self.evict(self.max - size);
        self.size += size;
        self.entries.push_front(entry);
    }
}

/// Decoder of a connection. Takes all blocks in order, including those of refused streams.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: Dynamic,
    /// SETTINGS_HEADER_TABLE_SIZE of this endpoint.
    allowed: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder { table: Dynamic::new(), allowed: TABLE_SIZE_DEFAULT }
    }
}

/// Octets of an integer: 28 bits exceed every limit here.
const INTEGER_OCTETS_MAX: usize = 5;

fn integer(rest: &mut &[u8], prefix_bits: u32) -> Result<usize, Broken> {
    let (first, mut tail) = rest.split_first().ok_or(Broken::Cut)?;
    let mask = (1u8 << prefix_bits) - 1;
    let mut value = usize::from(first & mask);
    if value == usize::from(mask) {
        let mut shift = 0;
        for n in 0.. {
            if n == INTEGER_OCTETS_MAX {
                return Err(Broken::Code);
            }
            let (octet, after) = tail.split_first().ok_or(Broken::Cut)?;
            tail = after;
            value += usize::from(octet & 0x7f) << shift;
            shift += 7;
            if octet & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

/// Decodes a string to the arena's end; skips one longer than `max` (`None`).
fn string(rest: &mut &[u8], arena: &mut Vec<u8>, max: usize) -> Result<Option<(ListPlace, usize)>, Broken> {
    let coded = rest.first().ok_or(Broken::Cut)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Broken::Cut)?;
    *rest = after;
    let start = arena.len();
    if coded {
        if length > max {
            return Ok(None);
        }
        // A code has at least 5 bits.
        let decoded_max = max.saturating_mul(8) / 5;
        if huffman::decode(text, decoded_max, arena).is_err() {
            let whole = arena.len() - start >= decoded_max;
            arena.truncate(start);
            return if whole { Ok(None) } else { Err(Broken::Code) };
        }
    } else if length > max {
        return Ok(None);
    } else {
        arena.extend_from_slice(text);
    }
    Ok(Some((ListPlace { start, end: arena.len() }, length)))
}

impl Decoder {
    /// Creates a decoder whose peer was told a table of `allowed` octets.
    pub fn with_table(allowed: usize) -> Decoder {
        let mut decoder = Decoder { allowed, ..Decoder::default() };
        if allowed < TABLE_SIZE_DEFAULT {
            decoder.table.resize(allowed);
        }
        decoder
    }
    /// Returns the octets of the table as the RFC counts them.
    pub fn table_size(&self) -> usize {
        self.table.size
    }

    /// Decodes a complete block. Fields beyond the limits are decoded and left out. After an error, the connection must
    /// end: the table is not in step.
    pub fn decode(&mut self, block: &[u8], limits: &ListLimits) -> Result<List, Broken> {
        let mut list = List::default();
        let mut rest = block;
        let mut first = true;
        while let Some(octet) = rest.first().copied() {
            match octet {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    self.indexed(index, &mut list, limits)?;
                }
                0x20..=0x3f => {
                    let max = integer(&mut rest, 5)?;
                    // Only at the start of a block, and within the allowed size (4.2).
                    if !first || max > self.allowed {
                        return Err(Broken::Code);
                    }
                    self.table.resize(max);
                    continue;
                }
                0x40..=0x7f => self.literal(&mut rest, 6, true, &mut list, limits)?,
                _ => self.literal(&mut rest, 4, false, &mut list, limits)?,
            }
            first = false;
        }
        Ok(list)
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Broken> {
        let at = index.checked_sub(1).ok_or(Broken::Code)?;
        if let Some((name, value)) = STATIC.get(at) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.table.entries.get(at - STATIC.len()).ok_or(Broken::Code)?;
        Ok((entry.name(), entry.value()))
    }

    fn indexed(&self, index: usize, list: &mut List, limits: &ListLimits) -> Result<(), Broken> {
        let (name, value) = self.entry(index)?;
        if !list.fits(name.len(), value.len(), limits) {
            return Ok(());
        }
        let name = list.put(name);
        let value = list.put(value);
        list.fields.push((name, value));
        Ok(())
    }

    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix: u32,
        keep: bool,
        list: &mut List,
        limits: &ListLimits,
    ) -> Result<(), Broken> {
        let index = integer(rest, prefix)?;
        let start = list.arena.len();
        // A field too long for the list may still belong in the table.
        let max = limits.field_max.max(self.table.max);
        // A name in a table costs the client two octets: it is copied for a field that fits, and for a new entry.
        let referenced = if index == 0 { None } else { Some(self.entry(index)?.0.len()) };
        let own = match referenced {
            None => string(rest, &mut list.arena, max)?,
            Some(_) => Some((ListPlace { start, end: start }, 0)),
        };
        let value = string(rest, &mut list.arena, max)?;
        let (Some((own, name_coded)), Some((_, value_coded))) = (own, value) else {
            list.arena.truncate(start);
            list.too_large = true;
            if keep {
                self.table.evict(0);
            }
            return Ok(());
        };
        let text = list.arena.split_off(start);
        let (own, value) = text.split_at_checked(own.end - start).ok_or(Broken::Code)?;
        list.too_large |= name_coded.max(value_coded) > limits.field_max;
        let length = referenced.unwrap_or(own.len());
        let fits = list.fits(length, value.len(), limits);
        if fits || (keep && length + value.len() + ENTRY_OVERHEAD <= self.table.max) {
            let name = if index == 0 { own } else { self.entry(index)?.0 };
            if fits {
                let places = (list.put(name), list.put(value));
                list.fields.push(places);
            }
            if keep {
                let entry = Entry::new(name, value);
                self.table.add(entry);
            }
        } else if keep {
            // Larger than the table, which is empty then (4.4).
            self.table.evict(0);
        }
        Ok(())
    }
}

/// Encoder of a connection. Blocks must be sent in the order in which they are encoded: [`Encoder::begin`], then
/// [`Encoder::field`] for each field.
#[derive(Clone, Debug)]
pub struct Encoder {
    table: Dynamic,
    /// A change of size must be announced.
    told: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder { table: Dynamic::new(), told: true }
    }
}

/// Largest table, whatever the peer allows.
const ENCODER_TABLE_MAX: usize = 4096;

/// Values that differ in every response would evict the others.
fn changes(name: &[u8]) -> bool {
    matches!(
        name,
        b"content-length"
            | b"content-range"
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

fn put_integer(mut value: usize, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1usize << prefix_bits) - 1;
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

fn put_string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        put_integer(coded, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        put_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

impl Encoder {
    /// Encoder with the static table only: blocks are independent of connection and order.
    pub fn stateless() -> Encoder {
        let mut encoder = Encoder::default();
        encoder.table.resize(0);
        encoder
    }
    /// Follows the peer's SETTINGS_HEADER_TABLE_SIZE; the next block announces the change.
    pub fn resize(&mut self, max: usize) {
        let max = max.min(ENCODER_TABLE_MAX);
        if max != self.table.max {
            self.table.resize(max);
            self.told = false;
        }
    }
    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.told, true) {
            put_integer(self.table.max, 5, 0x20, out);
        }
    }
    /// Appends a field; names in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let (named, whole) = find_static(name, value);
        if let Some(at) = whole {
            return put_integer(at, 7, 0x80, out);
        }
        for (at, entry) in self.table.entries.iter().enumerate() {
            if entry.is(name, value) {
                return put_integer(at + 1 + STATIC.len(), 7, 0x80, out);
            }
        }
        let keep = !changes(name) && name.len() + value.len() + ENTRY_OVERHEAD <= self.table.max / 2;
        let first = if keep { (0x40, 6) } else { (0, 4) };
        put_integer(named, first.1, first.0, out);
        if named == 0 {
            put_string(name, out);
        }
        put_string(value, out);
        if keep {
            self.table.add(Entry::new(name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ListLimits = ListLimits { bytes_max: 4096, fields_max: 100, field_max: 2048 };

    fn hex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
    }
    fn text(list: &List) -> Vec<(String, String)> {
        list.iter().map(|(n, v)| (String::from_utf8_lossy(n).into(), String::from_utf8_lossy(v).into())).collect()
    }

    #[test]
    fn the_rfcs_requests_with_and_without_huffman() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            let mut sizes = Vec::new();
            let mut last = Vec::new();
            for block in blocks {
                last = text(&decoder.decode(&hex(block), &LIMITS).expect("a block"));
                sizes.push(decoder.table_size());
            }
            assert_eq!(sizes, [57, 110, 164]);
            assert_eq!(last[4], ("custom-key".into(), "custom-value".into()));
            assert_eq!(last[3], (":authority".into(), "www.example.com".into()));
        }
    }

    #[test]
    fn static_entries_are_found_by_name_and_by_field() {
        for (at, (name, value)) in STATIC.iter().enumerate() {
            let first = STATIC.iter().position(|(known, _)| known == name).expect("it is there") + 1;
            assert_eq!(find_static(name.as_bytes(), value.as_bytes()), (first, Some(at + 1)));
            assert_eq!(find_static(name.as_bytes(), b"another value"), (first, None));
        }
        for other in ["", ":", "x", "x-odd", "Server", "servers", ":statu", "expires2", "zzzzzz"] {
            assert_eq!(find_static(other.as_bytes(), b""), (0, None), "{other}");
        }
    }

    #[test]
    fn encoded_fields_are_decoded_and_shorter() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let fields: [(&[u8], &[u8]); 5] = [
            (b":status", b"200"),
            (b"server", b"tidegate"),
            (b"content-length", b"17"),
            (b"x-odd", b"\xff\x00\x01"),
            (b"set-cookie", b"a=b"),
        ];
        let mut lengths = Vec::new();
        for size in [None, None, Some(0), Some(100_000), None] {
            if let Some(size) = size {
                encoder.resize(size);
            }
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value) in fields {
                encoder.field(name, value, &mut out);
            }
            lengths.push(out.len());
            let list = decoder.decode(&out, &LIMITS).expect("a block");
            assert!(list.iter().eq(fields));
            assert_eq!(decoder.table.size, encoder.table.size);
        }
        assert!(lengths[1] < lengths[0] && lengths[4] < lengths[3]);
    }

    #[test]
    fn broken_blocks_are_refused() {
        for block in ["80", "be", "ff80 8080 8080 8001", "4005", "3fe2 1f", "8220", "0000 ", "40 01 61 82 ff"] {
            assert!(Decoder::default().decode(&hex(block), &LIMITS).is_err(), "{block}");
        }
        assert!(Decoder::default().decode(&hex("20 3fe11f 82"), &LIMITS).is_ok());
    }

    #[test]
    fn lists_that_are_too_large_keep_the_table_in_step() {
        let limits = ListLimits { bytes_max: 100, fields_max: 3, field_max: 50 };
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for n in 0..20 {
            encoder.field(format!("name-{n}").as_bytes(), b"value", &mut out);
        }
        encoder.field(b"etag", &[b'x'; 60], &mut out);
        let list = decoder.decode(&out, &limits).expect("a block");
        assert!(list.too_large && list.too_many && list.fields.len() == 3);
        assert_eq!(decoder.table.size, encoder.table.size);
        out.clear();
        encoder.field(b"name-19", b"value", &mut out);
        assert_eq!(out.len(), 1);
        assert!(decoder.decode(&out, &limits).expect("a block").iter().eq([(&b"name-19"[..], &b"value"[..])]));
    }

    #[test]
    fn lengths_of_fields_are_those_that_were_sent() {
        let limits = ListLimits { field_max: 50, ..LIMITS };
        let too_large = |value: &[u8]| {
            let mut out = Vec::new();
            Encoder::default().field(b"a", value, &mut out);
            Decoder::default().decode(&out, &limits).expect("a block").too_large
        };
        assert!(!too_large(&[b'a'; 80]));
        assert!(too_large(&[b'a'; 81]));
        assert!(!too_large(&[b'X'; 50]));
        assert!(too_large(&[b'X'; 51]));
    }

    #[test]
    fn names_of_fields_that_do_not_fit_are_not_copied() {
        let mut decoder = Decoder::default();
        let mut block = vec![0x40, 0x7f, 0xa1, 0x1e];
        block.extend(std::iter::repeat_n(b'n', 4000));
        block.push(0);
        // Literals of two octets that refer to the name, with an empty value and without a new entry.
        block.extend([0x0f, 0x2f, 0].repeat(30_000));
        let limits = ListLimits { bytes_max: 8192, field_max: 4096, ..LIMITS };
        let list = decoder.decode(&block, &limits).expect("a block");
        assert!(list.too_large && list.fields.len() == 2, "{}", list.fields.len());
        assert!(list.fields.iter().all(|(name, value)| name.of(&list.arena).len() == 4000 && value.start == value.end));
        assert!(list.arena.capacity() <= 8192, "{}", list.arena.capacity());
    }

    #[test]
    fn a_name_of_an_entry_that_goes_is_the_new_ones() {
        let mut decoder = Decoder::with_table(200);
        decoder.decode(&hex("40016101624001630164"), &LIMITS).expect("two entries");
        // The older entry's name, and a value of 147 octets that leaves room for neither entry.
        let mut block = hex("7f007f14");
        block.extend(std::iter::repeat_n(b'v', 147));
        let list = decoder.decode(&block, &LIMITS).expect("a block");
        assert_eq!(text(&list)[0].0, "a");
        assert_eq!(decoder.table.entries.len(), 1);
        assert_eq!(decoder.table.entries[0].name(), b"a");
    }

    #[test]
    fn one_octet_cannot_become_a_gigabyte() {
        let mut decoder = Decoder::default();
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
        block.extend(std::iter::repeat_n(b'x', 4000));
        block.extend(std::iter::repeat_n(0xbe, 100_000));
        let list = decoder.decode(&block, &ListLimits { bytes_max: 8192, ..LIMITS }).expect("a block");
        assert!(list.too_large && list.arena.len() <= 8192);
    }
}
