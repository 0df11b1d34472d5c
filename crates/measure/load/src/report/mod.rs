//! Reports of the load generator: data ([`model`]), judgement ([`verdict`]), and formats.

pub mod answer;
pub mod build;
pub mod csv;
pub mod html;
pub mod model;
pub mod plots;
pub mod text;
pub mod verdict;
