//! Values with variables of a request, for features.

pub use crate::area::HttpTemplate;
pub use session_engine::template::{Part, is_true};
