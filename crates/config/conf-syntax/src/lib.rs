//! Parses nginx.conf into a lossless tree with spans (nginx: `ngx_conf_file.c`, `ngx_conf_read_token`). Interprets only
//! the directive `include`, which is part of the language. Never fails: errors are nodes of the tree ([`Item::Error`]).

#![forbid(unsafe_code)]

mod disk;
pub mod fuzzing;
mod lexer;
mod load;
mod parser;
mod tree;
pub mod writer;

pub use disk::{Disk, FILE_BYTES_MAX, open_regular, read_regular, read_regular_or_pipe};
pub use lexer::{Lexer, Token, TokenKind, WORD_BYTES_MAX};
pub use load::{
    INCLUDE_DEPTH_MAX, INCLUDES_MAX, LOADED_BYTES_MAX, Load, Memory, REPEATED_BYTES_MAX, Source, is_pattern, load,
    load_text, load_texts, matches,
};
pub use parser::{BLOCK_DEPTH_MAX, parse};
pub use tree::{
    Directive, FileId, Files, Included, Item, SourceFile, Span, SyntaxError, Word, directives, first_error, include_of,
};

#[cfg(test)]
mod tests;
