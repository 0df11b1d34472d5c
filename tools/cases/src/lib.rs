//! Runs `.case` files: a configuration, files, and what goes over the wire. The same case runs against us and against a real
//! nginx (`cargo xtask oracle`), which is how we know that the case itself is right.
//!
//! ```text
//! # What the case is about.
//! files:
//!     index.html: hello
//! http:
//!     map $arg_a $b { default 1; }
//! conf:
//!     location /x { return 200 $b; }
//! client:
//!     GET / -> 200, Content-Type: text/html, no X-Test, body "hello"
//!     GET /x?a=1 X-Header: value -> 200, body has "1"
//!     GET / -> 200, names "Server Date Content-Type Content-Length Last-Modified Connection ETag Accept-Ranges"
//!     raw "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" -> 400
//! stream:
//!     server { listen 127.0.0.1:{stream}; return $remote_addr; }
//! log: has "open()"
//! needs: http_mp4_module (the oracle skips the case where nginx's -V does not name it)
//! differs: why nginx answers otherwise (the oracle then skips the case)
//! ```
//! Steps of the stream block are `tcp "sent" -> "answer"`, `tcp "sent" -> begins "answer"` and `udp "sent" -> "answer"`, on the port
//! `{stream}`; `{other}` is another one.
//! After every case, unasked: no `[alert]` in the error log, no descriptor that was not there before, a clean exit.

#![forbid(unsafe_code)]

mod parse;
mod run;

pub use parse::{Case, Expect, Step, parse};
pub use run::{Server, run};
