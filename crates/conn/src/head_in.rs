//! From the bytes of a head to a request that the engine can start: host, server, canonical path.

use crate::link::READ_BYTES;
use crate::worker::Worker;
use base::clock;
use http_engine::{Connection, Request, RequestBody, build, path};
use http_types::{BodyLength, Known, Version};
use metrics::process;
use net::poller::Key;
use observe::Level;
use std::rc::Rc;
use wire_h1::{HeadError, HeadLimits, HeadParser, Progress};

/// What became of the bytes.
pub enum Head {
    /// More bytes are needed.
    Partial,
    /// The request, and how many bytes its head took.
    Request(Box<Request>, usize),
    /// The request is answered with this status.
    Refused(Box<Request>, u16),
}

/// The limits for heads on a connection: those of its initial server, as in nginx.
pub fn limits(worker: &Worker, connection: &Connection) -> HeadLimits {
    let plan = worker.plan.borrow();
    let server = plan.as_ref().and_then(|plan| plan.servers.get(plan.initial_server(connection)?));
    server.map_or_else(HeadLimits::default, |server| server.limits)
}

/// Bytes of a head that has begun are kept with their connection up to this many; a longer one becomes a task.
pub const BEGUN_BYTES_MAX: usize = READ_BYTES / 2;

/// Keeps the beginning of a head (or of a PROXY protocol header) until the rest comes: a few bytes and no task. The time for
/// it runs from the connection's start, or from the first byte after another request; drops that come later do not prolong it.
pub fn keep(worker: &Worker, key: Key, connection: &Connection, bytes: &[u8], is_new: bool) {
    if !bytes.is_empty() {
        connection.begun.keep(bytes);
        process::CONNECTIONS_READING.up();
    }
    if is_new {
        let timeout = worker.default_conf(connection).map_or(60_000, |core| core.conf.client_header_timeout.0);
        let from = if connection.requests.get() == 0 { connection.started } else { clock::now() };
        worker.poller.set_deadline(key, from.plus_millis(timeout));
    }
    worker.poller.again_if_readable(key);
}

/// Takes what [`keep`] has kept.
pub fn take(connection: &Connection) -> Option<Vec<u8>> {
    let bytes = connection.begun.take()?;
    process::CONNECTIONS_READING.down();
    Some(bytes)
}

/// A head that never came whole is logged, with a status that nobody is sent, and with what its whole lines said.
pub fn never_came(worker: &Worker, connection: &Rc<Connection>, bytes: &[u8], status: u16, words: &str) {
    let Some(mut r) = worker.request(connection) else { return };
    use_initial_server(&mut r);
    r.out.status = status;
    let start = bytes.iter().position(|c| !matches!(c, b'\r' | b'\n')).unwrap_or(bytes.len());
    let lines = bytes.iter().rposition(|c| *c == b'\n').filter(|at| *at > start);
    let mut what = "line";
    if let Some(at) = lines {
        r.buf.extend_from_slice(bytes.get(..=at).unwrap_or_default());
        r.buf.extend_from_slice(b"\r\n");
        let parsed = HeadParser::default().parse(&r.buf, &HeadLimits::default(), &mut r.head);
        r.method = r.head.method;
        if parsed.is_ok() && set_path(&mut r).is_ok() {
            what = "headers";
            r.length = (at + 1 - start) as u64;
            let _ = choose_server(&mut r);
        }
    }
    if what == "line" {
        r.buf.clear();
        r.buf.extend_from_slice(bytes);
        only_the_line(&mut r, bytes.len());
    }
    r.log(Level::Info, format_args!("{words} while reading client request {what}"));
    worker.logged(r);
}

/// A client has closed its connection between requests, or broken it: a line for those who look that closely.
pub fn went_away(worker: &Worker, connection: &Connection, got: &std::io::Result<usize>) {
    match (got, connection.requests.get()) {
        (Ok(_), 0) => waited(worker, connection, "client closed connection"),
        (Err(e), 0) => waited(worker, connection, &format!("recv() failed {}", observe::os(e))),
        (Ok(_), _) => tell(worker, connection, &|client| format!("client {client} closed keepalive connection")),
        // Browsers end kept connections with a reset, too (nginx: `NGX_ERROR_IGNORE_ECONNRESET`).
        (Err(e), _) if e.raw_os_error() == Some(libc::ECONNRESET) => {}
        (Err(e), _) => tell(worker, connection, &|_| format!("recv() failed {}", observe::os(e))),
    }
}

/// What became of a connection that has not asked for anything.
fn waited(worker: &Worker, connection: &Connection, words: &str) {
    let listener = connection.listener.address();
    let line = |client: &str| format!("{words} while waiting for request, client: {client}, server: {listener}");
    tell(worker, connection, &line);
}

fn tell(worker: &Worker, connection: &Connection, line: &dyn Fn(&str) -> String) {
    let Some(core) = worker.default_conf(connection).filter(|core| core.error_log.wants(Level::Info)) else { return };
    let client = http_engine::variables::peer_text(connection);
    core.error_log.log(Level::Info, connection.number, format_args!("{}", line(&client)));
}

/// A connection's deadline has come: it is closed.
pub fn timed_out(worker: &Worker, key: Key, connection: &Rc<Connection>) {
    if let Some(bytes) = take(connection) {
        never_came(worker, connection, &bytes, 408, "client timed out");
    } else if connection.requests.get() == 0 {
        waited(worker, connection, "client timed out (110: Connection timed out)");
    }
    reset_timed_out(worker, key, connection);
    worker.close(key);
}

/// `reset_timedout_connection`: the close that follows is a reset.
pub fn reset_timed_out(worker: &Worker, key: Key, connection: &Connection) {
    if worker.default_conf(connection).is_some_and(|core| core.conf.reset_timedout_connection) {
        worker.poller.set_reset_on_close(key);
    }
}

/// Parses `bytes`, which begin where the head begins, into `r`.
#[inline]
pub fn read(
    parser: &mut HeadParser,
    limits: &HeadLimits,
    bytes: &[u8],
    mut r: Box<Request>,
    connection: &Rc<Connection>,
) -> (Head, Option<Box<Request>>) {
    match parser.parse(bytes, limits, &mut r.head) {
        Ok(Progress::Partial) => (Head::Partial, Some(r)),
        Ok(Progress::Done { consumed }) => {
            r.buf.extend_from_slice(bytes.get(..consumed).unwrap_or_default());
            // Empty lines before it do not count.
            r.length = (consumed as u64).saturating_sub(u64::from(r.head.line.start));
            connection.count_request();
            let mut begun = begin(&mut r);
            let own = r.srv().limits;
            if begun.is_ok() && (own.underscores, own.ignore_invalid) != (limits.underscores, limits.ignore_invalid) {
                // The host has named a server with other rules for fields (nginx: those behind `Host` follow them).
                let limits = HeadLimits { underscores: own.underscores, ignore_invalid: own.ignore_invalid, ..*limits };
                begun = reread(parser, &limits, &mut r);
            }
            for span in parser.invalid_fields() {
                log_invalid(&r, *span);
            }
            match begun {
                Ok(()) => (Head::Request(r, consumed), None),
                Err(status) => (Head::Refused(r, status), None),
            }
        }
        Err(e) => {
            r.buf.extend_from_slice(bytes);
            connection.count_request();
            let status = refused(&mut r, &e, parser.at(), limits);
            (Head::Refused(r, status), None)
        }
    }
}

/// Parses a whole head again, under other limits.
#[cold]
fn reread(parser: &mut HeadParser, limits: &HeadLimits, r: &mut Request) -> Result<(), u16> {
    parser.reset();
    r.head.clear();
    r.path.clear();
    for table in [&mut r.host, &mut r.args] {
        table.clear();
    }
    match parser.parse(&r.buf, limits, &mut r.head) {
        Ok(_) => begin(r),
        Err(e) => Err(refused(r, &e, parser.at(), limits)),
    }
}

#[cold]
fn log_invalid(r: &Request, span: http_types::Span) {
    let text = String::from_utf8_lossy(span.of(&r.buf)).into_owned();
    r.log(
        Level::Info,
        format_args!("client sent invalid header line: \"{text}\" while reading client request headers"),
    );
}

/// Before a host has named another.
pub fn use_initial_server(r: &mut Request) {
    let plan = r.plan_rc();
    r.server = plan.initial_server(r.connection()).unwrap_or(0);
    r.location = plan.servers.get(r.server).map_or(0, |server| server.location);
}

/// Where the line that holds this place ends, its line end included.
fn line_end(buf: &[u8], at: usize) -> usize {
    let rest = buf.get(at..).unwrap_or_default();
    at + rest.iter().position(|c| *c == b'\n').map_or(rest.len(), |lf| lf + 1)
}

/// Of a request line that makes no sense only its text is known, as in nginx: up to the first CR or LF, or to `end`. That the name of
/// the protocol was reached is known, too: `$server_protocol` is then empty.
fn only_the_line(r: &mut Request, end: usize) {
    let start = r.buf.iter().position(|c| !matches!(c, b'\r' | b'\n')).unwrap_or(r.buf.len());
    let text = r.buf.get(start..end).unwrap_or_default();
    let length = text.iter().position(|c| matches!(c, b'\r' | b'\n')).unwrap_or(text.len());
    let protocol = r.head.protocol;
    let reached = protocol.of(&r.buf).starts_with(b"H");
    r.head.clear();
    r.head.line = http_types::Span { start: start as u32, end: (start + length) as u32 };
    if reached {
        r.head.protocol = http_types::Span { start: protocol.start, end: protocol.start };
    }
    (r.method, r.length) = (r.head.method, 0);
}

/// A head that cannot be parsed: logged, and the status to answer with. `at` is where the line begins that is wrong.
#[cold]
fn refused(r: &mut Request, e: &HeadError, at: usize, limits: &HeadLimits) -> u16 {
    use_initial_server(r);
    r.keep_alive = false;
    let mut words = Vec::new();
    e.log(&r.buf, &mut words);
    let words = String::from_utf8_lossy(&words);
    if e.is_of_line() {
        let end = if *e == HeadError::LineTooLong { at + limits.line_max } else { r.buf.len() };
        only_the_line(r, end.min(r.buf.len()));
        r.version = if *e == HeadError::InvalidMethodHttp09 { Version::Http09 } else { Version::Http10 };
        r.log(Level::Info, format_args!("{words} while reading client request line"));
        return e.status();
    }
    (r.method, r.version) = (r.head.method, r.head.version);
    if set_path(r).is_err() {
        return bad_path(r);
    }
    // Lines that could be read, and were found wrong then, count.
    let read = match e {
        HeadError::DuplicateField { .. } | HeadError::TooManyFields => line_end(&r.buf, at),
        _ => at,
    };
    r.length = (read as u64).saturating_sub(u64::from(r.head.line.start));
    let _ = choose_server(r);
    r.log(Level::Info, format_args!("{words} while reading client request headers"));
    e.status()
}

/// The URI is none.
#[cold]
fn bad_path(r: &mut Request) -> u16 {
    r.head.target = http_types::Span::default();
    r.path.clear();
    bad_line(r, "client sent invalid request")
}

/// The request line was understood and is wrong: nothing that follows it counts.
#[cold]
fn bad_line(r: &mut Request, words: &str) -> u16 {
    use_initial_server(r);
    r.head.fields.clear();
    r.length = (line_end(&r.buf, r.head.line.end as usize) as u64).saturating_sub(u64::from(r.head.line.start));
    r.log(Level::Info, format_args!("{words} while reading client request line"));
    400
}

/// The `Host` field is wrong: those that follow it do not count.
#[cold]
fn bad_host(r: &mut Request, field: http_types::Span) -> u16 {
    let index = r.head.fields.all.iter().position(|f| f.value == field);
    r.head.fields.truncate(index.map_or(usize::MAX, |index| index + 1));
    r.length = (line_end(&r.buf, field.end as usize) as u64).saturating_sub(u64::from(r.head.line.start));
    r.log(Level::Info, format_args!("client sent invalid host header while reading client request headers"));
    400
}

/// The canonical path and the query.
fn set_path(r: &mut Request) -> Result<(), path::BadPath> {
    let raw = r.head.path;
    let merge = !r.head.complex || {
        let plan = r.plan_rc();
        let server = plan.initial_server(r.connection()).unwrap_or(0);
        // The host is not known yet.
        let location = plan.servers.get(server).and_then(|server| plan.locations.get(server.location));
        location.is_none_or(|location| location.core.conf.merge_slashes)
    };
    let done = r.path.read(&r.head, &r.buf, merge);
    let args = r.head.args;
    r.args.extend_from_slice(args.of(&r.buf));
    let target = r.head.target.of(&r.buf);
    let mark = target.iter().position(|byte| *byte == b'?');
    // As in nginx, a question mark alone begins no query; only a fragment behind it makes an empty one.
    let cut = mark.is_some_and(|at| target.get(at + 1) == Some(&b'#'));
    r.args_given = !r.args.is_empty() || (r.head.complex && cut);
    // "http://host?query": as written it begins with the question mark, which is no request target.
    r.path_changed |= raw.is_empty() && mark.is_some();
    done
}

/// Chooses the server by the host: that of an absolute URI wins over the `Host` field. `Err`: the host is not valid, and the
/// initial server stays.
fn choose_server(r: &mut Request) -> Result<(), ()> {
    let named = if !r.head.authority.is_empty() { Some(r.head.authority) } else { r.head.fields.first(Known::Host) };
    if let Some(span) = named {
        let mut host = std::mem::take(&mut r.host);
        // A tab beside the value is no part of it (RFC 9110, 5.5).
        match checked_host(span.of(&r.buf).trim_ascii(), &mut host) {
            Some(port) => r.host_port = port,
            None => {
                host.clear();
                r.host = host;
                use_initial_server(r);
                return Err(());
            }
        }
        r.host = host;
    }
    let plan = r.plan_rc();
    if let Some(listener) = plan.listener_of(r.connection()) {
        r.server = build::server_for(listener, r);
        r.location = r.srv().location;
    }
    Ok(())
}

/// Everything between the parser and the phases (nginx: `ngx_http_process_request_uri`, `ngx_http_process_request_header`).
pub fn begin(r: &mut Request) -> Result<(), u16> {
    r.method = r.head.method;
    r.version = r.head.version;
    if set_path(r).is_err() {
        return Err(bad_path(r));
    }
    // The request was made for a plan that listens there.
    let plan = r.plan_rc();
    let Some(listener) = plan.listener_of(r.connection()) else { return Err(400) };
    let field = r.head.fields.first(Known::Host);
    if choose_server(r).is_err() {
        return Err(match field {
            Some(field) if r.head.authority.is_empty() => bad_host(r, field),
            _ => bad_line(r, "client sent invalid host in request line"),
        });
    }
    if http_engine::tls::misdirected(listener, r) {
        return Err(421);
    }
    // An absolute URI does not excuse a broken Host field.
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
            r.log(Level::Info, format_args!("{words} while reading client request headers"));
            return Err(e.status());
        }
    };
    r.keep_alive = wire_h1::keep_alive(&r.head, &r.buf);
    r.body_length = match length {
        BodyLength::None => None,
        length => Some(length),
    };
    r.body = RequestBody::None;
    match http_engine::tls::refused(listener, r) {
        Some(status) => Err(status),
        None => Ok(()),
    }
}

/// Checks a host; clients of one thread mostly name the same few, so the last answer is kept.
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
