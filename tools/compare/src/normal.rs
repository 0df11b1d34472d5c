//! Normalizes irrelevant differences: ports, folders, dates, chunk sizes, version names.

use crate::server::ServerRun;
use observe::clock::parse_http_time;
use std::path::Path;

/// Replaces ports and directories, which differ between runs.
pub fn normal_text(text: &str, folder: &Path, port: u16, backend: Option<u16>) -> String {
    let mut out = text.replace(&folder.display().to_string(), "DIR").replace(&format!(":{port}"), ":PORT");
    if let Some(backend) = backend {
        out = out.replace(&backend.to_string(), "BACKEND");
    }
    out
}

/// A line of the error log without its time and numbers; `None`: not one that is compared.
pub fn log_line(line: &str) -> Option<String> {
    // Log messages about connections and processes, which differ by design.
    const OTHERS: [&str; 6] = [
        "keepalive connection",
        OF_HTTP2,
        "while waiting for request",
        "while keepalive",
        "epoll_wait() ",
        // How full nginx's own tables are.
        "could not build optimal ",
    ];
    message(line).filter(|words| !OTHERS.iter().any(|other| words.contains(other)))
}

/// A line of the error log about a connection of HTTP/2, as [`log_line`] has others.
pub fn connection_line(line: &str) -> Option<String> {
    message(line).filter(|words| words.contains(OF_HTTP2))
}

/// Action of a connection of HTTP/2 outside of requests.
const OF_HTTP2: &str = "while processing HTTP/2 connection";

/// A line of the error log without its time and numbers; `None`: of a level that is not compared.
fn message(line: &str) -> Option<String> {
    let at = line.find('[')?;
    let (level, rest) = line[at..].split_once("] ")?;
    let level = level.trim_start_matches('[');
    if matches!(level, "notice" | "debug") && !rest.contains("rewritten") && !rest.contains("match") {
        return None;
    }
    let words = rest.split_once(": ").map_or(rest, |(_, words)| words);
    let words = match words.split_once(' ') {
        Some((number, words)) if number.starts_with('*') => words,
        _ => words,
    };
    // nginx logs this when the field arrives, perhaps before `Host` and with the handshake's server; Tidegate has the
    // whole head.
    let words = match words.strip_prefix(INVALID_LINE).and(words.split_once(", client: ")) {
        Some((words, _)) => words,
        None => words,
    };
    // Both servers cut a line at 2,048 bytes; how much of the message fits depends on the digits of the process id.
    let words = &words[..words.floor_char_boundary(words.len().min(MESSAGE_MAX))];
    Some(format!("[{level}] {words}"))
}

/// Bytes of a message that are compared.
const MESSAGE_MAX: usize = 1_800;

/// Bytes of an answer that are shown.
const SHOWN_MAX: usize = 1_500;

/// How the error log names a field that is ignored.
const INVALID_LINE: &str = "client sent invalid header line: ";

/// How the page of `stub_status` begins.
const STATUS: &[u8] = b"Active connections: ";

/// An answer with fixed dates, and its chunks put together.
pub fn normal_answer(bytes: &[u8], clean: &dyn Fn(&str) -> String) -> Vec<u8> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return clean(&unversioned(&String::from_utf8_lossy(bytes))).into();
    };
    let (head, body) = (String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 4..]);
    let field = |name: &str| {
        let start = format!("{}: ", name.to_ascii_lowercase());
        head.split("\r\n").find(|line| line.to_ascii_lowercase().starts_with(&start)).map(|line| &line[start.len()..])
    };
    // The current number of connections is not reproducible.
    let numbers = body.windows(STATUS.len()).any(|w| w == STATUS);
    let date = field("date").and_then(|date| parse_http_time(date.as_bytes()));
    let mut lines = Vec::new();
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        let line = match (name.to_ascii_lowercase().as_str(), parse_http_time(value.as_bytes())) {
            ("date", _) => "Date: now".to_string(),
            ("expires", Some(at)) if date.is_some_and(|date| (at - date).abs() < 100_000) => {
                // A second may have passed in between.
                format!("{name}: {} from now", (at - date.unwrap_or(at) + 1) / 10 * 10)
            }
            ("content-length", _) if numbers => format!("{name}: that of the numbers"),
            ("set-cookie", _) => clean(&without_identifier(line)),
            ("server", _) if value.starts_with("nginx/") => "Server: nginx".to_string(),
            ("content-type", _) if value.starts_with("multipart/byteranges") => "Content-Type: multipart".to_string(),
            _ => clean(line),
        };
        lines.push(line);
    }
    let boundary = field("content-type").and_then(|value| value.split_once("boundary=")).map(|(_, boundary)| boundary);
    let chunked = field("transfer-encoding").is_some_and(|coding| coding == "chunked");
    let body = if chunked { unchunked(body) } else { body.to_vec() };
    let mut out = lines.join("\r\n").into_bytes();
    out.extend_from_slice(b"\r\n\r\n");
    // Every octet of other encodings counts.
    let body = String::from_utf8(body).unwrap_or_else(|e| e.as_bytes().escape_ascii().to_string());
    let body = clean(&unversioned(&body));
    let body = boundary.map_or(body.clone(), |boundary| body.replace(boundary, "BOUNDARY"));
    out.extend_from_slice(body.replace(|c: char| numbers && c.is_ascii_digit(), "").as_bytes());
    out
}

/// Replaces the identifier in a cookie of the module userid, and dates of cookies.
fn without_identifier(line: &str) -> String {
    let mut parts: Vec<String> = line.split("; ").map(String::from).collect();
    for part in &mut parts {
        if let Some((name, value)) = part.split_once('=') {
            match name {
                "expires" => *part = "expires=DATE".into(),
                _ if value.len() == 24 && value.ends_with('=') => *part = format!("{name}=IDENTIFIER"),
                _ => {}
            }
        }
    }
    parts.join("; ")
}

/// Writes the names of fields in lower case: nginx passes on those of HTTP/2 as they came, Tidegate as HTTP/1 writes them.
pub fn lower_names(answer: &mut Vec<u8>) {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(answer.len());
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let lower = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
        None => line.to_string(),
    };
    let lines: Vec<String> = head.split("\r\n").map(lower).collect();
    answer.splice(..end, lines.join("\r\n").into_bytes());
}

/// Removes from a log line the path of `upstream: "..."`, which nginx does not write for HTTP/2, and a frame's length, which
/// Tidegate does not write.
pub fn without_http2_details(line: &str) -> String {
    const FRAME: &str = "upstream sent too large http2 frame";
    let shortened = line.split_once(FRAME).map(|(before, rest)| {
        let rest = rest.strip_prefix(": ").map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        format!("{before}{FRAME}{rest}")
    });
    let line = shortened.as_deref().unwrap_or(line);
    let Some((before, rest)) = line.split_once("upstream: \"") else { return line.to_string() };
    let Some((url, after)) = rest.split_once('"') else { return line.to_string() };
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    format!("{before}upstream: \"{}\"{after}", &url[..end])
}

/// `nginx/1.31.6` without its version.
pub fn unversioned(text: &str) -> String {
    let mut parts = text.split("nginx/");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out += "nginx/V";
        out += part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    }
    out
}

/// Returns the data of chunks; other bytes stay, marked.
pub fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n");
        let size = line.and_then(|at| usize::from_str_radix(std::str::from_utf8(&rest[..at]).ok()?, 16).ok());
        let (Some(line), Some(size)) = (line, size) else {
            out.extend_from_slice(b"<cut off>");
            return out;
        };
        if size == 0 {
            out.extend_from_slice(&rest[line..]);
            return out;
        }
        let Some(data) = rest.get(line + 2..line + 2 + size) else {
            out.extend_from_slice(b"<cut off>");
            return out;
        };
        out.extend_from_slice(data);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
}

/// The first thing that differs, in words.
pub fn first_difference(requests: &[impl std::fmt::Display], theirs: &ServerRun, ours: &ServerRun) -> Option<String> {
    if theirs.refused != ours.refused {
        let last_line = theirs.last_line;
        let shown = |run: &ServerRun| run.refused.clone().unwrap_or_else(|| "starts".into());
        // A directive that Tidegate rejects is not a difference.
        if ours.refused.as_ref().is_some_and(|words| words.contains("is not supported by")) {
            return None;
        }
        if let (Some(theirs), Some(ours)) = (&theirs.refused, &ours.refused)
            && (named_earlier(theirs, ours, last_line) || named_more(theirs, ours))
        {
            return None;
        }
        return Some(format!("  nginx:    {}\n  tidegate: {}", shown(theirs), shown(ours)));
    }
    for (ask, (theirs, ours)) in requests.iter().zip(theirs.answers.iter().zip(&ours.answers)) {
        if theirs != ours && !length_is_known(theirs, ours) {
            let alike = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
            let shown = |bytes: &[u8]| {
                let mut text = String::from_utf8_lossy(bytes).into_owned();
                if text.len() > SHOWN_MAX {
                    let from = text.floor_char_boundary(alike.saturating_sub(SHOWN_MAX / 2));
                    let to = text.floor_char_boundary(alike + SHOWN_MAX / 2);
                    text = format!("({} bytes, from {from}) {}", text.len(), text.get(from..to).unwrap_or_default());
                }
                text.replace("\r\n", "\n            ")
            };
            return Some(format!("  {ask}\n  nginx:    {}\n  tidegate: {}", shown(theirs), shown(ours)));
        }
    }
    line_difference("access log", &theirs.access, &ours.access)
        .or_else(|| line_difference("error log", &theirs.errors, &ours.errors))
}

/// Ignores a deliberate difference: responses in memory have a length, where nginx sends chunks.
fn length_is_known(theirs: &[u8], ours: &[u8]) -> bool {
    let (theirs, ours) = (String::from_utf8_lossy(theirs), String::from_utf8_lossy(ours));
    let (Some((their_head, their_body)), Some((our_head, our_body))) =
        (theirs.split_once("\r\n\r\n"), ours.split_once("\r\n\r\n"))
    else {
        return false;
    };
    let chunked = |line: &&str| *line != "Transfer-Encoding: chunked";
    // A response to HEAD has the length of the body that GET would get.
    let is_head = our_body.is_empty() && their_body.is_empty();
    let length = |line: &&str| match line.split_once(": ") {
        Some((name, value)) => {
            name.eq_ignore_ascii_case("content-length") && (is_head || value == our_body.len().to_string())
        }
        None => false,
    };
    their_head.split("\r\n").filter(chunked).eq(our_head.split("\r\n").filter(|line| !length(line)))
        && their_body.strip_suffix("\r\n\r\n").unwrap_or(their_body) == our_body
}

/// nginx finds a fault of a block as a whole at the end of the http block and names that line; Tidegate names the
/// block's own.
fn named_earlier(theirs: &str, ours: &str, last_line: u32) -> bool {
    let split = |words: &str| {
        let (before, _) = words.trim_end().rsplit_once(':')?;
        Some((before.to_string(), line_of(words)?))
    };
    matches!((split(theirs), split(ours)), (Some((a, at)), Some((b, line))) if a == b && at == last_line && line < at)
}

/// Tidegate names the line of an error that nginx finds without one.
fn named_more(theirs: &str, ours: &str) -> bool {
    ours.trim_end()
        .strip_prefix(theirs.trim_end())
        .is_some_and(|rest| rest.starts_with(" in ") && line_of(rest).is_some())
}

/// The line of the configuration that an error names.
pub fn line_of(words: &str) -> Option<u32> {
    words.trim_end().rsplit_once(':')?.1.parse().ok()
}

/// The first line that differs.
pub fn line_difference(what: &str, theirs: &[String], ours: &[String]) -> Option<String> {
    let most = theirs.len().max(ours.len());
    let at = (0..most).find(|at| theirs.get(*at) != ours.get(*at))?;
    let shown = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(no more lines)".into());
    Some(format!("  {what}, line {}\n  nginx:    {}\n  tidegate: {}", at + 1, shown(theirs), shown(ours)))
}

/// Replaces the seconds of a time of day in a body.
pub fn without_seconds(answer: &mut [u8]) {
    const MARK: &[u8] = b" GMT";
    let ends: Vec<usize> = (0..answer.len()).filter(|at| answer[*at..].starts_with(MARK)).collect();
    for end in ends {
        let digits = answer[..end].iter_mut().rev().take(2).take_while(|c| c.is_ascii_digit());
        digits.for_each(|digit| *digit = b'0');
    }
}

/// Replaces a random boundary of parts.
pub fn without_boundary(line: &mut String) {
    const MARK: &str = "boundary=";
    if let Some((before, after)) = line.split_once(MARK) {
        *line = format!("{before}{MARK}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
}

/// Drops the host of a request over HTTP/3, which nginx does not log.
pub fn without_host(line: &mut String) {
    if let Some((before, after)) = line.split_once(", host: \"") {
        let rest = after.split_once('"').map_or("", |(_, rest)| rest);
        *line = format!("{before}{rest}");
    }
}

/// Drops the length of a malformed request over HTTP/3: nginx counts to the fault, Tidegate to the end.
pub fn without_malformed_length(line: &mut String) {
    let Some(rest) = line.strip_prefix("400|-|-|-|-|-|") else { return };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    *line = format!("400|-|-|-|-|-|*{rest}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as both servers write it: at most 2,047 bytes and a newline.
    fn cut_line(process: &str) -> String {
        let line =
            format!("2026/01/02 03:04:05 [info] {process}#0: *7 client sent too long URI: \"{}\"", "a".repeat(3_000));
        line[..2_047].into()
    }

    #[test]
    fn cut_lines_do_not_depend_on_the_process_id() {
        let (short, long) = (log_line(&cut_line("9")), log_line(&cut_line("1048576")));
        assert_eq!(short, long);
        assert!(short.is_some_and(|line| line.starts_with("[info] client sent too long URI: \"aaa")));
        assert_ne!(
            log_line("2026/01/02 03:04:05 [info] 9#0: *7 one"),
            log_line("2026/01/02 03:04:05 [info] 9#0: *7 two")
        );
    }
}
