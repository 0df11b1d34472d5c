//! HTTP/0.9 over QUIC (ALPN `hq-interop`): each stream carries a request line, and the response consists of the body.
//! There are no control streams and no QPACK.

use super::{Server, stream_id};
use crate::frame::{ConnectionError, ErrorCode};
use crate::session::Read;
use crate::stream::Phase;
use bytes::Bytes;
use http_types::{Event, List, RequestFault, request_message};

impl Server {
    /// Opens no stream before [`Server::speak`] tells the protocol that the handshake has selected.
    pub fn await_protocol(&mut self) {
        self.session.undecided = true;
    }

    /// Sets the protocol, HTTP/3 or HTTP/0.9. Returns `true` at the first call.
    pub fn speak(&mut self, hq: bool) -> bool {
        self.session.hq = hq;
        std::mem::take(&mut self.session.undecided)
    }

    /// Reads a stream until its request line is complete. Ignores octets after the line, as nginx does.
    pub(super) fn read_line(&mut self, id: u64) -> Result<(), ConnectionError> {
        loop {
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            if let Some(end) = stream.input.iter().position(|octet| *octet == b'\n') {
                let line = std::mem::take(&mut stream.input);
                stream.phase = Phase::Body;
                self.line(id, line.get(..end).unwrap_or_default());
                return Ok(());
            }
            if stream.input.len() > self.limits.field_max {
                stream.phase = Phase::Body;
                stream.input = Bytes::new();
                let list = List { too_large: true, ..line_of(b"GET", b"/") };
                self.begin(id, list, self.limits.field_max);
                return Ok(());
            }
            match stream.read_next(stream_id(id), &mut self.session)? {
                Read::Bytes(bytes) if stream.input.is_empty() => stream.input = bytes,
                Read::Bytes(bytes) => stream.input = [&stream.input[..], &bytes].concat().into(),
                Read::Blocked => return Ok(()),
                Read::End => {
                    stream.ended = true;
                    self.gone(id, ErrorCode::RequestIncomplete);
                    return Ok(());
                }
                Read::Reset(_) => {
                    self.gone(id, ErrorCode::RequestCancelled);
                    return Ok(());
                }
            }
        }
    }

    fn line(&mut self, id: u64, line: &[u8]) {
        self.session.payload += line.len() as u64;
        let octets = line.len() + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.strip_prefix(b"GET ") {
            Some(path) => self.begin(id, line_of(b"GET", path), octets),
            None => {
                let (list, message) = (List::default(), Err(RequestFault::NotGet.into()));
                self.events.push_back(Event::Head { stream: id, list, message, end: true, octets });
            }
        }
    }

    fn begin(&mut self, id: u64, list: List, octets: usize) {
        let message = request_message(&list, self.limits.underscores, self.limits.ignore_invalid);
        self.events.push_back(Event::Head { stream: id, list, message, end: true, octets });
    }
}

/// Converts a request line to a list of pseudo-header fields.
fn line_of(method: &[u8], path: &[u8]) -> List {
    let mut list = List::default();
    for (name, value) in [(&b":method"[..], method), (b":scheme", b"https"), (b":path", path)] {
        let places = (list.put(name), list.put(value));
        list.fields.push(places);
    }
    list
}
