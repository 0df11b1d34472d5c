//! Lines of `error_log ... json`, with the members of nginx's commercial edition.

use crate::clock;
use crate::detail::{Detail, string};
use std::fmt::{self, Write};
use std::io;

/// Bytes of an object, without its line break. An object that exceeds them ends with `"truncated":1`.
const OBJECT_BYTES_MAX: usize = 2048;
const TRUNCATED: &str = ",\"truncated\":1";

/// An object that members are appended to while they fit.
struct Object {
    text: String,
    is_cut: bool,
}

impl Object {
    fn room(&self) -> usize {
        // The end and its mark always fit.
        (OBJECT_BYTES_MAX - TRUNCATED.len() - 1).saturating_sub(self.text.len())
    }

    fn number(&mut self, name: &str, value: impl fmt::Display) {
        let member = format!(",\"{name}\":{value}");
        if self.is_cut || member.len() > self.room() {
            self.is_cut = true;
        } else {
            self.text.push_str(&member);
        }
    }

    /// Cuts a value that does not fit.
    fn text(&mut self, name: &str, value: &str) {
        // Comma, colon and four quotes.
        let Some(room) = self.room().checked_sub(name.len() + 6).filter(|_| !self.is_cut) else {
            self.is_cut = true;
            return;
        };
        let _ = write!(self.text, ",\"{name}\":");
        let start = self.text.len();
        string(value, room, &mut self.text);
        // Escapes may have made it longer.
        let mut bytes = value.len().min(room);
        while self.text.len() - start > room + 2 {
            self.text.truncate(start);
            bytes = bytes.saturating_sub((bytes / 4).max(1));
            string(value, bytes, &mut self.text);
        }
        self.is_cut = bytes < value.len();
    }
}

/// Includes the line break.
pub(crate) fn line(level: &str, connection: u64, words: fmt::Arguments<'_>, details: &[Detail<'_>]) -> Vec<u8> {
    let (seconds, millis) = clock::now();
    let time = clock::iso8601(seconds, clock::with_cached(|strings| strings.offset));
    let time = String::from_utf8_lossy(&time);
    let (date, zone) = time.split_at_checked(19).unwrap_or_default();
    let text = format!("{{\"level\":\"{}\",\"timestamp\":\"{date}.{millis:03}{zone}\"", level);
    let mut object = Object { text, is_cut: false };
    object.number("pid", std::process::id());
    object.number("tid", rustix::thread::gettid().as_raw_nonzero());
    if connection != 0 {
        object.number("cnum", connection);
    }
    let words = words.to_string();
    match error(&words) {
        Some((before, code, text, after)) => {
            object.text("msg", &format!("{before}{after}"));
            details.iter().filter(|one| one.is_shown()).for_each(|one| object.text(one.name, &one.value));
            object.number("errno", code);
            object.text("errtext", text);
        }
        None => {
            object.text("msg", &words);
            details.iter().filter(|one| one.is_shown()).for_each(|one| object.text(one.name, &one.value));
        }
    }
    if object.is_cut {
        object.text.push_str(TRUNCATED);
    }
    object.text.push_str("}\n");
    object.text.into_bytes()
}

/// Finds ` (2: No such file or directory)`, as written by [`crate::os_error`]. Returns the words around it. Codes of other kinds
/// (`(3: Host not found)`) are part of the message.
fn error(words: &str) -> Option<(&str, i32, &str, &str)> {
    let mut from = 0;
    while let Some(at) = words.get(from..)?.find(" (").map(|at| from + at) {
        let inner = words.get(at + 2..)?;
        if let Some((code, rest)) = inner.split_once(": ")
            && let Ok(code) = code.parse::<i32>()
            && let Some((text, after)) = rest.split_once(')')
            && io::Error::from_raw_os_error(code).to_string().split(" (os error").next() == Some(text)
        {
            return Some((words.get(..at)?, code, text, after));
        }
        from = at + 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(words: &str, details: &[Detail<'_>]) -> String {
        let line = line("error", 3, format_args!("{words}"), details);
        String::from_utf8(line).expect("text")
    }

    #[test]
    fn members_have_nginx_names() {
        let details = [
            Detail::new("client", "192.168.1.10").labelled("udp client"),
            Detail::quoted("request", "GET /\"a\" HTTP/1.1"),
            Detail::hidden("request_id", "0af7"),
        ];
        let line = object("connect() failed (111: Connection refused) while connecting to upstream", &details);
        let (head, rest) = line.split_once(",\"pid\":").expect("a process");
        let time = head.strip_prefix("{\"level\":\"error\",\"timestamp\":\"").expect("level and time");
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        let shape = shape.replace("-00:00\"", "+00:00\"");
        assert_eq!(shape, "0000-00-00T00:00:00.000+00:00\"");
        assert!(rest.starts_with(&format!("{},\"tid\":", std::process::id())), "{rest}");
        let want = ",\"cnum\":3,\"msg\":\"connect() failed while connecting to upstream\",\"client\":\"192.168.1.10\",\
            \"request\":\"GET /\\\"a\\\" HTTP/1.1\",\"errno\":111,\"errtext\":\"Connection refused\"}\n";
        assert!(rest.ends_with(want), "{rest}");
    }

    #[test]
    fn only_errors_of_the_system_are_split_off() {
        for words in
            ["a could not be resolved (3: Host not found)", "b (2: x", "c (d) (: e)", "verify error: (10:x)", ""]
        {
            assert_eq!(error(words), None, "{words}");
        }
        let want = Some(("open() \"/a (1: b)\" failed", 2, "No such file or directory", ""));
        assert_eq!(error("open() \"/a (1: b)\" failed (2: No such file or directory)"), want);
    }

    #[test]
    fn long_objects_are_cut_and_marked() {
        for (fill, length) in [("x", 1900), ("x", 5000), ("\0", 300), ("\0", 5000), ("\u{e9}", 5000)] {
            let (words, request) = (fill.repeat(length), "y".repeat(500));
            let details = [Detail::quoted("request", &*request), Detail::new("host", "a")];
            let line = object(&format!("{words} (2: No such file or directory)"), &details);
            assert!(line.len() <= OBJECT_BYTES_MAX + 1, "{}", line.len());
            assert!(line.ends_with("\",\"truncated\":1}\n"), "{line}");
            assert!(line.len() > OBJECT_BYTES_MAX * 3 / 5, "{}", line.len());
        }
        assert!(!object("short", &[]).contains("truncated"));
    }
}
