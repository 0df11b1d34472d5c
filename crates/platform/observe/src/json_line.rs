//! Lines of an error log with `format=json`: one object a line, and the details of a message that are its members.

use crate::clock;
use crate::error_log::{LINE_BYTES_MAX, Level};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Octets of a detail's value; longer ones are cut before they are escaped, so that a line stays an object.
const VALUE_BYTES_MAX: usize = 1024;

/// A detail of a message: `, client: 127.0.0.1` in a line of text, and a member of an object.
#[derive(Clone, Debug)]
pub struct Detail<'a> {
    name: &'static str,
    /// The name in a line of text.
    label: &'static str,
    value: Cow<'a, str>,
    form: Form,
    /// Follows the value in a line of text.
    suffix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Quoted,
    /// Without a name.
    Bare,
    /// In objects only.
    Hidden,
}

impl<'a> Detail<'a> {
    fn of(name: &'static str, value: impl Into<Cow<'a, str>>, form: Form) -> Self {
        Detail { name, label: name, value: value.into(), form, suffix: "" }
    }
    /// `, name: value`
    pub fn new(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Plain)
    }
    /// `, name: "value"`
    pub fn quoted(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Quoted)
    }
    /// `, value`
    pub fn bare(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Bare)
    }
    /// Not in lines of text.
    pub fn hidden(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Hidden)
    }
    /// Has another name in lines of text.
    #[must_use]
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }
    /// Has words after the value in lines of text.
    #[must_use]
    pub fn followed_by(mut self, suffix: &'static str) -> Self {
        self.suffix = suffix;
        self
    }
    pub(crate) fn write(&self, out: &mut impl Write) -> fmt::Result {
        let Detail { label, value, suffix, .. } = self;
        match self.form {
            Form::Plain => write!(out, ", {label}: {value}{suffix}"),
            Form::Quoted => write!(out, ", {label}: \"{value}\"{suffix}"),
            Form::Bare => write!(out, ", {value}{suffix}"),
            Form::Hidden => Ok(()),
        }
    }
}

/// Appends a string in quotes, cut at a character's end (RFC 8259, section 7).
fn string(text: &str, bytes_max: usize, out: &mut String) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push('"');
    for c in text.get(..end).unwrap_or_default().chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Also separators that readers of lines may take for line breaks.
            c if u32::from(c) < 0x20 || c == '\u{7f}' || ('\u{80}'..='\u{9f}').contains(&c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Includes the line break.
pub(crate) fn line(level: Level, connection: u64, words: fmt::Arguments<'_>, details: &[Detail<'_>]) -> Vec<u8> {
    let (seconds, millis) = clock::now();
    let clock::Civil { year, month, day, hour, minute, second, .. } = clock::civil(seconds);
    let mut out = String::with_capacity(256);
    let _ = write!(
        out,
        "{{\"time\":\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z\",\"level\":\"{}\",\
            \"pid\":{},\"tid\":{}",
        level.name(),
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero()
    );
    if connection != 0 {
        let _ = write!(out, ",\"connection\":{connection}");
    }
    out.push_str(",\"message\":");
    match words.as_str() {
        Some(words) => string(words, LINE_BYTES_MAX, &mut out),
        None => string(&words.to_string(), LINE_BYTES_MAX, &mut out),
    }
    for detail in details {
        let _ = write!(out, ",\"{}\":", detail.name);
        string(&detail.value, VALUE_BYTES_MAX, &mut out);
    }
    out.push_str("}\n");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_log::{ErrorLog, Sink, Target};
    use crate::ring::Ring;
    use std::sync::Arc;

    fn logs() -> (ErrorLog, Arc<Ring>, Arc<Ring>) {
        let (json, text) = (Arc::new(Ring::new(1 << 20)), Arc::new(Ring::new(1 << 20)));
        let target = |ring: &Arc<Ring>, json| Target { level: Level::Info, sink: Sink::Memory(ring.clone()), json };
        (ErrorLog::new(vec![target(&json, true), target(&text, false)]), json, text)
    }

    fn contents(ring: &Ring) -> String {
        String::from_utf8(ring.contents()).expect("text")
    }

    #[test]
    fn an_object_and_a_line_of_text() {
        let (log, json, text) = logs();
        let details = [
            Detail::new("client", "1.2.3.4").labelled("udp client").followed_by(" using starttls"),
            Detail::quoted("request", "GET /\"\\ HTTP/1.1"),
            Detail::hidden("request_id", "0af7"),
            Detail::bare("bytes", "bytes 1/2"),
        ];
        log.log_with(Level::Error, 7, format_args!("failed {}", 1), &details);
        let line = contents(&json);
        let (time, rest) = line.split_once(',').expect("members");
        assert!(time.starts_with("{\"time\":\"20") && time.ends_with("Z\"") && time.len() == 34, "{time}");
        assert!(rest.starts_with(&format!("\"level\":\"error\",\"pid\":{},\"tid\":", std::process::id())), "{rest}");
        let want = ",\"connection\":7,\"message\":\"failed 1\",\"client\":\"1.2.3.4\",\
            \"request\":\"GET /\\\"\\\\ HTTP/1.1\",\"request_id\":\"0af7\",\"bytes\":\"bytes 1/2\"}\n";
        assert!(rest.ends_with(want), "{rest}");
        let want = "*7 failed 1, udp client: 1.2.3.4 using starttls, request: \"GET /\"\\ HTTP/1.1\", bytes 1/2\n";
        assert!(contents(&text).ends_with(want), "{}", contents(&text));
    }

    #[test]
    fn strings_are_escaped_and_cut() {
        let text = |text: &str, max: usize| {
            let mut out = String::new();
            string(text, max, &mut out);
            out
        };
        assert_eq!(
            text("a\n\r\t\0\x1b\x7f\u{85}\u{2028}\u{e9}", 99),
            "\"a\\n\\r\\t\\u0000\\u001b\\u007f\\u0085\\u2028\u{e9}\""
        );
        assert_eq!(text("\u{e9}\u{e9}", 3), "\"\u{e9}\"");
        let (log, json, _) = logs();
        log.log(Level::Info, 0, format_args!("{}", "\0".repeat(5000)));
        let line = contents(&json);
        assert!(line.ends_with("\\u0000\"}\n") && line.matches("\\u0000").count() == LINE_BYTES_MAX, "{}", line.len());
        assert!(!line.contains("connection"));
    }
}
