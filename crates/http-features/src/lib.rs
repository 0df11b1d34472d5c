//! The features of the http area: one folder each, one line each in `registry.rs`.
//!
//! A feature knows the engine and no other feature.

#![forbid(unsafe_code)]

pub mod registry;

mod index;
mod not_modified;
mod proxy;
mod range;
mod rewrite;
mod shared;
mod static_files;
mod try_files;
mod upstream_block;

pub use registry::{build, offer_variables, tables, variables};
