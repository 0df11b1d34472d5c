//! Differences of the TLS comparison that are deliberate, and lines of the log that depend on the TLS library.

use super::TlsPut;
use super::client::{Client, ClientKind, Next};
use crate::server::ServerRun;

/// Warnings of Tidegate about settings that rustls does not have.
const UNAVAILABLE: [&str; 4] = ["is not available", "are not available", "has no effect", "cannot connect"];

const DISABLED: &str = "for which the negotiated protocol is disabled";

/// Starts of messages about failed handshakes; with early data, nginx names another call.
const CALLS: [&str; 2] = ["[info] SSL_do_handshake() failed (SSL: ", "[info] SSL_read_early_data() failed (SSL: "];

/// A line of the error log as it is compared; `None`: not at all.
pub fn log_line(line: String) -> Option<String> {
    if line.starts_with("[warn] ") && UNAVAILABLE.iter().any(|words| line.contains(words)) {
        return None;
    }
    // nginx logs these lines while it waits for a request, which are not compared.
    if line.starts_with("[info] SSL_read() failed (SSL: ") && !line.contains(" while ") {
        return None;
    }
    // How many bytes a handshake takes depends on the library.
    if line.contains("disconnected, bytes from/to client:") || line.starts_with("[info] shutdown() failed") {
        return None;
    }
    let line = without_controls(&line);
    // nginx has no request yet.
    if let Some((before, _)) = line.split_once(", request: \"").filter(|_| line.contains(DISABLED)) {
        return Some(before.to_string());
    }
    // nginx names the listener, and another action.
    if let (true, Some((before, rest))) = (line.starts_with("[error] cannot load "), line.rsplit_once(" while ")) {
        let client = rest.split_once("client: ").and_then(|(_, rest)| rest.split_once(','));
        return Some(format!("{before}, client: {},", client.map_or("", |(client, _)| client)));
    }
    // The reason depends on the order of a library's checks, except if the client gives it.
    let failed = CALLS.iter().find_map(|start| line.strip_prefix(start));
    match failed.and_then(|rest| Some((rest, rest.split_once(") while ")?))) {
        Some((reason, (_, rest))) if !reason.contains("SSL alert number") => {
            Some(format!("[info] the handshake failed while {rest}"))
        }
        Some((reason, _)) => Some(format!("[info] the handshake failed ({reason}")),
        None => Some(line),
    }
}

/// Removes control characters, which Tidegate escapes and nginx does not.
fn without_controls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let hex = rest.strip_prefix("\\x").and_then(|rest| rest.get(2..));
        match hex {
            Some(behind) => rest = behind,
            None => {
                if !c.is_control() && c != '\u{fffd}' {
                    out.push(c);
                }
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// Removes the state of a failed handshake from a line of the stream area.
pub fn without_failed_handshake(line: &mut String) {
    let parts: Vec<&str> = line.split('|').collect();
    // The server depends on whether the name or the version is examined first.
    if let [address, _, "500", ..] = parts.as_slice() {
        *line = format!("{address}|500");
    }
}

/// Removes details of the library from the text of a client.
fn without_details(text: &mut Vec<u8>) {
    let mut out = String::with_capacity(text.len());
    for line in String::from_utf8_lossy(text).lines() {
        let is_log = line.starts_with("access log: ");
        let mut line = line.to_string();
        if is_log && line.contains("|TLSv1.2|") {
            // Without a cache, nginx gives sessions of TLS 1.2 an id that resumes nothing.
            line = line.replace("|id|", "|-|");
        }
        if is_log && line.contains("|421|") {
            // nginx has no request line of such a request over HTTP/2.
            let parts: Vec<&str> = line.split('|').collect();
            line = parts
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != 2)
                .map(|(_, part)| *part)
                .collect::<Vec<_>>()
                .join("|");
        }
        out.push_str(&line);
        out.push('\n');
    }
    *text = out.into_bytes();
}

/// Makes deliberate differences alike.
pub fn leave_out(puts: &[TlsPut], clients: &[Client], theirs: &mut ServerRun, ours: &mut ServerRun) {
    for (client, (theirs, ours)) in clients.iter().zip(theirs.answers.iter_mut().zip(&mut ours.answers)) {
        without_details(theirs);
        without_details(ours);
        let ClientKind::Tls(handshake) = &client.kind else { continue };
        // A client without a name is not asked for certificates of another server's rules: Tidegate answers 421.
        let is_unnamed = handshake.name.is_none();
        let is_misdirected = is_unnamed && count(ours, "|421|") > count(theirs, "|421|");
        // A session of another name is not resumed (RFC 6066, 3).
        let is_of_another = matches!(handshake.next, Next::Resume(name) if name != handshake.name);
        // nginx shows the spelling of the session's first connection.
        let is_spelled_otherwise = matches!((handshake.next, handshake.name), (Next::Resume(Some(a)), Some(b))
            if a != b && a.eq_ignore_ascii_case(b));
        // A session of TLS 1.3 in the cache resumes once (RFC 8446, C.4).
        let is_single_use = contains(ours, "TLSv1.3")
            && puts.iter().any(|put| put.text.contains("ssl_session_tickets off") || put.text.contains("early_data"))
            && count(ours, "Reused, ") == 1
            && count(theirs, "Reused, ") == 2;
        // No protocol in common, and no algorithm either: which of them is the reason.
        let has_two_reasons = contains(theirs, "alert number 120") && contains(ours, "alert number 40");
        if is_misdirected
            || has_two_reasons
            || is_single_use
            || is_spelled_otherwise
            || (is_of_another && contains(theirs, "Reused, ") && !contains(ours, "Reused, "))
        {
            ours.clone_from(theirs);
        }
    }
}

fn count(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_warnings_are_left_out() {
        assert_eq!(log_line("[info] \"\\x15\\x03a\u{2}b\"".into()).as_deref(), Some("[info] \"ab\""));
        assert_eq!(log_line("[warn] the option \"X\" is not available and has no effect".into()), None);
        assert!(log_line("[warn] other".into()).is_some());
        let of = |call: &str, reason: &str| {
            log_line(format!("[info] {call}() failed (SSL: {reason}) while SSL handshaking"))
        };
        assert_eq!(of("SSL_do_handshake", "one"), of("SSL_read_early_data", "two"));
        let alert = |n: u8| of("SSL_do_handshake", &format!("error:x:SSL alert number {n}"));
        assert_ne!(alert(40), alert(42));
    }

    #[test]
    fn a_failed_handshake_agrees_on_nothing() {
        let mut lines = ["127.1.0.1|a|500|0|TLSv1.3|NONE", "127.1.0.1|a|200|0|TLSv1.3|NONE"].map(String::from);
        lines.iter_mut().for_each(without_failed_handshake);
        assert_eq!(lines, ["127.1.0.1|500", "127.1.0.1|a|200|0|TLSv1.3|NONE"]);
    }
}
