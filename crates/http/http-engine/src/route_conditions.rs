//! Evaluates the conditions of locations (`route_match`).

use crate::path::CanonicalPath;
use crate::request::Request;
use crate::route_match::{RouteLine, RouteMatches, RouteSource, RouteTest};
use crate::variables;
use ::variables::regex::MatchFailed;
use std::borrow::Cow;

impl RouteMatches {
    /// Tells whether a block holds for the request, whose `path` the search has borrowed; the text is that of the line that decides
    /// against it. Fails, logged, with a regular expression.
    pub fn hold(&self, r: &mut Request, path: &CanonicalPath) -> Result<Result<(), &str>, MatchFailed> {
        let reads_path =
            self.0.iter().flat_map(|lines| lines.iter()).any(|line| matches!(line.source, RouteSource::Text(_)));
        if reads_path {
            r.target.path = path.clone();
        }
        let decided = self.decide(r);
        if reads_path {
            r.target.path.clear();
        }
        decided.inspect_err(|MatchFailed(words)| r.log(observe::Severity::Error, format_args!("{words}")))
    }

    fn decide(&self, r: &mut Request) -> Result<Result<(), &str>, MatchFailed> {
        let mut against = "";
        for lines in &self.0 {
            let mut failed = None;
            for line in lines.iter() {
                if !line.holds(r)? {
                    failed = Some(line.text.as_str());
                    break;
                }
            }
            match failed {
                None => return Ok(Ok(())),
                Some(text) => against = text,
            }
        }
        Ok(Err(against))
    }
}

impl RouteLine {
    fn holds(&self, r: &mut Request) -> Result<bool, MatchFailed> {
        let mut value = Vec::new();
        let is_there = match &self.source {
            RouteSource::Method => variables::request_method(r, &mut value),
            RouteSource::Header(name) => field_of(r, name, &mut value),
            RouteSource::Query(key) => match decoded_argument(&r.target.args, key) {
                Some(found) => {
                    value.extend_from_slice(&found);
                    true
                }
                None => false,
            },
            RouteSource::Text(template) => {
                value = template.eval(r);
                true
            }
        };
        match &self.test {
            _ if !is_there => Ok(false),
            RouteTest::IsThere => Ok(true),
            RouteTest::IsOneOf(values) => Ok(values.contains(&value)),
            RouteTest::Matches(pattern) => pattern.is_match(&value),
        }
    }
}

/// Appends the values of a field, joined as in `$http_name`; `name` in lower case.
fn field_of(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let mut found = false;
    for (field, value) in r.headers() {
        if field.eq_ignore_ascii_case(name) {
            if found {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(value);
            found = true;
        }
    }
    found
}

/// Returns the first value of a key of the query, both decoded (`%XX`, `+`); empty for a key without `=`.
fn decoded_argument<'a>(args: &'a [u8], key: &[u8]) -> Option<Cow<'a, [u8]>> {
    args.split(|c| *c == b'&').find_map(|pair| {
        let mut parts = pair.splitn(2, |c| *c == b'=');
        let is_key = parts.next().is_some_and(|name| *decoded(name) == *key);
        is_key.then(|| decoded(parts.next().unwrap_or_default()))
    })
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|c| matches!(c, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let digit = |c: Option<&u8>| c.and_then(|c| char::from(*c).to_digit(16)).map(|digit| digit as u8);
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(c) = text.get(at) {
        match (c, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            (b'+', ..) => {
                out.push(b' ');
                at += 1;
            }
            _ => {
                out.push(*c);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_is_decoded() {
        let of = |args: &'static str, key: &str| decoded_argument(args.as_bytes(), key.as_bytes());
        assert_eq!(of("a=1&b=2&a=3", "a").as_deref(), Some(&b"1"[..]));
        assert_eq!(of("a%20b=c+d%2", "a b").as_deref(), Some(&b"c d%2"[..]));
        assert_eq!(of("debug", "debug").as_deref(), Some(&b""[..]));
        assert_eq!(of("A=1&ab=2", "a"), None);
    }
}
