//! Compares answers with expectations.

use crate::parse::Expect;

#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> String {
        let all = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        all.map(|(_, v)| v.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// How many responses are wanted, and whether the connection must end behind them.
pub fn wanted_answers(expect: &[Vec<Expect>]) -> (usize, bool) {
    let wanted = expect.iter().filter(|e| !e.contains(&Expect::Closed)).count();
    (wanted, wanted < expect.len())
}

/// Tells whether a field is connection-specific (HTTP/1 only).
fn is_of_connections(name: &str) -> bool {
    ["connection", "keep-alive", "transfer-encoding"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// # Errors
/// The expectation that does not hold.
pub fn check_answers(answers: &[Answer], expect: &[Vec<Expect>], has_streams: bool) -> Result<(), String> {
    for (answer, wanted) in answers.iter().zip(expect) {
        for expect in wanted {
            one(answer, expect, has_streams)
                .map_err(|words| format!("{words}; got {} {:?}", answer.status, answer.headers))?;
        }
    }
    Ok(())
}

fn one(answer: &Answer, expect: &Expect, has_streams: bool) -> Result<(), String> {
    let body = String::from_utf8_lossy(&answer.body);
    let holds = match expect {
        Expect::Status(status) => answer.status == *status,
        Expect::Header(name, _) if has_streams && is_of_connections(name) => true,
        // nginx takes this one of QPACK's static entries over HTTP/3; its words have no case.
        Expect::Header(name, value) if has_streams && name.eq_ignore_ascii_case("vary") => {
            answer.header(name).eq_ignore_ascii_case(value)
        }
        Expect::Header(name, value) => {
            answer.header(name) == *value || (value.is_empty() && !answer.header(name).is_empty())
        }
        Expect::NoHeader(name) => !answer.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)),
        Expect::Names(names) if has_streams => {
            let names = names.split_whitespace().filter(|name| !is_of_connections(name));
            answer.headers.iter().map(|(n, _)| n.clone()).eq(names.map(str::to_ascii_lowercase))
        }
        Expect::Names(names) => answer.headers.iter().map(|(n, _)| n.as_str()).eq(names.split_whitespace()),
        Expect::Body(text) => body == text.as_str(),
        Expect::BodyHas(text) => body.contains(text.as_str()),
        Expect::Closed => true,
    };
    if holds { Ok(()) } else { Err(format!("expected {expect:?}, body: {body}")) }
}
