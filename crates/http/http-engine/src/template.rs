//! Values with variables of a request, for features.

pub use crate::session::Template;
pub use session_engine::template::{Part, truthy};
