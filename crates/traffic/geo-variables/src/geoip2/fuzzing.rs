//! Body of the fuzz target of MaxMind's databases.

use super::mmdb::Mmdb;

/// Characters of the longest number: `f64::MIN` with five decimals.
const NUMBER_CHARS_MAX: usize = 316;

pub fn mmdb(data: &[u8]) {
    let Some(database) = Mmdb::new(data.to_vec()) else { return };
    for address in [[10, 0, 0, 1].into(), [255; 4].into(), [0u8; 16].into(), [0x20; 16].into()] {
        for path in [&[b"name".as_slice()] as &[&[u8]], &[b"again"], &[b"list", b"1", b"b"], &[b"list", b"-1"], &[]] {
            let mut out = Vec::new();
            let found = database.value(address, path, &mut out);
            assert!(found || out.is_empty());
            assert!(out.len() <= data.len().max(NUMBER_CHARS_MAX));
        }
    }
}
