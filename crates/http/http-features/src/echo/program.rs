//! Parses the lines into a program.

use crate::shared::script_steps;
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use http_engine::HttpTemplate;
use std::sync::Arc;
use std::time::Duration;

/// In seconds, per line.
const SLEEP_SECONDS_MAX: f64 = 86_400.0;
/// In octets.
pub const DUPLICATE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Clone)]
pub enum Op {
    /// Sends the words, joined by spaces; `true` adds a line end.
    Say(Vec<HttpTemplate>, bool),
    Duplicate(u64, HttpTemplate),
    Flush,
    Sleep(HttpTemplate),
    ResetTimer,
    ReadBody,
    SendBody,
    Location {
        path: HttpTemplate,
        args: Option<HttpTemplate>,
    },
    /// `end`: index of the loop's `End`.
    Each {
        delimiter: HttpTemplate,
        list: HttpTemplate,
        end: usize,
    },
    /// `start`: index of the loop's `Each`.
    End {
        start: usize,
    },
    Exec {
        path: HttpTemplate,
        args: Option<HttpTemplate>,
    },
}

#[derive(Clone)]
pub struct EchoLine {
    pub order: usize,
    pub at: At,
    pub op: Op,
}

#[derive(Clone)]
pub struct EchoLines(pub Vec<EchoLine>);

impl ValueKind for EchoLines {
    const SYNTAX: &'static str = "...";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let op = parse(cx, d)?;
        let (order, at) = (script_steps::next_order(cx), cx.at);
        Ok(EchoLines(vec![EchoLine { order, at, op }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

#[derive(Clone)]
pub struct EchoTexts(pub Vec<(Vec<HttpTemplate>, bool)>);

impl ValueKind for EchoTexts {
    const SYNTAX: &'static str = "[-n] string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        words(cx, d).map(|line| EchoTexts(vec![line]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Words after the options `-n` and `--`, and whether a line end follows.
fn words(cx: &mut Cx, d: &Directive) -> Result<(Vec<HttpTemplate>, bool), Problem> {
    let (mut first, mut line_end) = (0, true);
    while let Some(word) = d.args.get(first) {
        match word.bytes.as_slice() {
            b"-n" => line_end = false,
            b"--" => {
                first += 1;
                break;
            }
            _ => break,
        }
        first += 1;
    }
    let mut all = Vec::new();
    for (index, word) in d.args.iter().enumerate().skip(first) {
        all.push(HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?);
    }
    Ok((all, line_end))
}

fn parse(cx: &mut Cx, d: &Directive) -> Result<Op, Problem> {
    let invalid = |index: usize| {
        let word = d.args.get(index).map(|w| w.text().into_owned()).unwrap_or_default();
        Problem::says(format!("invalid parameter \"{word}\"")).at(index)
    };
    let mut template = |index: usize| -> Result<HttpTemplate, Problem> {
        let word = d.args.get(index).map(|w| w.bytes.clone()).unwrap_or_default();
        HttpTemplate::compile(cx, d, &word).map_err(|p| p.at(index))
    };
    Ok(match d.name.bytes.as_slice() {
        b"echo_duplicate" => {
            let text = d.args.first().map(|w| w.text().replace('_', "")).unwrap_or_default();
            let count = text.parse().map_err(|_| invalid(0))?;
            Op::Duplicate(count, template(1)?)
        }
        b"echo_flush" => Op::Flush,
        b"echo_sleep" | b"echo_blocking_sleep" => {
            let time = template(0)?;
            if let Some(text) = time.as_literal()
                && parse_seconds(text).is_none()
            {
                return Err(invalid(0).hint("seconds, with up to three decimals"));
            }
            Op::Sleep(time)
        }
        b"echo_reset_timer" => Op::ResetTimer,
        b"echo_read_request_body" => Op::ReadBody,
        b"echo_request_body" => Op::SendBody,
        b"echo_location" | b"echo_location_async" => {
            let args = if d.args.len() > 1 { Some(template(1)?) } else { None };
            Op::Location { path: template(0)?, args }
        }
        b"echo_subrequest" | b"echo_subrequest_async" => {
            if !matches!(d.args.first().map(|w| w.bytes.as_slice()), Some(b"GET" | b"HEAD")) {
                return Err(invalid(0).hint("this version supports only GET subrequests"));
            }
            let args = match (d.args.get(2).map(|w| w.bytes.as_slice()), d.args.len()) {
                (None, _) => None,
                (Some(b"-q"), 4) => Some(template(3)?),
                _ => return Err(invalid(2).hint("this version supports only the option -q, with arguments")),
            };
            Op::Location { path: template(1)?, args }
        }
        b"echo_foreach_split" => {
            let first = usize::from(d.args.first().is_some_and(|w| w.bytes == b"--"));
            if d.args.len() != first + 2 {
                return Err(invalid(0).hint("a delimiter and a string"));
            }
            Op::Each { delimiter: template(first)?, list: template(first + 1)?, end: 0 }
        }
        b"echo_end" => Op::End { start: 0 },
        b"echo_exec" => {
            let args = if d.args.len() > 1 { Some(template(1)?) } else { None };
            Op::Exec { path: template(0)?, args }
        }
        _ => {
            let (words, line_end) = words(cx, d)?;
            Op::Say(words, line_end)
        }
    })
}

pub fn parse_seconds(text: &[u8]) -> Option<Duration> {
    let seconds = std::str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    (0.0..=SLEEP_SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// Links loops to their ends. Fails on unclosed and nested loops.
pub fn link_loops(lines: Vec<EchoLine>) -> Result<Arc<[Op]>, Problem> {
    let mut open: Option<(usize, At)> = None;
    let mut ops: Vec<Op> = Vec::with_capacity(lines.len());
    let says = |at: At, words: &str| Problem { inner: Some(at), ..Problem::says(words) };
    for (index, line) in lines.into_iter().enumerate() {
        let op = match (line.op, open) {
            (Op::Each { .. }, Some(_)) => {
                return Err(says(line.at, "nested \"echo_foreach_split\" is not supported"));
            }
            (Op::End { .. }, None) => return Err(says(line.at, "\"echo_end\" without \"echo_foreach_split\"")),
            (Op::End { .. }, Some((start, _))) => {
                if let Some(Op::Each { end, .. }) = ops.get_mut(start) {
                    *end = index;
                }
                open = None;
                Op::End { start }
            }
            (op @ Op::Each { .. }, None) => {
                open = Some((index, line.at));
                op
            }
            (op, _) => op,
        };
        ops.push(op);
    }
    match open {
        Some((_, at)) => Err(says(at, "\"echo_foreach_split\" has no \"echo_end\"")),
        None => Ok(ops.into()),
    }
}
