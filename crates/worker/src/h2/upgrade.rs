//! Upgrade from HTTP/1.1 to HTTP/2 (`Upgrade: h2c`; RFC 7540, 3.2): absent from RFC 9113, but in use.

use crate::byte_carrier::ByteCarrier;
use crate::worker::Worker;
use base64::Engine;
use http_engine::{ClientConnection, Request};
use http_types::{Field, Known, ProtocolError, Version};
use net::poller::Key;
use std::io::IoSlice;
use std::rc::Rc;
use wire_h2::Server;

const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

/// The client's settings, if it requests HTTP/2 and may have it: no body, cleartext, `http2_upgrade on`.
pub fn asked_settings(r: &Request, connection: &ClientConnection) -> Option<Vec<u8>> {
    let upgrade = r.header(Known::Upgrade)?;
    if connection.tls.is_some()
        || r.target.version() != Version::Http11
        || r.incoming.body_length().is_some()
        || !r.srv().http2.upgrade
    {
        return None;
    }
    let names =
        |list: &[u8], name: &[u8]| list.split(|c| *c == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(name));
    let connection = r.header(Known::Connection)?;
    if !names(upgrade, b"h2c") || !names(connection, b"upgrade") || !names(connection, SETTINGS) {
        return None;
    }
    let mut all = r.head.fields.all.iter().filter(|f| f.name.of(&r.buf).eq_ignore_ascii_case(SETTINGS));
    let settings = all.next()?.value.of(&r.buf);
    // Exactly one (3.2.1).
    if all.next().is_some() {
        return None;
    }
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(settings).ok().filter(|s| s.len().is_multiple_of(6))
}

const SETTINGS: &[u8] = b"http2-settings";

/// Continues with HTTP/2; the request is stream 1, `rest` followed it.
pub fn begin_upgrade(
    worker: &Rc<Worker>,
    key: Key,
    connection: &Rc<ClientConnection>,
    mut r: Box<Request>,
    settings: &[u8],
    rest: &[u8],
) {
    let mut core = Server::new(super::limits(worker, connection));
    let settled = core.upgraded(settings).map_err(|error| ProtocolError { words: error.words });
    let carrier = ByteCarrier::begin(worker, key, connection, None, core);
    // Smaller than any socket buffer.
    if !carrier.link().send(&[IoSlice::new(ANSWER)], false).is_ok_and(|n| n == ANSWER.len()) {
        return worker.close(key);
    }
    r.incoming.set_order(connection.count_request(), false);
    r.target.set_version(Version::Http20);
    r.reply.set_keep_alive(true);
    // Addressed to this server.
    let ours = |f: &Field| {
        matches!(f.known, Known::Upgrade | Known::Connection) || f.name.of(&r.buf).eq_ignore_ascii_case(SETTINGS)
    };
    r.head.fields.retain(|field| !ours(field));
    carrier.begin_upgraded(r, settled, rest);
}
