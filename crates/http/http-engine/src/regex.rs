//! Regular expressions over a request, for features.

pub use crate::area::HttpPattern;
pub use variables::regex::{Captures, MATCH_STEPS_MAX, MatchFailed};
