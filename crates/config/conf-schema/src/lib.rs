//! Tables of directives and values, and the engine for checks, error messages and inheritance.
//! `vocabulary/` lists the existing directives (contexts, number of arguments); features' tables (`table.rs`) give them
//! type, default and documentation.

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
