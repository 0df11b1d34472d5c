//! Variables of a request, for features.

pub use crate::area::{Builtin, BuiltinGet, Get, GetPrefixed, Names, ServerNames, Source, Variable, Variables};
pub use session_engine::variable::{Compute, VarId, place};
