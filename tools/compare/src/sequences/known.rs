//! Differences of the comparison of sequences that are deliberate (docs/conformance.md).

use std::borrow::Cow;

/// Lines of the error log that are not compared.
const LEFT_OUT: &[&str] = &[
    // Names of files and the moment depend on buffers.
    "is buffered to a temporary file",
    // nginx does not log it in locations with a cache.
    "upstream sent no valid HTTP/1.0 header",
];

/// Start of the octets that a body has too many of.
const TOO_LARGE: &str = "client intended to send too large chunked body: ";

/// Makes a line of the error log alike; `None`: it is not compared.
pub fn log_line(line: &str) -> Option<String> {
    // nginx writes control characters of an invalid request line as they are.
    let is_control = line.contains(char::is_control) || line.contains("\\x");
    if is_control || LEFT_OUT.iter().any(|words| line.contains(words)) {
        return None;
    }
    // The action of unbuffered responses.
    let line = line.replace("closed connection while sending to client", "closed connection while reading upstream");
    // Tidegate counts the chunks of a read together.
    let line = match line.split_once(TOO_LARGE) {
        Some((before, rest)) => {
            let rest = rest.split_once(" bytes").map_or(rest, |(_, rest)| rest);
            format!("{before}{TOO_LARGE}*{rest}")
        }
        None => line,
    };
    Some(without_request(&line).unwrap_or(line))
}

/// Removes the request from a line about an invalid request line: nginx has its octets up to the fault, which depends on reads, and
/// Tidegate the whole line.
fn without_request(line: &str) -> Option<String> {
    const REQUEST: &str = ", request: \"";
    let is_of_line = |of: &str| line.contains(&format!("while reading client {of}"));
    (is_of_line("request line") || is_of_line("pipelined request line")).then_some(())?;
    let (before, _) = line.split_once(REQUEST)?;
    Some(before.to_string())
}

/// Place of `$host` in a line of the access log of connections: a request without a line has none.
const HOST: usize = 8;

/// Makes a line of a transcript alike.
fn line(line: &str) -> Cow<'_, str> {
    let Some(access) = line.strip_prefix("access log: ") else { return line.into() };
    let mut parts: Vec<&str> = access.split('|').collect();
    if access.contains("s=short") {
        // `$request_completion` is `OK` in nginx if a server cut its response off.
        parts.iter_mut().filter(|part| **part == "OK").for_each(|part| *part = "");
    }
    // The size of nginx's buffer, if an incomplete body is discarded.
    parts.iter_mut().filter(|part| **part == "8192").for_each(|part| *part = "0");
    if parts.get(2) == Some(&"413") {
        // `$content_length`: the octets before the limit.
        parts.iter_mut().skip(6).take(1).for_each(|part| *part = "*");
    }
    let is_invalid = parts.get(2) == Some(&"400") && parts.get(HOST) == Some(&"");
    if is_invalid {
        // The request, and `$request_completion`: nginx may have sent its response before the line's end.
        for place in [1, 5] {
            parts.iter_mut().skip(place).take(1).for_each(|part| *part = "*");
        }
    }
    format!("access log: {}", parts.join("|")).into()
}

/// Tells whether a response is a 502 of the proxy: `sticky cookie` sets its cookie on responses of servers; nginx sets it there, too.
pub fn is_own_failure(text: &str) -> bool {
    text.contains("HTTP/1.1 502 Bad Gateway")
}

/// Makes the transcript of a step alike.
pub fn normal_transcript(text: &str) -> Vec<Cow<'_, str>> {
    let is_own = is_own_failure(text);
    // The server that is about to close waits for the client (nginx), or closes its writing side at once.
    let is_last = text.contains("Connection: close\n");
    let lines = text.lines().filter(|line| !(is_own && line.starts_with("Set-Cookie: srv=")));
    lines.map(|text| if is_last && [OPEN, CLOSED_LATER].contains(&text) { CLOSED.into() } else { line(text) }).collect()
}

/// Ends of a client's transcript.
pub const OPEN: &str = "the connection stays open";
pub const CLOSED: &str = "the server closes the connection";
pub const CLOSED_LATER: &str = "the server closes the connection after the client";

/// Reason why the transcripts of a step differ on purpose.
pub fn known_reason(theirs: &str, ours: &str) -> Option<&'static str> {
    const WAITS: &str = "client prematurely closed connection while reading client request line";
    let is_early = ours.contains(WAITS) && theirs.contains("400 Bad Request");
    is_early.then_some("a request line is refused at its end")
}

/// Reason why later steps of a scene are not comparable after one.
pub fn scene_end(text: &str) -> Option<&'static str> {
    const STATUSES: [&str; 2] = ["HTTP/1.1 412 ", "HTTP/1.1 416 "];
    let is_refused = text.lines().any(|line| STATUSES.iter().any(|status| line.starts_with(status)));
    is_refused.then_some("a response that a condition or a range turns into 412 or 416 is stored; nginx discards it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_removed_only_from_lines_about_their_faults() {
        let line =
            "[info] client sent invalid method while reading client request line, client: a, server: , request: \"X\"";
        assert_eq!(
            log_line(line).as_deref(),
            Some("[info] client sent invalid method while reading client request line, client: a, server: ")
        );
        let other = "[error] access forbidden by rule, client: a, server: , request: \"GET / HTTP/1.1\", host: \"a\"";
        assert_eq!(log_line(other).as_deref(), Some(other));
        assert_eq!(log_line("[info] client sent invalid method \\x01"), None);
    }
}
