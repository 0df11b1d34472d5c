//! A DNS client for the names of a configuration (nginx: `ngx_resolver.c`): answers are remembered per thread, by their TTL.
//! [`NameResolver`] asks the servers of a `resolver` line; `message.rs` encodes and parses, `sockets.rs` and `wire.rs` transport,
//! `memory.rs` shares questions and answers.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod failure;
pub mod fuzzing;
mod memory;
mod message;
mod name_resolver;
mod rules;
mod sockets;
mod wire;
mod words;

pub use address::ResolvedAddress;
pub use failure::ResolveFailure;
pub use name_resolver::{NameResolver, NameServer};
pub use rules::ResolveRules;
pub use words::Word;
