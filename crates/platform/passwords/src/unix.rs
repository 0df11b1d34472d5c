//! The forms of crypt(3): DES, MD5, SHA-1, SHA-256, SHA-512, bcrypt.

use crate::des::{self, DIGITS};
use blowfish::Blowfish;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha_crypt::Params;
use sha1::Sha1;

/// Characters of a salt at most.
const MD5_SALT_MAX: usize = 8;
const SHA1_SALT_MAX: usize = 64;
const SHA2_SALT_MAX: usize = 16;

/// Computes the form of a password with the parameters of a stored form. `None`: they are unknown or invalid.
pub fn crypt_unix(password: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    match stored {
        [b'_', ..] => des::crypt_bsdi(password, stored),
        [b'$', b'1', b'$', rest @ ..] => crypt_md5(password, b"$1$", rest),
        [b'$', b'5', b'$', rest @ ..] => sha2(password, b"$5$", rest, |password, salt, params| {
            ordered(&sha_crypt::sha256_crypt(password, salt, params), 1)
        }),
        [b'$', b'6', b'$', rest @ ..] => sha2(password, b"$6$", rest, |password, salt, params| {
            ordered(&sha_crypt::sha512_crypt(password, salt, params), 2)
        }),
        [b'$', b's', b'h', b'a', b'1', b'$', rest @ ..] => sha1(password, rest),
        [b'$', b'2', b'a' | b'b' | b'y', b'$', rest @ ..] => bcrypt(password, stored.get(..4)?, rest),
        [b'$', ..] => None,
        _ => des::crypt_traditional(password, stored),
    }
}

/// Returns the part before the next `$`, and the rest behind it.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|c| *c == b'$')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn decimal(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Salts of other characters differ between systems.
fn is_salt(salt: &[u8]) -> bool {
    salt.iter().all(|c| DIGITS.contains(c))
}

/// Appends bytes, the lowest six bits first, three bytes in four characters.
fn put(bytes: &[u8], out: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let number = three.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        out.extend((0..=three.len()).filter_map(|at| DIGITS.get((number >> (6 * at) & 63) as usize)));
    }
}

/// MD5 crypt: `$1$`, and Apache's variant `$apr1$`. `rest`: the stored form behind this.
pub fn crypt_md5(password: &[u8], magic: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let salt = rest.split(|c| *c == b'$').next().unwrap_or_default();
    let salt = salt.get(..MD5_SALT_MAX).unwrap_or(salt);
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut outer = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for chunk in password.chunks(16) {
        outer.update(inner.get(..chunk.len()).unwrap_or_default());
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { &[0] } else { password.get(..1).unwrap_or_default() });
        bits >>= 1;
    }
    let mut digest = outer.finalize();
    for round in 0..1000 {
        let odd = round % 2 == 1;
        let mut next = Md5::new();
        next.update(if odd { password } else { &digest[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &digest[..] } else { password });
        digest = next.finalize();
    }
    let order = [12, 6, 0, 13, 7, 1, 14, 8, 2, 15, 9, 3, 5, 10, 4, 11];
    let ordered: Vec<u8> = order.iter().filter_map(|at| digest.get(*at).copied()).collect();
    let mut out = [magic, salt, b"$"].concat();
    put(&ordered, &mut out);
    Some(out)
}

fn sha1(password: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let (rounds, rest) = split(rest)?;
    let salt = split(rest).map_or(rest, |(salt, _)| salt);
    let salt = salt.get(..SHA1_SALT_MAX).unwrap_or(salt);
    let count = decimal(rounds).filter(|rounds| *rounds > 0)?;
    let keyed = Hmac::<Sha1>::new_from_slice(password).ok().filter(|_| is_salt(salt))?;
    let start = [salt, b"$sha1$", count.to_string().as_bytes()].concat();
    let mut digest = keyed.clone().chain_update(start).finalize().into_bytes();
    for _ in 1..count {
        digest = keyed.clone().chain_update(digest).finalize().into_bytes();
    }
    let mut out = [b"$sha1$", count.to_string().as_bytes(), b"$", salt, b"$"].concat();
    // The highest byte of three first, and the first byte behind the last.
    let bytes: Vec<u8> = digest.iter().chain(digest.first()).copied().collect();
    for three in bytes.chunks(3) {
        put(&three.iter().rev().copied().collect::<Vec<u8>>(), &mut out);
    }
    Some(out)
}

/// A digest's bytes in the order of their characters: one of each third, whose order turns by `turn` from three to three; then
/// those behind the thirds.
fn ordered(digest: &[u8], turn: usize) -> Vec<u8> {
    let third = digest.len() / 3;
    let mut places = Vec::with_capacity(digest.len());
    for n in 0..third {
        let mut three = [n + 2 * third, n + third, n];
        three.rotate_left(n * turn % 3);
        places.extend(three);
    }
    places.extend(3 * third..digest.len());
    places.iter().filter_map(|place| digest.get(*place).copied()).collect()
}

fn sha2(
    password: &[u8],
    magic: &[u8],
    rest: &[u8],
    digest: impl FnOnce(&[u8], &[u8], Params) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (rounds, rest) = match rest.strip_prefix(b"rounds=") {
        Some(rest) => split(rest).map(|(rounds, rest)| (Some(rounds), rest))?,
        None => (None, rest),
    };
    let salt = split(rest).map_or(rest, |(salt, _)| salt);
    let salt = salt.get(..SHA2_SALT_MAX).unwrap_or(salt);
    let params = match rounds {
        Some(rounds) => Params::new(decimal(rounds)?.clamp(Params::ROUNDS_MIN, Params::ROUNDS_MAX)).ok()?,
        None => Params::default(),
    };
    if !is_salt(salt) {
        return None;
    }
    let mut out = magic.to_vec();
    if rounds.is_some() {
        out.extend_from_slice(params.to_string().as_bytes());
        out.push(b'$');
    }
    out.extend_from_slice(salt);
    out.push(b'$');
    put(&digest(password, salt, params), &mut out);
    Some(out)
}

/// Digits of bcrypt, the highest six bits first.
const BCRYPT_DIGITS: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BCRYPT_SALT: usize = 22;
/// Bytes of a password, with its end, that bcrypt uses.
const BCRYPT_PASSWORD_MAX: usize = 72;

fn bcrypt(password: &[u8], magic: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let (cost, rest) = split(rest)?;
    let count = decimal(cost).filter(|count| cost.len() == 2 && (4..=31).contains(count))?;
    let mut bits = rest.get(..BCRYPT_SALT)?.iter().map(|c| BCRYPT_DIGITS.iter().position(|digit| digit == c));
    let number = bits.try_fold(0_u128, |number, value| Some(number << 6 | value? as u128))?;
    // 132 digits' bits for 128: the last four are none of the salt's, and the first four left the number.
    let first = BCRYPT_DIGITS.iter().position(|digit| Some(digit) == rest.first())? as u128;
    let salt = (number >> 4 | first >> 2 << 124).to_be_bytes();
    let mut key: Vec<u8> = password.iter().copied().take(BCRYPT_PASSWORD_MAX).collect();
    if key.len() < BCRYPT_PASSWORD_MAX {
        key.push(0);
    }
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(&salt, &key);
    for _ in 0..1_u32 << count {
        state.bc_expand_key(&key);
        state.bc_expand_key(&salt);
    }
    let mut text = Vec::with_capacity(24);
    for words in b"OrpheanBeholderScryDoubt".chunks_exact(8) {
        let word = |at: usize| words.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes);
        let mut pair = [word(0)?, word(4)?];
        for _ in 0..64 {
            pair = state.bc_encrypt(pair);
        }
        text.extend(pair.iter().flat_map(|word| word.to_be_bytes()));
    }
    // The last byte is left out.
    text.pop();
    let mut out = [magic, cost, b"$"].concat();
    put_bcrypt(&salt, &mut out);
    put_bcrypt(&text, &mut out);
    Some(out)
}

fn put_bcrypt(bytes: &[u8], out: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |number, at| number << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        let digits = (0..=three.len()).filter_map(|at| BCRYPT_DIGITS.get((number >> (18 - 6 * at) & 63) as usize));
        out.extend(digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &[u8] = "longer than eight characters ä".as_bytes();
    const EIGHTY: &[u8] = &[b'p'; 80];

    /// As crypt(3) of libxcrypt 4.4.33 makes them.
    #[test]
    fn every_form_is_that_of_crypt() {
        for (stored, password) in [
            ("abJnggxhB/yWI", &b"password"[..]),
            ("abmF1QH4PEr.E", &b""[..]),
            ("abKuvfXyuH4Fw", LONG),
            ("abgAOrlY2VEck", EIGHTY),
            ("..UZoIyj/Hy/c", &b"password"[..]),
            ("..X8NBuQ4l6uQ", &b""[..]),
            ("..UGZl6zCbRAE", LONG),
            ("..l5IGq9XQSr2", EIGHTY),
            ("zZDDIZ0NOlPzw", &b"password"[..]),
            ("zZO7u0HfQST3A", &b""[..]),
            ("zZb64kacvY9KA", LONG),
            ("zZdfjBMRQgalo", EIGHTY),
            ("_J9..K0AyUubDrfOgO4s", &b"password"[..]),
            ("_J9..K0AyBzciHd5Mjr2", &b""[..]),
            ("_J9..K0Ay4/1B1x5pXZw", LONG),
            ("_J9..K0Aysdxehg6klEs", EIGHTY),
            ("$1$abcdefgh$G//4keteveJp0qb8z2DxG/", &b"password"[..]),
            ("$1$abcdefgh$M55TzYaaccxVGbptZWaxX/", &b""[..]),
            ("$1$abcdefgh$Q4TD9tMpC/EyRkK3lBx3Z.", LONG),
            ("$1$abcdefgh$OSyo.QKwAvYrH.VSBnTtY1", EIGHTY),
            ("$sha1$400$jtNX3nZ2$a8FcPdaeGtK35P7PpS1XBGLXVy0Y", &b"password"[..]),
            ("$sha1$400$jtNX3nZ2$HJrUCZAyqqZlPUlb2MXTHaSm1qA1", &b""[..]),
            ("$sha1$400$jtNX3nZ2$/m7PdQfwQhDlPUZuGhTlOvbdgNRo", LONG),
            ("$sha1$400$jtNX3nZ2$Ec/WlEFVSk77U/J3w.9.DUoi6GuN", EIGHTY),
            ("$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu", &b"password"[..]),
            ("$2y$05$abcdefghijklmnopqrstuu0oImNDIy4flhldV9YqunRgBAePKmw7m", &b""[..]),
            ("$2y$05$abcdefghijklmnopqrstuu69hROVT4xS3HaxRUBYmRSvS79VmMuTa", LONG),
            ("$2y$05$abcdefghijklmnopqrstuueTFRGDqVFTIfwSnwEw/V4ZpLYuQbKSG", EIGHTY),
            ("$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm", &b"password"[..]),
            ("$2b$04$abcdefghijklmnopqrstuubyCG3zY1GIXMyxfivm.ClDiInHzxjiq", &b""[..]),
            ("$2b$04$abcdefghijklmnopqrstuuknCvzdyQ.9n7y4it3PSiZeYHg2/V0LO", LONG),
            ("$2b$04$abcdefghijklmnopqrstuuNt.0ah97gHY3F7JC1Z6EXmQc0bQBhIO", EIGHTY),
            ("$2a$04$zzzzzzzzzzzzzzzzzzzzzuwN1mI92qf7AXBmnrsK04peTF3Z8oZbG", &b"password"[..]),
            ("$2a$04$zzzzzzzzzzzzzzzzzzzzzui03xBzXgofNodTRmeXjY4xrMhnsNteq", &b""[..]),
            ("$2a$04$zzzzzzzzzzzzzzzzzzzzzuSEXkhsqlVtDNk8sTtMUt1ADIWl6JpL.", LONG),
            ("$2a$04$zzzzzzzzzzzzzzzzzzzzzugf9de7ihC/L5WgsMydFpPQQjXoVndIO", EIGHTY),
            ("$5$saltstring$OH4IDuTlsuTYPdED1gsuiRMyTAwNlRWyA6Xr3I4/dQ5", &b"password"[..]),
            ("$5$saltstring$FdNfA4gXqvCeO6iZs7G/.wwwoywYZqo0l1pwmfWaBA7", &b""[..]),
            ("$5$saltstring$hGfmK8al50JiupX44tfqMifPdmGw/ixGAnL/6lNyyB.", LONG),
            ("$5$saltstring$BvcESWHnzUK3p6lXa121LZ/yJpa6m8qZzZAMYMaW4q/", EIGHTY),
            (
                "$6$rounds=1000$s$ih15dMz95fxoR4UE4XOx/kI3ZolBYLbZ3tmcD2WkMRpCgMlylVVtTgcBh82GEohTb.qAfqBTNpZChVABAHw8G0",
                &b"password"[..],
            ),
            (
                "$6$rounds=1000$s$u6h1nDplZjxDo4zJTtL/gDw7SGioQGm.0uRtQXjSgB6lTpGGOfGi4A6UMV.7Q7d2K2ppsidkHUrit0FKUiAv71",
                &b""[..],
            ),
            (
                "$6$rounds=1000$s$lrEFMnIS9JMN1UOUjqkm1n7AWXEnZE7.w2MKTH8r/0P2Ql8DCerc/7OIa4XmEzB5ZCZ3DieKe6UzIx9zWT6wP.",
                LONG,
            ),
            (
                "$6$rounds=1000$s$Ee0n3FzzcXr1Dd.EJWE/.crW8ZrhBp/ro0kXbI7DdbjeEo9y9KuNnw5EagL/thWDS.MdvNwGapOdSjtvqMxUu.",
                EIGHTY,
            ),
        ] {
            let made = crypt_unix(password, stored.as_bytes()).map(|made| String::from_utf8_lossy(&made).into_owned());
            assert_eq!(made.as_deref(), Some(stored));
        }
    }

    #[test]
    fn long_salts_are_cut() {
        let made = crypt_unix(b"password", b"$5$rounds=1400$anotherlongsaltstring$").expect("a form");
        assert_eq!(made, b"$5$rounds=1400$anotherlongsalts$87EGYaZ5e.A4qxHNIAtpTOXMHgQkTK7HhX2JU8P.n.A");
        let made = crypt_unix(b"password", b"$5$rounds=10$s$").expect("a form");
        assert!(made.starts_with(b"$5$rounds=1000$s$"), "the fewest rounds");
    }

    #[test]
    fn malformed_hashes_have_no_form() {
        for stored in [
            "",
            "a",
            "!!",
            "*",
            "_J9..K0A",
            "_....K0Ay",
            "_J9..K0!y",
            "$",
            "$9$x$y",
            "$5$rounds=x$s$",
            "$5$rounds=5000",
            "$5$a!$",
            "$6$\u{e4}$",
            "$sha1$",
            "$sha1$0$salt$",
            "$sha1$x$salt$",
            "$2y$",
            "$2y$3$abcdefghijklmnopqrstuu",
            "$2y$03$abcdefghijklmnopqrstuu",
            "$2y$32$abcdefghijklmnopqrstuu",
            "$2y$05$abcdefghijklmnopqrstu",
            "$2y$05$abcdefghijklmnopqrst!u",
            "$2x$05$abcdefghijklmnopqrstuu",
        ] {
            assert_eq!(crypt_unix(b"password", stored.as_bytes()), None, "{stored}");
        }
    }
}
