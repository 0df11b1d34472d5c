//! Kinds of values; one file per family.

pub mod cidr;
mod list;
mod number;
mod text;
mod word;

pub use cidr::Cidr;
pub use list::{Buffers, Latest, Own, RepeatedValue, ValueList, WordList};
pub use number::{
    Between, HashSize, Msec, Number, Offset, Sec, SendLowat, Size, parse_decimal, parse_msec, parse_offset, parse_sec,
    parse_size,
};
pub use text::{FilePath, Text};
pub use word::Flag;

use crate::complaint::Problem;
use conf_syntax::{Directive, Word};

/// The argument at `index`. The engine has checked the number of arguments, so this does not fail in practice.
pub fn word_at(d: &Directive, index: usize) -> Result<&Word, Problem> {
    d.args.get(index).ok_or_else(|| Problem::directive("has too few arguments"))
}
