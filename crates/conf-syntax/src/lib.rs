//! nginx.conf text to a lossless tree with spans (nginx: `ngx_conf_file.c`, `ngx_conf_read_token`).
//!
//! It knows no directive (the one exception is `include`, which is part of the language), never fails and never stops a
//! process: what is wrong with the text stands in the tree, at its place, as [`Item::Error`]. Reading on: `load.rs`
//! follows includes, the crate `conf-schema` gives the words a meaning.

#![forbid(unsafe_code)]

pub mod fuzzing;
mod lexer;
mod load;
mod parser;
mod tree;

pub use lexer::{Lexer, Token, TokenKind, WORD_BYTES_MAX};
pub use load::{Disk, INCLUDE_DEPTH_MAX, Load, Memory, Source, load, load_text};
pub use parser::{BLOCK_DEPTH_MAX, parse};
pub use tree::{Directive, FileId, Files, Included, Item, SourceFile, Span, SyntaxError, Word, directives};

#[cfg(test)]
mod tests;
