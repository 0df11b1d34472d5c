//! `sticky` (nginx: `ngx_http_upstream_sticky_module`): binds requests to servers, and tells clients.

use base::clock::{self, Instant};
use http_engine::{Request, Template};
use md5::{Digest, Md5};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use upstream::PeerLease;

pub enum Sticky {
    Cookie(Box<Cookie>),
    /// The first non-empty value names the server.
    Route(Vec<Template>),
    Learn(Learn),
}

pub struct Cookie {
    pub name: String,
    pub domain: Option<Template>,
    pub path: Option<String>,
    pub expires: Option<Expires>,
    pub same_site: Option<Template>,
    pub http_only: bool,
    pub secure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    Max,
    Seconds(i64),
}

pub struct Learn {
    pub create: Vec<Template>,
    pub lookup: Vec<Template>,
    pub sessions: Arc<Sessions>,
    pub timeout_ms: u64,
    /// `header`: records sessions at the response head, otherwise at the end.
    pub at_head: bool,
}

fn first(templates: &[Template], r: &mut Request) -> Option<Vec<u8>> {
    templates.iter().map(|t| t.eval(r)).find(|value| !value.is_empty())
}

pub fn is_same_site(value: &[u8]) -> bool {
    ["strict", "lax", "none"].iter().any(|known| value.eq_ignore_ascii_case(known.as_bytes()))
}

impl Sticky {
    pub fn bound(&self, r: &mut Request) -> Option<Vec<u8>> {
        match self {
            Sticky::Cookie(cookie) => {
                let name = cookie.name.as_bytes();
                let cookies = r.headers().filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
                let mut values = cookies.filter_map(|(_, value)| http_engine::variables::find_cookie(value, name));
                values.find(|value| !value.is_empty()).map(<[u8]>::to_vec)
            }
            Sticky::Route(templates) => first(templates, r),
            Sticky::Learn(learn) => {
                let session = first(&learn.lookup, r)?;
                learn.sessions.find(&session, clock::now(), learn.timeout_ms).map(String::into_bytes)
            }
        }
    }

    /// Sets the cookie, or records the session now or at the end of the response.
    pub fn answered(&self, r: &mut Request, active: &mut PeerLease) {
        let server = active.peer().id().to_string();
        match self {
            Sticky::Cookie(cookie) => {
                let value = cookie.value(r, &server);
                if let Some(value) = r.field_value("sticky", b"Set-Cookie", value) {
                    r.out.add("Set-Cookie", value);
                }
            }
            Sticky::Route(_) => {}
            Sticky::Learn(learn) => {
                let (session, make) = match first(&learn.create, r) {
                    Some(session) => (session, true),
                    None => match first(&learn.lookup, r) {
                        Some(session) => (session, false),
                        None => return,
                    },
                };
                let (sessions, timeout_ms) = (learn.sessions.clone(), learn.timeout_ms);
                let note = move || {
                    clock::update();
                    sessions.note(&session, &server, clock::now(), timeout_ms, make);
                };
                if learn.at_head { note() } else { active.at_end(Box::new(note)) }
            }
        }
    }
}

impl Cookie {
    fn value(&self, r: &mut Request, server: &str) -> Vec<u8> {
        let mut out = format!("{}={server}", self.name).into_bytes();
        match self.expires {
            None => {}
            Some(Expires::Max) => {
                out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000");
            }
            Some(Expires::Seconds(seconds)) => {
                let (text, length) = observe::clock::cookie_time(clock::unix_seconds().saturating_add(seconds));
                out.extend_from_slice(b"; expires=");
                out.extend_from_slice(text.get(..length).unwrap_or_default());
                out.extend_from_slice(format!("; max-age={seconds}").as_bytes());
            }
        }
        if let Some(domain) = self.domain.as_ref().map(|d| d.eval(r)).filter(|d| !d.is_empty()) {
            out.extend_from_slice(b"; domain=");
            out.extend_from_slice(&domain);
        }
        if self.http_only {
            out.extend_from_slice(b"; httponly");
        }
        if self.secure {
            out.extend_from_slice(b"; secure");
        }
        if let Some(same_site) = self.same_site.as_ref().map(|s| s.eval(r)).filter(|s| !s.is_empty()) {
            out.extend_from_slice(b"; samesite=");
            out.extend_from_slice(if is_same_site(&same_site) { &same_site } else { b"strict" });
        }
        if let Some(path) = &self.path {
            out.extend_from_slice(b"; path=");
            out.extend_from_slice(path.as_bytes());
        }
        // A variable's value must not end the line.
        out.iter_mut().filter(|c| matches!(**c, b'\r' | b'\n' | 0)).for_each(|c| *c = b' ');
        out
    }
}

/// Memory of a session in its zone, in bytes (nginx: about 8,000 in 1m).
const SESSION_BYTES: u64 = 128;

/// The sessions of a zone with their servers. Names are stored as digests.
pub struct Sessions {
    max: usize,
    state: Mutex<State>,
}

type Key = [u8; 16];

#[derive(Default)]
struct State {
    servers: HashMap<Key, (String, Instant)>,
    order: BTreeSet<(Instant, Key)>,
}

impl State {
    fn forget(&mut self, before: Instant) {
        while let Some((used, key)) = self.order.first().copied().filter(|(used, _)| *used <= before) {
            self.order.remove(&(used, key));
            self.servers.remove(&key);
        }
    }
}

impl Sessions {
    pub fn new(bytes: u64) -> Sessions {
        Sessions { max: (bytes / SESSION_BYTES).max(1) as usize, state: Mutex::default() }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, session: &[u8], now: Instant, timeout_ms: u64) -> Option<String> {
        let key: Key = Md5::digest(session).into();
        self.with(|state| {
            state.forget(Instant(now.0.saturating_sub(timeout_ms.saturating_mul(1000))));
            state.servers.get(&key).map(|(server, _)| server.clone())
        })
    }

    /// Records a session's server; `make`: creates unknown sessions.
    fn note(&self, session: &[u8], server: &str, now: Instant, timeout_ms: u64, make: bool) {
        let key: Key = Md5::digest(session).into();
        self.with(|state| {
            state.forget(Instant(now.0.saturating_sub(timeout_ms.saturating_mul(1000))));
            if let Some((known, used)) = state.servers.get_mut(&key) {
                let before = std::mem::replace(used, now);
                if known != server {
                    *known = server.into();
                }
                state.order.remove(&(before, key));
                state.order.insert((now, key));
                return;
            }
            if !make {
                return;
            }
            if state.servers.len() >= self.max
                && let Some((_, oldest)) = state.order.pop_first()
            {
                state.servers.remove(&oldest);
            }
            state.servers.insert(key, (server.into(), now));
            state.order.insert((now, key));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_moved_and_forgotten() {
        let sessions = Sessions::new(2 * SESSION_BYTES);
        let at = |ms: u64| Instant(1_000_000 + ms * 1000);
        let find = |name: &str, ms| sessions.find(name.as_bytes(), at(ms), 100);
        sessions.note(b"a", "one", at(0), 100, true);
        sessions.note(b"b", "two", at(10), 100, false);
        assert_eq!((find("a", 20).as_deref(), find("b", 20)), (Some("one"), None));
        sessions.note(b"a", "two", at(50), 100, false);
        assert_eq!(find("a", 140).as_deref(), Some("two"), "used since");
        assert_eq!(find("a", 150), None, "its time is over");
        for (index, name) in ["x", "y", "z"].iter().enumerate() {
            sessions.note(name.as_bytes(), "one", at(200 + index as u64), 100, true);
        }
        assert_eq!((find("x", 210), find("z", 210).is_some()), (None, true), "the oldest makes room");
    }
}
