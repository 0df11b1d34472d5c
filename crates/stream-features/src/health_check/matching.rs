//! `match` blocks: a text for a server, and the test of its answer.

use crate::StreamArea;
use conf_schema::{Cx, Problem};
use conf_syntax::Directive as Line;
use upstream_directives::checks::Tests;
use variables::regex::{MatchFailed, Pattern};

#[derive(Debug, Default)]
pub struct Match {
    pub send: Option<Vec<u8>>,
    pub expect: Option<ExpectedAnswer>,
}

#[derive(Debug)]
pub enum ExpectedAnswer {
    Text(Vec<u8>),
    Like(Pattern<StreamArea>),
}

impl ExpectedAnswer {
    /// Tests the bytes so far. Fails with the reason why a regular expression could not run.
    pub fn is_in(&self, answer: &[u8]) -> Result<bool, String> {
        match self {
            ExpectedAnswer::Text(text) => Ok(memchr::memmem::find(answer, text).is_some()),
            ExpectedAnswer::Like(pattern) => pattern.is_match(answer).map_err(|MatchFailed(words)| words),
        }
    }
}

impl Tests for Match {
    fn line(&mut self, cx: &mut Cx, line: &Line) -> Result<(), Problem> {
        let words: Vec<&[u8]> = line.args.iter().map(|w| w.bytes.as_slice()).collect();
        match (line.name.bytes.as_slice(), words.as_slice()) {
            (b"send", [text]) if self.send.is_none() => self.send = Some(decoded(text)),
            (b"expect", [text]) if self.expect.is_none() => self.expect = Some(ExpectedAnswer::Text(decoded(text))),
            (b"expect", [how @ (b"~" | b"~*"), pattern]) if self.expect.is_none() => {
                self.expect = Some(ExpectedAnswer::Like(Pattern::new(cx, pattern, *how == b"~*")?));
            }
            _ => {
                let problem = Problem::says("invalid test of a health check");
                return Err(problem.hint("\"send TEXT\", \"expect TEXT\" or \"expect ~ PATTERN\", each once"));
            }
        }
        Ok(())
    }
}

/// Replaces `\x` and two hexadecimal digits by their octet.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digit = |c: &u8| char::from(*c).to_digit(16);
        let escape = match rest {
            [b'\\', b'x', high, low, behind @ ..] => {
                digit(high).zip(digit(low)).map(|(high, low)| ((high * 16 + low) as u8, behind))
            }
            _ => None,
        };
        let (octet, behind) = escape.unwrap_or((*first, behind));
        out.push(octet);
        rest = behind;
    }
    out
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
    fn texts_and_tests() {
        let whole = block(r#"send "PING\r\n\x00\x7fx\xg"; expect "+PONG";"#).expect("a block");
        assert_eq!(whole.send.as_deref(), Some(&b"PING\r\n\0\x7fx\\xg"[..]));
        let holds = |block: &Match, answer: &[u8]| block.expect.as_ref().is_some_and(|e| e.is_in(answer) == Ok(true));
        assert!(holds(&whole, b"-\r\n+PONG\r\n") && !holds(&whole, b"+PON"));
        let like = block(r#"expect ~* "^220 .*smtp";"#).expect("a block");
        assert!(like.send.is_none() && holds(&like, b"220 mail ESMTP") && !holds(&like, b"500 smtp"));
        assert!(!holds(&block(r#"expect ~ "SMTP";"#).expect("a block"), b"smtp"));
        let binary = block(r#"expect "\xff\x00";"#).expect("a block");
        assert!(holds(&binary, b"a\xff\0b") && !holds(&binary, b"\xff"));
        for wrong in ["send;", "send a b;", "send a; send b;", "expect ! x;", "expect a; expect b;", "status 200;"] {
            assert!(block(wrong).is_err(), "{wrong}");
        }
    }
}
