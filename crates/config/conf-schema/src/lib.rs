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

pub use check::{CheckedBlock, CheckedTree, Schema, check_tree};
pub use complaint::{Complaint, ComplaintLevel, Problem};
pub use context::Contexts;
pub use cx::Cx;
pub use std::sync::Arc;
pub use store::TextStore;
pub use table::{At, DirectiveRow, FeatureTable, GivenDirective, ValueKind};
pub use vocabulary::{Arity, ContextArea, KnownDirective};

pub use conf_syntax::{Directive, FileId, SourceFiles, SourceSpan, Word};
