//! `match` blocks: conditions on a response.

use conf_schema::value::parse_decimal;
use conf_schema::{Cx, Problem};
use conf_syntax::Directive as Line;
use http_engine::regex::{HttpPattern, MatchFailed};
use http_engine::{HttpTemplate, Request};
use upstream_directives::checks::Tests;

/// Tests of a block; all must hold.
#[derive(Debug, Default)]
pub struct Match {
    status: Option<Statuses>,
    headers: Vec<HeaderTest>,
    body: Option<(bool, HttpPattern)>,
    require: Vec<HttpTemplate>,
}

#[derive(Debug)]
struct Statuses {
    not: bool,
    ranges: Vec<(u16, u16)>,
}

#[derive(Debug)]
struct HeaderTest {
    name: String,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Present,
    Absent,
    Equal(bool, Vec<u8>),
    Like(bool, HttpPattern),
}

impl Tests for Match {
    fn line(&mut self, cx: &mut Cx, line: &Line) -> Result<(), Problem> {
        let words: Vec<&[u8]> = line.args.iter().map(|w| w.bytes.as_slice()).collect();
        let invalid = || Problem::says("invalid test of a health check");
        let operator = |word: &[u8]| match word {
            b"=" | b"~" => Some(false),
            b"!=" | b"!~" => Some(true),
            _ => None,
        };
        match (line.name.bytes.as_slice(), words.as_slice()) {
            (b"status", [first, rest @ ..]) if self.status.is_none() => {
                let not = *first == b"!";
                let codes = if not { rest } else { &words[..] };
                let ranges: Option<Vec<_>> = codes.iter().map(|code| range(code)).collect();
                let ranges = ranges.filter(|r| !r.is_empty()).ok_or_else(|| Problem::says("invalid status"))?;
                self.status = Some(Statuses { not, ranges });
            }
            (b"header", [name]) => self.header(name, Test::Present),
            (b"header", [b"!", name]) => self.header(name, Test::Absent),
            (b"header", [name, how @ (b"=" | b"!="), value]) => {
                self.header(name, Test::Equal(operator(how) == Some(true), value.to_vec()));
            }
            (b"header", [name, how @ (b"~" | b"!~"), value]) => {
                let pattern = HttpPattern::new(cx, value, false)?;
                self.header(name, Test::Like(operator(how) == Some(true), pattern));
            }
            (b"body", [how @ (b"~" | b"!~"), value]) if self.body.is_none() => {
                self.body = Some((operator(how) == Some(true), HttpPattern::new(cx, value, false)?));
            }
            (b"require", [_, ..]) => {
                for word in &words {
                    if word.first() != Some(&b'$') {
                        return Err(Problem::says("\"require\" takes variables"));
                    }
                    self.require.push(HttpTemplate::compile(cx, line, word)?);
                }
            }
            _ => return Err(invalid()),
        }
        Ok(())
    }
}

impl Match {
    fn header(&mut self, name: &[u8], test: Test) {
        self.headers.push(HeaderTest { name: String::from_utf8_lossy(name).into_owned(), test });
    }

    pub fn wants_body(&self) -> bool {
        self.body.is_some()
    }

    pub fn head(&self, status: u16, fields: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        let right = match &self.status {
            None => true,
            Some(s) => s.ranges.iter().any(|(first, last)| (*first..=*last).contains(&status)) != s.not,
        };
        if !right {
            return Err(format!("status {status}"));
        }
        for HeaderTest { name, test } in &self.headers {
            let mut values = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v);
            let right = match test {
                Test::Present => values.next().is_some(),
                Test::Absent => values.next().is_none(),
                Test::Equal(not, wanted) => values.any(|value| value == wanted) != *not,
                Test::Like(not, pattern) => {
                    let mut found = false;
                    for value in values {
                        found = found || pattern.is_match(value).map_err(|MatchFailed(words)| words)?;
                    }
                    found != *not
                }
            };
            if !right {
                return Err(format!("header \"{name}\""));
            }
        }
        Ok(())
    }

    pub fn body(&self, body: &[u8]) -> Result<(), String> {
        match &self.body {
            Some((not, pattern)) if pattern.is_match(body).map_err(|MatchFailed(words)| words)? == *not => {
                Err("body".into())
            }
            _ => Ok(()),
        }
    }

    pub fn required(&self, r: &mut Request) -> Result<(), String> {
        for template in &self.require {
            if !http_engine::template::is_true(&template.eval(r)) {
                return Err("a required variable is empty or 0".into());
            }
        }
        Ok(())
    }
}

/// Without a block: accepts 2xx and 3xx.
pub fn accept_status(status: u16) -> Result<(), String> {
    if (200..400).contains(&status) { Ok(()) } else { Err(format!("status {status}")) }
}

fn range(word: &[u8]) -> Option<(u16, u16)> {
    let text = std::str::from_utf8(word).ok()?;
    let code = |s: &str| parse_decimal::<u16>(s).filter(|n| (100..=599).contains(n));
    match text.split_once('-') {
        Some((first, last)) => Some((code(first)?, code(last)?)).filter(|(first, last)| first <= last),
        None => code(text).map(|n| (n, n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::ValueKind;
    use std::sync::Arc;
    use upstream_directives::checks::{MatchBlocks, Matches};

    fn block(text: &str) -> Result<Arc<Match>, String> {
        let items = conf_syntax::parse_file(conf_syntax::FileId(0), format!("match m {{ {text} }}").as_bytes());
        let mut cx = Cx::default();
        let line = conf_syntax::list_directives(&items).first().copied().cloned().ok_or("nothing")?;
        MatchBlocks::<Match>::parse(&mut cx, &line).map_err(|p| format!("{p:?}"))?;
        Matches::find(&mut cx, "m").map_err(|p| format!("{p:?}"))
    }

    #[test]
    fn tests_of_the_head_and_the_body() {
        let field = |n: &str, v: &str| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        let fields = [field("Content-Type", "text/html"), field("Server", "x 1.2")];
        for (text, status, right) in [
            ("status 200;", 200, true),
            ("status 200;", 204, false),
            ("status ! 500;", 404, true),
            ("status ! 500-599;", 503, false),
            ("status 200-399 404;", 404, true),
            ("header content-type = text/html;", 200, true),
            ("header content-type != text/html;", 200, false),
            ("header server ~ \"^x\";", 200, true),
            ("header server !~ \"^x\";", 200, false),
            ("header server;", 200, true),
            ("header ! server;", 200, false),
            ("header ! x-none; status 200;", 200, true),
        ] {
            assert_eq!(block(text).unwrap().head(status, &fields).is_ok(), right, "{text}");
        }
        let body = block("body ~ \"we+lcome\";").unwrap();
        assert!(body.body(b"weelcome").is_ok() && body.body(b"bye").is_err());
        assert!(block("body !~ bye;").unwrap().body(b"welcome").is_ok());
        for wrong in ["status;", "status 99;", "status 300-200;", "header;", "header a b c;", "body = x;", "require x;"]
        {
            assert!(block(wrong).is_err(), "{wrong}");
        }
    }
}
