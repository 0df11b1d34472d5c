//! Regular expressions over a request, for features.

pub use crate::area::HttpPattern;
pub use session_engine::regex::{Captures, MATCH_STEPS_MAX, MatchFailed};
