//! A seeded run of the fuzz targets of the features.

use http_features::fuzzing;

const DAV: &[&str] = &[
    "<a>",
    "</a>",
    "(",
    ")",
    "[",
    "]",
    "\"x\"",
    "Not",
    "<urn:uuid:",
    "0123456789abcdef",
    ">",
    " ",
    "<DAV:no-lock>",
    "<propfind xmlns='DAV:'>",
    "</propfind>",
    "<prop>",
    "</prop>",
    "<allprop/>",
    "<x xmlns:y=''/>",
    "&amp;",
    "&#0;",
    "<lockinfo xmlns='DAV:'><lockscope><shared/></lockscope><locktype><write/></locktype><owner>",
    "<b c='&lt;'/>",
    "</owner></lockinfo>",
    "<!DOCTYPE a>",
    "<?xml version='1.0'?>",
    "]]>",
    "<![CDATA[",
    "\u{e9}",
    "\0",
    "<o:a xmlns:o='u'/>",
];

#[test]
fn dav() {
    run(DAV, fuzzing::dav, 20_000);
}

fn run(words: &[&str], target: fn(&[u8]), rounds: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    target(b"");
    for round in 0..rounds {
        let mut input = Vec::new();
        for _ in 0..next(10) {
            input.extend_from_slice(words[next(words.len())].as_bytes());
        }
        if round % 4 == 1 && !input.is_empty() {
            let at = next(input.len());
            input[at] = next(256) as u8;
        }
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "round {round}: {}", input.escape_ascii());
    }
}
