//! Values with variables of a request, for features.

pub use crate::area::Template;
pub use session_engine::template::{Part, truthy};
