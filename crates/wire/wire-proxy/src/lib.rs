//! The PROXY protocol, versions 1 and 2, sans I/O: [`parse_header`], [`Header::tlv`], [`write_v1`], [`V2Writer`]. Callers
//! decide whether the sender is trusted (`set_real_ip_from`).
//! Accepts what nginx does (`ngx_proxy_protocol_read`), but waits for an incomplete header, where nginx closes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod crc32c;
#[doc(hidden)]
pub mod fuzzing;
mod parse;
mod tlv;
mod write;

pub use parse::{Addresses, Error, Header, MAX_HEADER, V1_MAX_HEADER, Version, parse_header};
pub use tlv::{SslInfo, Tlv, TlvError, TlvName, Tlvs};
pub use write::{V2Writer, write_v1};
