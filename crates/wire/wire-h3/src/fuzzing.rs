//! Bodies of the fuzz targets: each takes arbitrary octets and panics if an invariant fails. Each also runs with a seed
//! in `cargo test`.

use crate::frame::ConnectionError;
use crate::qpack::{Broken, DecodedSection, Decoder, Encoder, TABLE_CAPACITY_MAX};
use crate::reader::{ControlReader, MessagePart, MessageReader};
use bytes::Bytes;
use http_types::ListLimits;

/// Maximum octets of an encoded section in these targets.
const SECTION_MAX: u64 = 1 << 16;

/// Uses octets as encoder streams and field sections in turn. Checks that decoded lists, encoded again, decode to equal
/// lists.
pub fn qpack(bytes: &[u8]) {
    let limits = ListLimits { bytes_max: 8192, fields_max: 100, field_max: 4096 };
    let mut decoder = Decoder::new(TABLE_CAPACITY_MAX, 4096);
    let (mut encoder, mut back) = (Encoder::default(), Decoder::new(TABLE_CAPACITY_MAX, 4096));
    encoder.allow(TABLE_CAPACITY_MAX, 8);
    for (n, part) in bytes.split(|octet| *octet == 0xf5).enumerate() {
        if n % 2 == 0 {
            if decoder.receive(part).is_err() {
                return;
            }
            assert!(decoder.table_size() <= TABLE_CAPACITY_MAX && decoder.held() <= 32 * 1024);
            continue;
        }
        let list = match decoder.decode(part, &limits) {
            Ok(DecodedSection::List { list, .. }) => list,
            Ok(DecodedSection::Blocked(required)) => {
                assert!(required > decoder.inserted() && required <= decoder.inserted() + TABLE_CAPACITY_MAX / 32);
                continue;
            }
            Err(_) => return,
        };
        assert!(list.arena.len() <= limits.bytes_max && list.fields.len() <= limits.fields_max);
        let mut out = Vec::new();
        encoder.section(4 * n as u64, None, &mut list.iter(), &mut out);
        let Ok(DecodedSection::List { list: again, required }) = back.decode(&out, &limits) else {
            panic!("our own section is refused")
        };
        assert!(again.iter().eq(list.iter()));
        let mut told = Vec::new();
        if required > 0 {
            back.acknowledge(4 * n as u64, required, &mut told);
        }
        assert_eq!(back.receive(encoder.instructions()), Ok(()), "our own instructions are refused");
        encoder.instructions().clear();
        back.tell_insertions(&mut told);
        assert_eq!(encoder.receive(&told), Ok(()), "our own acknowledgments are refused");
    }
    // A decoder stream of any octets.
    let _ = encoder.receive(bytes);
}

/// Checks that a truncated field section is distinguished from an invalid one, so that no octet beyond the end is read.
pub fn section(bytes: &[u8]) {
    let limits = ListLimits { bytes_max: 8192, fields_max: 100, field_max: 4096 };
    let decoder = Decoder::new(TABLE_CAPACITY_MAX, 4096);
    if decoder.decode(bytes, &limits).is_ok() {
        return;
    }
    for length in 0..bytes.len().min(64) {
        let cut = decoder.decode(bytes.get(..length).unwrap_or_default(), &limits);
        assert!(!matches!(cut, Err(Broken::Code(""))), "an error without words");
    }
}

/// Uses octets as a request stream and as a control stream. Checks that the result does not depend on their division
/// into pieces.
pub fn frames(bytes: &[u8]) {
    let whole = (message(bytes, bytes.len().max(1)), control(bytes, bytes.len().max(1)));
    for size in [1, 7, 64] {
        assert_eq!((message(bytes, size), control(bytes, size)), whole, "cut into pieces of {size}");
    }
}

fn message(bytes: &[u8], size: usize) -> (Vec<String>, usize, Option<ConnectionError>) {
    let mut reader = MessageReader::new(SECTION_MAX);
    let (mut all, mut octets) = (Vec::new(), 0);
    for piece in bytes.chunks(size) {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut input) {
                Ok(Some(MessagePart::Section(section))) => all.push(format!("{section:x?} behind {octets}")),
                Ok(Some(MessagePart::Data(data))) => octets += data.len(),
                Ok(None) => break,
                Err(error) => return (all, octets, Some(error)),
            }
        }
    }
    (all, octets, None)
}

fn control(bytes: &[u8], size: usize) -> (Vec<String>, Option<ConnectionError>) {
    let mut reader = ControlReader::new(true);
    let mut all = Vec::new();
    for piece in bytes.chunks(size) {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut input) {
                Ok(Some(frame)) => all.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

#[cfg(test)]
mod tests {
    use crate::frame::put_head;
    use testkit::Random;

    fn octets(random: &mut Random, most: usize) -> Vec<u8> {
        let length = random.below(most);
        random.octets(length)
    }

    fn random(seed: u64) -> Random {
        Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[test]
    fn frames_from_seeds() {
        for seed in 1..10_000u64 {
            let mut random = random(seed);
            let mut out = Vec::new();
            // Both streams want a frame of their own first.
            let begins = [4, 1, 0x21][random.below(3) as usize];
            for n in 0..1 + random.below(12) {
                let kind = match n {
                    0 => begins,
                    _ => [0, 1, 3, 4, 5, 7, 0xd, 0x21, 0xf_0700, 0xf_0701, 2, 1 << 40][random.below(12) as usize],
                };
                let payload = match kind {
                    4 => (0..random.below(4)).flat_map(|_| [[1, 6, 7, 8, 0x21][random.below(5) as usize], 1]).collect(),
                    _ => octets(&mut random, 100),
                };
                put_head(kind, payload.len() + usize::from(random.below(10) == 0), &mut out);
                out.extend_from_slice(&payload);
            }
            super::frames(&out);
        }
    }

    #[test]
    fn sections_from_seeds() {
        for seed in 1..20_000u64 {
            let mut random = random(seed);
            super::section(&random.octets(64));
            // A capacity, insertions, a section; then anything.
            let mut out = vec![0x3f, 0xe1, 0x1f];
            for _ in 0..random.below(4) {
                out.extend_from_slice(&[0xc0 | random.below(32) as u8, 2, b'a', b'a' + random.below(26) as u8]);
            }
            out.push(0xf5);
            out.extend_from_slice(&[random.below(6) as u8, random.below(4) as u8]);
            for _ in 0..random.below(6) {
                out.push([0x80, 0x81, 0xc1, 0x10, 0xd1][random.below(5) as usize]);
            }
            out.push(0xf5);
            out.extend(octets(&mut random, 32));
            super::qpack(&out);
        }
    }
}
