//! AES key unwrapping (RFC 3394) with keys of 192 bits, which aws-lc-rs does not offer.

use aws_lc_rs::cipher::{AES_192, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;

/// The initial value that shows the integrity of the key.
const INITIAL: [u8; 8] = [0xa6; 8];
/// In bytes.
const KEY_BYTES_MAX: usize = 64;

pub fn unwrap_192(kek: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    if wrapped.len() < 24 || wrapped.len() > KEY_BYTES_MAX + 8 || !wrapped.len().is_multiple_of(8) {
        return None;
    }
    let (mut a, mut r) = {
        let (a, r) = wrapped.split_first_chunk::<8>()?;
        (*a, r.to_vec())
    };
    let cipher = DecryptingKey::ecb(UnboundCipherKey::new(&AES_192, kek).ok()?).ok()?;
    let count = r.len() / 8;
    for j in (0..6).rev() {
        for i in (1..=count).rev() {
            let t = ((count * j + i) as u64).to_be_bytes();
            let half = r.get_mut((i - 1) * 8..i * 8)?;
            let mut block = [0; 16];
            for (to, from) in block.iter_mut().zip(a.iter().zip(t).map(|(a, t)| a ^ t).chain(half.iter().copied())) {
                *to = from;
            }
            cipher.decrypt(&mut block, DecryptionContext::None).ok()?;
            let (first, second) = block.split_first_chunk::<8>()?;
            a = *first;
            half.copy_from_slice(second);
        }
    }
    verify_slices_are_equal(&a, &INITIAL).ok()?;
    Some(r)
}

#[cfg(test)]
mod tests {
    use super::unwrap_192;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).expect("hex")).collect()
    }

    #[test]
    fn vectors_of_rfc_3394() {
        // Sections 4.2 and 4.4.
        let kek = hex("000102030405060708090A0B0C0D0E0F1011121314151617");
        let short = hex("96778B25AE6CA435F92B5B97C050AED2468AB8A17AD84E5D");
        assert_eq!(unwrap_192(&kek, &short), Some(hex("00112233445566778899AABBCCDDEEFF")));
        let long = hex("031D33264E15D33268F24EC260743EDCE1C6C7DDEE725A936BA814915C6762D2");
        assert_eq!(unwrap_192(&kek, &long), Some(hex("00112233445566778899AABBCCDDEEFF0001020304050607")));
        let mut broken = long;
        broken[31] ^= 1;
        assert_eq!(unwrap_192(&kek, &broken), None);
        for length in [0, 8, 16, 23, 80] {
            assert_eq!(unwrap_192(&kek, &vec![0; length]), None);
        }
        assert_eq!(unwrap_192(&kek[..16], &short), None);
    }
}
