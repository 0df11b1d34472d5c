//! Reads the head of an ordinary response as lines to relay, without a table of fields. Returns `None` for the rest,
//! which [`crate::ResponseParser`] decides, and never disagrees with it.

use crate::fields::{FieldLine, any_line, usual_line};
use http_types::{Field, Known, KnownSet, NameSet, Span};

/// Rules for relayed lines.
#[derive(Clone, Copy, Debug)]
pub struct RelayRules<'a> {
    /// Different for different rules, and never 0.
    pub id: u64,
    /// Names of fields that are not relayed.
    pub hidden: &'a NameSet,
    /// Relays `Set-Cookie` unchanged.
    pub cookies: bool,
    /// Longest head, and longest line, in bytes.
    pub head_max: usize,
}

/// Facts of a relayed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHead {
    /// Status code.
    pub status: u16,
    /// Span of code and reason.
    pub status_line: Span,
    /// Span of the value of `Content-Type`; may be empty.
    pub content_type: Span,
    /// Length of the body in bytes.
    pub length: u64,
    /// The connection can be used again.
    pub keep_alive: bool,
    /// Length of the head in bytes.
    pub consumed: usize,
}

/// Repeated, these fields are left to the general parser.
const ONCE: KnownSet = KnownSet::of(&[
    Known::ContentType,
    Known::ContentLength,
    Known::Connection,
    Known::Date,
    Known::LastModified,
    Known::Etag,
    Known::Server,
    Known::Expires,
    Known::AcceptRanges,
    Known::ContentEncoding,
]);

/// Fields that make the proxy act.
const SPECIAL: KnownSet = KnownSet::of(&[
    Known::TransferEncoding,
    Known::ContentRange,
    Known::Location,
    Known::Refresh,
    Known::WwwAuthenticate,
    Known::XAccelRedirect,
    Known::XAccelExpires,
    Known::XAccelLimitRate,
    Known::XAccelBuffering,
    Known::XAccelCharset,
    Known::Upgrade,
]);

#[derive(Clone, Copy, Debug)]
enum Effect {
    None,
    Length(u64),
    ContentType,
    Close,
}

/// A line under a set of rules; offsets count from its start.
#[derive(Clone, Copy, Debug)]
struct CheckedLine {
    length: u32,
    name_end: u32,
    value: Span,
    known: Known,
    effect: Effect,
    passes: bool,
    /// Equals its normal form: relayed as it is.
    plain: bool,
}

/// Lines of the last response under one set of rules. Servers repeat most lines of their heads, and a repeated line is
/// compared instead of read.
#[derive(Debug, Default)]
pub struct RelayMemory {
    rules: u64,
    bytes: Vec<u8>,
    /// Lines with their offsets in `bytes`, in the order of the head.
    lines: Vec<(u32, CheckedLine)>,
}

/// Bytes that are kept: a head, and lines that have changed since.
const MEMORY_BYTES_MAX: usize = 8192;

impl RelayMemory {
    /// Returns the `index`th line if `rest` begins with it.
    #[inline(always)]
    fn repeated(&self, index: usize, rest: &[u8]) -> Option<CheckedLine> {
        let (start, line) = self.lines.get(index)?;
        let known = self.bytes.get(*start as usize..(*start + line.length) as usize)?;
        (rest.get(..known.len())? == known).then_some(*line)
    }
    /// Keeps a line as the `index`th. Forgets all lines when there is no room.
    fn learn(&mut self, index: usize, line: CheckedLine, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > MEMORY_BYTES_MAX {
            self.bytes.clear();
            self.lines.clear();
        }
        let entry = (self.bytes.len() as u32, line);
        let count = self.lines.len();
        match self.lines.get_mut(index) {
            Some(old) => *old = entry,
            None if count == index => self.lines.push(entry),
            // Forgotten in the middle of a head: the next one begins anew.
            None => return,
        }
        self.bytes.extend_from_slice(bytes);
    }
}

/// Relays a complete HTTP/1.1 response with a `Content-Length`. `lines` may have grown even if the result is `None`.
pub fn relay_response(
    buf: &[u8],
    rules: &RelayRules<'_>,
    memory: &mut RelayMemory,
    lines: &mut Vec<u8>,
) -> Option<RelayHead> {
    if memory.rules != rules.id {
        *memory = RelayMemory { rules: rules.id, ..RelayMemory::default() };
    }
    let (status, status_line, mut at) = status_line(buf)?;
    let (mut seen, mut content_type, mut length, mut keep_alive) = (KnownSet::default(), Span::default(), None, true);
    let mut run = at..at;
    for index in 0.. {
        let rest = buf.get(at..)?;
        let line = match memory.repeated(index, rest) {
            Some(line) => line,
            None => {
                let Some(line) = judge(buf, at, rules)? else { break };
                memory.learn(index, line, rest.get(..line.length as usize)?);
                line
            }
        };
        if ONCE.has(line.known) {
            if seen.has(line.known) {
                return None;
            }
            seen.insert(line.known);
        }
        match line.effect {
            Effect::None => {}
            Effect::Length(n) => length = Some(n),
            Effect::ContentType => {
                content_type = Span::at(at + line.value.start as usize, at + line.value.end as usize)
            }
            Effect::Close => keep_alive = false,
        }
        let next = at + line.length as usize;
        if line.passes {
            if line.plain {
                if run.end != at {
                    lines.extend_from_slice(buf.get(run)?);
                    run = at..at;
                }
                run.end = next;
            } else {
                lines.extend_from_slice(buf.get(run)?);
                run = next..next;
                for part in [rest.get(..line.name_end as usize)?, b": ", line.value.of(rest), b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
        }
        at = next;
    }
    lines.extend_from_slice(buf.get(run)?);
    let consumed = at + if buf.get(at) == Some(&b'\r') { 2 } else { 1 };
    let length = length?;
    let whole = (buf.len() as u64) == consumed as u64 + length;
    let fits = consumed <= rules.head_max;
    (whole && fits).then_some(RelayHead { status, status_line, content_type, length, keep_alive, consumed })
}

/// Reads a line and applies the rules. `None`: the general parser decides; `Some(None)`: the end of the head.
fn judge(buf: &[u8], at: usize, rules: &RelayRules<'_>) -> Option<Option<CheckedLine>> {
    let (field, next) = match usual_line(buf, at) {
        Some(found) => found,
        None => match any_line(buf, at, true, true)? {
            (FieldLine::Field(field), next) => (field, next),
            (FieldLine::End, _) => return Some(None),
            _ => return None,
        },
    };
    let Field { name, value, known } = field;
    let mut effect = Effect::None;
    let passes = match known {
        Known::ContentLength => {
            effect = Effect::Length(decimal(value.of(buf))?);
            false
        }
        Known::Connection => {
            effect = match value.of(buf) {
                v if v.eq_ignore_ascii_case(b"keep-alive") => Effect::None,
                v if v.eq_ignore_ascii_case(b"close") => Effect::Close,
                _ => return None,
            };
            false
        }
        Known::KeepAlive => false,
        Known::Server | Known::Date => {
            if !rules.hidden.has(known, b"") {
                return None;
            }
            false
        }
        Known::ContentType => {
            if rules.hidden.has(known, b"") {
                return None;
            }
            effect = Effect::ContentType;
            false
        }
        Known::SetCookie if !rules.cookies => return None,
        known if SPECIAL.has(known) => return None,
        known => !rules.hidden.has(known, name.of(buf)),
    };
    let offset = |end: u32| end as usize - at;
    Some(Some(CheckedLine {
        length: u32::try_from(next - at).ok()?,
        name_end: offset(name.end) as u32,
        value: Span::at(offset(value.start), offset(value.end)),
        known,
        effect,
        passes,
        plain: is_plain(buf, &field, next),
    }))
}

#[inline]
fn is_plain(buf: &[u8], field: &Field, next: usize) -> bool {
    field.name.end + 2 == field.value.start
        && field.value.end as usize + 2 == next
        && buf.get(field.name.end as usize..field.value.start as usize) == Some(b": ")
        && buf.get(field.value.end as usize..next) == Some(b"\r\n")
}

/// Status, span of code and reason, and offset of the next line.
fn status_line(buf: &[u8]) -> Option<(u16, Span, usize)> {
    let rest = buf.strip_prefix(b"HTTP/1.1 ")?;
    let &[a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..] = rest else { return None };
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    // Statuses without a body, or with a partial one.
    if matches!(status, 204..=206 | 304) {
        return None;
    }
    let lf = memchr::memchr(b'\n', rest)?;
    let (line, end) = rest.get(..lf)?.split_last_chunk::<1>()?;
    if end != b"\r" || line.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
        return None;
    }
    let start = buf.len() - rest.len();
    Some((status, Span::at(start, start + line.len()), start + lf + 1))
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 15 {
        return None;
    }
    text.iter().try_fold(0u64, |n, digit| digit.is_ascii_digit().then(|| n * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadLimits, ParseProgress, ResponseParser, response_body, response_keep_alive};
    use http_types::{BodyLength, Method, ResponseHead};
    use proptest::prelude::*;

    fn hidden() -> NameSet {
        [&b"date"[..], b"server", b"x-secret"].into_iter().collect()
    }

    fn read(text: &str) -> Option<(RelayHead, String)> {
        let mut lines = Vec::new();
        let hidden = hidden();
        let rules = RelayRules { id: 1, hidden: &hidden, cookies: true, head_max: 4096 };
        let head = relay_response(text.as_bytes(), &rules, &mut RelayMemory::default(), &mut lines);
        head.map(|head| (head, String::from_utf8(lines).expect("text")))
    }

    #[test]
    fn usual_heads_keep_their_lines() {
        let text = "HTTP/1.1 200 Fine\r\nServer: s\r\nDate: d\r\nContent-Type: text/plain\r\nX-One: 1\r\nX-Secret: 2\r\n\
                    Strict-Transport-Security: max-age=1\r\nx-two:  2 \r\nETag: \"e\"\r\nContent-Length: 3\r\n\
                    Connection: close\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nabc";
        let (head, lines) = read(text).expect("usual");
        assert_eq!(head.status_line.of(text.as_bytes()), b"200 Fine");
        assert_eq!(head.content_type.of(text.as_bytes()), b"text/plain");
        assert_eq!((head.status, head.length, head.keep_alive), (200, 3, false));
        assert_eq!(&text[head.consumed..], "abc");
        let want = "X-One: 1\r\nStrict-Transport-Security: max-age=1\r\nx-two: 2\r\nETag: \"e\"\r\n\
                    Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
        assert_eq!(lines, want);
    }

    #[test]
    fn unusual_heads_are_left_to_the_parser() {
        let whole = |line: &str, fields: &str, body: &str| format!("{line}\r\n{fields}\r\n{body}");
        assert!(read(&whole("HTTP/1.1 200 OK", "Content-Length: 1\r\n", "a")).is_some());
        for (line, fields, body) in [
            ("HTTP/1.0 200 OK", "Content-Length: 1\r\n", "a"),
            ("HTTP/1.1 204 No", "Content-Length: 0\r\n", ""),
            ("HTTP/1.1 101 Up", "Content-Length: 0\r\n", ""),
            ("HTTP/1.1 206 Part", "Content-Length: 1\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nContent-Range: bytes 0-0/1\r\n", "a"),
            ("HTTP/1.1 200 OK", "", ""),
            ("HTTP/1.1 200 OK", "Content-Length: 2\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\n", "ab"),
            ("HTTP/1.1 200 OK", "Content-Length: +1\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nContent-Length: 1\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nX-Accel-Redirect: /a\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nLocation: /a\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nETag: a\r\nETag: b\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nConnection: upgrade\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\nX: \0\r\n", "a"),
            ("HTTP/1.1 200 OK", "Content-Length: 1\r\n X: a\r\n", "a"),
        ] {
            assert_eq!(read(&whole(line, fields, body)), None, "{line} {fields}");
        }
    }

    const PIECES: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 Not Found\r\n",
        "HTTP/1.1 503 A B\r\n",
        "Content-Length: 3\r\n",
        "content-length:3\r\n",
        "Content-Length: 03\r\n",
        "X: 1\r\n",
        "Date: x\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "A-Very-Long-Name-Of-A-Field: v\r\n",
        "Set-Cookie: a\r\n",
        "ETag: e\n",
        "\r\n",
        "abc",
        "X-Secret: 1\r\n",
        "Content-Type: a\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X_y: z\r\n",
        "X y: z\r\n",
    ];

    proptest! {
        /// Accepted heads parse equally with the general parser.
        #[test]
        fn agrees_with_the_parser(picks in prop::collection::vec(0..PIECES.len(), 0..9), old in prop::collection::vec(0..PIECES.len(), 0..9), cut in any::<u16>(), flip in any::<(u16, u8)>()) {
            let mut text: Vec<u8> = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n".to_vec();
            if picks.first().is_some_and(|pick| *pick < 3) {
                text.clear();
            }
            picks.iter().for_each(|pick| text.extend_from_slice(PIECES[*pick].as_bytes()));
            text.extend_from_slice(b"\r\nabc");
            if cut % 3 == 0 {
                let at = usize::from(flip.0) % text.len();
                text[at] = flip.1;
            }
            let mut before: Vec<u8> = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n".to_vec();
            old.iter().for_each(|pick| before.extend_from_slice(PIECES[*pick].as_bytes()));
            before.extend_from_slice(b"\r\nabc");
            let hidden = hidden();
            let rules = RelayRules { id: 1, hidden: &hidden, cookies: true, head_max: 4096 };
            let mut lines = Vec::new();
            let fast = relay_response(&text, &rules, &mut RelayMemory::default(), &mut lines);
            // The lines of other heads change nothing.
            let mut again = Vec::new();
            let mut memory = RelayMemory::default();
            for other in [&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: 1\r\n\r\nabc"[..], &before, &text] {
                again.clear();
                let head = relay_response(other, &rules, &mut memory, &mut again);
                prop_assert!(other != text || (head == fast && (head.is_none() || again == lines)));
            }
            if let Some(fast) = fast {
                let limits = HeadLimits { line_max: 4096, field_max: 4096, total_max: 4096, fields_max: 1000, underscores: true, ignore_invalid: true };
                let mut head = ResponseHead::default();
                let parsed = ResponseParser::default().parse(&text, &limits, &mut head);
                prop_assert_eq!(parsed.ok(), Some(ParseProgress::Done { consumed: fast.consumed }));
                prop_assert_eq!(head.status, fast.status);
                prop_assert_eq!(head.status_line, fast.status_line);
                prop_assert_eq!(response_body(&head, &text, Method::Get).ok(), Some(match fast.length { 0 => BodyLength::Exact(0), n => BodyLength::Exact(n) }));
                prop_assert_eq!(response_keep_alive(&head, &text), fast.keep_alive);
                let kept = head.fields.all.iter().filter(|f| {
                    let own = matches!(f.known, Known::ContentLength | Known::ContentType | Known::Connection | Known::KeepAlive);
                    !own && !hidden.has(f.known, f.name.of(&text))
                });
                let want: Vec<u8> = kept.flat_map(|f| [f.name.of(&text), b": ", f.value.of(&text), b"\r\n"].concat()).collect();
                prop_assert_eq!(lines, want);
            }
        }
    }
}
