//! acme (nginx: `ngx_http_acme_module`): certificates that are ordered and renewed by ACME.
//!
//! `feature.rs` has the directives, `issuer.rs` and `order.rs` their values; `certificates.rs` stores certificates, `challenges.rs`
//! answers authorities, `engine.rs` orders and renews on the control thread. The crate `acme` implements the protocol.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod angie;
mod certificates;
mod challenges;
mod client;
mod demand;
mod dns;
mod engine;
mod feature;
mod hook;
mod issuer;
mod issuer_client;
mod job;
mod order;
mod renewal_info;
mod responder;
mod running_tasks;
mod scheduler;
mod shared_issuer;
mod shared_table;
mod state;
mod tasks;

pub use feature::{ListedCertificate, list_certificates, local_root, local_roots};

/// Bodies of the fuzz targets of this crate.
pub mod fuzzing {
    pub use crate::responder::fuzz_responder as acme_dns;
}

pub static FEATURES: &[&dyn http_engine::Feature] = &[&feature::Acme];
