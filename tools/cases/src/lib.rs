//! Runs `.case` files: a configuration, files, and bytes on the wire. Cases also run against a real nginx (`cargo xtask
//! oracle`), which proves their expectations.
//!
//! ```text
//! # The subject of the case.
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
//! origin one:
//!     reads "GET /a " sends "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" closes
//! connection:
//!     GET / -> 200
//!     GET / -> 200
//! over: h1, tls (why not over the others)
//! log: has "open()"
//! needs: http_mp4_module (the oracle skips the case where nginx's -V does not name it)
//! differs: why nginx answers otherwise (the oracle then skips the case)
//! ```
//! Each step below `client:` has a connection of its own; those below a `connection:` share one. A case runs over HTTP/1 in clear
//! (`h1`) and in TLS (`tls`), over HTTP/2 in TLS (`h2`) and in clear (`h2c`), and over HTTP/3 (`h3`), unless `over:` names fewer, each time
//! with a server of its own. Steps that HTTP/2 and HTTP/3 cannot express (`raw`, absolute targets, `Connection` and its siblings) go over
//! cleartext HTTP/1 there, and fields that their responses do not have are not compared. `{port}` is always the cleartext port,
//! `{scheme}` and `{protocol}` are those of the run.
//!
//! A step that begins with `[h1, tls]` is left out over the others. One that begins with `[h2, h2c]` or `[h2, h2c, h3]` goes over these
//! whatever it says; fields like `:authority: a` stand for the usual ones there.
//!
//! An origin answers requests by its lines, in their order; each request must hold the text, and every line must be used. `{one}` is
//! its address. It `closes` or `resets` the connection behind the answer, or keeps it.
//!
//! Steps of the stream block are `tcp "sent" -> "answer"`, `tcp "sent" -> begins "answer"` and `udp "sent" -> "answer"`, on the port
//! `{stream}`; `{other}` is another one.
//! After every case, unasked: no `[alert]` in the error log, no descriptor that was not there before, a clean exit.

#![forbid(unsafe_code)]

mod addresses;
mod expect;
mod http1;
mod http2;
mod http3;
mod origin;
mod parse;
mod run;
mod wire;

pub use addresses::replace_address;
pub use expect::Answer;
pub use http2::{Came, Http2};
pub use http3::Http3;
pub use parse::{Case, CaseStep, Expect, Over, Request, parse_case};
pub use run::{Server, run_case};
pub use wire::{IDENTITY, Identity, Wire, test_identity};
