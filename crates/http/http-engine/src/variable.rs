//! Variables of a request, for features.

pub use crate::area::{
    Builtin, BuiltinGet, Get, GetPrefixed, HttpNames, HttpServerNames, HttpSource, HttpVariables, Variable,
};
pub use variables::variable::{Compute, VarId, directive_place};
