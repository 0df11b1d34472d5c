//! Tables of directives and values, and the engine that checks, words errors and inherits.
//!
//! It knows what a directive *is*; which ones exist stands in `vocabulary/` (the facts: contexts, number of arguments) and
//! in the features' tables (the meaning: type, default, one-line documentation). See `table.rs` for how a feature declares one.

#![forbid(unsafe_code)]

pub mod check;
pub mod complaint;
pub mod context;
pub mod cx;
pub mod store;
pub mod suggest;
pub mod table;
pub mod value;
pub mod vocabulary;

pub use check::{Block, Checked, Schema, check};
pub use complaint::{Complaint, Level, Problem};
pub use context::Contexts;
pub use cx::Cx;
pub use std::sync::Arc;
pub use store::Store;
pub use table::{At, Given, Row, Table, Value};
pub use vocabulary::{Area, Arity, Known};

pub use conf_syntax::{Directive, FileId, Files, Span, Word};
