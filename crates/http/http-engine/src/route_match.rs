//! `route_match`: conditions of a location beside its name. A location whose conditions do not hold is skipped, and the search goes on
//! (`route_conditions.rs`).

use crate::area::{HttpPattern, HttpTemplate};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::sync::Arc;

/// The blocks of a location: one of them must hold, each with all of its lines.
#[derive(Clone, Debug)]
pub struct RouteMatches(pub(crate) Vec<Arc<[RouteLine]>>);

/// `header X-Env prod;`
#[derive(Debug)]
pub(crate) struct RouteLine {
    /// The tested value.
    pub source: RouteSource,
    /// The condition on it.
    pub test: RouteTest,
    /// As written, for `explain`.
    pub text: String,
}

#[derive(Debug)]
pub(crate) enum RouteSource {
    Method,
    /// In lower case.
    Header(Vec<u8>),
    Query(Vec<u8>),
    Text(HttpTemplate),
}

#[derive(Debug)]
pub(crate) enum RouteTest {
    IsThere,
    IsOneOf(Vec<Vec<u8>>),
    Matches(HttpPattern),
}

impl ValueKind for RouteMatches {
    const SYNTAX: &'static str = "{ ... }";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let rows = conf_syntax::list_directives(d.block.as_deref().unwrap_or_default());
        if rows.is_empty() {
            return Err(Problem::directive("has no conditions")
                .hint("write \"method\", \"header\", \"query\" or \"variable\" in it"));
        }
        let lines = rows.into_iter().map(|row| RouteLine::parse(cx, row).map_err(|problem| problem.on(row)));
        Ok(RouteMatches(vec![lines.collect::<Result<_, _>>()?]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl RouteLine {
    fn parse(cx: &mut Cx, row: &Directive) -> Result<RouteLine, Problem> {
        let words: Vec<&[u8]> = row.args.iter().map(|word| word.bytes.as_slice()).collect();
        let name = row.name.text();
        let text = row.args.iter().fold(name.to_string(), |all, word| all + " " + &word.text());
        let counts = |what: &str| Problem::says(format!("\"{name}\" of \"route_match\" needs {what}"));
        if row.block.is_some() {
            return Err(counts("a \";\" instead of a block"));
        }
        let (source, values) = match (&*name, words.as_slice()) {
            ("method", []) => return Err(counts("a method")),
            ("method", methods) => {
                let test = RouteTest::IsOneOf(methods.iter().map(|method| method.to_vec()).collect());
                return Ok(RouteLine { source: RouteSource::Method, test, text });
            }
            ("header", [field, rest @ ..]) if !field.is_empty() => {
                (RouteSource::Header(field.to_ascii_lowercase()), rest)
            }
            ("query", [key, rest @ ..]) if !key.is_empty() => (RouteSource::Query(key.to_vec()), rest),
            ("variable", [value, rest @ ..]) if !rest.is_empty() => {
                (RouteSource::Text(HttpTemplate::compile(cx, row, value).map_err(|p| p.at(0))?), rest)
            }
            ("variable", _) => return Err(counts("a variable and a value")),
            ("header" | "query", _) => return Err(counts("a name")),
            _ => {
                return Err(Problem::says(format!("unknown condition \"{name}\" in \"route_match\""))
                    .hint("one of: method, header, query, variable"));
            }
        };
        let mut regex = |text: &[u8], caseless| HttpPattern::new(cx, text, caseless).map_err(|p| p.at(2));
        let test = match values {
            [] => RouteTest::IsThere,
            [b"~", text] => RouteTest::Matches(regex(text, false)?),
            [b"~*", text] => RouteTest::Matches(regex(text, true)?),
            [value] => RouteTest::IsOneOf(vec![value.to_vec()]),
            _ => return Err(counts("at most one value, or \"~\" and a regular expression").at(2)),
        };
        Ok(RouteLine { source, test, text })
    }
}
