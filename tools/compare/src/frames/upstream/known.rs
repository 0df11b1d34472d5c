//! Differences of the comparison with HTTP/2 servers behind that are deliberate.

use super::UpstreamSession;

/// Start of messages about a server's fault, in words of each server's own.
const FAULTS: [&str; 8] = [
    "[error] upstream sent ",
    "[error] upstream rejected ",
    "[error] upstream violated ",
    "[error] upstream floods ",
    "[error] upstream prematurely closed ",
    "[error] recv() failed",
    "[error] readv() failed",
    "[error] writev() failed",
];

/// Makes lines of the error log alike; `None`: a line that is not compared.
pub fn log_line(line: &str) -> Option<String> {
    // Tidegate reads an answer that comes before the request is sent; nginx waits until it can send.
    let line = crate::normal::without_http2_details(line)
        .replace("while sending request to upstream", "while reading upstream")
        .replace("while reading response header from upstream", "while reading upstream");
    if !FAULTS.iter().any(|start| line.starts_with(start)) {
        return Some(line);
    }
    // The header of a response that fails at once, or its body: which of them is a matter of reads.
    let (_, details) = line.split_once(", client: ")?;
    Some(format!("[error] a fault of the server behind, client: {details}"))
}

/// Returns the lines that are compared.
pub fn compared_lines(_session: &UpstreamSession, text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut stream = 0;
    for line in text.lines().filter(|line| !line.starts_with(CONNECTIONS)) {
        if line.starts_with("  stream ") {
            stream = lines.len() + 1;
        }
        // How much of a request goes before an answer is a matter of buffers.
        if line == "    a part of the body" {
            continue;
        }
        // How much of a response arrives before its fault is a matter of reads.
        if line.starts_with("    reset ") && stream > 0 {
            lines.truncate(stream);
            lines.push("    an incomplete response".into());
            continue;
        }
        lines.push(line.to_string());
    }
    // nginx has two lines about some faults.
    lines.dedup_by(|one, other| one == other && one.contains("a fault of the server behind"));
    lines
}

const CONNECTIONS: &str = "  connections: ";

/// Faults that RFC 9113 makes errors, and nginx accepts.
const STRICT: &[(&str, &str)] = &[
    ("no SETTINGS", "a connection begins with SETTINGS (3.4)"),
    ("SETTINGS with ACK alone", "a connection begins with SETTINGS (3.4)"),
    ("HEADERS of 0", "frames for other streams are errors (6.2)"),
    ("PING before SETTINGS", "a connection begins with SETTINGS (3.4)"),
];

/// Returns the number of complete responses.
fn whole(text: &str) -> usize {
    text.lines().filter(|line| *line == "    end" || line.starts_with("    HTTP/1.1 ")).count()
}

/// Reason why a session's answers differ on purpose.
pub fn known_reason(session: &UpstreamSession, theirs: &str, ours: &str) -> Option<&'static str> {
    let steps = || session.scripts.opening.iter().chain(session.scripts.answers.iter().flatten());
    let strict = STRICT.iter().find(|(words, _)| steps().any(|step| step.words == *words));
    let is_interim =
        |status: &str| steps().any(|step| step.words.starts_with(&format!("head \":status\"=\"{status}\"")));
    let is_dropped = whole(ours) > whole(theirs) && theirs.contains("a fault of the server behind");
    let has_interim = ["100", "102"].iter().any(|status| is_interim(status));
    strict
        .map(|(_, reason)| *reason)
        .or(is_dropped.then_some("nginx drops a response if a fault arrives with its end"))
        .or(has_interim.then_some("nginx accepts no interim response but 103"))
}
