//! Body of the fuzz target: arbitrary bytes as a file's head.

use crate::Meta;
use crate::entry::Layout;
use crate::tags::EntryTags;

/// Panics unless an accepted head encodes to equal bytes and its layout fits.
pub fn entry(data: &[u8]) {
    let early = Layout::read(data);
    match Meta::decode(data) {
        Err(_) => {}
        Ok((meta, layout)) => {
            assert_eq!(early.ok(), Some(layout));
            assert!(layout.key < layout.etag && layout.etag <= layout.vary);
            assert!(layout.vary <= layout.tags && layout.tags <= layout.head);
            assert!(layout.head <= layout.body && layout.body <= data.len());
            let (key, head) = (&data[layout.key..layout.etag - 1], &data[layout.head..layout.body]);
            let (again, same) = Meta::decode(&meta.encode(key, head, layout.body_len)).expect("our own head");
            assert_eq!((again, same), (meta, layout));
        }
    }
}

/// [`entry`] behind the checksum: the octets change places of a valid head, and the checksum is corrected, which would otherwise hide the rest.
/// Panics if a head that was changed is taken for that of another key.
pub fn mutated_entry(data: &[u8]) {
    use md5::{Digest, Md5};
    const KEY: &[u8] = b"http://a/b";
    let tags = EntryTags::of(["news,sports"]);
    let meta = Meta { status: 200, etag: b"\"e\"".to_vec(), vary: b"Accept".to_vec(), tags, ..Meta::default() };
    let mut bytes = meta.encode(KEY, b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 10);
    let (good, whole) = (bytes.clone(), bytes.len());
    for change in data.chunks_exact(4).take(64) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        match change[2] % 4 {
            0 => bytes[at] = change[3],
            1 => bytes[at] ^= 1 << (change[3] % 8),
            // Numbers of eight octets: lengths, times.
            2 if at + 8 <= bytes.len() => {
                bytes[at..at + 8].copy_from_slice(&(u64::from(change[3]) << 56 >> (change[3] % 64)).to_le_bytes())
            }
            _ => bytes.truncate(bytes.len() - usize::from(change[3]).min(bytes.len() - 128)),
        }
    }
    // Without a correction every change is noticed.
    if bytes != good && bytes.len() == whole {
        assert!(Meta::decode(&bytes).is_err(), "a changed head with the checksum of another");
    }
    let end = Layout::read(&bytes).map_or(bytes.len(), |layout| layout.body.min(bytes.len()));
    if end >= 128 {
        let mut sum = Md5::new();
        sum.update(&bytes[..112]);
        sum.update(&bytes[128..end]);
        let sum: [u8; 16] = sum.finalize().into();
        bytes[112..128].copy_from_slice(&sum);
    }
    entry(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::{Digest, Md5};

    #[test]
    fn changes_from_octets() {
        let mut state = testkit::Random::new(0x9E37_79B9_7F4A_7C15);
        for _ in 0..20_000 {
            let length = state.below(25);
            mutated_entry(&state.octets(length));
        }
    }

    /// Changed heads with a corrected checksum, which would otherwise hide the rest.
    #[test]
    fn heads_that_were_tampered_with() {
        let tags = EntryTags::of(["news,sports"]);
        let meta = Meta { status: 200, etag: b"\"e\"".to_vec(), vary: b"Accept".to_vec(), tags, ..Meta::default() };
        let good = meta.encode(b"http://a/b", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 10);
        let mut state = testkit::Random::new(0x9E37_79B9_7F4A_7C15);
        let mut next = move |n: usize| state.below(n);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..next(4) {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
            bytes.truncate(bytes.len() - [0, 0, 0, next(40)][next(4)]);
            if bytes.len() >= 128 && next(4) > 0 {
                let end = Layout::read(&bytes).map_or(bytes.len(), |l| l.body.min(bytes.len()));
                let mut sum = Md5::new();
                sum.update(&bytes[..112]);
                sum.update(&bytes[128..end]);
                let sum: [u8; 16] = sum.finalize().into();
                bytes[112..128].copy_from_slice(&sum);
            }
            read += usize::from(Meta::decode(&bytes).is_ok());
            entry(&bytes);
        }
        assert!(read > 1000, "only {read} of them were read");
    }
}
