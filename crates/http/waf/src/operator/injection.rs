//! Values in which libinjection cannot find anything: a look at their bytes and words instead of up to five parses.

use hashbrown::HashSet;
use libinjectionrs::sqli::sqli_data::SQL_KEYWORDS as KEYWORDS;
use std::sync::OnceLock;

/// Returns whether libinjection could find an injection of scripts. Each of its findings needs a tag, a comment or a
/// doctype, which begin with `<`, or the value of an attribute with a name, behind `=`.
pub(crate) fn could_be_xss(input: &[u8]) -> bool {
    memchr::memchr2(b'<', b'=', input).is_some()
}

/// Returns whether libinjection could find an injection of SQL.
///
/// Its verdict is by the kinds of the first tokens. In a value of words, numbers and the signs below, every token is a
/// bare word (`n`), a number (`1`), an operator (`o`), a dot, a comma or a colon, if no word is one of its keywords; no
/// sequence of these kinds is in its list, and tokens are not joined unless their text is a keyword.
pub(crate) fn could_be_sqli(input: &[u8]) -> bool {
    let mut before = 0;
    for &byte in input {
        let is_plain =
            is_word(byte) || matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'.' | b':' | b',' | b'+' | b'=' | b'/');
        // A single "-" is an operator, two begin a comment.
        if !is_plain && (byte != b'-' || before == b'-') {
            return true;
        }
        before = byte;
    }
    let mut lower = [0; WORD_BYTES_MAX];
    input.split(|byte| !is_word(*byte)).any(|word| {
        let Some(first) = word.first() else { return false };
        if first.is_ascii_digit() {
            // "1union" is a number and a keyword.
            return !word.iter().all(u8::is_ascii_digit);
        }
        let Some(slot) = lower.get_mut(..word.len()) else { return false };
        slot.copy_from_slice(word);
        slot.make_ascii_lowercase();
        keyword_parts().contains(&*slot)
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes of a word that can be a keyword.
const WORD_BYTES_MAX: usize = 64;

/// The words of libinjection's keywords, in lower case; a keyword of several words gives each.
fn keyword_parts() -> &'static HashSet<Box<[u8]>> {
    static PARTS: OnceLock<HashSet<Box<[u8]>>> = OnceLock::new();
    PARTS.get_or_init(|| {
        let words = KEYWORDS.iter().filter(|keyword| keyword.token_type != b'F');
        let parts = words.flat_map(|keyword| keyword.word.as_bytes().split(|byte| !is_word(*byte)));
        parts.filter(|part| !part.is_empty()).map(|part| part.to_ascii_lowercase().into()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// The reason why values without keywords are let through.
    #[test]
    fn no_fingerprint_of_libinjection_has_only_plain_tokens() {
        let fingerprints = KEYWORDS.iter().filter(|keyword| keyword.token_type == b'F');
        let texts = fingerprints.map(|keyword| keyword.word.strip_prefix('0').unwrap_or(keyword.word));
        let texts: Vec<&str> = texts.collect();
        assert!(texts.len() > 8000, "{}", texts.len());
        let is_plain = |text: &&&str| text.bytes().all(|kind| b"N1O.,:".contains(&kind));
        assert_eq!(texts.iter().find(is_plain), None);
        assert!(KEYWORDS.iter().all(|keyword| keyword.word.len() <= WORD_BYTES_MAX));
    }

    #[test]
    fn plain_values_are_let_through_and_suspicious_ones_are_parsed() {
        for plain in ["json.array_17.name", "item number 17", "2024-11-29", "a=b, c:d", "/start.html", "", "a-b"] {
            assert!(!could_be_sqli(plain.as_bytes()), "{plain}");
        }
        for suspicious in ["1 union select", "1union", "a'b", "a--", "1/**/", "x;y", "sleep 5", "0x41", "a#"] {
            assert!(could_be_sqli(suspicious.as_bytes()), "{suspicious}");
        }
    }

    #[test]
    fn libinjection_finds_nothing_in_values_that_are_let_through() {
        let keywords: Vec<&str> =
            KEYWORDS.iter().filter(|word| word.token_type != b'F').map(|word| word.word).collect();
        let signs = [
            " ",
            ".",
            ":",
            ",",
            "+",
            "=",
            "/",
            "-",
            "\n",
            "1",
            "17",
            "1.5",
            "1e5",
            "0x41",
            "0b1",
            "a",
            "name",
            "x",
            "n",
            "e",
            "u",
            "b",
            "q",
            "item",
            "_",
            "a1",
            "1a",
            "'",
            "\"",
            "(",
            ")",
            "<",
            ">",
            "`",
            "--",
            "/*",
            "*/",
            "#",
            ";",
            "@",
            "$",
            "\\",
            "<a",
            "onload",
            "=x",
            "style",
            "href",
            "javascript:",
            "<!--",
            "!",
            "&",
            "|",
            "%",
            "*",
            "{",
            "}",
            "\0",
            "\u{a0}",
        ];
        let mut random = Random::new(431);
        let mut found = (0, 0);
        let mut plain = 0;
        for round in 0..60_000 {
            // Every second value has only plain signs, so that many are let through.
            let pool = if round % 2 == 0 { 27 } else { signs.len() as u64 };
            let count = 1 + random.below(8);
            let mut value = String::new();
            for _ in 0..count {
                match random.below(12) {
                    0 => value.push_str(keywords[random.below(keywords.len() as u64) as usize]),
                    _ => value.push_str(signs[random.below(pool) as usize]),
                }
            }
            let bytes = value.as_bytes();
            let (sqli, xss) = (libinjectionrs::detect_sqli(bytes), libinjectionrs::detect_xss(bytes));
            found.0 += u32::from(sqli.is_injection());
            found.1 += u32::from(xss.is_injection());
            plain += u32::from(!could_be_sqli(bytes));
            assert!(could_be_sqli(bytes) || !sqli.is_injection(), "{value:?} {:?}", sqli.fingerprint);
            assert!(could_be_xss(bytes) || !xss.is_injection(), "{value:?}");
        }
        assert!(found.0 > 500 && found.1 > 50 && plain > 3000, "{found:?} {plain}");
    }
}
