//! Reads a `dns` block: records for the zone, and pools, whose groups are bound when all are known.

use crate::StreamTemplate;
use crate::values::place_of_answer;
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use conf_syntax::Word;
use dns_zone::record::{self, LINE_TYPES, RecordType};
use dns_zone::{DomainName, NameError, Zone, ZoneBuilder};
use std::collections::HashMap;
use std::sync::Arc;

/// Seconds.
const TTL_DEFAULT: u32 = 300;
const ANSWERS_DEFAULT: usize = 8;
const ANSWERS_MAX: usize = 32;

/// The `dns` blocks of a server.
#[derive(Clone)]
pub struct ZoneBlocks {
    pub all: Vec<Arc<ZoneBlock>>,
    /// Position among directives that set a content handler.
    pub place: usize,
}

/// A zone, and the lines of its pools by their numbers in the zone.
pub struct ZoneBlock {
    pub zone: Zone,
    pub pools: Vec<(usize, PoolLine)>,
    pub at: At,
}

/// Name of a group, with its position.
#[derive(Clone)]
pub struct GroupName {
    pub text: String,
    pub at: At,
}

/// Answer of a pool none of whose servers is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownAnswer {
    /// All servers of the first group: a check may be wrong, and no address helps no client.
    All,
    NoData,
    ServFail,
}

/// Groups of a pool, in the order in which they are tried.
pub enum GroupChoice {
    Same(Vec<GroupName>),
    ByValue { of: StreamTemplate, cases: HashMap<Vec<u8>, Vec<GroupName>>, default: Vec<GroupName> },
}

pub struct PoolLine {
    pub choice: GroupChoice,
    pub answers: usize,
    pub down: DownAnswer,
}

/// Number of pools of a configuration. Kept in `Cx`.
#[derive(Default)]
struct PoolCount(usize);

impl ValueKind for ZoneBlocks {
    const SYNTAX: &'static str = "zone [ttl=time] { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let block = parse_block(cx, d)?;
        Ok(ZoneBlocks { all: vec![Arc::new(block)], place: place_of_answer(cx) })
    }
    fn append(&mut self, later: Self) {
        self.all.extend(later.all);
    }
}

fn parse_block(cx: &mut Cx, d: &Directive) -> Result<ZoneBlock, Problem> {
    let name = d.args.first().map(|word| word.text()).unwrap_or_default();
    let apex = DomainName::parse(&name, None).map_err(|NameError { reason, hint }| {
        hinted(Problem::says(format!("the name of the zone \"{name}\" {reason}")).at(0), hint)
    })?;
    let mut ttl = TTL_DEFAULT;
    for (index, word) in d.args.iter().enumerate().skip(1) {
        let text = word.text();
        let Some(time) = text.strip_prefix("ttl=") else {
            return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index).hint("\"ttl=time\""));
        };
        ttl = record::parse_seconds(time).ok_or_else(|| {
            Problem::says(format!("invalid time in \"{text}\"")).at(index).hint("such as 60, 5m or 1d")
        })?;
    }
    let mut builder = ZoneBuilder::new(apex, ttl);
    let mut pools = Vec::new();
    for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
        parse_line(cx, line, ttl, &mut builder, &mut pools)?;
    }
    let (zone, warnings) = builder.finish().map_err(|fault| hinted(Problem::says(fault.reason), &fault.hint))?;
    for warning in warnings {
        cx.warn(d, warning.reason);
    }
    Ok(ZoneBlock { zone, pools, at: At { span: d.span, line: d.line } })
}

fn hinted(problem: Problem, hint: &str) -> Problem {
    if hint.is_empty() { problem } else { problem.hint(hint) }
}

fn place_of(line: &Directive, word: &Word) -> At {
    At { span: word.span, line: line.line }
}

/// Returns a problem of a word of a line.
fn wrong(line: &Directive, word: &Word, reason: impl Into<String>, hint: &str) -> Problem {
    hinted(Problem { inner: Some(place_of(line, word)), ..Problem::says(reason) }, hint)
}

/// Reads `name [ttl] type value ...`.
fn parse_line(
    cx: &mut Cx,
    line: &Directive,
    default_ttl: u32,
    builder: &mut ZoneBuilder,
    pools: &mut Vec<(usize, PoolLine)>,
) -> Result<(), Problem> {
    let apex = builder.apex().clone();
    let owner = record::parse_name(&line.name.text(), &apex)
        .map_err(|(reason, hint)| wrong(line, &line.name, reason, &hint))?;
    let (ttl, words) = match line.args.split_first() {
        Some((first, rest)) if first.bytes.first().is_some_and(u8::is_ascii_digit) => {
            let text = first.text();
            let ttl = record::parse_seconds(&text).ok_or_else(|| {
                wrong(
                    line,
                    first,
                    format!("invalid time to live \"{text}\""),
                    "a time such as 60, 5m or 1d, at most 68 years",
                )
            })?;
            (ttl, rest)
        }
        _ => (default_ttl, line.args.as_slice()),
    };
    let Some((kind_word, values)) = words.split_first() else {
        return Err(hinted(Problem::says("a line of a zone has no type").on(line), "name [ttl] type value ..."));
    };
    let kind_text = kind_word.text();
    if kind_text == "pool" {
        let pool = parse_pool(cx, line, values)?;
        let count = cx.get::<PoolCount>();
        count.0 += 1;
        let number = count.0;
        builder
            .add_pool(&owner, ttl, number)
            .map_err(|fault| hinted(Problem::says(fault.reason).on(line), &fault.hint))?;
        pools.push((number, pool));
        return Ok(());
    }
    let Some(kind) = RecordType::of_line(&kind_text) else {
        let known: Vec<&str> = LINE_TYPES.iter().map(|(name, _)| *name).collect();
        let hint = format!("one of: {}, pool", known.join(", "));
        return Err(wrong(line, kind_word, format!("unknown type of record \"{kind_text}\""), &hint));
    };
    let texts: Vec<_> = values.iter().map(Word::text).collect();
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let data =
        record::parse_record(kind, &texts, &apex).map_err(|fault| match fault.word.and_then(|at| values.get(at)) {
            Some(word) => wrong(line, word, fault.reason, &fault.hint),
            None => hinted(Problem::says(fault.reason).on(line), &fault.hint),
        })?;
    builder.add(&owner, kind, ttl, data).map_err(|fault| hinted(Problem::says(fault.reason).on(line), &fault.hint))
}

const POOL_FORM: &str = "pool group ... [answers=number] [down=all | nodata | servfail], or pool $variable value=group[,group] ... default=group";

/// Reads the words behind `pool`.
fn parse_pool(cx: &mut Cx, line: &Directive, words: &[Word]) -> Result<PoolLine, Problem> {
    let (mut answers, mut down) = (ANSWERS_DEFAULT, DownAnswer::All);
    let (of, words) = match words.split_first() {
        Some((first, rest)) if first.bytes.contains(&b'$') => {
            let of = StreamTemplate::compile(cx, line, &first.bytes)
                .map_err(|problem| Problem { inner: Some(place_of(line, first)), ..problem })?;
            (Some(of), rest)
        }
        _ => (None, words),
    };
    let (mut same, mut cases, mut default) = (Vec::new(), HashMap::new(), Vec::new());
    for word in words {
        let text = word.text();
        let name = |text: &str| GroupName { text: text.to_string(), at: place_of(line, word) };
        match text.split_once('=') {
            Some(("answers", number)) => {
                let number = number.parse().ok().filter(|number| (1..=ANSWERS_MAX).contains(number));
                let hint = format!("a number from 1 to {ANSWERS_MAX}");
                answers = number.ok_or_else(|| wrong(line, word, format!("invalid number in \"{text}\""), &hint))?;
            }
            Some(("down", value)) => {
                down = match value {
                    "all" => DownAnswer::All,
                    "nodata" => DownAnswer::NoData,
                    "servfail" => DownAnswer::ServFail,
                    _ => {
                        return Err(wrong(
                            line,
                            word,
                            format!("invalid parameter \"{text}\""),
                            "down=all | nodata | servfail",
                        ));
                    }
                };
            }
            Some((value, list)) if of.is_some() && !value.is_empty() => {
                let groups: Vec<GroupName> = list.split(',').map(name).collect();
                let is_taken = match value {
                    "default" => !std::mem::replace(&mut default, groups).is_empty(),
                    _ => cases.insert(value.to_ascii_lowercase().into_bytes(), groups).is_some(),
                };
                if is_taken {
                    return Err(wrong(line, word, format!("duplicate value \"{value}\" of a pool"), ""));
                }
            }
            None if of.is_none() => same.push(name(&text)),
            _ => return Err(wrong(line, word, format!("invalid parameter \"{text}\" of a pool"), POOL_FORM)),
        }
    }
    let choice = match of {
        Some(of) if !default.is_empty() => GroupChoice::ByValue { of, cases, default },
        Some(_) => {
            let problem = Problem::says("a pool by a variable has no \"default\" groups").on(line);
            return Err(problem.hint("add \"default=group\", for values that are not listed"));
        }
        None if !same.is_empty() => GroupChoice::Same(same),
        None => return Err(Problem::says("a pool has no groups").on(line).hint(POOL_FORM)),
    };
    Ok(PoolLine { choice, answers, down })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Result<ZoneBlock, (String, Option<String>)> {
        let text = format!("dns example.org {{ @ NS ns.example.net.; {text} }}");
        let items = conf_syntax::parse_file(conf_syntax::FileId(0), text.as_bytes());
        let lines = conf_syntax::list_directives(&items);
        let line = lines.first().expect("a block");
        parse_block(&mut Cx::default(), line).map_err(|problem| {
            let at = problem.inner.map(|at| text[at.span.start as usize..at.span.end as usize].to_string());
            (format!("{:?} {}", problem.words, problem.hint.unwrap_or_default()), at)
        })
    }

    #[test]
    fn lines_of_records_and_pools() {
        let block = block(
            "www 1m A 192.0.2.1 192.0.2.2; WWW 60 TXT \"a $b\"; api pool eu us answers=2 down=servfail;
             geo 30 pool $remote_addr us=us,eu Asia=asia default=eu;",
        )
        .unwrap_or_else(|(why, _)| panic!("{why}"));
        assert_eq!(block.pools.len(), 2);
        let (_, first) = &block.pools[0];
        assert_eq!((first.answers, first.down), (2, DownAnswer::ServFail));
        let GroupChoice::ByValue { cases, default, .. } = &block.pools[1].1.choice else { panic!("by a variable") };
        assert_eq!((cases.len(), default.len()), (2, 1));
        assert!(cases.contains_key(&b"asia"[..]), "in lower case");
    }

    #[test]
    fn errors_point_at_their_words() {
        for (text, at, reason) in [
            ("www A 192.0.2.300;", "192.0.2.300", "invalid IPv4 address"),
            ("www 5x A 192.0.2.3;", "5x", "invalid time to live \\\"5x\\\""),
            ("www 9999999999 A 192.0.2.3;", "9999999999", "invalid time to live"),
            ("www B 192.0.2.3;", "B", "unknown type of record \\\"B\\\"\") one of: A, AAAA"),
            ("www;", "www;", "a line of a zone has no type"),
            ("www 60;", "www 60;", "a line of a zone has no type"),
            ("www.example.net. A 192.0.2.3;", "www.example.net. A 192.0.2.3;", "is outside of the zone"),
            ("www.example.org A 192.0.2.3;", "www.example.org", "write \"www\""),
            ("a MX 10;", "a MX 10;", "invalid number of values"),
            ("a pool;", "a pool;", "a pool has no groups"),
            ("a pool eu answers=0;", "answers=0", "a number from 1 to 32"),
            ("a pool eu down=x;", "down=x", "invalid parameter"),
            ("a pool eu x=y;", "x=y", "invalid parameter"),
            ("a pool $remote_addr us=us;", "a pool $remote_addr us=us;", "no \\\"default\\\" groups"),
            ("a pool $remote_addr us default=us;", "us", "invalid parameter"),
            ("a pool $remote_addr us=a us=b default=us;", "us=b", "duplicate value"),
        ] {
            let (why, place) = block(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(why.contains(reason), "{text}: {why}");
            assert_eq!(place.as_deref(), Some(at), "{text}");
        }
    }
}
