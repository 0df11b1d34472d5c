//! Differences of the comparison of sequences that are deliberate (docs/conformance.md).

/// Lines of the error log that are not compared.
const LEFT_OUT: &[&str] = &[
    // Names of files and the moment depend on buffers.
    "is buffered to a temporary file",
];

/// Makes a line of the error log alike; `None`: it is not compared.
pub fn log_line(line: &str) -> Option<String> {
    // nginx writes control characters of an invalid request line as they are.
    let is_control = line.contains(char::is_control) || line.contains("\\x");
    if is_control || LEFT_OUT.iter().any(|words| line.contains(words)) {
        return None;
    }
    Some(line.replace("client pipelined request line", "client request line"))
}

/// Makes the transcript of a step alike.
pub fn transcript(text: &str) -> Vec<&str> {
    // `sticky cookie` sets its cookie on responses of servers; nginx sets it on its own 502, too.
    let is_own = text.contains("HTTP/1.1 502 ");
    text.lines().filter(|line| !(is_own && line.starts_with("Set-Cookie: srv="))).collect()
}

/// Reason why later steps of a scene are not comparable after one.
pub fn ends(text: &str) -> Option<&'static str> {
    const STATUSES: [&str; 2] = ["HTTP/1.1 412 ", "HTTP/1.1 416 "];
    let is_refused = text.lines().any(|line| STATUSES.iter().any(|status| line.starts_with(status)));
    is_refused.then_some("a response that a condition or a range turns into 412 or 416 is stored; nginx discards it")
}
