//! From the bytes of a head to a request that the engine can start: host, server, canonical path.

use crate::link::READ_BYTES;
use crate::world::World;
use base::clock;
use http_engine::{Connection, Request, RequestBody, build, counters, path};
use net::lot::Key;
use observe::Level;
use std::rc::Rc;
use wire_h1::{BodyLength, HeadError, HeadLimits, HeadParser, Known, Progress, Version};

/// What became of the bytes.
pub enum Head {
    /// More bytes are needed.
    Partial,
    /// The request, and how many bytes its head took.
    Request(Box<Request>, usize),
    /// The request is answered with this status.
    Refused(Box<Request>, u16),
}

/// The limits for heads on a listener: those of its default server, as in nginx.
pub fn limits(world: &World, connection: &Connection) -> HeadLimits {
    let plan = world.plan.borrow();
    let server = plan.as_ref().and_then(|plan| plan.servers.get(plan.listener_of(connection)?.default_server));
    server.map_or_else(HeadLimits::default, |server| server.limits)
}

/// Bytes of a head that has begun are kept with their connection up to this many; a longer one becomes a task.
pub const BEGUN_BYTES_MAX: usize = READ_BYTES / 2;

/// Keeps the beginning of a head (or of a PROXY protocol header) until the rest comes: a few bytes and no task. The time for
/// it runs from the connection's start, or from the first byte after another request; drops that come later do not prolong it.
pub fn keep(world: &World, key: Key, connection: &Connection, bytes: &[u8], is_new: bool) {
    if !bytes.is_empty() {
        connection.begun.keep(bytes);
        counters::own(|c| counters::up(&c.reading));
    }
    if is_new {
        let timeout = world.default_conf(connection).map_or(60_000, |core| core.conf.client_header_timeout.0);
        let from = if connection.requests.get() == 0 { connection.started } else { clock::now() };
        world.lot.set_deadline(key, from.plus_millis(timeout));
    }
    world.lot.again_if_readable(key);
}

/// Takes what [`keep`] has kept.
pub fn take(connection: &Connection) -> Option<Vec<u8>> {
    let bytes = connection.begun.take()?;
    counters::own(|c| counters::down(&c.reading));
    Some(bytes)
}

/// A head that never came whole is logged, with a status that nobody is sent.
pub fn never_came(world: &World, connection: &Rc<Connection>, bytes: &[u8], status: u16, words: &str) {
    let Some(mut r) = world.request(connection) else { return };
    use_default_server(&mut r, connection);
    r.buf.extend_from_slice(bytes);
    r.length = r.buf.len() as u64;
    r.out.status = status;
    r.log(Level::Info, format_args!("{words} while reading client request headers"));
    world.finished(r);
}

/// A connection's deadline has come: it is closed.
pub fn timed_out(world: &World, key: Key, connection: &Rc<Connection>) {
    if let Some(bytes) = take(connection) {
        never_came(world, connection, &bytes, 408, "client timed out");
    }
    reset_timed_out(world, key, connection);
    world.close(key);
}

/// `reset_timedout_connection`: the close that follows is a reset.
pub fn reset_timed_out(world: &World, key: Key, connection: &Connection) {
    if world.default_conf(connection).is_some_and(|core| core.conf.reset_timedout_connection)
        && let Some(fd) = world.lot.raw(key)
    {
        net::socket::set_reset_on_close(fd);
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
            r.buf.extend_from_slice(&bytes[..consumed]);
            r.length = consumed as u64;
            connection.requests.set(connection.requests.get() + 1);
            for span in parser.invalid_fields() {
                log_invalid(&mut r, *span, connection);
            }
            match begin(&mut r) {
                Ok(()) => (Head::Request(r, consumed), None),
                Err(status) => (Head::Refused(r, status), None),
            }
        }
        Err(e) => {
            r.buf.extend_from_slice(bytes);
            r.length = bytes.len() as u64;
            connection.requests.set(connection.requests.get() + 1);
            let status = refused(&mut r, &e);
            (Head::Refused(r, status), None)
        }
    }
}

#[cold]
fn log_invalid(r: &mut Request, span: wire_h1::Span, connection: &Connection) {
    use_default_server(r, connection);
    let text = String::from_utf8_lossy(span.of(&r.buf)).into_owned();
    r.log(
        Level::Info,
        format_args!("client sent invalid header line: \"{text}\" while reading client request headers"),
    );
}

fn use_default_server(r: &mut Request, connection: &Connection) {
    let plan = r.plan_rc();
    r.server = plan.listener_of(connection).map_or(0, |l| l.default_server);
    r.location = plan.servers[r.server].location;
}

/// A head that cannot be parsed: logged, and the status to answer with.
#[cold]
fn refused(r: &mut Request, e: &HeadError) -> u16 {
    let connection = r.connection.clone();
    if let Some(connection) = connection {
        use_default_server(r, &connection);
    }
    let mut words = Vec::new();
    e.log(&r.buf, &mut words);
    r.version =
        if r.head.version == Version::Http09 && r.head.line.is_empty() { Version::Http10 } else { r.head.version };
    if r.version == Version::Http09 {
        r.version = Version::Http10;
    }
    r.method = r.head.method;
    r.keep_alive = false;
    let what = if e.is_of_line() { "line" } else { "headers" };
    r.log(Level::Info, format_args!("{} while reading client request {what}", String::from_utf8_lossy(&words)));
    e.status()
}

/// Everything between the parser and the phases (nginx: `ngx_http_process_request_header`).
fn begin(r: &mut Request) -> Result<(), u16> {
    r.method = r.head.method;
    r.version = r.head.version;
    // The host of an absolute URI wins over the Host field.
    let named = if !r.head.authority.is_empty() { Some(r.head.authority) } else { r.head.fields.first(Known::Host) };
    let mut bad_host = false;
    if let Some(span) = named {
        let mut host = std::mem::take(&mut r.host);
        match checked_host(span.of(&r.buf), &mut host) {
            Some(port) => r.host_port = port,
            None => {
                bad_host = true;
                host.clear();
            }
        }
        r.host = host;
    }
    let plan = r.plan_rc();
    // The request was made for a plan that listens there.
    let Some(listener) = plan.listener_of(r.connection()) else { return Err(400) };
    r.server = build::server_for(listener, r);
    r.location = r.srv().location;
    if http_engine::tls::misdirected(listener, r) {
        return Err(421);
    }
    if bad_host {
        r.log(Level::Info, format_args!("client sent invalid host header while reading client request headers"));
        return Err(400);
    }
    if !r.head.authority.is_empty()
        && let Some(span) = r.head.fields.first(Known::Host)
    {
        // An absolute URI does not excuse a broken Host field.
        if path::host(span.of(&r.buf), &mut Vec::new()).is_none() {
            r.log(Level::Info, format_args!("client sent invalid host header while reading client request headers"));
            return Err(400);
        }
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
    let merge = r.loc().core.conf.merge_slashes;
    let raw = r.head.path;
    let mut canonical = std::mem::take(&mut r.path);
    if r.head.complex {
        let text = if raw.is_empty() { b"/" } else { raw.of(&r.buf) };
        let done = path::canonical(text, merge, &mut canonical);
        r.path = canonical;
        if done.is_err() {
            r.path.clear();
            r.log(Level::Info, format_args!("client sent invalid request while reading client request line"));
            return Err(400);
        }
    } else {
        canonical.clear();
        canonical.extend_from_slice(raw.of(&r.buf));
        r.path = canonical;
    }
    let args = r.head.args;
    r.args.extend_from_slice(args.of(&r.buf));
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
