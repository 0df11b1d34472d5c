//! Exchanges before the first request: CONNECT with an HTTP proxy (RFC 9110, 9.3.6), and the upgrade of a protocol.

use std::sync::Arc;

use super::LoadWorld;
use super::connection::ConnectionState;
use crate::engine::failure::LoadFailure;
use crate::engine::job::Target;
use crate::engine::transport::{Transport, TransportSlot};
use crate::protocol::ClientProtocol;

/// Octets of a proxy's answer to CONNECT at most.
const ANSWER_MAX: usize = 16 * 1024;

/// CONNECT request of a target over TLS behind a proxy; `None` for others.
pub(super) fn tunnel_request(target: &Target) -> Option<Arc<[u8]>> {
    let proxy = target.proxy.as_ref().filter(|_| target.tls.is_some())?;
    let authority = target.full_authority();
    let login = proxy.authorization.as_ref().map_or(String::new(), |v| format!("Proxy-Authorization: {v}\r\n"));
    Some(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{login}\r\n").into_bytes().into())
}

impl<T: Transport, P: ClientProtocol> LoadWorld<T, P> {
    pub(super) fn begin_exchange(&mut self, slot: TransportSlot, request: &[u8], now: u64) {
        let connection = &mut self.connections[slot];
        connection.state = ConnectionState::Exchanging;
        connection.started = now;
        connection.exchanged.clear();
        connection.upgrading = false;
        connection.output.extend_from_slice(request);
        self.push(slot);
    }

    /// Sends the request of an upgrade on a connection whose transport is ready.
    pub(super) fn begin_upgrade(&mut self, slot: TransportSlot, now: u64) {
        let connection = &mut self.connections[slot];
        connection.state = ConnectionState::Exchanging;
        connection.started = now;
        connection.exchanged.clear();
        connection.upgrading = true;
        let request = P::upgrade_request(&self.shared).to_vec();
        self.write(slot, &request);
    }

    /// Takes in bytes of the answer; after it, the TLS handshake begins or the connection is open.
    pub(super) fn exchanged(&mut self, slot: TransportSlot, bytes: &[u8], now: u64) {
        let connection = &mut self.connections[slot];
        connection.exchanged.extend_from_slice(bytes);
        let Some(end) = memchr::memmem::find(&connection.exchanged, b"\r\n\r\n") else {
            if connection.exchanged.len() > ANSWER_MAX {
                let class = connection.exchange_class();
                self.tls_error.get_or_insert_with(|| "the answer's head has no end".into());
                self.break_off(slot, class, now);
            }
            return;
        };
        let answer = std::mem::take(&mut connection.exchanged);
        if connection.upgrading {
            if let Err(why) = P::check_upgrade(&self.shared, &answer[..end + 4]) {
                self.tls_error.get_or_insert(why);
                return self.break_off(slot, LoadFailure::Upgrade, now);
            }
            let epoch = connection.epoch;
            connection.state = ConnectionState::Open;
            self.opened(slot, now);
            if self.connections[slot].epoch == epoch {
                self.feed(slot, &answer[end + 4..], now);
            }
            return;
        }
        let line = answer.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
        let mut words = line.split(|b| *b == b' ');
        let (version, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !version.starts_with(b"HTTP/1.") || status.len() != 3 || !status.starts_with(b"2") {
            let line = String::from_utf8_lossy(line).escape_default().to_string();
            self.tls_error.get_or_insert_with(|| format!("the proxy answered CONNECT with `{line}`"));
            return self.break_off(slot, LoadFailure::Proxy, now);
        }
        self.begin_tls(slot, now);
        let rest = &answer[end + 4..];
        if !rest.is_empty() && self.connections[slot].tls.is_some() {
            self.decrypt(slot, rest, now);
        }
    }
}
