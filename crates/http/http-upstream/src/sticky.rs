//! `sticky` (nginx: `ngx_http_upstream_sticky_module`): binds requests to servers, and tells clients.

use crate::sticky_sessions::Sessions;
use base::clock;
use http_engine::{HttpTemplate, Request};
use std::sync::Arc;
use upstream::PeerLease;

/// A line of `sticky`.
pub enum Sticky {
    /// `sticky cookie`: Tidegate sets a cookie with the server's id.
    Cookie(Box<Cookie>),
    /// The first non-empty value names the server.
    Route(Vec<HttpTemplate>),
    /// `sticky learn`: servers set session ids.
    Learn(Learn),
}

/// The cookie that is set.
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// `Domain`.
    pub domain: Option<HttpTemplate>,
    /// `Path`.
    pub path: Option<String>,
    /// Its end; `None`: that of the client's session.
    pub expires: Option<Expires>,
    /// `SameSite`, with variables; empty: left out. A value that [`is_same_site`] does not accept becomes `strict`.
    pub same_site: Option<HttpTemplate>,
    /// `HttpOnly`.
    pub http_only: bool,
    /// `Secure`.
    pub secure: bool,
}

/// The end of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// nginx's latest date, in 2037.
    Max,
    /// Seconds from now.
    Seconds(i64),
}

/// Rules of `sticky learn`.
pub struct Learn {
    /// Texts of a response that name a new session; the first non-empty one counts.
    pub create: Vec<HttpTemplate>,
    /// Texts of a request that name its session; the first non-empty one counts.
    pub lookup: Vec<HttpTemplate>,
    /// The sessions of the zone.
    pub sessions: Arc<Sessions>,
    /// Time in milliseconds after which an unused session ends.
    pub timeout_ms: u64,
    /// `header`: records sessions at the response head, otherwise at the end.
    pub at_head: bool,
}

fn first(templates: &[HttpTemplate], r: &mut Request) -> Option<Vec<u8>> {
    templates.iter().map(|t| t.eval(r)).find(|value| !value.is_empty())
}

/// Tells whether a text is a value of `SameSite`, in any case.
pub fn is_same_site(value: &[u8]) -> bool {
    ["strict", "lax", "none"].iter().any(|known| value.eq_ignore_ascii_case(known.as_bytes()))
}

impl Sticky {
    /// Returns the id of the server that the request is bound to.
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
