//! MaxMind DB format, version 2: a binary tree over address bits, values that may contain pointers, metadata at the
//! end.
//! Files are untrusted: offsets are checked, values nest at most `DEPTH_MAX` deep, and pointers must not lead to
//! pointers.

use std::net::IpAddr;

/// Marks the metadata, in the last 128 KB.
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";
const MARK_WITHIN: usize = 128 * 1024;
/// Zero bytes between the tree and the values.
const GAP: usize = 16;
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub struct Mmdb {
    bytes: Vec<u8>,
    nodes: u32,
    /// Bits per record: 24, 28 or 32.
    width: usize,
    v6: bool,
    /// Offset of the values.
    data: usize,
    /// Build time in Unix seconds.
    pub built: u64,
}

/// A value; containers carry the offset of their contents.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DataItem<'a> {
    Text(&'a [u8]),
    Unsigned(u64),
    Wide(u128),
    Signed(i32),
    Float(f64),
    Boolean(bool),
    Map { entries: usize },
    Array { entries: usize },
}

/// The offset behind the mark.
fn metadata_start(bytes: &[u8]) -> Option<usize> {
    let start = bytes.len().saturating_sub(MARK_WITHIN);
    Some(memchr::memmem::rfind(bytes.get(start..)?, MARK)? + start + MARK.len())
}

impl Mmdb {
    /// Returns whether a file is of this format, valid or not.
    pub fn has_mark(bytes: &[u8]) -> bool {
        metadata_start(bytes).is_some()
    }

    /// Returns `None` for an invalid database.
    pub fn new(bytes: Vec<u8>) -> Option<Mmdb> {
        let mark = metadata_start(&bytes)?;
        let said = DataValues(bytes.get(mark..)?);
        let number = |name: &[u8]| match said.find(0, &[name])? {
            DataItem::Unsigned(number) => Some(number),
            _ => None,
        };
        let nodes = u32::try_from(number(b"node_count")?).ok()?;
        let width = usize::try_from(number(b"record_size")?).ok().filter(|width| matches!(width, 24 | 28 | 32))?;
        if number(b"binary_format_major_version")? != 2 {
            return None;
        }
        let v6 = match number(b"ip_version")? {
            4 => false,
            6 => true,
            _ => return None,
        };
        let built = number(b"build_epoch").unwrap_or(0);
        let data = (nodes as usize).checked_mul(width / 4)?.checked_add(GAP)?;
        (data <= bytes.len()).then_some(Mmdb { bytes, nodes, width, v6, data, built })
    }

    fn record(&self, node: u32, bit: bool) -> Option<u32> {
        let size = self.width / 4;
        let start = (node as usize).checked_mul(size)?;
        let node = self.bytes.get(start..start + size)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        match (node, bit) {
            (bytes, _) if self.width == 28 => {
                let [a, b, c, both, d, e, f] = bytes else { return None };
                Some(match bit {
                    false => u32::from(both >> 4) << 24 | number(&[*a, *b, *c]),
                    true => u32::from(both & 15) << 24 | number(&[*d, *e, *f]),
                })
            }
            (node, false) => node.get(..size / 2).map(number),
            (node, true) => node.get(size / 2..).map(number),
        }
    }

    fn place(&self, address: IpAddr) -> Option<usize> {
        let (bits, count) = match address {
            IpAddr::V4(v4) if self.v6 => (u128::from(v4.to_bits()), 128),
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) if self.v6 => (v6.to_bits(), 128),
            IpAddr::V6(v6) => (u128::from(v6.to_ipv4_mapped()?.to_bits()), 32),
        };
        let mut node = 0;
        for depth in (0..count).rev() {
            if node >= self.nodes {
                break;
            }
            node = self.record(node, bits >> depth & 1 == 1)?;
        }
        (node as usize).checked_sub(self.nodes as usize)?.checked_sub(GAP)
    }

    /// Appends the value at a path for an address; `false`: none, or not printable.
    pub fn value<P: AsRef<[u8]>>(&self, address: IpAddr, path: &[P], out: &mut Vec<u8>) -> bool {
        let path: Vec<&[u8]> = path.iter().map(AsRef::as_ref).collect();
        let values = DataValues(self.bytes.get(self.data..).unwrap_or_default());
        let Some(item) = self.place(address).and_then(|at| values.find(at, &path)) else { return false };
        let text = match item {
            DataItem::Text(text) => {
                out.extend_from_slice(text);
                return true;
            }
            DataItem::Wide(number) => format!("0x{number:032x}"),
            DataItem::Unsigned(number) => number.to_string(),
            DataItem::Signed(number) => number.to_string(),
            DataItem::Float(number) => format!("{number:.5}"),
            DataItem::Boolean(is) => u8::from(is).to_string(),
            DataItem::Map { .. } | DataItem::Array { .. } => return false,
        };
        out.extend_from_slice(text.as_bytes());
        true
    }
}

#[derive(Clone, Copy)]
struct DataValues<'a>(&'a [u8]);

struct FieldHead {
    kind: u8,
    size: usize,
    next: usize,
}

const POINTER: u8 = 1;

impl<'a> DataValues<'a> {
    fn byte(self, at: usize) -> Option<usize> {
        self.0.get(at).map(|byte| usize::from(*byte))
    }
    fn bytes(self, at: usize, count: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(count)?)
    }
    fn number(self, at: usize, count: usize) -> Option<usize> {
        Some(self.bytes(at, count)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn head(self, at: usize) -> Option<FieldHead> {
        let first = self.byte(at)?;
        let (mut kind, mut next) = (first >> 5, at + 1);
        if kind == usize::from(POINTER) {
            // The size field is the pointer's target.
            let (more, low) = (first >> 3 & 3, first & 7);
            let (size, count) = match more {
                0 => (low << 8 | self.number(next, 1)?, 1),
                1 => ((low << 16 | self.number(next, 2)?) + 2048, 2),
                2 => ((low << 24 | self.number(next, 3)?) + 526_336, 3),
                _ => (self.number(next, 4)?, 4),
            };
            return Some(FieldHead { kind: POINTER, size, next: next + count });
        }
        if kind == 0 {
            kind = self.byte(next)? + 7;
            next += 1;
        }
        let (size, count) = match first & 31 {
            29 => (29 + self.number(next, 1)?, 1),
            30 => (285 + self.number(next, 2)?, 2),
            31 => (65_821 + self.number(next, 3)?, 3),
            size => (size, 0),
        };
        Some(FieldHead { kind: u8::try_from(kind).ok()?, size, next: next + count })
    }

    /// Follows a pointer.
    fn real(self, at: usize) -> Option<FieldHead> {
        let head = self.head(at)?;
        if head.kind != POINTER {
            return Some(head);
        }
        self.head(head.size).filter(|head| head.kind != POINTER)
    }

    fn item(self, at: usize) -> Option<DataItem<'a>> {
        let FieldHead { kind, size, next } = self.real(at)?;
        let unsigned = |most: usize| {
            let bytes = self.bytes(next, size).filter(|_| size <= most)?;
            Some(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
        };
        match kind {
            2 | 4 => self.bytes(next, size).map(DataItem::Text),
            3 => Some(DataItem::Float(f64::from_be_bytes(self.bytes(next, size)?.try_into().ok()?))),
            5 => unsigned(2).map(|number| DataItem::Unsigned(number as u64)),
            6 => unsigned(4).map(|number| DataItem::Unsigned(number as u64)),
            9 => unsigned(8).map(|number| DataItem::Unsigned(number as u64)),
            10 => unsigned(16).map(DataItem::Wide),
            8 if size <= 4 => Some(DataItem::Signed(self.number(next, size)? as u32 as i32)),
            7 => Some(DataItem::Map { entries: size }),
            11 => Some(DataItem::Array { entries: size }),
            14 => Some(DataItem::Boolean(size != 0)),
            15 => Some(DataItem::Float(f32::from_be_bytes(self.bytes(next, size)?.try_into().ok()?).into())),
            _ => None,
        }
    }

    fn skip(self, at: usize, depth: usize) -> Option<usize> {
        let FieldHead { kind, size, next } = self.head(at)?;
        let inside = match kind {
            POINTER | 14 => return Some(next),
            7 => size.checked_mul(2)?,
            11 => size,
            _ => return next.checked_add(size),
        };
        let depth = depth.checked_sub(1)?;
        (0..inside).try_fold(next, |at, _| self.skip(at, depth))
    }

    /// Follows a path: keys of maps, and indexes of arrays (negative ones from the end).
    fn find(self, at: usize, path: &[&[u8]]) -> Option<DataItem<'a>> {
        let Some((step, rest)) = path.split_first() else { return self.item(at) };
        let mut inside = self.real(at)?.next;
        match self.item(at)? {
            DataItem::Map { entries } => {
                for _ in 0..entries {
                    let key = self.item(inside)?;
                    let value = self.skip(inside, DEPTH_MAX)?;
                    if key == DataItem::Text(step) {
                        return self.find(value, rest);
                    }
                    inside = self.skip(value, DEPTH_MAX)?;
                }
                None
            }
            DataItem::Array { entries } => {
                let index: i64 = std::str::from_utf8(step).ok()?.parse().ok()?;
                let index = if index < 0 { entries as i64 + index } else { index };
                let index = usize::try_from(index).ok().filter(|index| *index < entries)?;
                for _ in 0..index {
                    inside = self.skip(inside, DEPTH_MAX)?;
                }
                self.find(inside, rest)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn text(text: &str, out: &mut Vec<u8>) {
        assert!(text.len() < 29);
        out.push(2 << 5 | text.len() as u8);
        out.extend_from_slice(text.as_bytes());
    }

    fn entry(key: &str, control: &[u8], value: &[u8], out: &mut Vec<u8>) {
        text(key, out);
        out.extend_from_slice(control);
        out.extend_from_slice(value);
    }

    /// Builds an IPv4 database with data for 10.0.0.1.
    pub fn database(width: u8, name: &str) -> Vec<u8> {
        let mut out = tree(width);
        let values = out.len();
        out.push(7 << 5 | 8);
        text("name", &mut out);
        let place = out.len() - values;
        text(name, &mut out);
        entry("again", &[1 << 5, place as u8], b"", &mut out);
        entry("number", &[6 << 5 | 2], &[1, 2], &mut out);
        entry("minus", &[4, 1], &(-5i32).to_be_bytes(), &mut out);
        entry("yes", &[1, 7], b"", &mut out);
        entry("half", &[3 << 5 | 8], &2.5f64.to_be_bytes(), &mut out);
        entry("large", &[16, 3], &[0xff; 16], &mut out);
        text("list", &mut out);
        out.extend_from_slice(&[2, 4]);
        text("a", &mut out);
        out.push(7 << 5 | 1);
        entry("b", &[2 << 5 | 1], b"c", &mut out);
        end(width, out)
    }

    /// Builds an IPv4 database with a country for 10.0.0.1.
    pub fn place_database(code: &str, name: &str) -> Vec<u8> {
        let mut out = tree(24);
        out.push(7 << 5 | 1);
        text("country", &mut out);
        out.push(7 << 5 | 2);
        text("iso_code", &mut out);
        text(code, &mut out);
        text("names", &mut out);
        out.push(7 << 5 | 1);
        text("en", &mut out);
        text(name, &mut out);
        end(24, out)
    }

    fn tree(width: u8) -> Vec<u8> {
        let address = 0x0a00_0001u32;
        let nodes = 32u32;
        let mut out = Vec::new();
        for depth in 0..nodes {
            let next = if depth == 31 { nodes + GAP as u32 } else { depth + 1 };
            let [left, right] = if address >> (31 - depth) & 1 == 0 { [next, nodes] } else { [nodes, next] };
            match width {
                24 => [left, right].iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()[1..])),
                28 => {
                    out.extend_from_slice(&left.to_be_bytes()[1..]);
                    out.push(((left >> 24) as u8) << 4 | (right >> 24) as u8);
                    out.extend_from_slice(&right.to_be_bytes()[1..]);
                }
                _ => [left, right].iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes())),
            }
        }
        out.extend_from_slice(&[0; GAP]);
        out
    }

    fn end(width: u8, mut out: Vec<u8>) -> Vec<u8> {
        let nodes = 32u32;
        out.extend_from_slice(MARK);
        out.push(7 << 5 | 5);
        entry("node_count", &[6 << 5 | 1], &[nodes as u8], &mut out);
        entry("record_size", &[5 << 5 | 1], &[width], &mut out);
        entry("ip_version", &[5 << 5 | 1], &[4], &mut out);
        entry("binary_format_major_version", &[5 << 5 | 1], &[2], &mut out);
        entry("build_epoch", &[2, 2], &[1, 0], &mut out);
        out
    }

    #[test]
    fn values_of_every_kind() {
        for width in [24, 28, 32] {
            let database = Mmdb::new(database(width, "Tide")).expect("a database");
            assert_eq!(database.built, 256);
            let value = |address: &str, path: &str| {
                let mut out = Vec::new();
                let path: Vec<&[u8]> = path.split(' ').map(str::as_bytes).collect();
                let found = database.value(address.parse().expect("an address"), &path, &mut out);
                found.then(|| String::from_utf8(out).expect("text"))
            };
            for (path, text) in [
                ("name", "Tide"),
                ("again", "Tide"),
                ("number", "258"),
                ("minus", "-5"),
                ("yes", "1"),
                ("half", "2.50000"),
                ("large", "0xffffffffffffffffffffffffffffffff"),
                ("list 0", "a"),
                ("list 1 b", "c"),
                ("list -1 b", "c"),
            ] {
                assert_eq!(value("10.0.0.1", path).as_deref(), Some(text), "{path}");
                assert_eq!(value("::ffff:10.0.0.1", path).as_deref(), Some(text), "{path}");
            }
            for path in ["none", "list", "list 2", "list -3", "list x", "name x", ""] {
                assert_eq!(value("10.0.0.1", path), None, "{path}");
            }
            assert_eq!((value("10.0.0.2", "name"), value("2001:db8::1", "name")), (None, None));
        }
    }

    #[test]
    fn other_files_are_refused() {
        let whole = database(24, "Tide");
        assert!(Mmdb::new(Vec::new()).is_none() && Mmdb::new(MARK.to_vec()).is_none());
        let said = memchr::memmem::rfind(&whole, MARK).expect("there") + MARK.len();
        for end in 0..said + 40 {
            assert!(Mmdb::new(whole[..end].to_vec()).is_none(), "{end}");
        }
        let mut random = testkit::Random::new(88_172_645_463_325_252);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                let at = random.below(bytes.len());
                bytes[at] = random.octet();
            }
            super::super::fuzzing::mmdb(&bytes);
        }
    }
}
