//! Name of an entry: the MD5 of its key, as in nginx.

use md5::{Digest, Md5};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Hash(pub [u8; 16]);

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Hash {
    pub fn of(key: &[u8]) -> Hash {
        Hash(Md5::digest(key).into())
    }
    pub fn hex(&self) -> String {
        let mut out = String::with_capacity(32);
        for byte in self.0 {
            out.push(DIGITS[usize::from(byte >> 4)] as char);
            out.push(DIGITS[usize::from(byte & 15)] as char);
        }
        out
    }
    pub fn from_hex(text: &[u8]) -> Option<Hash> {
        let mut hash = [0; 16];
        let digit = |c: u8| DIGITS.iter().position(|d| *d == c.to_ascii_lowercase()).map(|n| n as u8);
        if text.len() != 32 {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Hash(hash))
    }
    pub(crate) fn word(&self) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(word)
    }
    /// Path of an entry; directories take digits from the name's end by `levels`.
    pub fn path(&self, root: &Path, levels: &[u8]) -> PathBuf {
        let name = self.hex();
        let mut path = root.to_path_buf();
        let mut end = name.len();
        for width in levels {
            let start = end.saturating_sub(usize::from(*width));
            path.push(&name[start..end]);
            end = start;
        }
        path.push(name);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_nginx_has_them() {
        let hash = Hash::of(b"http://127.0.0.1:8081/t.html");
        let name = hash.hex();
        assert_eq!(name.len(), 32);
        assert_eq!(Hash::from_hex(name.as_bytes()), Some(hash));
        assert_eq!(
            Hash::from_hex(b"b7f54b2df7773722d382f4809d65029c").map(|h| h.path(Path::new("/data"), &[1, 2])),
            Some(PathBuf::from("/data/c/29/b7f54b2df7773722d382f4809d65029c"))
        );
        assert_eq!(hash.path(Path::new("/d"), &[]), Path::new("/d").join(&name));
        assert_eq!(Hash::from_hex(b"b7f54b2df7773722d382f4809d65029"), None);
        assert_eq!(Hash::from_hex(b"g7f54b2df7773722d382f4809d65029c"), None);
    }
}
