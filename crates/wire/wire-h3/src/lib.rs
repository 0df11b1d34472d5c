//! HTTP/3 (RFC 9114) with QPACK (RFC 9204) as a sans-I/O core, between the streams of a QUIC connection and events.
//! Uses no socket, clock or random numbers; the transport is `quinn-proto`, which is sans-I/O, too. [`Server`] and
//! [`client::Client`] are one connection each. An endpoint passes datagrams to the QUIC connection inside,
//! [`Server::drive`] processes them, the caller pulls events (types of `http-types`), and responses are queued for
//! QUIC. Responsible for frames, header tables, priorities and limits of peers; not for loss recovery, congestion
//! control and flow control, which are QUIC's.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod client;
mod frame;
pub mod fuzzing;
pub mod qpack;
mod reader;
mod server;
mod session;
mod stream;

pub use frame::{ConnectionError, ErrorCode, Settings};
pub use server::{Congestion, Limits, Server};

/// Encodes a field section without the dynamic table, for requests that are sent many times
/// ([`client::Client::open_encoded`]). Names are in lower case, pseudo-header fields first.
pub fn encoded_section(fields: http_types::FieldLines<'_, '_>) -> Vec<u8> {
    let mut section = Vec::with_capacity(256);
    qpack::Encoder::default().section(0, None, fields, &mut section);
    section
}

/// Writes a field section without the dynamic table, field by field ([`client::Client::open_encoded`]).
#[derive(Debug)]
pub struct SectionWriter(qpack::Encoder);

impl SectionWriter {
    /// Begins a section.
    pub fn new(out: &mut Vec<u8>) -> SectionWriter {
        // Insert Count and Base (RFC 9204, 4.5.1): no entry is referred to.
        out.extend_from_slice(&[0, 0]);
        SectionWriter(qpack::Encoder::default())
    }
    /// Appends a field; the name is in lower case, pseudo-header fields come first.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.0.plain(name, value, out);
    }
}
