//! The features of the http area: one folder each, one line each in `registry.rs`.
//!
//! A feature knows the engine and no other feature.

#![forbid(unsafe_code)]

pub mod registry;

mod index;
mod not_modified;
mod range;
mod rewrite;
mod static_files;
mod try_files;

pub use registry::{build, offer_variables, tables, variables};
