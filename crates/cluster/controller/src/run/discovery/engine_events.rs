//! Events of an engine: lines of JSON, and the containers that they are about.

use serde_json::Value;

/// Longest line in bytes: labels are part of events.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Actions after which a container is as before: health checks run as `exec`.
const QUIET_ACTIONS: &[&str] = &[
    "exec_create",
    "exec_start",
    "exec_die",
    "exec",
    "attach",
    "detach",
    "resize",
    "top",
    "copy",
    "export",
    "archive-path",
];

/// Event that may change a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEvent {
    pub id: String,
    pub kind: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Sent this signal; the container still runs.
    Signal(u8),
    /// Began or ended: a stop signal before it is over.
    Lifetime,
    /// Another change: the container's description says which.
    Change,
}

/// Reads one event; `None` if it changes no container.
pub fn read_event(line: &str) -> Option<ContainerEvent> {
    let value: Value = serde_json::from_str(line).ok()?;
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let action = word("/Action").or_else(|| word("/status"))?;
    // "health_status: healthy", "exec_start: /bin/check".
    let action = action.split(':').next().unwrap_or(action);
    match word("/Type").unwrap_or("container") {
        "container" => {
            let id = word("/Actor/ID").or_else(|| word("/id"))?.to_owned();
            if QUIET_ACTIONS.contains(&action) {
                return None;
            }
            let signal = word("/Actor/Attributes/signal").and_then(|signal| signal.parse().ok());
            let kind = match (action, signal) {
                ("kill", Some(signal)) => EventKind::Signal(signal),
                ("start" | "restart" | "die" | "died" | "stop", _) => EventKind::Lifetime,
                _ => EventKind::Change,
            };
            Some(ContainerEvent { id, kind })
        }
        "network" => {
            let id = word("/Actor/Attributes/container")?.to_owned();
            Some(ContainerEvent { id, kind: EventKind::Change })
        }
        _ => None,
    }
}

/// Lines of a stream whose parts end anywhere.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
}

impl LineBuffer {
    /// Adds a part, and returns the events of the lines that it completes.
    ///
    /// # Errors
    /// If a line is too long.
    pub fn add(&mut self, part: &[u8]) -> Result<Vec<ContainerEvent>, String> {
        let mut events = Vec::new();
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.bytes.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                events.extend(read_event(String::from_utf8_lossy(&self.bytes).trim()));
                self.bytes.clear();
            }
            if self.bytes.len() > LINE_BYTES_MAX {
                return Err(format!("an event longer than {LINE_BYTES_MAX} bytes"));
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod unit_tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, action: &str, attributes: Value) -> Option<ContainerEvent> {
        let value = json!({"Type": kind, "Action": action, "Actor": {"ID": "abc", "Attributes": attributes}});
        read_event(&value.to_string())
    }

    #[test]
    fn events_name_their_container() {
        let change = |id: &str| Some(ContainerEvent { id: id.into(), kind: EventKind::Change });
        for action in ["destroy", "remove", "rename", "pause", "health_status: healthy"] {
            assert_eq!(event("container", action, json!({})), change("abc"), "{action}");
        }
        for action in ["start", "restart", "die", "died", "stop"] {
            let event = event("container", action, json!({}));
            assert_eq!(event.map(|event| event.kind), Some(EventKind::Lifetime), "{action}");
        }
        assert_eq!(event("network", "connect", json!({"container": "x"})), change("x"));
        let signal = Some(ContainerEvent { id: "abc".into(), kind: EventKind::Signal(15) });
        assert_eq!(event("container", "kill", json!({"signal": "15"})), signal);
        assert_eq!(event("container", "kill", json!({})), change("abc"));
        for action in ["exec_create: /bin/check", "exec_start: x", "top", "attach"] {
            assert_eq!(event("container", action, json!({})), None, "{action}");
        }
        assert_eq!(event("image", "pull", json!({})), None);
        assert_eq!(event("network", "create", json!({})), None);
        assert_eq!(read_event("no json"), None);
        assert_eq!(read_event(r#"{"status":"pause","id":"old"}"#), change("old"), "engines before 1.10");
    }

    #[test]
    fn lines_may_be_cut_anywhere() {
        let text = "{\"Type\":\"container\",\"Action\":\"start\",\"Actor\":{\"ID\":\"a\"}}\n";
        let text = text.repeat(3);
        for cut in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            let mut buffer = LineBuffer::default();
            let count = buffer.add(first).unwrap().len() + buffer.add(second).unwrap().len();
            assert_eq!(count, 3, "{cut}");
        }
        let mut buffer = LineBuffer::default();
        assert!(buffer.add(&vec![b'x'; LINE_BYTES_MAX + 1]).is_err());
    }
}
