//! ModSecurity's directives (nginx: the connector `ngx_http_modsecurity_module`) on the engine of crate `waf`.
//!
//! `table.rs` has the directives, `chain.rs` compiles the rules of a block with those of its parents, `prepared.rs` the
//! patterns of ordinary requests. For a request, `request.rs` runs phases 1 and 2, `names.rs` asks DNS for `@rbl`,
//! `response.rs` runs phases 3 and 4, and `record.rs` phase 5 and the logs. The transaction belongs to the main request and
//! stays with it over internal redirects (`state.rs`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod audit_log;
mod chain;
mod lookups;
mod names;
mod prepared;
mod record;
mod request;
mod response;
mod services;
mod state;
mod table;
mod work;

use http_engine::Feature;

/// The features of the crate.
pub static FEATURES: &[&dyn Feature] = &[&table::Firewall];
