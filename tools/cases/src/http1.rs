//! A client of HTTP/1.

use crate::expect::{Answer, wanted_answers};
use crate::parse::{Act, CaseStep, Request};
use crate::wire::Wire;

/// A connection with the bytes that were read ahead.
pub struct Http1 {
    wire: Wire,
    bytes: Vec<u8>,
    kept: bool,
}

impl Http1 {
    pub fn new(wire: Wire, kept: bool) -> Http1 {
        Http1 { wire, bytes: Vec::new(), kept }
    }

    /// # Errors
    /// The unexpected answer.
    pub fn exchange(&mut self, step: &CaseStep) -> Result<Vec<Answer>, String> {
        let (send, head) = match &step.act {
            Act::Request(request) => (text(request, self.kept), request.method == "HEAD"),
            Act::Raw(bytes) => (bytes.clone(), bytes.starts_with(b"HEAD ")),
            Act::Plain(_) => return Err("that is a step of the stream block".into()),
        };
        self.wire.send(&send)?;
        let (wanted, to_the_end) = wanted_answers(&step.expect);
        let (mut answers, mut ended) = (Vec::new(), false);
        while answers.len() < wanted || (to_the_end && !ended) {
            if let Some((answer, length)) = one(&self.bytes, head, ended)? {
                answers.push(answer);
                self.bytes.drain(..length);
                continue;
            }
            if ended {
                break;
            }
            let more = self.wire.receive(&mut self.bytes);
            ended = !more.map_err(|e| format!("{e}; so far: {}", String::from_utf8_lossy(&self.bytes)))?;
        }
        let left = String::from_utf8_lossy(&self.bytes);
        if to_the_end && (answers.len() > wanted || !left.is_empty()) {
            return Err(format!("more came than was expected: {left}"));
        }
        if answers.len() < wanted {
            return Err(format!("{} responses instead of {wanted}; what is left: {left}", answers.len()));
        }
        Ok(answers)
    }
}

fn text(request: &Request, kept: bool) -> Vec<u8> {
    let mut out = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    for (name, value) in &request.fields {
        out += &format!("{name}: {value}\r\n");
    }
    if request.field("host").is_none() {
        out += "Host: localhost\r\n";
    }
    if let Some(body) = &request.body {
        out += &format!("Content-Length: {}\r\n", body.len());
    }
    if !kept {
        out += "Connection: close\r\n";
    }
    out += "\r\n";
    out += request.body.as_deref().unwrap_or("");
    out.into_bytes()
}

/// The first response of some bytes, and its length; `None` while it is not complete.
fn one(bytes: &[u8], head_only: bool, ended: bool) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or("");
    let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(format!("no status line: {first}"))?;
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ").map(|(n, v)| (n.to_string(), v.to_string()))).collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    let rest = &bytes[end + 4..];
    let bodiless = head_only || matches!(status, 100..=199 | 204 | 304);
    let (body, used) = if bodiless {
        (Vec::new(), 0)
    } else if answer.header("transfer-encoding") == "chunked" {
        match dechunk(rest) {
            Some(done) => done,
            None => return Ok(None),
        }
    } else if let Ok(length) = answer.header("content-length").parse::<usize>() {
        match rest.get(..length) {
            Some(body) => (body.to_vec(), length),
            None => return Ok(None),
        }
    } else if ended {
        (rest.to_vec(), rest.len())
    } else {
        return Ok(None);
    };
    answer.body = body;
    Ok(Some((answer, end + 4 + used)))
}

fn dechunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(bytes.get(at..at + line)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        at += line + 2;
        if size == 0 {
            // Trailers, and an empty line.
            loop {
                let end = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")?;
                at += end + 2;
                if end == 0 {
                    return Some((out, at));
                }
            }
        }
        out.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
    }
}
