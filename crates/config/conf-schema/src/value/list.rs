//! Values of several words or lines.

use super::number::{parse_decimal, parse_size};
use crate::complaint::Problem;
use crate::cx::Cx;
use crate::table::ValueKind;
use conf_syntax::Directive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    pub count: u64,
    pub size: u64,
}

/// Bytes of all buffers of a directive: half of what an address space has.
const BUFFERS_BYTES_MAX: u64 = 1 << 46;

impl ValueKind for Buffers {
    const SYNTAX: &'static str = "number size";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let count = d.args.first().and_then(|w| parse_decimal::<u64>(&w.text())).filter(|n| *n > 0);
        let size = d.args.get(1).and_then(|w| parse_size(&w.bytes)).filter(|n| *n > 0);
        match (count, size) {
            // Their product is computed in many places.
            (Some(count), Some(size)) if count.checked_mul(size).is_none_or(|all| all > BUFFERS_BYTES_MAX) => {
                Err(Problem::says("the buffers have more bytes than a process can have").at(0))
            }
            (Some(count), Some(size)) => Ok(Buffers { count, size }),
            (None, _) => Err(Problem::invalid().at(0)),
            _ => Err(Problem::invalid().at(1)),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordList(pub Vec<Vec<u8>>);

impl ValueKind for WordList {
    const SYNTAX: &'static str = "string ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(WordList(d.args.iter().map(|w| w.bytes.clone()).collect()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueList<T>(pub Vec<T>);

impl<T: ValueKind> ValueKind for ValueList<T> {
    const SYNTAX: &'static str = T::SYNTAX;
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(ValueList(vec![T::parse(cx, d)?]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        let pairs = self.0.iter().flat_map(|earlier| later.0.iter().map(move |later| (earlier, later)));
        pairs.into_iter().try_for_each(|(earlier, later)| earlier.meets(later, cx, d))
    }
}

/// Repeatable line: its words are appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatedValue(pub Vec<Vec<u8>>);

impl ValueKind for RepeatedValue {
    const SYNTAX: &'static str = "string ...";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(RepeatedValue(d.args.iter().map(|w| w.bytes.clone()).collect()))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Repeatable line: the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latest<T>(pub T);

impl<T: ValueKind> ValueKind for Latest<T> {
    const SYNTAX: &'static str = T::SYNTAX;
    const REPEATS: bool = true;
    const INHERITS: bool = T::INHERITS;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        T::parse(cx, d).map(Latest)
    }
    fn append(&mut self, later: Self) {
        *self = later;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own<T>(pub T);

impl<T: ValueKind> ValueKind for Own<T> {
    const SYNTAX: &'static str = T::SYNTAX;
    const REPEATS: bool = T::REPEATS;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        T::parse(cx, d).map(Own)
    }
    fn append(&mut self, later: Self) {
        self.0.append(later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.meets(&later.0, cx, d)
    }
}
