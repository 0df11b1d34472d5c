//! Response heads of CGI-like programs (RFC 3875, 6.2): fields without a status line, converted to an HTTP/1 head.

use base::bug;
use http_types::{Field, Known, ResponseHead, Span, Version};
use std::rc::Rc;
use upstream::{MalformedResponse, ReceivedHead};
use wire_h1::{HeadError, HeadLimits, ParseProgress, ResponseParser, read_status_line};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";
const VERSION: &[u8] = b"HTTP/1.1 ";
/// In a head.
const FIELDS_MAX: usize = 1000;

/// Parser of a response head. Parses in place, and copies once, after the status line.
pub struct CgiHead {
    held: Vec<u8>,
    parser: ResponseParser,
    /// Parsed in its final place (a head is large and should not be moved).
    answer: Option<Rc<ReceivedHead>>,
    /// Accepts a status line (uwsgi and SCGI; not FastCGI).
    lines: bool,
    /// The program sent a status line; `None`: undecided.
    has_line: Option<bool>,
}

impl CgiHead {
    /// Creates a parser. `lines`: a status line may precede the fields (uwsgi and SCGI; not FastCGI).
    pub fn new(lines: bool) -> CgiHead {
        CgiHead { held: Vec::new(), parser: ResponseParser::of_fields(), answer: None, lines, has_line: None }
    }
    /// Prepares for the next head.
    pub fn reset(&mut self) {
        *self = CgiHead::new(self.lines);
    }
    /// Adds bytes. `Some`: the complete head and the bytes used; `None`: all used.
    pub fn push(&mut self, bytes: &[u8], max: usize) -> Result<Option<(Rc<ReceivedHead>, usize)>, MalformedResponse> {
        let mut held = std::mem::take(&mut self.held);
        let before = held.len();
        if before > 0 {
            held.extend_from_slice(bytes);
        }
        let text = if before > 0 { held.as_slice() } else { bytes };
        if let Some((answer, consumed)) = self.read(text, max)? {
            return Ok(Some((answer, consumed.saturating_sub(before))));
        }
        if before == 0 {
            held.extend_from_slice(bytes);
        }
        self.held = held;
        Ok(None)
    }
    /// Parses all bytes so far. `Some`: the head, and its length in bytes.
    fn read(&mut self, text: &[u8], max: usize) -> Result<Option<(Rc<ReceivedHead>, usize)>, MalformedResponse> {
        if self.has_line.is_none() {
            let start = text.get(..5).unwrap_or(text);
            if self.lines && start.len() < 5 && b"HTTP/".starts_with(start) {
                return Ok(None);
            }
            self.put_has_line(self.lines && start == b"HTTP/");
        }
        // The program's status line may use the size of the default one.
        let max = if self.has_line == Some(true) { max + OK.len() } else { max };
        let limits = HeadLimits {
            line_max: max,
            field_max: max,
            total_max: max,
            fields_max: FIELDS_MAX,
            underscores: true,
            ignore_invalid: true,
        };
        let answer = self.answer.get_or_insert_default();
        let Some(ReceivedHead { head, buf }) = Rc::get_mut(answer) else {
            bug!("a head that is still coming has been handed out");
            return Err("upstream sent no valid header".into());
        };
        match self.parser.parse(text, &limits, head) {
            Ok(ParseProgress::Done { consumed }) => {
                let text = text.get(..consumed).unwrap_or_default();
                *buf = if self.has_line == Some(true) { text.to_vec() } else { become_one(head, text)? }.into();
                Ok(self.answer.take().map(|answer| (answer, consumed)))
            }
            Ok(ParseProgress::Partial) => Ok(None),
            Err(HeadError::InvalidStatusLine) if self.has_line == Some(true) => {
                self.put_has_line(false);
                self.read(text, max - OK.len())
            }
            Err(e) => Err(wrong(&e, text)),
        }
    }
    fn put_has_line(&mut self, has: bool) {
        self.has_line = Some(has);
        self.parser = if has { ResponseParser::default() } else { ResponseParser::of_fields() };
    }
}

/// Converts fields to an HTTP/1 head; returns its text, with the status line of the fields.
fn become_one(head: &mut ResponseHead, text: &[u8]) -> Result<Vec<u8>, MalformedResponse> {
    let buf = match status(head, text)? {
        None => {
            (head.version, head.status) = (Version::Http11, 200);
            head.status_line = Span::at(VERSION.len(), OK.len() - 2);
            head.reason = Span::at(VERSION.len() + 4, OK.len() - 2);
            joined(&[OK, text])
        }
        Some(line) => {
            let line = joined(&[VERSION, &line]);
            read_status_line(&line, head).map_err(|e| wrong(&e, &line))?;
            joined(&[&line, b"\r\n", text])
        }
    };
    let by = (buf.len() - text.len()) as u32;
    for Field { name, value, .. } in &mut head.fields.all {
        for place in [&mut name.start, &mut name.end, &mut value.start, &mut value.end] {
            *place += by;
        }
    }
    Ok(buf)
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all
}

fn wrong(e: &HeadError, text: &[u8]) -> MalformedResponse {
    if matches!(e.status(), 494 | 414) {
        return "upstream sent too big header".into();
    }
    let mut words = Vec::new();
    e.log(text, &mut words);
    String::from_utf8_lossy(&words)
        .replace("client sent invalid header line:", "upstream sent invalid header:")
        .replace("client sent", "upstream sent")
        .into()
}

/// Returns `None` for status 200.
fn status(head: &ResponseHead, text: &[u8]) -> Result<Option<Vec<u8>>, MalformedResponse> {
    let said = head.fields.all.iter().find(|field| field.name.of(text).eq_ignore_ascii_case(b"status"));
    let Some(value) = said.map(|field| field.value.of(text)) else {
        let location = head.fields.first(Known::Location);
        return Ok(location.map(|_| b"302 Moved Temporarily".to_vec()));
    };
    // A code of more digits would become another code and a reason.
    let is_longer = value.get(3).is_some_and(u8::is_ascii_digit);
    let digits = value.get(..3).filter(|digits| !is_longer && digits.iter().all(u8::is_ascii_digit));
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
            if let Some((answer, took)) = head.push(piece.as_bytes(), 4096).map_err(|wrong| wrong.0)? {
                let line = String::from_utf8_lossy(answer.head.status_line.of(&answer.buf)).into_owned();
                return Ok((line, answer.head.fields.all.len(), piece[took..].to_string()));
            }
        }
        Err("partial".into())
    }

    #[test]
    fn heads_of_programs_are_parsed() {
        let ok = |line: &str, fields, rest: &str| Ok((line.to_string(), fields, rest.to_string()));
        assert_eq!(read(false, &["X: a\r\n\r\nbody"]), ok("200 OK", 1, "body"));
        assert_eq!(read(false, &["X", ": a\n", "\n", "body"]), ok("200 OK", 1, ""));
        assert_eq!(read(false, &["Status: 404 Gone Fishing\r\n\r\n"]), ok("404 Gone Fishing", 1, ""));
        assert_eq!(read(false, &["Status: 503\r\nA: b\r\n\r\n"]), ok("503 Service Temporarily Unavailable", 2, ""));
        assert_eq!(read(false, &["Location: /x\r\n\r\n"]), ok("302 Moved Temporarily", 1, ""));
        assert_eq!(read(true, &["HTTP/1.0 201 Made\r\nA: b\r\n\r\n"]), ok("201 Made", 1, ""));
        assert_eq!(read(true, &["HT", "TP/1.1 204 Nothing\r\n\r\n"]), ok("204 Nothing", 0, ""));
        assert_eq!(read(true, &["Host-Like: b\r\n\r\n"]), ok("200 OK", 1, ""));
        for status in ["none", "99999 x", "1000", "20"] {
            let words = format!("upstream sent invalid status \"{status}\"");
            assert_eq!(read(false, &[&format!("Status: {status}\r\n\r\n")]), Err(words));
        }
        assert!(read(false, &["\0: b\r\n\r\n"]).is_err_and(|e| e.starts_with("upstream sent invalid header")));
        let long = "x".repeat(5000);
        assert!(read(false, &[&long, ": b\r\n\r\n"]).is_err_and(|e| e == "upstream sent too big header"));
        // A field that starts like a status line has no extra size, in any number of pieces.
        let field = format!("HTTP/x: {}", "y".repeat(4120 - 8));
        for pieces in [&[field.as_str()][..], &[&field[..100], &field[100..]]] {
            assert!(read(true, pieces).is_err_and(|e| e == "upstream sent too big header"), "{}", pieces.len());
        }
    }

    #[test]
    fn fields_stand_where_the_head_says() {
        for lines in [false, true] {
            for status in ["", "Status: 404 None\r\n", "Status: 299\r\n"] {
                let text = format!("{status}X-Name:  value \r\nContent-Length: 3\n\r\n");
                let mut one = CgiHead::new(lines);
                let mut many = CgiHead::new(lines);
                let whole = one.push(format!("{text}abc").as_bytes(), 4096).expect("a head").expect("whole");
                let last = text.len() - 1;
                for octet in &text.as_bytes()[..last] {
                    assert!(many.push(&[*octet], 4096).expect("a head").is_none());
                }
                let slow = many.push(format!("{}abc", &text[last..]).as_bytes(), 4096).expect("a head").expect("whole");
                assert_eq!((whole.1, slow.1), (text.len(), 1));
                for answer in [whole.0, slow.0] {
                    let ReceivedHead { head, buf } = &*answer;
                    let line = head.status_line.of(buf);
                    assert_eq!([b"HTTP/1.1 ", line, b"\r\n", text.as_bytes()].concat(), *buf);
                    assert!(line.ends_with(head.reason.of(buf)), "{status}");
                    let named = head.fields.by_name(buf, b"x-name").expect("the field");
                    assert_eq!(named.value.of(buf), b"value");
                    assert_eq!(head.fields.first(Known::ContentLength).map(|v| v.of(buf)), Some(&b"3"[..]));
                }
            }
        }
    }
}
