//! num_map (documented with nginx's commercial edition): variables by lookup of an integer, first by equal numbers, then by
//! ranges in order.

use super::declaration;
use crate::variable::{Compute, VariableTable};
use crate::{AreaTypes, Template};
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Line;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A `num_map` block; the variable holds its table.
pub struct NumMaps<A>(PhantomData<fn(A)>);

impl<A> Clone for NumMaps<A> {
    fn clone(&self) -> Self {
        NumMaps(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for NumMaps<A> {
    const SYNTAX: &'static str = "number $variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (source, name) = declaration(cx, d)?;
        let (lookup, volatile) = Numbers::parse(cx, d, source)?;
        cx.get::<VariableTable<A>>().computed(&name, Arc::new(lookup), volatile).map_err(|p| p.at(1))?;
        Ok(NumMaps(PhantomData))
    }
}

struct Numbers<A: AreaTypes> {
    source: Template<A>,
    exact: HashMap<i64, Template<A>>,
    ranges: Vec<(RangeInclusive<i64>, Template<A>)>,
    default: Option<Template<A>>,
}

impl<A: AreaTypes> Numbers<A> {
    fn parse(cx: &mut Cx, d: &Directive, source: Template<A>) -> Result<(Self, bool), Problem> {
        let mut numbers = Numbers { source, exact: HashMap::new(), ranges: Vec::new(), default: None };
        let mut volatile = false;
        for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            match (line.name.bytes.as_slice(), line.args.as_slice()) {
                (b"volatile", []) => volatile = true,
                (_, [value]) => {
                    cx.at = At { span: line.span, line: line.line };
                    let result = Template::compile(cx, line, &value.bytes).map_err(|p| p.on(line))?;
                    numbers.add(line, result).map_err(|p| p.on(line))?;
                }
                _ => return Err(Problem::says("invalid number of the num_map parameters").on(line)),
            }
        }
        Ok((numbers, volatile))
    }

    fn add(&mut self, line: &Line, result: Template<A>) -> Result<(), Problem> {
        let name = line.name.bytes.as_slice();
        let text = String::from_utf8_lossy(name);
        if name == b"default" {
            return match self.default.replace(result) {
                Some(_) => Err(Problem::says("duplicate default num_map parameter")),
                None => Ok(()),
            };
        }
        let conflict = || Problem::says(format!("conflicting parameter \"{text}\""));
        if let Some(number) = integer(name) {
            return match self.exact.insert(number, result) {
                Some(_) => Err(conflict()),
                None => Ok(()),
            };
        }
        let range = range(name).ok_or_else(|| Problem::says(format!("invalid number or range \"{text}\"")))?;
        if self.ranges.iter().any(|(known, _)| *known == range) {
            return Err(conflict());
        }
        self.ranges.push((range, result));
        Ok(())
    }

    /// A value that is no integer has the default result.
    fn find(&self, value: &[u8]) -> Option<&Template<A>> {
        let found = integer(value).and_then(|number| {
            let in_range = || self.ranges.iter().find(|(range, _)| range.contains(&number)).map(|(_, result)| result);
            self.exact.get(&number).or_else(in_range)
        });
        found.or(self.default.as_ref())
    }
}

impl<A: AreaTypes> Compute<A> for Numbers<A> {
    fn get(&self, r: &mut A::Session, out: &mut Vec<u8>) -> bool {
        let value = self.source.eval(r);
        if let Some(result) = self.find(&value) {
            result.write(r, out);
        }
        true
    }
}

/// Reads digits, possibly after a minus sign.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads `<n`, `<=n`, `>n`, `>=n` or `n-n`.
fn range(text: &[u8]) -> Option<RangeInclusive<i64>> {
    match text {
        [b'<', b'=', n @ ..] => Some(i64::MIN..=integer(n)?),
        [b'<', n @ ..] => Some(i64::MIN..=integer(n)?.checked_sub(1)?),
        [b'>', b'=', n @ ..] => Some(integer(n)?..=i64::MAX),
        [b'>', n @ ..] => Some(integer(n)?.checked_add(1)?..=i64::MAX),
        _ => {
            // The first octet may be a sign.
            let dash = 1 + text.get(1..)?.iter().position(|c| *c == b'-')?;
            let range = integer(text.get(..dash)?)?..=integer(text.get(dash + 1..)?)?;
            (!range.is_empty()).then_some(range)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestArea;
    use conf_syntax::{FileId, TreeItem, parse_file};

    fn numbers(body: &str) -> Result<(Numbers<TestArea>, bool), String> {
        let Some(TreeItem::Directive(d)) =
            parse_file(FileId(0), format!("num_map $x $y {{ {body} }}").as_bytes()).into_iter().next()
        else {
            panic!("a directive");
        };
        Numbers::parse(&mut Cx::default(), &d, Template::default()).map_err(|p| format!("{:?}", p.words))
    }

    #[test]
    fn numbers_then_ranges_in_order_then_the_default() {
        let (table, volatile) =
            numbers("default d; <=1023 low; 443 https; 8080-8090 alt; -5--1 minus; >65535 none; >=60000 high; <0 never; volatile;")
                .expect("parses");
        assert!(volatile);
        for (value, want) in [
            ("443", "https"),
            ("0443", "https"),
            ("0", "low"),
            ("1023", "low"),
            ("1024", "d"),
            ("8080", "alt"),
            ("8090", "alt"),
            ("8091", "d"),
            // The first range that contains it.
            ("-3", "low"),
            ("60000", "high"),
            ("65536", "none"),
            ("9223372036854775807", "none"),
            ("9223372036854775808", "d"),
            ("", "d"),
            ("-", "d"),
            ("+1", "d"),
            ("1.5", "d"),
            (" 1", "d"),
        ] {
            let found = table.find(value.as_bytes()).and_then(Template::as_literal).expect("a result");
            assert_eq!(String::from_utf8_lossy(found), want, "{value}");
        }
        let (table, volatile) = numbers("-5--1 minus; <3 few;").expect("parses");
        assert!(!volatile && table.find(b"3").is_none());
        assert_eq!(table.find(b"-5").and_then(Template::as_literal), Some(&b"minus"[..]));
        assert_eq!(table.find(b"2").and_then(Template::as_literal), Some(&b"few"[..]));
    }

    #[test]
    fn faulty_numbers_are_refused() {
        for (body, want) in [
            ("1 a; 01 b;", "conflicting parameter \\\"01\\\""),
            ("<=1 a; <2 b;", "conflicting parameter \\\"<2\\\""),
            ("default a; default b;", "duplicate default num_map parameter"),
            ("1;", "invalid number of the num_map parameters"),
            ("hostnames;", "invalid number of the num_map parameters"),
            ("a b;", "invalid number or range \\\"a\\\""),
            ("2-1 b;", "invalid number or range"),
            ("1- b;", "invalid number or range"),
            ("< b;", "invalid number or range"),
            ("1.5 b;", "invalid number or range"),
            ("9223372036854775808 b;", "invalid number or range"),
            ("<-9223372036854775808 b;", "invalid number or range"),
        ] {
            let got = numbers(body).err().expect(body);
            assert!(got.contains(want), "{body}: {got}");
        }
    }
}
