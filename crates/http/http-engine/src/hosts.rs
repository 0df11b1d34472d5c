//! Tables of host names over a request, for features.

pub use crate::area::Hosts;
