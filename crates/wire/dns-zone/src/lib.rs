//! Authoritative DNS, sans I/O: a [`Query`] is read, [`answer_query`] looks it up in [`ServerZones`] and writes the response;
//! [`refuse_message`] answers queries that cannot be read.
//!
//! The caller has the sockets, the clock and the random numbers, and selects the servers of pools ([`Selector`]):
//! [`draw_positions`] helps it with weights. [`ResponseRate`] bounds the responses to networks, whose addresses may be forged.
//! A zone is made by a [`ZoneBuilder`] from the lines of a configuration, whose values [`record::parse_record`] reads.
//!
//! Sources: RFC 1034 and 1035, 2181 (sets of records), 2308 (negative answers), 4592 (wildcards), 6891 (EDNS),
//! 7871 (client subnets), 8482 (ANY), 9460 (HTTPS records), 9619 (one question).

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod answer;
mod build;
#[doc(hidden)]
pub mod fuzzing;
mod name;
mod query;
mod rate;
pub mod record;
mod select;
mod svcb;
#[cfg(test)]
mod tests;
mod write;
mod zone;

pub use answer::{AnswerSummary, Transport, answer_query, refuse_message, truncate_answer};
pub use build::{ZoneBuilder, ZoneFault};
pub use name::{DomainName, NameError};
pub use query::{ClientSubnet, Edns, Query, ResponseCode, UnreadQuery};
pub use rate::{RateVerdict, ResponseRate};
pub use select::{AddressFamily, Selection, Selector, draw_positions};
pub use zone::{ServerZones, Zone};
