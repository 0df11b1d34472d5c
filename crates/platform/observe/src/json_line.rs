//! Lines of an error log with `format=json`: one object a line.

use crate::clock;
use crate::detail::{Detail, string};
use crate::error_log::{LINE_BYTES_MAX, Severity};
use std::fmt::{self, Write};

/// Octets of a detail's value; longer ones are cut before they are escaped, so that a line stays an object.
const VALUE_BYTES_MAX: usize = 1024;

/// Includes the line break.
pub(crate) fn line(level: Severity, connection: u64, words: fmt::Arguments<'_>, details: &[Detail<'_>]) -> Vec<u8> {
    let (seconds, millis) = clock::now();
    let clock::Civil { year, month, day, hour, minute, second, .. } = clock::civil_time(seconds);
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
    use crate::error_log::{ErrorLog, LineFormat, LogTarget, Sink};
    use crate::ring::Ring;
    use std::sync::Arc;

    fn logs() -> (ErrorLog, Arc<Ring>, Arc<Ring>) {
        let (json, text) = (Arc::new(Ring::new(1 << 20)), Arc::new(Ring::new(1 << 20)));
        let target =
            |ring: &Arc<Ring>, format| LogTarget { level: Severity::Info, sink: Sink::Memory(ring.clone()), format };
        (ErrorLog::new(vec![target(&json, LineFormat::Json), target(&text, LineFormat::Text)]), json, text)
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
        log.log_with(Severity::Error, 7, format_args!("failed {}", 1), &details);
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
        log.log(Severity::Info, 0, format_args!("{}", "\0".repeat(5000)));
        let line = contents(&json);
        assert!(line.ends_with("\\u0000\"}\n") && line.matches("\\u0000").count() == LINE_BYTES_MAX, "{}", line.len());
        assert!(!line.contains("connection"));
    }
}
