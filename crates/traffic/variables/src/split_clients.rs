//! split_clients (nginx: `ngx_http_split_clients_module` and the stream module): variables by share of clients, with
//! nginx's hash, so that migrated clients keep their share.

use crate::session::VarId;
use crate::template::Part;
use crate::variable::{Compute, VariableTable};
use crate::{AreaTypes, Template};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::marker::PhantomData;
use std::sync::Arc;

/// A `split_clients` block; the variable holds its shares.
pub struct Splits<A>(PhantomData<fn(A)>);

impl<A> Clone for Splits<A> {
    fn clone(&self) -> Self {
        Splits(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for Splits<A> {
    const SYNTAX: &'static str = "string $variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(source), Some(target)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let source = Template::compile(cx, d, &source.bytes).map_err(|p| p.at(0))?;
        let name = target.text().into_owned();
        let Some(name) = name.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{name}\""))
                .at(1)
                .hint("a variable name begins with \"$\""));
        };
        let shares = shares(d)?;
        cx.get::<VariableTable<A>>().computed(name, Arc::new(Split { source, shares }), false).map_err(|p| p.at(1))?;
        Ok(Splits(PhantomData))
    }
}

/// 100 % in hundredths of a percent.
const WHOLE: u32 = 10_000;

/// Parses the shares: each with its upper hash bound, or 0 for the rest.
fn shares(d: &Directive) -> Result<Vec<(u32, Box<[u8]>)>, Problem> {
    let mut shares = Vec::new();
    let (mut sum, mut last) = (0u32, 0u32);
    let block = d.block.as_deref().unwrap_or_default();
    // As in nginx, the block reads no other file.
    if let Some(line) = conf_syntax::include_of(block) {
        return Err(Problem::says("invalid percent value \"include\"").on(line));
    }
    for line in conf_syntax::list_directives(block) {
        let text = line.name.text();
        let value = line.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let part = match text.strip_suffix('%').and_then(hundredths) {
            Some(part) => part,
            None if text == "*" => 0,
            None => return Err(Problem::says(format!("invalid percent value \"{text}\"")).on(line)),
        };
        sum = if part == 0 { WHOLE } else { sum + part };
        if sum > WHOLE {
            return Err(Problem::says("percent total is greater than 100%"));
        }
        let end = if sum == WHOLE {
            0
        } else {
            last = last.wrapping_add((u64::from(part) * 0xffff_ffff / u64::from(WHOLE)) as u32);
            last
        };
        shares.push((end, value.into()));
    }
    Ok(shares)
}

/// Parses `12.5` as 1250: at most two decimals, above 0 and at most 100.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|c| c.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 2 {
        return None;
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u32 = format!("{fraction:0<2}").parse().ok()?;
    let value = whole.checked_mul(100)?.checked_add(fraction)?;
    (value > 0).then_some(value.min(WHOLE + 1))
}

/// The shares of a variable, by the hash of a text.
pub struct Split<A> {
    source: Template<A>,
    shares: Vec<(u32, Box<[u8]>)>,
}

impl<A> Split<A> {
    /// Returns the variable that is the whole text, if one is.
    pub fn variable(&self) -> Option<VarId> {
        match self.source.parts() {
            [Part::Variable(id)] => Some(*id),
            _ => None,
        }
    }
    /// Returns the shares in order: the hash before which each ends (0: it has all others), and its value.
    pub fn shares(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.shares.iter().map(|(end, value)| (*end, &**value))
    }
    /// Returns the value for a text; `None`: it is in no share.
    pub fn share(&self, text: &[u8]) -> Option<&[u8]> {
        let hash = hash_murmur2(text);
        self.shares().find(|(end, _)| is_before(hash, *end)).map(|(_, value)| value)
    }
}

/// Tells whether a hash is before the end of a share.
#[inline]
pub fn is_before(hash: u32, end: u32) -> bool {
    hash < end || end == 0
}

impl<A: AreaTypes> Compute<A> for Split<A> {
    fn get(&self, r: &mut A::Session, out: &mut Vec<u8>) -> bool {
        // The source is written behind `out`, and removed again.
        let start = out.len();
        self.source.write(r, out);
        let value = self.share(out.get(start..).unwrap_or_default());
        out.truncate(start);
        out.extend_from_slice(value.unwrap_or_default());
        true
    }
    fn as_split(&self) -> Option<&Split<A>> {
        Some(self)
    }
}

const M: u32 = 0x5bd1_e995;

/// MurmurHash2 with nginx's seed, the length.
pub fn hash_murmur2(data: &[u8]) -> u32 {
    let (words, rest) = data.as_chunks::<4>();
    let mut hash = words.iter().fold(data.len() as u32, |hash, word| mix(hash, *word));
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    finish(hash)
}

#[inline]
fn mix(hash: u32, word: [u8; 4]) -> u32 {
    let k = u32::from_le_bytes(word).wrapping_mul(M);
    hash.wrapping_mul(M) ^ (k ^ k >> 24).wrapping_mul(M)
}

#[inline]
fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The hash of texts that differ only in their last four octets.
#[derive(Clone, Copy)]
pub struct Prefix(u32);

impl Prefix {
    /// `words`: all octets but the last four.
    pub fn new(words: &[[u8; 4]]) -> Prefix {
        let length = (words.len() as u32 + 1) * 4;
        Prefix(words.iter().fold(length, |hash, word| mix(hash, *word)))
    }
    /// Returns the hash of the whole text.
    #[inline]
    pub fn with(self, last: [u8; 4]) -> u32 {
        finish(mix(self.0, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{FileId, TreeItem, parse_file};

    fn read(body: &str) -> Result<Vec<(u32, Box<[u8]>)>, String> {
        let items = parse_file(FileId(0), format!("split_clients $x $y {{ {body} }}").as_bytes());
        let Some(TreeItem::Directive(d)) = items.into_iter().next() else { panic!("no block") };
        shares(&d).map_err(|p| format!("{:?}", p.words))
    }

    #[test]
    fn percents_are_parsed() {
        for (text, want) in
            [("0.5", Some(50)), ("51.2", Some(5120)), ("100", Some(10_000)), ("0.01", Some(1)), (".5", Some(50))]
        {
            assert_eq!(hundredths(text), want, "{text}");
        }
        for wrong in ["", ".", "0", "0.001", "x", "-1", "1x"] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shares_of_the_whole() {
        let ends: Vec<u32> = read("50% a; 25.5% b; * c;").expect("parses").into_iter().map(|(end, _)| end).collect();
        assert_eq!(ends, [2_147_483_647, 3_242_700_307, 0]);
        assert_eq!(read("50% a; 50% b;").expect("parses")[1].0, 0);
        assert!(read("60% a; 50% b;").expect_err("too much").contains("percent total is greater than 100%"));
        assert!(read("include a;").expect_err("another file").contains("invalid percent value \\\"include\\\""));
        assert!(read("60 a;").expect_err("no percent").contains("invalid percent value \\\"60\\\""));
    }

    /// Results of the reference implementation with the length as the seed.
    #[test]
    fn the_hash_is_murmur_2() {
        assert_eq!(hash_murmur2(b""), 0);
        let spread: std::collections::HashSet<u32> =
            (0..1000u32).map(|i| hash_murmur2(&i.to_le_bytes()) >> 22).collect();
        assert!(spread.len() > 500, "{}", spread.len());
    }
}
