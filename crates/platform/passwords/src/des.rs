//! crypt(3) of DES: the traditional form with two characters of salt, and BSDi's with rounds and four. Salts exchange bits of
//! DES's expansion, so that no library of the cipher computes them. Tables: FIPS 46-3.

use std::sync::LazyLock;

/// 64 characters of crypt(3), by value.
pub const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const IP: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32,
    24, 16, 8, 57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47,
    39, 31, 23, 15, 7,
];
const FP: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21,
    61, 29, 36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27, 34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9,
    49, 17, 57, 25,
];
const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4,
    25,
];
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36, 63, 55,
    47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
const PC2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52, 31, 37, 47, 55, 30,
    40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
const SHIFTS: [u32; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
/// Rows of the eight boxes, four bits a column.
const BOXES: [[u64; 4]; 8] = [
    [0xe4d1_2fb8_3a6c_5907, 0x0f74_e2d1_a6cb_9538, 0x41e8_d62b_fc97_3a50, 0xfc82_4917_5b3e_a06d],
    [0xf18e_6b34_972d_c05a, 0x3d47_f28e_c01a_69b5, 0x0e7b_a4d1_58c6_932f, 0xd8a1_3f42_b67c_05e9],
    [0xa09e_63f5_1dc7_b428, 0xd709_346a_285e_cbf1, 0xd649_8f30_b12c_5ae7, 0x1ad0_6987_4fe3_b52c],
    [0x7de3_069a_1285_bc4f, 0xd8b5_6f03_472c_1ae9, 0xa690_cb7d_f13e_5284, 0x3f06_a1d8_945b_c72e],
    [0x2c41_7ab6_853f_d0e9, 0xeb2c_47d1_50fa_3986, 0x421b_ad78_f9c5_630e, 0xb8c7_1e2d_6f09_a453],
    [0xc1af_9268_0d34_e75b, 0xaf42_7c95_61de_0b38, 0x9ef5_28c3_704a_1db6, 0x432c_95fa_be17_608d],
    [0x4b2e_f08d_3c97_5a61, 0xd0b7_491a_e35c_2f86, 0x14bd_c37e_af68_0592, 0x6bd8_14a7_950f_e23c],
    [0xd284_6fb1_a93e_50c7, 0x1fd8_a374_c56b_0e92, 0x7b41_9ce2_06ad_f358, 0x21e7_4a8d_fc90_356b],
];

/// Picks bits of a number of `width` bits by their places, from 1 at the top.
fn permute(bits: u64, width: u32, places: &[u8]) -> u64 {
    places.iter().fold(0, |out, place| out << 1 | bits >> (width - u32::from(*place)) & 1)
}

/// Each box with the permutation behind it.
static PERMUTED: LazyLock<[[u32; 64]; 8]> = LazyLock::new(|| {
    let mut number = 0;
    BOXES.map(|rows| {
        let shift = 28 - 4 * number;
        number += 1;
        let mut at = 0_u64;
        [(); 64].map(|()| {
            let (row, column) = ((at >> 4 & 2 | at & 1) as usize, at >> 1 & 15);
            at += 1;
            let value = rows.get(row).map_or(0, |row| row >> (60 - 4 * column) & 15);
            permute(value << shift, 32, &P) as u32
        })
    })
});

/// Eight characters of seven bits.
fn key_of(password: &[u8]) -> u64 {
    let characters = password.iter().copied().chain(std::iter::repeat(0)).take(8);
    characters.fold(0, |key, c| key << 8 | u64::from(c << 1))
}

/// Encrypts a block some times. `salt`: its bit 0 exchanges the first bits of the halves of the expansion.
fn encrypt(block: u64, key: u64, salt: u32, times: u32) -> u64 {
    let half = permute(key, 64, &PC1);
    let (mut c, mut d) = ((half >> 28) as u32, half as u32 & 0x0fff_ffff);
    let keys = SHIFTS.map(|shift| {
        let turn = |half: u32| (half << shift | half >> (28 - shift)) & 0x0fff_ffff;
        (c, d) = (turn(c), turn(d));
        permute(u64::from(c) << 28 | u64::from(d), 56, &PC2)
    });
    let exchanged = salt.reverse_bits() >> 8;
    let boxes = &*PERMUTED;
    let block = permute(block, 64, &IP);
    let (mut left, mut right) = ((block >> 32) as u32, block as u32);
    for _ in 0..times {
        for key in &keys {
            let wide = (0..8).fold(0_u64, |wide, at| wide << 6 | u64::from(right.rotate_left(4 * at + 5) & 63));
            let swap = (wide >> 24 ^ wide) & u64::from(exchanged);
            let mixed = wide ^ swap ^ swap << 24 ^ key;
            let chosen = boxes.iter().zip((0..8).rev()).fold(0, |out, (column, at)| {
                out | column.get((mixed >> (6 * at) & 63) as usize).copied().unwrap_or_default()
            });
            (left, right) = (right, left ^ chosen);
        }
        (left, right) = (right, left);
    }
    permute(u64::from(left) << 32 | u64::from(right), 64, &FP)
}

fn value_of(digit: u8) -> Option<u32> {
    DIGITS.iter().position(|c| *c == digit).map(|value| value as u32)
}

/// Number of digits, the lowest first.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().rev().try_fold(0, |number, digit| Some(number << 6 | value_of(*digit)?))
}

/// Appends a block in eleven digits.
fn put(block: u64, out: &mut Vec<u8>) {
    let bits = u128::from(block) << 2;
    out.extend((0..11).rev().filter_map(|at| DIGITS.get((bits >> (6 * at) & 63) as usize)));
}

/// The traditional form, of the first eight characters. `None`: `stored` has no salt.
pub fn crypt_traditional(password: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    let salt = stored.get(..2)?;
    let mut out = salt.to_vec();
    put(encrypt(0, key_of(password), number(salt)?, 25), &mut out);
    Some(out)
}

/// BSDi's form, `_` with rounds and salt. `None`: `stored` lacks them.
pub fn crypt_bsdi(password: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    let head = stored.get(..9)?;
    let (rounds, salt) = (number(head.get(1..5)?)?, number(head.get(5..)?)?);
    if rounds == 0 {
        return None;
    }
    let mut parts = password.chunks(8);
    let mut key = key_of(parts.next().unwrap_or_default());
    for part in parts {
        key = encrypt(key, key, 0, 1) ^ key_of(part);
    }
    let mut out = head.to_vec();
    put(encrypt(0, key, salt, rounds), &mut out);
    Some(out)
}
