//! The head of a response as programs write it (RFC 3875, 6.2): fields without a status line. It becomes one of HTTP/1.

use bytes::Bytes;
use http_types::{Known, ResponseHead};
use upstream::{Answer, Wrong};
use wire_h1::{HeadError, HeadLimits, Progress, ResponseParser};

/// What stands before the fields until they have said another status.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// A head that is coming.
pub struct CgiHead {
    /// A status line of ours, and what has come.
    text: Vec<u8>,
    parser: ResponseParser,
    head: ResponseHead,
    /// A status line of the program's own is one (uwsgi and SCGI; not FastCGI).
    lines: bool,
    /// The program's own status line is there.
    has_line: Option<bool>,
}

impl CgiHead {
    pub fn new(lines: bool) -> CgiHead {
        CgiHead {
            text: Vec::new(),
            parser: ResponseParser::default(),
            head: ResponseHead::default(),
            lines,
            has_line: None,
        }
    }
    /// Ready for the next one.
    pub fn reset(&mut self) {
        *self = CgiHead::new(self.lines);
    }
    /// Takes more of it. `Some`: it is whole, with so many bytes behind it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push(&mut self, bytes: &[u8], max: usize) -> Result<Option<(Answer, Bytes)>, Wrong> {
        if self.text.is_empty() && !self.lines {
            self.text.extend_from_slice(OK);
            self.has_line = Some(false);
        }
        self.text.extend_from_slice(bytes);
        if self.has_line.is_none() {
            let start = self.text.get(..5).unwrap_or(&self.text);
            if start.len() < 5 && b"HTTP/".starts_with(start) {
                return Ok(None);
            }
            let own = start == b"HTTP/";
            if !own {
                self.text.splice(..0, OK.iter().copied());
            }
            self.has_line = Some(own);
        }
        // The line of ours does not count.
        let own_max = max + OK.len();
        let limits = HeadLimits {
            line_max: own_max,
            field_max: own_max,
            total_max: own_max,
            fields_max: 1000,
            underscores: true,
            ignore_invalid: true,
        };
        match self.parser.parse(&self.text, &limits, &mut self.head) {
            Ok(Progress::Done { consumed }) => self.done(consumed, &limits).map(Some),
            Ok(Progress::Partial) => Ok(None),
            // What begins like a status line and is none is a field.
            Err(HeadError::InvalidStatusLine) if self.has_line == Some(true) => {
                self.text.splice(..0, OK.iter().copied());
                self.has_line = Some(false);
                self.parser.reset();
                self.push(&[], max)
            }
            Err(e) => Err(self.wrong(&e)),
        }
    }
    fn wrong(&self, e: &HeadError) -> Wrong {
        if matches!(e.status(), 494 | 414) {
            return "upstream sent too big header".into();
        }
        let mut text = Vec::new();
        e.log(&self.text, &mut text);
        let words = String::from_utf8_lossy(&text);
        words
            .replace("client sent invalid header line:", "upstream sent invalid header:")
            .replace("client sent", "upstream sent")
            .into()
    }
    fn done(&mut self, consumed: usize, limits: &HeadLimits) -> Result<(Answer, Bytes), Wrong> {
        let text = std::mem::take(&mut self.text);
        let mut head = std::mem::take(&mut self.head);
        let mut text = Bytes::from(text);
        let mut rest = text.split_off(consumed);
        if self.has_line == Some(false)
            && let Some(line) = status(&head, &text)?
        {
            let fields = text.get(OK.len()..).unwrap_or_default();
            let whole = [b"HTTP/1.1 ", line.as_slice(), b"\r\n", fields].concat();
            self.parser.reset();
            let limits = HeadLimits { total_max: whole.len(), line_max: whole.len(), ..*limits };
            self.parser.parse(&whole, &limits, &mut head).map_err(|e| self.wrong(&e))?;
            text = whole.into();
        }
        self.parser.reset();
        Ok((Answer { head, buf: text }, std::mem::take(&mut rest)))
    }
}

/// The status line that the fields speak of; `None`: 200.
fn status(head: &ResponseHead, text: &[u8]) -> Result<Option<Vec<u8>>, Wrong> {
    let said = head.fields.all.iter().find(|field| field.name.of(text).eq_ignore_ascii_case(b"status"));
    let Some(value) = said.map(|field| field.value.of(text)) else {
        let location = head.fields.first(Known::Location);
        return Ok(location.map(|_| b"302 Moved Temporarily".to_vec()));
    };
    let digits = value.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let Some([a, b, c]) = digits else {
        return Err(format!("upstream sent invalid status \"{}\"", String::from_utf8_lossy(value)).into());
    };
    let code = [a, b, c].iter().fold(0, |n, digit| n * 10 + u16::from(*digit - b'0'));
    let plain = !matches!(value.get(3), None | Some(b' ' | b'.'));
    Ok(Some(match value.len() {
        3 => http_types::status_line(code).map_or_else(|| value.to_vec(), |line| line.as_bytes().to_vec()),
        _ if plain => [&[*a, *b, *c], b" ".as_slice(), value.get(3..).unwrap_or_default()].concat(),
        _ => value.to_vec(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: bool, pieces: &[&str]) -> Result<(String, usize, String), String> {
        let mut head = CgiHead::new(lines);
        for piece in pieces {
            if let Some((answer, rest)) = head.push(piece.as_bytes(), 4096).map_err(|wrong| wrong.0)? {
                let line = String::from_utf8_lossy(answer.head.status_line.of(&answer.buf)).into_owned();
                return Ok((line, answer.head.fields.all.len(), String::from_utf8_lossy(&rest).into_owned()));
            }
        }
        Err("partial".into())
    }

    #[test]
    fn what_programs_write() {
        let ok = |line: &str, fields, rest: &str| Ok((line.to_string(), fields, rest.to_string()));
        assert_eq!(read(false, &["X: a\r\n\r\nbody"]), ok("200 OK", 1, "body"));
        assert_eq!(read(false, &["X", ": a\n", "\n", "body"]), ok("200 OK", 1, ""));
        assert_eq!(read(false, &["Status: 404 Gone Fishing\r\n\r\n"]), ok("404 Gone Fishing", 1, ""));
        assert_eq!(read(false, &["Status: 503\r\nA: b\r\n\r\n"]), ok("503 Service Temporarily Unavailable", 2, ""));
        assert_eq!(read(false, &["Location: /x\r\n\r\n"]), ok("302 Moved Temporarily", 1, ""));
        assert_eq!(read(true, &["HTTP/1.0 201 Made\r\nA: b\r\n\r\n"]), ok("201 Made", 1, ""));
        assert_eq!(read(true, &["HT", "TP/1.1 204 Nothing\r\n\r\n"]), ok("204 Nothing", 0, ""));
        assert_eq!(read(true, &["Host-Like: b\r\n\r\n"]), ok("200 OK", 1, ""));
        assert!(read(false, &["Status: none\r\n\r\n"]).is_err_and(|e| e == "upstream sent invalid status \"none\""));
        assert!(read(false, &["\0: b\r\n\r\n"]).is_err_and(|e| e.starts_with("upstream sent invalid header")));
        let long = "x".repeat(5000);
        assert!(read(false, &[&long, ": b\r\n\r\n"]).is_err_and(|e| e == "upstream sent too big header"));
        // A field that begins like a status line has no more room than another, however it comes.
        let field = format!("HTTP/x: {}", "y".repeat(4120 - 8));
        for pieces in [&[field.as_str()][..], &[&field[..100], &field[100..]]] {
            assert!(read(true, pieces).is_err_and(|e| e == "upstream sent too big header"), "{}", pieces.len());
        }
    }
}
