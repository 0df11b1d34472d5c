//! A seeded run of the fuzz targets of paths and hosts.

use http_engine::fuzzing;
use testkit::mutation::run_mutations;

/// Words of an input, exclusively.
const WORDS_MAX: usize = 10;

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
    run_mutations(PATH, WORDS_MAX, fuzzing::path, 20_000);
}

#[test]
fn mutated_hosts_are_canonical_or_refused() {
    run_mutations(HOST, WORDS_MAX, fuzzing::authority, 20_000);
}
