//! Reports of the load generator: the data ([`model`]), what to think of them ([`verdict`]), and their forms.

pub mod answer;
pub mod build;
pub mod csv;
pub mod html;
pub mod model;
pub mod plots;
pub mod text;
pub mod verdict;
