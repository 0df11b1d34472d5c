//! Turns a header list into a request.

use super::body::{StreamBody, Watch};
use super::{Streams, StreamsState};
use super::{stream, tunnel};
use crate::head_in;
use crate::steps;
use http_engine::engine::{self, PhaseOutcome};
use http_engine::{Request, counting};
use http_types::{
    BodyLength, Field, Known, List, ListPlace, MalformedFields, Message, Method, ResetReason, Span, StreamId, Version,
    known_name,
};
use observe::Severity;
use runtime::budget;
use std::borrow::Cow;
use std::rc::Rc;

impl Streams {
    pub(super) fn request(
        self: &Rc<Self>,
        id: StreamId,
        list: List,
        message: Result<Message, MalformedFields>,
        end: bool,
        octets: usize,
    ) {
        let Some(mut r) = self.worker.request(&self.connection()) else {
            return self.core.borrow_mut().reset(id, ResetReason::Refused);
        };
        let shared = Rc::new(StreamsState::default());
        self.open.borrow_mut().insert(id, shared.clone());
        r.incoming.set_order(self.connection().count_request(), false);
        self.limit_requests(&r);
        // nginx counts neither cookies, which are joined, nor ignored fields.
        let is_counted =
            |index: &&usize| list.fields.get(**index).is_some_and(|(name, _)| name.of(&list.arena) != b"cookie");
        let count = message.as_ref().map_or(0, |message| message.fields.iter().filter(is_counted).count());
        let too_many = list.too_many || count > head_in::head_limits(&self.worker, &self.connection()).fields_max;
        let too_large = list.too_large;
        let is_websocket = message.as_ref().is_ok_and(|message| message.protocol.is_some());
        let (version, offered) = (self.core.borrow().version(), self.core.borrow().offers_connect());
        let filled = fill(&mut r, list, &message, version, offered);
        let judged = match filled {
            Ok(()) if too_large => {
                head_in::use_initial_server(&mut r);
                // HTTP/0.9 has no header.
                let (status, words) = match version {
                    Version::Http09 => (414, "client sent too long URI"),
                    _ => (494, "client sent too large header"),
                };
                r.log(Severity::Info, format_args!("{words}"));
                Err(status)
            }
            Ok(()) if too_many => {
                head_in::use_initial_server(&mut r);
                r.log(Severity::Info, format_args!("client sent too many header lines"));
                Err(400)
            }
            Ok(()) => match head_in::begin_request(&mut r) {
                Ok(()) if !is_on(&r) => {
                    let words =
                        "client attempted to request the server name for which the negotiated protocol is disabled";
                    r.log(Severity::Info, format_args!("{words} while reading client request headers"));
                    Err(421)
                }
                judged => judged,
            },
            Err((status, words)) => {
                head_in::use_initial_server(&mut r);
                r.log(Severity::Info, format_args!("{words} while {}", doing(version)));
                Err(status)
            }
        };
        // Faults of an HTTP/1 head count up to their line.
        r.incoming.set_length(octets as u64);
        counting::count_begun(&mut r);
        let outcome = match judged {
            Ok(()) => {
                shared.websocket.set(is_websocket);
                match self.prepare(id, r, &shared, end) {
                    Ok(r) => {
                        budget::charge_time();
                        if !budget::is_left() {
                            return stream::start_later(self, id, r);
                        }
                        steps::note_step();
                        engine::start_phases(r)
                    }
                    Err(outcome) => outcome,
                }
            }
            Err(status) => engine::fail_request(r, status),
        };
        stream::answer_stream(self, id, outcome);
    }

    fn limit_requests(&self, r: &Request) {
        let Some(core) = self.worker.default_conf(&self.connection()) else { return };
        if !self.connection().has_requests_left(
            core.conf.keepalive_requests.0,
            core.conf.keepalive_time.0,
            r.accounting.started(),
        ) {
            self.core.borrow_mut().begin_shutdown();
        }
    }

    /// Connects a request with its body and its stream. Fails with the outcome of a body that is missing.
    fn prepare(
        self: &Rc<Self>,
        id: StreamId,
        mut r: Box<Request>,
        shared: &Rc<StreamsState>,
        end: bool,
    ) -> Result<Box<Request>, PhaseOutcome> {
        r.incoming.set_watch(Some(Rc::new(Watch::new(self.clone(), id, shared.clone()))));
        if r.target.method() == Method::Connect || shared.websocket.get() {
            // Octets behind the head belong to a tunnel.
            r.incoming.set_body_length(None);
        } else if !end {
            match r.incoming.body_length() {
                Some(BodyLength::Exact(length)) => self.core.borrow_mut().promise(id, length),
                // Ends with the stream.
                _ => r.incoming.set_body_length(Some(BodyLength::Chunked)),
            }
            let timeout = r.loc().core.conf.client_body_timeout.duration();
            r.incoming.count_body_by(shared.clone());
            r.incoming.set_body(Box::new(StreamBody::new(self.clone(), id, shared.clone(), timeout)));
        } else if matches!(r.incoming.body_length(), Some(BodyLength::Exact(1..))) {
            r.log(
                Severity::Info,
                format_args!("client prematurely closed stream: no body came of the length that was said"),
            );
            return Err(engine::fail_request(r, 400));
        }
        Ok(r)
    }
}

/// nginx's action for the error log.
fn doing(version: Version) -> &'static str {
    match version {
        Version::Http30 => "reading client request",
        _ => "reading client request headers",
    }
}

fn is_on(r: &Request) -> bool {
    if r.target.version() == Version::Http30 {
        return r.srv().http3.on;
    }
    if r.target.version() == Version::Http09 {
        return r.srv().http3.hq;
    }
    r.target.version() != Version::Http20
        || r.srv().http2.on
        || r.plan().listener_of(r.connection()).is_some_and(|listener| listener.http2_listen)
}

fn span(place: ListPlace) -> Span {
    Span { start: place.start as u32, end: place.end as u32 }
}

pub(super) fn append(r: &mut Request, text: &[u8]) -> Span {
    let start = r.buf.len() as u32;
    r.buf.extend_from_slice(text);
    Span { start, end: r.buf.len() as u32 }
}

/// Fills the request; its text stays in the arena. `offered`: extended CONNECT is allowed. `Err`: status and log
/// message.
fn fill(
    r: &mut Request,
    list: List,
    message: &Result<Message, MalformedFields>,
    version: Version,
    offered: bool,
) -> Result<(), (u16, Cow<'static, str>)> {
    r.buf = list.arena;
    r.head.clear();
    r.head.version = version;
    r.target.set_version(version);
    r.reply.set_keep_alive(true);
    let message = match message {
        Ok(message) => message,
        Err(malformed) => {
            known_parts(r, malformed);
            return Err((400, malformed.fault.words(version == Version::Http30).into()));
        }
    };
    let method = message.method.of(&r.buf).to_vec();
    r.head.method = Method::of(&method);
    let path = message.path.of(&r.buf).to_vec();
    line(r, &method, &path);
    r.target.set_method(r.head.method);
    if let Some(protocol) = message.protocol {
        if method != b"CONNECT" || !offered {
            return Err((400, "client sent \":protocol\", which was not offered".into()));
        }
        if protocol.of(&r.buf) != tunnel::WEBSOCKET {
            return Err((501, "client sent \":protocol\" that is not supported".into()));
        }
        line(r, b"GET", &path);
    }
    let mut cookies: Vec<Span> = Vec::new();
    let mut host: Option<Span> = None;
    for index in &message.fields {
        let Some((name, value)) = list.fields.get(*index) else { continue };
        let field = Field { name: span(*name), value: span(*value), known: known_name(name.of(&r.buf)) };
        match field.known {
            Known::Cookie => cookies.push(field.value),
            Known::Host => {
                if let Some(first) = host.replace(field.value) {
                    let [value, first] = [field.value, first].map(|span| String::from_utf8_lossy(span.of(&r.buf)));
                    let words = format!(
                        "client sent duplicate host header: \"host: {value}\", previous value: \"host: {first}\""
                    );
                    return Err((400, words.into()));
                }
            }
            known if known.is_unique_in_requests() && r.head.fields.first(known).is_some() => {
                let previous = r.head.fields.first(known).unwrap_or_default();
                let [name, value, previous] =
                    [field.name, field.value, previous].map(|span| String::from_utf8_lossy(span.of(&r.buf)));
                let words = format!(
                    "client sent duplicate header line: \"{name}: {value}\", previous value: \"{name}: {previous}\""
                );
                return Err((400, words.into()));
            }
            _ => r.head.fields.push(field),
        }
    }
    // Joins split cookies (8.2.3); nginx appends them behind the other fields.
    if let [first, more @ ..] = cookies.as_slice() {
        let value = if more.is_empty() {
            *first
        } else {
            let joined = cookies.iter().map(|c| c.of(&r.buf)).collect::<Vec<_>>().join(&b"; "[..]);
            append(r, &joined)
        };
        let name = append(r, b"cookie");
        r.head.fields.push(Field { name, value, known: Known::Cookie });
    }
    for index in &message.ignored {
        let Some((name, _)) = list.fields.get(*index) else { continue };
        let name = String::from_utf8_lossy(name.of(&r.buf)).into_owned();
        r.log(Severity::Info, format_args!("client sent invalid header: \"{name}\" while {}", doing(version)));
    }
    if version == Version::Http09 {
        return Ok(());
    }
    match (message.authority.filter(|a| a.start < a.end).map(span), host) {
        (None, None) => return Err((400, "client sent neither \":authority\" nor \"Host\" header".into())),
        (Some(authority), Some(host)) if authority.of(&r.buf) != host.of(&r.buf) => {
            return Err((400, "client sent \":authority\" and \"Host\" headers with different values".into()));
        }
        (authority, host) => {
            let name = append(r, b"host");
            let value = authority.or(host).unwrap_or_default();
            r.head.fields.push(Field { name, value, known: Known::Host });
        }
    }
    if message.protocol.is_some() {
        tunnel::as_upgrade(r);
    }
    Ok(())
}

/// Keeps the parts of a malformed request before its fault, for variables of the log, as in nginx.
fn known_parts(r: &mut Request, malformed: &MalformedFields) {
    let method = malformed.method.map(|method| method.of(&r.buf).to_vec()).unwrap_or_default();
    if !method.is_empty() {
        r.head.method = Method::of(&method);
    }
    if let Some(path) = malformed.path {
        let path = path.of(&r.buf).to_vec();
        line(r, &method, &path);
        let _ = head_in::set_path(r);
        return;
    }
    r.head.method_span = append(r, &method);
    // HTTP/3 has a protocol with the request line alone.
    if r.target.version() == Version::Http20 {
        r.head.protocol = append(r, r.target.version().name().as_bytes());
    }
}

/// Request line in HTTP/1 form, for `$request`.
fn line(r: &mut Request, method: &[u8], target: &[u8]) {
    let start = r.buf.len() as u32;
    r.head.method_span = append(r, method);
    r.buf.push(b' ');
    r.head.target = append(r, target);
    if r.target.version() != Version::Http09 {
        r.buf.push(b' ');
    }
    r.head.protocol = append(r, r.target.version().name().as_bytes());
    r.head.line = Span { start, end: r.buf.len() as u32 };
    let from = r.head.target.start;
    let at = |place: Option<usize>| place.map(|at| from + at as u32);
    let fragment = at(target.iter().position(|c| *c == b'#')).unwrap_or(r.head.target.end);
    let query = at(target.iter().position(|c| *c == b'?')).filter(|query| *query < fragment);
    r.head.path = Span { start: from, end: query.unwrap_or(fragment) };
    r.head.args = query.map_or(Span::default(), |query| Span { start: query + 1, end: fragment });
    let path = r.head.path.of(&r.buf);
    r.head.complex = target.contains(&b'#')
        || path.is_empty()
        || path.contains(&b'%')
        || path.windows(2).any(|two| matches!(two, b"//" | b"/."));
}
