//! HTTP/2 towards clients: detection and limits; `wire-h2` is the protocol, `byte_carrier.rs` its driver.

pub mod upgrade;

use crate::byte_carrier::ByteCarrier;
use crate::secure::Secure;
use crate::worker::Worker;
use http_engine::ClientConnection;
use net::poller::Key;
use std::rc::Rc;
use wire_h2::{Server, ServerLimits};

/// Returns `None` for an incomplete preface.
pub fn is_preface(bytes: &[u8]) -> Option<bool> {
    let n = bytes.len().min(wire_h2::PREFACE.len());
    if bytes.get(..n) != wire_h2::PREFACE.get(..n) {
        return Some(false);
    }
    (n == wire_h2::PREFACE.len()).then_some(true)
}

/// With the connection's first octets.
pub fn begin_http2(
    worker: &Rc<Worker>,
    key: Key,
    connection: &Rc<ClientConnection>,
    secure: Option<&Rc<Secure>>,
    bytes: &[u8],
) {
    let core = Server::new(limits(worker, connection));
    ByteCarrier::begin(worker, key, connection, secure, core).begin_with(bytes);
}

fn limits(worker: &Worker, connection: &ClientConnection) -> ServerLimits {
    let head = crate::head_in::head_limits(worker, connection);
    // Without a plan nothing is served; the defaults limit the reading.
    let (size, count) = worker.default_conf(connection).map_or((8 * 1024, 4), |core| {
        let buffers = core.conf.large_client_header_buffers;
        (buffers.size as usize, buffers.count as usize)
    });
    let plan = worker.plan.borrow();
    let conf = plan.as_ref().and_then(|plan| Some(plan.servers.get(plan.initial_server(connection)?)?.http2));
    let conf = conf.unwrap_or_default();
    ServerLimits {
        streams_max: conf.streams_max,
        list_max: size * count,
        field_max: size,
        fields_max: head.fields_max,
        underscores: head.underscores,
        ignore_invalid: head.ignore_invalid,
        stream_window: conf.preread_bytes,
        extended_connect: conf.websockets,
    }
}
