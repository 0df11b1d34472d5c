//! Evaluates expressions of XPath and matches patterns, with the functions of the language.

pub(crate) mod core_functions;
pub(crate) mod eval;
pub(crate) mod matching;
