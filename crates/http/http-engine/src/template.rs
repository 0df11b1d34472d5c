//! Values with variables of a request, for features.

pub use crate::area::HttpTemplate;
pub use variables::template::{Part, is_true};
