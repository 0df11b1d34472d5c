//! Apache's configuration language, as far as .htaccess files and virtual hosts use it.
//! [`syntax`] reads lines and sections, [`settings`] gives directives their meaning, [`rewrite`] is mod_rewrite's
//! per-directory machine. Performs no I/O: lookups go to the caller ([`rewrite::RuleEnvironment`]), the feature `htaccess`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod access;
pub mod fields;
pub mod fuzzing;
pub mod pattern;
pub mod reader;
pub mod rewrite;
pub mod rules;
pub mod settings;
pub mod syntax;

pub use reader::File;
pub use rules::ServerRules;
pub use settings::Settings;
pub use syntax::{ParseError, SyntaxLine};
