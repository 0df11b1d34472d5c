//! Apache's configuration language, as far as .htaccess files and virtual hosts use it.
//!
//! [`syntax`] reads text into lines and sections and knows no directive; [`settings`] gives the directives of a .htaccess file
//! their meaning; [`rewrite`] is mod_rewrite's per-directory machine. Nothing here does I/O: what the machine wants to know of files
//! and the request it asks its caller ([`rewrite::Asks`]). Whether a file exists, what is cached and what is answered is decided in
//! the feature `htaccess`; the translation into nginx's language stands in the crate `advisor`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod access;
pub mod fuzzing;
pub mod pattern;
pub mod rewrite;
pub mod settings;
pub mod syntax;

pub use settings::Settings;
pub use syntax::{Line, ParseError};
