//! Strings with variables of a request; what they are stands in `session_engine::template`.

pub use session_engine::template::{Part, truthy};

pub type Template = session_engine::Template<crate::Request>;
