//! Regular expressions that are matched for a request; what they are stands in `session_engine::regex`.

pub use session_engine::regex::{Captures, MATCH_STEPS_MAX, MatchFailed};

pub type Pattern = session_engine::regex::Pattern<crate::Request>;
