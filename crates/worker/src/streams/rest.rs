//! Deadline of a connection without requests.

use std::cell::Cell;

/// Tells when a connection without requests needs a new deadline. Frames without a request, such as PING, prolong neither
/// the wait for a head nor an idle connection (nginx: a timer that is set remains).
#[derive(Default)]
pub struct Rest(Cell<Option<ArmedRest>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ArmedRest {
    for_head: bool,
    /// Requests of the connection until then.
    requests: u32,
}

impl Rest {
    /// Ends the rest: the next one has a deadline of its own.
    pub fn end(&self) {
        self.0.set(None);
    }
    /// Begins or continues a rest, within a head or idle. Returns `true` if its deadline must be armed.
    pub fn begin(&self, for_head: bool, requests: u32) -> bool {
        let is_kept = self.0.get().is_some_and(|armed| armed.requests == requests && (armed.for_head || !for_head));
        if !is_kept {
            self.0.set(Some(ArmedRest { for_head, requests }));
        }
        !is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_prolong_a_rest() {
        let rest = Rest::default();
        assert!(rest.begin(true, 0), "the first head");
        assert!(!rest.begin(true, 0) && !rest.begin(false, 0), "more of it, or other frames");
        assert!(rest.begin(false, 1), "idle after a request");
        assert!(!rest.begin(false, 1), "a PING");
        assert!(rest.begin(true, 1), "the next head has its time");
        assert!(!rest.begin(false, 1) && !rest.begin(true, 1), "parts of frames alternate with whole ones");
        assert!(rest.begin(false, 2));
        rest.end();
        assert!(rest.begin(false, 2), "idle after streams");
    }
}
