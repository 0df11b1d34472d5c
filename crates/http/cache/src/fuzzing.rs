//! Body of the fuzz target: arbitrary bytes as a file's head.

use crate::Meta;
use crate::entry::Layout;

/// Panics unless an accepted head encodes to equal bytes and its layout fits.
pub fn entry(data: &[u8]) {
    let early = Layout::read(data);
    match Meta::decode(data) {
        Err(_) => {}
        Ok((meta, layout)) => {
            assert_eq!(early.ok(), Some(layout));
            assert!(layout.key < layout.etag && layout.etag <= layout.vary && layout.vary <= layout.head);
            assert!(layout.head <= layout.body && layout.body <= data.len());
            let (key, head) = (&data[layout.key..layout.etag - 1], &data[layout.head..layout.body]);
            let (again, same) = Meta::decode(&meta.encode(key, head, layout.body_len)).expect("our own head");
            assert_eq!((again, same), (meta, layout));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::{Digest, Md5};

    /// Changed heads with a corrected checksum, which would otherwise hide the rest.
    #[test]
    fn heads_that_were_tampered_with() {
        let meta = Meta { status: 200, etag: b"\"e\"".to_vec(), vary: b"Accept".to_vec(), ..Meta::default() };
        let good = meta.encode(b"http://a/b", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 10);
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
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
