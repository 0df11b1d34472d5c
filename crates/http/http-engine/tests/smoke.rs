//! A seeded run of the fuzz targets of paths and hosts.

use http_engine::fuzzing;

const PATH: &[&str] = &[
    "/", "//", ".", "..", "/.", "/..", "/../", "a", "b.html", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", "%00", "%",
    "%4", "%zz", "%25", "%252e", "%3f", "%23", ";", ";x=1", "~", " ", "\u{e9}", "\0", "%ff", "%c0%af", "...", "./",
    "../",
];
const HOST: &[&str] = &[
    "a",
    "Example",
    ".",
    "..",
    "com",
    ":",
    ":80",
    ":0",
    ":65535",
    ":65536",
    ":8x",
    "[",
    "]",
    "[::1]",
    "[fe80::1%eth0]",
    "::",
    "127.0.0.1",
    "-",
    "_",
    "@",
    "/",
    "\\",
    " ",
    "%",
    "%41",
    "\0",
    "\u{e9}",
    "!$&'()*+,;=",
    "A",
    "\r\n",
];

#[test]
fn mutated_paths_are_canonical_or_refused() {
    run(PATH, fuzzing::path, 20_000);
}

#[test]
fn mutated_hosts_are_canonical_or_refused() {
    run(HOST, fuzzing::authority, 20_000);
}

fn run(words: &[&str], target: fn(&[u8]), rounds: usize) {
    let mut state = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
    let mut next = move |below: usize| state.below(below);
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
