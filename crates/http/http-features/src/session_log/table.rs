//! Active sessions of a zone: bounded by its size, in the order of their last requests.

use base::clock::Instant;
use observe::LogFile;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Estimated bytes of a session's bookkeeping.
const SESSION_BYTES: u64 = 256;

/// MD5 hash.
pub type SessionId = [u8; 16];

/// A log line of the session's first request, in which the number of bytes is open.
#[derive(Debug, Default)]
pub struct SessionLine {
    /// Text before, between and after the places of the number.
    pub parts: Vec<Vec<u8>>,
}

impl SessionLine {
    fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64 + 24).sum()
    }
    fn write(&self, bytes: u64, out: &mut Vec<u8>) {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(bytes.to_string().as_bytes());
            }
            out.extend_from_slice(part);
        }
        out.push(b'\n');
    }
}

struct LoggedSession {
    line: SessionLine,
    bytes: u64,
    last: (Instant, u64),
    log: Arc<LogFile>,
}

#[derive(Default)]
struct SessionTable {
    all: HashMap<SessionId, LoggedSession>,
    by_time: BTreeMap<(Instant, u64), SessionId>,
    /// Estimated memory.
    used: u64,
    requests: u64,
}

impl SessionTable {
    fn remove(&mut self, id: &SessionId) -> Option<LoggedSession> {
        let session = self.all.remove(id)?;
        self.by_time.remove(&session.last);
        self.used -= SESSION_BYTES + session.line.size();
        Some(session)
    }
    fn oldest(&self) -> Option<(Instant, SessionId)> {
        self.by_time.first_key_value().map(|((at, _), id)| (*at, *id))
    }
}

/// Sessions of a zone, which outlive reloads.
#[derive(Default)]
pub struct ZoneSessions(Mutex<SessionTable>);

/// Lines of ended sessions, written without the lock.
#[derive(Default)]
#[must_use]
pub struct EndedSession(Vec<(Arc<LogFile>, Vec<u8>)>);

impl EndedSession {
    fn add(&mut self, session: &LoggedSession) {
        match self.0.last_mut() {
            Some((log, lines)) if Arc::ptr_eq(log, &session.log) => session.line.write(session.bytes, lines),
            _ => {
                let mut lines = Vec::new();
                session.line.write(session.bytes, &mut lines);
                self.0.push((session.log.clone(), lines));
            }
        }
    }
    /// Appends the lines to their logs. An unwritable log never disturbs a request.
    pub fn write(self) {
        for (log, lines) in self.0 {
            let _ = log.append(&lines);
        }
    }
}

impl ZoneSessions {
    /// Counts a request. `line`: renders it, if the request begins a session. A full zone ends the sessions of the oldest last requests.
    pub fn count(
        &self,
        id: SessionId,
        now: Instant,
        [timeout_ms, size]: [u64; 2],
        bytes: u64,
        log: &Arc<LogFile>,
        line: impl FnOnce() -> SessionLine,
    ) -> EndedSession {
        let mut ended = EndedSession::default();
        let table = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.requests += 1;
        let last = (now, table.requests);
        match table.all.get_mut(&id) {
            Some(session) if now.millis_since(session.last.0) < timeout_ms => {
                session.bytes = session.bytes.saturating_add(bytes);
                let before = std::mem::replace(&mut session.last, last);
                table.by_time.remove(&before);
                table.by_time.insert(last, id);
                return ended;
            }
            Some(_) => table.remove(&id).iter().for_each(|session| ended.add(session)),
            None => {}
        }
        let line = line();
        let needed = SESSION_BYTES + line.size();
        while table.used + needed > size
            && let Some((_, oldest)) = table.oldest()
        {
            table.remove(&oldest).iter().for_each(|session| ended.add(session));
        }
        let session = LoggedSession { line, bytes, last, log: log.clone() };
        if needed > size {
            // Beyond the whole zone: a session of one request.
            ended.add(&session);
            return ended;
        }
        table.used += needed;
        table.by_time.insert(last, id);
        table.all.insert(id, session);
        ended
    }

    /// Ends the sessions without a request since the timeout; `None`: all sessions.
    pub fn expire(&self, now: Instant, timeout_ms: Option<u64>) -> EndedSession {
        let mut ended = EndedSession::default();
        let table = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((at, oldest)) = table.oldest() {
            if timeout_ms.is_some_and(|most| now.millis_since(at) < most) {
                break;
            }
            table.remove(&oldest).iter().for_each(|session| ended.add(session));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use observe::LogFiles;

    fn lines(ended: EndedSession) -> String {
        ended.0.iter().map(|(_, lines)| String::from_utf8_lossy(lines)).collect()
    }

    #[test]
    fn sessions_end_after_their_last_request() {
        let log = LogFiles::default().file(std::path::Path::new("/nowhere"));
        let sessions = ZoneSessions::default();
        let count = |id: u8, ms: u64, size: u64| {
            let now = Instant::default().plus_millis(ms);
            let line = || SessionLine { parts: vec![format!("{id}@{ms}:").into(), "/".into(), "".into()] };
            lines(sessions.count([id; 16], now, [1000, size], ms, &log, line))
        };
        let expire = |ms: u64| lines(sessions.expire(Instant::default().plus_millis(ms), Some(1000)));
        let large = 1 << 16;
        assert_eq!([count(1, 1, large), count(2, 10, large), count(1, 500, large)], ["", "", ""]);
        assert_eq!(expire(1009), "");
        assert_eq!(expire(1010), "2@10:10/10\n");
        // A late request begins another session before the first one has expired.
        assert_eq!(count(1, 1500, large), "1@1:501/501\n");
        // A full zone ends the oldest session.
        assert_eq!(count(3, 1600, large), "");
        assert_eq!(count(1, 1601, large), "");
        assert_eq!(count(4, 1602, 700), "3@1600:1600/1600\n");
        assert_eq!(count(5, 1603, 10), "1@1500:3101/3101\n4@1602:1602/1602\n5@1603:1603/1603\n");
        assert_eq!((expire(9999), sessions.0.lock().expect("unpoisoned").used), (String::new(), 0));
    }
}
