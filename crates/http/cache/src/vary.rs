//! Variants under one key, by the request fields of `Vary`.

use crate::key::Hash;
use md5::{Digest, Md5};

/// Longest stored `Vary` in bytes (nginx: `NGX_HTTP_CACHE_VARY_LEN`).
pub const VARY_MAX: usize = 128;

/// Fields whose lists are compared without spaces.
const NORMALIZED: [&[u8]; 3] = [b"accept-charset", b"accept-encoding", b"accept-language"];

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|c| matches!(c, b' ' | b',')).filter(|word| !word.is_empty())
}

/// Key of a request's variant: the main key with the fields that `vary` names.
pub fn variant_hash<'a>(main: &Hash, vary: &[u8], fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Hash {
    let mut md5 = Md5::new();
    md5.update(main.0);
    for name in words(vary) {
        let name = name.to_ascii_lowercase();
        md5.update(&name);
        md5.update(b":");
        let mut first = true;
        for (_, value) in fields.clone().filter(|(n, _)| n.eq_ignore_ascii_case(&name)) {
            let normalized = NORMALIZED.contains(&name.as_slice());
            let mut feed = |part: &[u8]| {
                if !std::mem::take(&mut first) {
                    md5.update(b",");
                }
                md5.update(part);
            };
            if normalized {
                words(value).for_each(&mut feed);
            } else {
                feed(value);
            }
        }
        md5.update(b"\r\n");
    }
    Hash(md5.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vary: &str, fields: &[(&str, &str)]) -> Hash {
        variant_hash(&Hash::of(b"k"), vary.as_bytes(), fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
    }

    #[test]
    fn variants_differ_by_the_fields_of_vary() {
        let gzip = of("Accept-Encoding", &[("accept-encoding", "gzip, br")]);
        assert_eq!(gzip, of(" accept-encoding,", &[("Accept-Encoding", " gzip,br ")]));
        assert_eq!(gzip, of("Accept-Encoding", &[("Accept-Encoding", "gzip"), ("Accept-Encoding", "br")]));
        assert_ne!(gzip, of("Accept-Encoding", &[("Accept-Encoding", "br, gzip")]));
        assert_ne!(gzip, of("Accept-Encoding", &[]));
        assert_eq!(of("Accept-Encoding", &[]), of("Accept-Encoding", &[("Accept-Encoding", "")]));
        assert_ne!(of("Foo", &[("Foo", "a b")]), of("Foo", &[("Foo", "a,b")]), "other fields are taken to the letter");
        assert_ne!(of("Foo", &[("Foo", "1")]), of("Foo, Bar", &[("Foo", "1")]));
        assert_eq!(of("Foo", &[("Foo", "1"), ("Bar", "2")]), of("Foo", &[("Foo", "1")]));
        assert_ne!(of("Foo", &[("Foo", "1")]), variant_hash(&Hash::of(b"other"), b"Foo", [].into_iter()));
    }
}
