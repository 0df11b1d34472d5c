//! Identifiers in cookies: four 32-bit words.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use net::Address;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Significant digits of a cookie; padding or a mark follows.
pub const DIGITS: usize = 22;
const BYTES: usize = 16;
/// First value of version 2's counters, also after overflow.
const FIRST: u32 = 0x0303_0302;
const STEP: u32 = 0x100;

static COUNTER: AtomicU32 = AtomicU32::new(FIRST);
static COUNTER_V1: AtomicU32 = AtomicU32::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uid([u8; BYTES]);

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Part of new identifiers that differs by process.
fn process() -> u32 {
    static START: OnceLock<u32> = OnceLock::new();
    *START.get_or_init(|| {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_micros());
        (micros / 20) << 16 | std::process::id() & 0xffff
    })
}

impl Uid {
    pub fn new(v1: bool, service: Option<u32>, local: &Address) -> Uid {
        let seconds = base::clock::unix_seconds() as u32;
        let words = if v1 {
            let count = COUNTER_V1.fetch_add(STEP, Ordering::Relaxed);
            [service.unwrap_or(0), seconds, process(), count].map(u32::to_ne_bytes)
        } else {
            let count = COUNTER.fetch_add(STEP, Ordering::Relaxed);
            if count > u32::MAX - STEP {
                COUNTER.store(FIRST, Ordering::Relaxed);
            }
            let server = match (service, local) {
                (Some(service), _) => service,
                (None, Address::Ip(address)) => match address.ip() {
                    IpAddr::V4(v4) => v4.to_bits(),
                    IpAddr::V6(v6) => v6.to_bits() as u32,
                },
                (None, Address::Unix(_)) => 0,
            };
            [server, seconds, process(), count].map(u32::to_be_bytes)
        };
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word;
        }
        Uid(bytes)
    }
    pub fn decode(text: &[u8]) -> Option<Uid> {
        let bytes = LENIENT.decode(text.get(..DIGITS)?).ok()?;
        // A counter of 0 is invalid.
        bytes.try_into().ok().map(Uid).filter(|uid| uid.0[12..] != [0; 4])
    }
    pub fn encode(&self) -> String {
        STANDARD.encode(self.0)
    }
    /// As in logs: words in host byte order, hexadecimal.
    pub fn text(&self) -> String {
        self.0.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let local = Address::Ip("192.0.2.1:80".parse().expect("address"));
        for v1 in [false, true] {
            let (one, two) = (Uid::new(v1, None, &local), Uid::new(v1, Some(7), &local));
            assert_ne!(one, two);
            let text = one.encode();
            assert_eq!(text.len(), 24);
            assert_eq!(Uid::decode(text.as_bytes()), Some(one));
            assert_eq!(Uid::decode(&text.as_bytes()[..DIGITS]), Some(one));
            assert_eq!(one.text().len(), 32);
        }
        assert_eq!(Uid::new(false, None, &local).0[..4], [192, 0, 2, 1]);
        for wrong in ["", "short", "!!!!!!!!!!!!!!!!!!!!!!", "AAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(Uid::decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
