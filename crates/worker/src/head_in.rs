//! Turns a head's bytes into a request: host, server, canonical path.

use crate::pools::READ_BYTES;
use crate::worker::Worker;
use base::clock;
use http_engine::{BegunHead, ClientConnection, Request, counting, path, route};
use http_types::{BodyLength, Known, Method, Version};
use metrics::process;
use net::poller::Key;
use observe::{Detail, Severity};
use std::rc::Rc;
use wire_h1::{HeadError, HeadLimits, HeadParser, ParseProgress};

/// Result of reading a head.
pub enum HeadState {
    /// More bytes are needed.
    Partial,
    /// A valid head, and its length in bytes.
    Request(Box<Request>, usize),
    /// Respond with this status.
    Refused(Box<Request>, u16),
}

/// Limits of a connection's heads: the initial server's, as in nginx.
pub fn head_limits(worker: &Worker, connection: &ClientConnection) -> HeadLimits {
    let plan = worker.plan.borrow();
    let server = plan.as_ref().and_then(|plan| plan.servers.get(plan.initial_server(connection)?));
    server.map_or_else(HeadLimits::default, |server| server.limits)
}

/// Bytes of an incomplete head kept with its connection; a longer one becomes a task.
pub const BEGUN_BYTES_MAX: usize = READ_BYTES / 2;

/// nginx's message about a client that is silent.
pub const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// Keeps the start of a head or PROXY protocol header without a task. Its time runs from the connection's start, or
/// from the first byte after another request; later bytes do not extend it. `since`: the time of the first byte.
pub fn keep_head(
    worker: &Worker,
    key: Key,
    connection: &ClientConnection,
    bytes: &[u8],
    is_new: bool,
    since: Option<clock::Instant>,
) {
    if !bytes.is_empty() {
        connection.begun.keep(bytes, since.unwrap_or_else(clock::now));
        process::CONNECTIONS_READING.up();
    }
    if is_new {
        let timeout = worker.default_conf(connection).map_or(60_000, |core| core.conf.client_header_timeout.0);
        let from = if connection.requests.get() == 0 { connection.started } else { clock::now() };
        worker.poller.set_deadline(key, from.plus_millis(timeout));
    }
    worker.poller.again_if_readable(key);
}

/// Takes the start of a head from its connection, to be completed.
pub fn take_head(connection: &ClientConnection) -> Option<BegunHead> {
    let begun = connection.begun.take()?;
    process::CONNECTIONS_READING.down();
    Some(begun)
}

/// Counts and logs an incomplete head with an unsent status and the facts of its complete lines.
pub fn never_came(
    worker: &Worker,
    connection: &Rc<ClientConnection>,
    bytes: &[u8],
    since: clock::Instant,
    status: u16,
    words: &str,
) {
    if awaits_proxy_header(worker, connection) {
        let line = String::from_utf8_lossy(bytes);
        let words = format_args!("broken header: \"{line}\" while reading PROXY protocol");
        return worker.log_client(Severity::Error, connection, words);
    }
    let Some(mut r) = worker.request(connection) else { return };
    r.accounting.set_started(since);
    // As in nginx, a request counts from its first byte.
    r.incoming.set_order(connection.requests.get().saturating_add(1), connection.pipelining.take());
    use_initial_server(&mut r);
    r.out.set_status(status);
    let start = bytes.iter().position(|c| !matches!(c, b'\r' | b'\n')).unwrap_or(bytes.len());
    let lines = bytes.iter().rposition(|c| *c == b'\n').filter(|at| *at > start);
    let mut action = line_action(&r);
    if let Some(at) = lines {
        r.buf.extend_from_slice(bytes.get(..=at).unwrap_or_default());
        r.buf.extend_from_slice(b"\r\n");
        let parsed = HeadParser::default().parse(&r.buf, &HeadLimits::default(), &mut r.head);
        r.target.set_method(r.head.method);
        if parsed.is_ok() && set_path(&mut r).is_ok() {
            action = HEADERS;
            r.incoming.set_length((at + 1 - start) as u64);
            let _ = choose_server(&mut r);
        }
    }
    if action != HEADERS {
        r.buf.clear();
        r.buf.extend_from_slice(bytes);
        only_the_line(&mut r, bytes.len());
    }
    r.log(Severity::Info, format_args!("{words} while {action}"));
    counting::count_begun(&mut r);
    worker.finished(r);
}

/// Tells whether a PROXY protocol header precedes the first request, which has not begun without it.
fn awaits_proxy_header(worker: &Worker, connection: &ClientConnection) -> bool {
    let plan = worker.plan.borrow();
    let listener = plan.as_ref().and_then(|plan| plan.listener_of(connection));
    listener.is_some_and(|listener| listener.proxy_protocol)
        && connection.proxy.is_none()
        && connection.requests.get() == 0
}

/// Logs at debug or info level that a client disconnected between requests.
pub fn went_away(worker: &Worker, connection: &ClientConnection, got: &std::io::Result<usize>) {
    match (got, connection.requests.get()) {
        (Ok(_), 0) => waited(worker, connection, "client closed connection"),
        (Err(e), 0) => waited(worker, connection, &format!("recv() failed {}", observe::os_error(e))),
        (Ok(_), _) => tell(worker, connection, &|client| format!("client {client} closed keepalive connection")),
        // Browsers also reset kept connections (nginx: `NGX_ERROR_IGNORE_ECONNRESET`).
        (Err(e), _) if e.raw_os_error() == Some(libc::ECONNRESET) => {}
        (Err(e), _) => tell(worker, connection, &|_| format!("recv() failed {}", observe::os_error(e))),
    }
}

fn waited(worker: &Worker, connection: &ClientConnection, words: &str) {
    let listener = connection.listener.address();
    let Some(core) = worker.default_conf(connection).filter(|core| core.error_log.wants(Severity::Info)) else {
        return;
    };
    let details = [Detail::new("client", connection.peer_text()), Detail::new("server", listener.to_string())];
    let words = format_args!("{words} while waiting for request");
    core.error_log.log_with(Severity::Info, connection.number, words, &details);
}

fn tell(worker: &Worker, connection: &ClientConnection, line: &dyn Fn(&str) -> String) {
    let Some(core) = worker.default_conf(connection).filter(|core| core.error_log.wants(Severity::Info)) else {
        return;
    };
    let client = connection.peer_text();
    core.error_log.log(Severity::Info, connection.number, format_args!("{}", line(&client)));
}

/// Closes a connection between requests whose time is over; logs an incomplete head with 408.
pub fn timed_out(worker: &Worker, key: Key, connection: &Rc<ClientConnection>) {
    if let Some(BegunHead { since, bytes }) = take_head(connection) {
        never_came(worker, connection, &bytes, since, 408, TIMED_OUT);
        // Connections between requests are closed normally, as in nginx.
        reset_timed_out(worker, key, connection);
    } else if connection.requests.get() == 0 {
        waited(worker, connection, TIMED_OUT);
    }
    worker.close(key);
}

/// `reset_timedout_connection`: makes the following close a reset.
pub fn reset_timed_out(worker: &Worker, key: Key, connection: &ClientConnection) {
    if worker.default_conf(connection).is_some_and(|core| core.conf.reset_timedout_connection) {
        worker.poller.set_reset_on_close(key);
    }
}

/// From the head's start.
#[inline]
pub fn read_head(
    parser: &mut HeadParser,
    limits: &HeadLimits,
    bytes: &[u8],
    mut r: Box<Request>,
    connection: &Rc<ClientConnection>,
) -> (HeadState, Option<Box<Request>>) {
    match parser.parse(bytes, limits, &mut r.head) {
        Ok(ParseProgress::Partial) => (HeadState::Partial, Some(r)),
        Ok(ParseProgress::Done { consumed }) => {
            r.buf.extend_from_slice(bytes.get(..consumed).unwrap_or_default());
            // Excludes preceding empty lines.
            r.incoming.set_length((consumed as u64).saturating_sub(u64::from(r.head.line.start)));
            r.incoming.set_order(connection.count_request(), connection.pipelining.take());
            let mut begun = begin_request(&mut r);
            let own = r.srv().limits;
            if begun.is_ok() && (own.underscores, own.ignore_invalid) != (limits.underscores, limits.ignore_invalid) {
                // The host's server has other rules for fields (nginx: from those behind `Host`).
                let own = HeadLimits { underscores: own.underscores, ignore_invalid: own.ignore_invalid, ..*limits };
                begun = reread(parser, limits, &own, &mut r);
            }
            // Behind an invalid request line, nginx reads no fields.
            if r.accounting.action() != Some(line_action(&r)) {
                parser.invalid_fields().iter().for_each(|span| log_invalid(&mut r, *span));
            }
            match begun {
                Ok(()) => (HeadState::Request(r, consumed), None),
                Err(status) => (HeadState::Refused(r, status), None),
            }
        }
        Err(e) => {
            r.buf.extend_from_slice(bytes);
            r.incoming.set_order(connection.count_request(), connection.pipelining.take());
            let status = refused(&mut r, &e, parser.at(), limits, parser.invalid_fields());
            (HeadState::Refused(r, status), None)
        }
    }
}

/// Parses a whole head again: `limits` apply behind the host that selected a server, `before` up to it.
#[cold]
fn reread(parser: &mut HeadParser, before: &HeadLimits, limits: &HeadLimits, r: &mut Request) -> Result<(), u16> {
    let host = r.head.fields.first(Known::Host).filter(|_| r.head.authority.is_empty());
    let named_at = host.map_or(0, |host| line_end(&r.buf, host.end as usize));
    parser.reset();
    r.head.clear();
    r.target.path_mut().clear();
    r.target.forget_host();
    r.target.args_mut().clear();
    // Resumes with the second call's limits.
    let first = match r.buf.get(..named_at).filter(|lines| !lines.is_empty()) {
        Some(lines) => parser.parse(lines, before, &mut r.head),
        None => Ok(ParseProgress::Partial),
    };
    match first.and_then(|_| parser.parse(&r.buf, limits, &mut r.head)) {
        Ok(_) => begin_request(r),
        Err(e) => Err(refused(r, &e, parser.at(), limits, &[])),
    }
}

#[cold]
fn log_invalid(r: &mut Request, span: http_types::Span) {
    let text = String::from_utf8_lossy(span.of(&r.buf)).into_owned();
    let action = r.accounting.replace_action(HEADERS);
    r.log(Severity::Info, format_args!("client sent invalid header line: \"{text}\""));
    r.accounting.set_action(action);
}

/// Uses the initial server, before a host selects another.
pub fn use_initial_server(r: &mut Request) {
    let plan = r.plan_rc();
    r.select_server(plan.initial_server(r.connection()).unwrap_or(0));
    r.select_location(plan.servers.get(r.server_index()).map_or(0, |server| server.location));
}

/// Includes the line end.
fn line_end(buf: &[u8], at: usize) -> usize {
    let rest = buf.get(at..).unwrap_or_default();
    at + rest.iter().position(|c| *c == b'\n').map_or(rest.len(), |lf| lf + 1)
}

/// Keeps only the text of an invalid request line, as nginx: up to CR or LF, or `end`. If the protocol's name was
/// reached, `$server_protocol` is empty.
fn only_the_line(r: &mut Request, end: usize) {
    let start = r.buf.iter().position(|c| !matches!(c, b'\r' | b'\n')).unwrap_or(r.buf.len());
    let text = r.buf.get(start..end).unwrap_or_default();
    let length = text.iter().position(|c| matches!(c, b'\r' | b'\n')).unwrap_or(text.len());
    let protocol = r.head.protocol;
    let reached = protocol.of(&r.buf).starts_with(b"H");
    // A client that sent HEAD expects no body. Responses to HTTP/0.9 have no head (nginx: `ngx_http_header_filter`).
    if r.head.method == Method::Head && r.head.version != Version::Http09 {
        r.reply.send_head_only();
    }
    r.head.clear();
    r.head.line = http_types::Span { start: start as u32, end: (start + length) as u32 };
    if reached {
        r.head.protocol = http_types::Span { start: protocol.start, end: protocol.start };
    }
    r.target.set_method(r.head.method);
    r.incoming.set_length(0);
}

/// Actions of refused heads, for log messages.
const LINE: &str = "reading client request line";
const PIPELINED_LINE: &str = "reading client pipelined request line";
const HEADERS: &str = "reading client request headers";

fn line_action(r: &Request) -> &'static str {
    if r.incoming.is_pipelined() { PIPELINED_LINE } else { LINE }
}

/// Logs why a head is refused. The action also ends the messages of the response (nginx: `log->action`).
fn complain(r: &mut Request, words: &str, action: &'static str) {
    r.accounting.set_action(Some(action));
    r.log(Severity::Info, format_args!("{words}"));
}

/// Logs an invalid head and returns its status; `at` is the start of the faulty line.
#[cold]
fn refused(r: &mut Request, e: &HeadError, at: usize, limits: &HeadLimits, invalid: &[http_types::Span]) -> u16 {
    use_initial_server(r);
    r.reply.set_keep_alive(false);
    let mut words = Vec::new();
    e.log(&r.buf, &mut words);
    let words = String::from_utf8_lossy(&words);
    if e.is_of_line() {
        let end = if *e == HeadError::LineTooLong { at + limits.line_max } else { r.buf.len() };
        only_the_line(r, end.min(r.buf.len()));
        r.target.set_version(if *e == HeadError::InvalidMethodHttp09 { Version::Http09 } else { Version::Http10 });
        let action = line_action(r);
        complain(r, &words, action);
        return e.status();
    }
    r.target.set_method(r.head.method);
    r.target.set_version(r.head.version);
    if set_path(r).is_err() {
        return bad_path(r);
    }
    // Complete lines count, even if refused.
    let read = match e {
        HeadError::DuplicateField { .. } | HeadError::TooManyFields => line_end(&r.buf, at),
        _ => at,
    };
    r.incoming.set_length((read as u64).saturating_sub(u64::from(r.head.line.start)));
    // Without a host the handshake's server answers.
    if !r.head.authority.is_empty() || r.head.fields.first(Known::Host).is_some() {
        let _ = choose_server(r);
    }
    invalid.iter().for_each(|span| log_invalid(r, *span));
    complain(r, &words, HEADERS);
    e.status()
}

#[cold]
fn bad_path(r: &mut Request) -> u16 {
    r.head.target = http_types::Span::default();
    r.target.path_mut().clear();
    bad_line(r, "client sent invalid request")
}

/// Refuses a well-formed but invalid request line; nothing after it counts.
#[cold]
fn bad_line(r: &mut Request, words: &str) -> u16 {
    use_initial_server(r);
    r.head.fields.clear();
    r.incoming
        .set_length((line_end(&r.buf, r.head.line.end as usize) as u64).saturating_sub(u64::from(r.head.line.start)));
    let action = line_action(r);
    complain(r, words, action);
    400
}

/// Refuses an invalid `Host`; fields after it do not count.
#[cold]
fn bad_host(r: &mut Request, field: http_types::Span) -> u16 {
    let index = r.head.fields.all.iter().position(|f| f.value == field);
    r.head.fields.truncate(index.map_or(usize::MAX, |index| index + 1));
    r.incoming.set_length((line_end(&r.buf, field.end as usize) as u64).saturating_sub(u64::from(r.head.line.start)));
    complain(r, "client sent invalid host header", HEADERS);
    400
}

pub(crate) fn set_path(r: &mut Request) -> Result<(), path::BadPath> {
    let raw = r.head.path;
    let merge = !r.head.complex || {
        let plan = r.plan_rc();
        let server = plan.initial_server(r.connection()).unwrap_or(0);
        // The host is not known yet.
        let location = plan.servers.get(server).and_then(|server| plan.locations.get(server.location));
        location.is_none_or(|location| location.core.conf.merge_slashes)
    };
    let done = r.target.path_mut().read(&r.head, &r.buf, merge);
    let args = r.head.args;
    r.target.args_mut().extend_from_slice(args.of(&r.buf));
    let target = r.head.target.of(&r.buf);
    let mark = target.iter().position(|byte| *byte == b'?');
    // As in nginx, a lone question mark starts no query, unless a fragment follows.
    let cut = mark.is_some_and(|at| target.get(at + 1) == Some(&b'#'));
    r.target.note_args(!r.target.args().is_empty() || (r.head.complex && cut));
    // "http://host?query": the target starts with the question mark.
    if raw.is_empty() && mark.is_some() {
        r.target.note_path_change();
    }
    done
}

/// Selects the server by host; an absolute URI wins over `Host`. `Err`: invalid host, keeps the initial server.
fn choose_server(r: &mut Request) -> Result<(), ()> {
    let named = if !r.head.authority.is_empty() { Some(r.head.authority) } else { r.head.fields.first(Known::Host) };
    if let Some(span) = named {
        let mut host = r.target.take_host();
        let text = span.of(&r.buf);
        // Trims tabs around HTTP/1 values (RFC 9110, 5.5); HTTP/2 and HTTP/3 forbid white space there (RFC 9113, 8.2.1).
        let text =
            if matches!(r.target.version(), Version::Http20 | Version::Http30) { text } else { text.trim_ascii() };
        match checked_host(text, &mut host) {
            Some(port) => r.target.set_host_port(port),
            None => {
                host.clear();
                r.target.set_host(host);
                use_initial_server(r);
                return Err(());
            }
        }
        r.target.set_host(host);
    }
    let plan = r.plan_rc();
    if let Some(listener) = plan.listener_of(r.connection()) {
        let server = route::server_for(listener, r);
        r.select_server(server);
        r.select_location(r.srv().location);
    }
    Ok(())
}

/// Validates a request before its phases (nginx: `ngx_http_process_request_uri`, `ngx_http_process_request_header`).
pub fn begin_request(r: &mut Request) -> Result<(), u16> {
    r.target.set_method(r.head.method);
    r.target.set_version(r.head.version);
    if set_path(r).is_err() {
        return Err(bad_path(r));
    }
    // The request's plan has this listener.
    let plan = r.plan_rc();
    let Some(listener) = plan.listener_of(r.connection()) else { return Err(400) };
    let field = r.head.fields.first(Known::Host);
    if choose_server(r).is_err() {
        return Err(match field {
            Some(field) if r.head.authority.is_empty() => bad_host(r, field),
            _ => bad_line(r, "client sent invalid host in request line"),
        });
    }
    if http_engine::tls::is_misdirected(listener, r) {
        return Err(421);
    }
    // An absolute URI does not excuse an invalid Host field.
    if !r.head.authority.is_empty()
        && let Some(field) = field
        && path::host(field.of(&r.buf), &mut Vec::new()).is_none()
    {
        return Err(bad_host(r, field));
    }
    let length = match wire_h1::check_request(&r.head, &r.buf, r.srv().allow_connect) {
        Ok(length) => length,
        Err(e) => {
            let mut words = Vec::new();
            e.log(&r.head.fields, &r.buf, &mut words);
            let words = String::from_utf8_lossy(&words);
            complain(r, &words, HEADERS);
            return Err(e.status());
        }
    };
    r.reply.set_keep_alive(wire_h1::keep_alive(&r.head, &r.buf));
    r.incoming.set_body_length(match length {
        BodyLength::None => None,
        length => Some(length),
    });
    r.incoming.set_bodiless();
    match http_engine::tls::certificate_refusal(listener, r) {
        Some(status) => Err(status),
        None => Ok(()),
    }
}

/// Validates a host; caches the last result, as a thread's clients mostly use the same few.
fn checked_host(text: &[u8], out: &mut Vec<u8>) -> Option<Option<u16>> {
    #[derive(Default)]
    struct Last {
        text: Vec<u8>,
        host: Vec<u8>,
        port: Option<u16>,
    }
    thread_local! {
        static LAST: std::cell::RefCell<Last> = std::cell::RefCell::default();
    }
    LAST.with_borrow_mut(|last| {
        if last.text == text && !text.is_empty() {
            out.clear();
            out.extend_from_slice(&last.host);
            return Some(last.port);
        }
        let port = path::host(text, out)?;
        last.text.clear();
        last.text.extend_from_slice(text);
        last.host.clear();
        last.host.extend_from_slice(out);
        last.port = port;
        Some(port)
    })
}
