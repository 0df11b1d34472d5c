//! A seeded run of the fuzz targets of the protocols towards servers.

use http_proxy::fuzzing;
use testkit::mutation::run_mutations;

/// Words of an input, exclusively.
const WORDS_MAX: usize = 10;

const HEADS: &[&str] = &[
    "\0\0\0",
    "\x01\0\x10",
    "\x02\0\x28",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 103 E\r\n",
    "HTTP/1.0 204 N\r\n",
    "Status: 201 Made\r\n",
    "Status: 304\n",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "\r\n",
    "\n",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "abc",
    "x",
    ":",
    " ",
];

#[test]
fn mutated_heads_of_cgi_are_read() {
    run_mutations(HEADS, WORDS_MAX, fuzzing::cgi, 40_000);
}

#[test]
fn mutated_answers_of_http1_are_read() {
    run_mutations(HEADS, WORDS_MAX, fuzzing::http1_answer, 40_000);
}

const RECORDS: &[&str] = &[
    "\0\0\0",
    "\x04\0\x10",
    "\x01\0\x28",
    "\x01\x06\0\x01\0\x13\0\0Content-Length: 3\r\n",
    "\x01\x06\0\x01\0\x02\0\0\r\n",
    "\x01\x06\0\x01\0\x03\x01\0abc.",
    "\x01\x06\0\x01\0\x01\0\0x",
    "\x01\x06\0\x01\0\0\0\0",
    "\x01\x07\0\x01\0\x03\x02\0bad..",
    "\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0",
    "\x01\x06\0\x01\0\x0d\0\0Status: 404\r\n",
    "\x01",
    "\x06",
    "abc",
];

#[test]
fn mutated_records_of_fastcgi_are_read() {
    run_mutations(RECORDS, WORDS_MAX, fuzzing::fastcgi, 40_000);
}

const VALUES: &[&str] = &[
    "\0\0\0",
    "\x04\0\x10",
    "\0\0\x08",
    "VALUE k 0 3\r\n",
    "VALUE k 2 0\r\n",
    "VALUE k x 3\r\n",
    "VALUE ",
    "k ",
    "abc",
    "\r\nEND\r\n",
    "END\r\n",
    "\r\n",
    "SERVER_ERROR x\r\n",
    "3",
    "\n",
];

#[test]
fn mutated_answers_of_memcached_are_read() {
    run_mutations(VALUES, WORDS_MAX, fuzzing::memcached, 40_000);
}
