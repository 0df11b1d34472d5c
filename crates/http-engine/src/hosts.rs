//! Tables of host names and wildcards; what they are stands in `session_engine::hosts`.

pub type Hosts<T> = session_engine::hosts::Hosts<crate::Request, T>;
