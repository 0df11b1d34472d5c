//! Differences of the frame comparison that are deliberate.

use super::acts::FrameSession;

/// Start of lines that tell the reason of a connection's end, in words of each server's own: they are shown, not compared.
pub const CONNECTION: &str = "connection log: ";

/// Makes lines of the error log alike; `None`: a line that is not compared.
pub fn log_line(line: &str) -> Option<String> {
    // The end of a session and the reset of a stream by the client; nginx names them.
    const LEFT_OUT: [&str; 7] = [
        "upstream prematurely closed connection while reading upstream",
        "client intended to send body data larger than declared",
        "a client request body is buffered to a temporary file",
        "client prematurely closed connection",
        "client prematurely closed stream",
        "client canceled stream",
        "client terminated stream",
    ];
    // nginx writes control characters as they are, line breaks included.
    const QUOTED: [&str; 3] = ["client sent invalid header name", "client sent header \"", "client sent invalid :path"];
    let is_quoted = QUOTED.iter().any(|words| line.contains(words));
    if is_quoted && (line.contains("\\x0") || line.contains(char::is_control) || !line.contains(", client: ")) {
        return None;
    }
    // A name that is no host: in nginx the request has no line yet.
    const HOST: [&str; 5] = [
        "client sent \":authority\" and \"Host\" headers with different values",
        "client sent invalid \":authority\" header",
        "client sent neither \":authority\" nor \"Host\" header",
        "client sent invalid host header",
        "client sent duplicate host header",
    ];
    if HOST.iter().any(|words| line.contains(words)) {
        return line.split_once(", client: ").map(|(_, rest)| {
            let client = rest.split_once(',').map_or(rest, |(client, _)| client);
            format!("[info] client sent no valid host, client: {client},")
        });
    }
    // Names of files, and the octets before a limit, depend on buffers.
    const DETAILS: [(&str, &str); 2] = [
        ("an upstream response is buffered to a temporary file", " while reading upstream"),
        ("client intended to send too large chunked body", ", client: "),
    ];
    for (words, end) in DETAILS {
        if let Some((before, rest)) = line.split_once(words)
            && let Some((_, behind)) = rest.split_once(end)
        {
            return Some(format!("{before}{words}{end}{behind}"));
        }
    }
    (!LEFT_OUT.iter().any(|words| line.contains(words))).then(|| line.to_string())
}

/// Returns the lines that are compared.
pub fn compared_lines(session: &FrameSession, text: &str) -> Vec<String> {
    let mut stream = None;
    let mut lines = Vec::new();
    // Requests of the same write as the fault may be answered or not.
    let is_failed = text.lines().any(|line| line.starts_with("    goaway ") && !line.ends_with(" code 0"));
    for line in text.lines() {
        const REQUESTS: [&str; 4] = ["  stream ", "server received", "access log: ", "error log: "];
        if is_failed && REQUESTS.iter().any(|start| line.starts_with(start)) {
            return lines;
        }
        if line.starts_with("      Content-Length: ") || line.starts_with("      Transfer-Encoding: ") {
            // A body that is complete has a length, even if it is not buffered.
            lines.push("      a body".into());
            continue;
        }
        if let Some(id) = line.strip_prefix("  stream ") {
            stream = id.parse::<u32>().ok();
        }
        // nginx answers before it has read the body that came with the request, and stops a client that has sent it all.
        let is_late =
            line == "    reset 0" && stream.is_some_and(|id| session.acts.iter().any(|act| act.awaits.contains(&id)));
        // nginx has an entry for a request whose header block cannot be decoded.
        let is_aborted = line.starts_with("access log: ") && line.contains("|000|");
        if !is_late && !is_aborted && !line.starts_with(CONNECTION) {
            lines.push(if line.starts_with("access log: ") { without_moment(line) } else { line.to_string() });
        }
    }
    lines
}

/// Removes values of an access log's line that depend on the moment: the octets that were read of an incomplete body, and the parts
/// of a malformed request that were known before its fault.
fn without_moment(line: &str) -> String {
    const READ: usize = 7;
    const HOST: usize = 10;
    let mut parts: Vec<&str> = line.split('|').collect();
    let places: &[usize] = match parts.get(1) {
        Some(&"499" | &"413" | &"502") => &[READ],
        Some(&"400") => &[2, 3, 4, 5, READ, HOST - 1, HOST],
        _ => &[],
    };
    for place in places {
        if let Some(part) = parts.get_mut(*place) {
            *part = "*";
        }
    }
    parts.join("|")
}

/// A difference that Tidegate's log of the connection names: RFC 9113 wants an error, nginx goes on.
const STRICT: &[(&str, &str)] = &[
    ("client sent a frame for an idle stream", "frames for idle streams are an error (5.1)"),
    ("client sent a frame that is too large", "frames are limited to 128 KB"),
    ("client sent PRIORITY_UPDATE frame", "nginx does not know PRIORITY_UPDATE (RFC 9218)"),
];

/// A difference that nginx's log of the connection names.
const LAX: &[(&str, &str)] = &[
    ("client sent zero header name length", "a request with an empty name is refused, the connection stays"),
    ("client sent HEADERS frame with empty header block", "a request without fields is refused, the connection stays"),
    ("client sent header block with incorrect length", "which fault of a block is found first"),
    ("client sent header block with too long", "which fault of a block is found first"),
    ("client sent header field with", "which fault of a block is found first"),
    ("client sent CONTINUATION frame with incorrect identifier", "the last stream of GOAWAY has a whole request"),
    ("while CONTINUATION was expected", "the last stream of GOAWAY has a whole request"),
    ("with incorrect window increment 0", "a window update of 0 is an error of its stream (6.9)"),
];

/// Acts whose effect differs.
const ACTS: &[(&str, &str)] = &[
    (" with CONNECT without path", "nginx wants a path, and refuses CONNECT only then"),
    (" with OPTIONS *", "nginx has no OPTIONS * over HTTP/2"),
    (" with an odd :authority", "nginx has no request line of a request with an invalid :authority"),
    // A change of the table's size stands at the start of a block (RFC 7541, 4.2).
    ("size update at the end", "nginx accepts a change of the table's size anywhere"),
    ("size update in the middle", "nginx accepts a change of the table's size anywhere"),
    (", DATA behind the end", "frames of a write are processed together"),
    (", RST_STREAM behind the request", "frames of a write are processed together"),
    (", a window that shrinks", "frames of a write are processed together"),
    (", GOAWAY between requests", "a client that goes is answered, and the connection ends"),
    (": GOAWAY", "a client that goes is answered, and the connection ends"),
    (": GOAWAY with an error", "a client that goes is answered, and the connection ends"),
    (", trailers", "nginx takes trailers for a second request on the stream"),
];

/// Reason why a session's answers differ on purpose.
pub fn known_reason(session: &FrameSession, theirs: &str, ours: &str) -> Option<&'static str> {
    let in_log =
        |text: &str, words: &str| text.lines().any(|line| line.starts_with(CONNECTION) && line.contains(words));
    let has = |end: &str| {
        session.acts.iter().any(|act| act.words.split(" Shape {").next().is_some_and(|words| words.ends_with(end)))
    };
    let resets = |text: &str, code: u32| text.lines().filter(|line| *line == format!("    reset {code}")).count();
    let last = |text: &str| text.lines().find(|line| line.starts_with("    goaway ")).map(String::from);
    let goes_elsewhere = last(theirs).is_some_and(|line| line.ends_with(" code 0")) && last(theirs) != last(ours);
    let is_lost = |text: &str| text.contains("|000|") && !text.contains("    goaway ");
    STRICT
        .iter()
        .find(|(words, _)| in_log(ours, words))
        .or_else(|| LAX.iter().find(|(words, _)| in_log(theirs, words)))
        .or_else(|| ACTS.iter().find(|(end, _)| has(end)))
        .map(|(_, reason)| *reason)
        .or((resets(ours, 5) > resets(theirs, 5))
            .then_some("DATA for a closed stream is answered with STREAM_CLOSED (5.1)"))
        .or((resets(ours, 7) > resets(theirs, 7)).then_some("frames of a write are processed together"))
        .or((resets(ours, 3) > resets(theirs, 3)).then_some("frames of a write are processed together"))
        .or(goes_elsewhere.then_some("frames of a write are processed together"))
        .or(is_lost(theirs).then_some("nginx does not answer some requests in CONTINUATION frames"))
}
