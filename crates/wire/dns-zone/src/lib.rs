//! Authoritative DNS, sans I/O: a [`Query`] is read, [`answer`] looks it up in [`Zones`] and writes the response;
//! [`refuse`] answers queries that cannot be read.
//!
//! The caller has the sockets, the clock and the random numbers, and selects the servers of pools ([`Selector`]):
//! [`draw`] helps it with weights. [`ResponseRate`] bounds the responses to networks, whose addresses may be forged.
//! A zone is made by a [`ZoneBuilder`] from the lines of a configuration, whose values [`record::parse`] reads.
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

pub use answer::{AnswerSummary, Transport, answer, refuse, truncate};
pub use build::{ZoneBuilder, ZoneFault};
pub use name::{Name, NameError};
pub use query::{ClientSubnet, Edns, Query, ResponseCode, UnreadQuery};
pub use rate::{RateVerdict, ResponseRate};
pub use select::{Family, Selection, Selector, draw};
pub use zone::{Zone, Zones};
