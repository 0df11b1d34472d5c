//! A seeded run of the fuzz targets of the features.

use http_features::fuzzing;
use testkit::mutation::run_mutations;

/// Words of an input, exclusively.
const WORDS_MAX: usize = 10;

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

/// Boxes with announced lengths; numbers, small and large.
const MP4: &[&str] = &[
    "\0\0\0\x18ftyp",
    "\0\0\0\x7fmoov",
    "\0\0\x01\x40moov",
    "\0\0\0\x70mvhd",
    "\0\0\x01\x10trak",
    "\0\0\0\x5ctkhd",
    "\0\0\0\x40mdia",
    "\0\0\0\x20mdhd",
    "\0\0\0\x30minf",
    "\0\0\0\x70stbl",
    "\0\0\0\x18stts",
    "\0\0\0\x10stss",
    "\0\0\0\x1cstsc",
    "\0\0\0\x14stsz",
    "\0\0\0\x14stco",
    "\0\0\0\x18co64",
    "\0\0\0\x10mdat",
    "\0\0\0\0mdat",
    "\0\0\0\x01mdat",
    "\0\0\0\0",
    "\0\0\0\x01",
    "\0\0\0\x02",
    "\0\0\0\x0a",
    "\x7f\x7f\x7f\x7f",
    "\0\0\x03\x64",
];

#[test]
fn mutated_films_are_cut_within_bounds() {
    run_mutations(MP4, 40, http_content::fuzzing::mp4, 50_000);
}

const GEOIP: &[&str] = &[
    "\n\0\0\x01",
    "\x01\0\0",
    "\x02\0\0",
    "\0\0\0",
    "\0\0\x01\0",
    "CA\0",
    "Tide\0",
    "12345\0",
    "\x7f\x7f\x7f",
    "\x01",
    "\x02",
    "\x05",
    "\x0c",
];

#[test]
fn mutated_databases_are_read_within_bounds() {
    run_mutations(GEOIP, WORDS_MAX, fuzzing::geoip, 20_000);
}

#[test]
fn mutated_bodies_of_webdav_are_read() {
    run_mutations(DAV, WORDS_MAX, http_content::fuzzing::dav, 20_000);
}
