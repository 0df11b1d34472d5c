//! Parses nginx.conf into a lossless tree with spans (nginx: `ngx_conf_file.c`, `ngx_conf_read_token`). Interprets only
//! the directive `include`, which is part of the language. Never fails: errors are nodes of the tree ([`TreeItem::Error`]).

#![forbid(unsafe_code)]

mod disk;
pub mod fuzzing;
mod lexer;
mod load;
mod parser;
mod tree;
pub mod writer;

pub use disk::{Disk, FILE_BYTES_MAX, open_regular, read_regular, read_regular_or_pipe};
pub use lexer::{Lexer, LexerToken, TokenKind, WORD_BYTES_MAX};
pub use load::{
    INCLUDE_DEPTH_MAX, INCLUDES_MAX, LOADED_BYTES_MAX, Load, Memory, REPEATED_BYTES_MAX, TextSource, is_pattern,
    load_files, load_text, load_texts, matches_include,
};
pub use parser::{BLOCK_DEPTH_MAX, parse_file};
pub use tree::{
    Directive, FileId, IncludedFile, SourceFile, SourceFiles, SourceSpan, SyntaxError, TreeItem, Word, first_error,
    include_of, list_directives,
};

#[cfg(test)]
mod tests;
