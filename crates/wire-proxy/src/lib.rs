//! The PROXY protocol, versions 1 and 2, as a sans-io core: who the client was, as the balancer before us tells it.
//!
//! [`parse`] reads the header that opens a connection, [`Header::tlv`] finds what `$proxy_protocol_tlv_*` asks for,
//! [`write_v1`] and [`V2Writer`] write one for an upstream. What is accepted is what nginx accepts
//! (`ngx_proxy_protocol_read`), but for one thing: a header that has not arrived whole is waited for, where nginx
//! closes the connection unless one read brings all of it.
//!
//! Whether the sender may be believed is not decided here: `set_real_ip_from` is the caller's.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod crc32c;
#[doc(hidden)]
pub mod fuzzing;
mod parse;
mod tlv;
mod write;

pub use parse::{Addresses, Error, Header, MAX_HEADER, V1_MAX_HEADER, Version, parse};
pub use tlv::{SslInfo, Tlv, TlvError, TlvName, Tlvs};
pub use write::{V2Writer, write_v1};
