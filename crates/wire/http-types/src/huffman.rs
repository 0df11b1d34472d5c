//! Huffman code of HPACK and QPACK (RFC 7541, 5.2 and appendix B).
//! The canonical code follows from its lengths. A table decodes codes of up to eight bits, longer ones go bit by bit.

/// Code lengths in bits by octet; the last is the end-of-string symbol, which must not be sent.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

const LENGTH_MAX: usize = 30;
/// Padding bits: seven by the RFC; nginx accepts eight, which some clients send.
const PADDING_MAX: usize = 8;
/// Longest code in the table.
const SHORT: usize = 8;

struct Code {
    codes: [(u32, u8); 257],
    /// Octets in code order.
    symbols: [u16; 257],
    /// By length: first code, count, and offset in `symbols`.
    groups: [(u32, u32, usize); LENGTH_MAX + 1],
    /// By the next eight bits: octet and code length; 0: longer.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: Code = build();

#[allow(clippy::indexing_slicing, reason = "evaluated when compiled: a wrong index is an error of the compiler")]
const fn build() -> Code {
    let mut code = Code {
        codes: [(0, 0); 257],
        symbols: [0; 257],
        groups: [(0, 0, 0); LENGTH_MAX + 1],
        short: [(0, 0); 1 << SHORT],
    };
    let (mut next, mut place, mut length) = (0u32, 0, 1);
    while length <= LENGTH_MAX {
        next <<= 1;
        code.groups[length] = (next, 0, place);
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = (next, length as u8);
                code.symbols[place] = symbol as u16;
                if length <= SHORT {
                    let spare = SHORT - length;
                    let mut low = 0;
                    while low < 1 << spare {
                        code.short[((next << spare) | low) as usize] = (symbol as u8, length as u8);
                        low += 1;
                    }
                }
                next += 1;
                place += 1;
                code.groups[length].1 += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// Returns the number of octets that [`encode`] appends.
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize =
        text.iter().map(|octet| usize::from(LENGTHS.get(usize::from(*octet)).copied().unwrap_or(0))).sum();
    bits.div_ceil(8)
}

/// Appends the code of a text.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for octet in text {
        let (code, length) = CODE.codes.get(usize::from(*octet)).copied().unwrap_or_default();
        bits = bits << length | u64::from(code);
        // A code has 30 bits at most, so that 31 older ones leave it room.
        count += u32::from(length);
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        // Fills the last octet with ones, the start of the end-of-string code.
        out.push(((bits << (8 - count)) as u8) | (0xff >> count));
    }
}

/// Unknown code, end-of-string symbol, or invalid padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// Appends the decoded text, at most `max` octets; fails with [`Invalid`] beyond.
pub fn decode(code: &[u8], max: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    let end = out.len() + max;
    let (mut bits, mut count) = (0u64, 0usize);
    let mut rest = code.iter();
    loop {
        while count <= 56 - 8 {
            let Some(octet) = rest.next() else { break };
            bits = bits << 8 | u64::from(*octet);
            count += 8;
        }
        if count == 0 {
            return Ok(());
        }
        let window = if count >= SHORT { bits >> (count - SHORT) } else { bits << (SHORT - count) | (0xff >> count) };
        let (symbol, length) = CODE.short.get((window & 0xff) as usize).copied().unwrap_or_default();
        let length = usize::from(length);
        if length == 0 {
            let Some((symbol, length)) = long(bits, count) else {
                // Fewer bits than a code: padding of ones.
                let ones = (1u64 << count) - 1;
                return if rest.len() == 0 && count <= PADDING_MAX && bits & ones == ones {
                    Ok(())
                } else {
                    Err(Invalid)
                };
            };
            if out.len() >= end {
                return Err(Invalid);
            }
            out.push(symbol);
            count -= length;
        } else if length > count {
            let ones = (1u64 << count) - 1;
            return if count <= PADDING_MAX && bits & ones == ones { Ok(()) } else { Err(Invalid) };
        } else {
            if out.len() >= end {
                return Err(Invalid);
            }
            out.push(symbol);
            count -= length;
        }
        bits &= (1u64 << count) - 1;
    }
}

/// Decodes a code of more than eight bits from the `count` lowest bits.
fn long(bits: u64, count: usize) -> Option<(u8, usize)> {
    for length in SHORT + 1..=LENGTH_MAX.min(count) {
        let code = (bits >> (count - length)) as u32 & ((1u64 << length) - 1) as u32;
        let (first, number, place) = CODE.groups.get(length).copied()?;
        if code >= first && code - first < number {
            let symbol = CODE.symbols.get(place + (code - first) as usize).copied()?;
            return u8::try_from(symbol).ok().map(|symbol| (symbol, length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
    }

    #[test]
    fn the_rfcs_examples() {
        for (text, code) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!((out.as_slice(), out.len()), (hex(code).as_slice(), encoded_len(text.as_bytes())));
            let mut back = Vec::new();
            assert_eq!(decode(&out, 1000, &mut back), Ok(()));
            assert_eq!(back, text.as_bytes());
            assert_eq!(decode(&out, text.len() - 1, &mut Vec::new()), Err(Invalid));
        }
    }

    #[test]
    fn every_octet_in_every_place() {
        for octet in 0..=255u8 {
            for before in 0..9 {
                let text: Vec<u8> = std::iter::repeat_n(b'a', before).chain([octet, octet, b'x']).collect();
                let (mut code, mut back) = (Vec::new(), Vec::new());
                encode(&text, &mut code);
                assert_eq!(decode(&code, text.len(), &mut back), Ok(()), "{text:?}");
                assert_eq!(back, text);
            }
        }
    }

    #[test]
    fn paddings_are_short_and_of_ones() {
        let bad: [&[u8]; 4] = [&[0xff, 0xff], &[0x1f, 0xff], &[0x18], &[0xff, 0xff, 0xff, 0xff]];
        for code in bad {
            assert_eq!(decode(code, 100, &mut Vec::new()), Err(Invalid), "{code:x?}");
        }
        let mut out = Vec::new();
        assert_eq!(decode(&[0x1f], 100, &mut out), Ok(()));
        assert_eq!(out, b"a");
    }
}
