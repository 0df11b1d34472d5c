//! Connection to the client of a stream session: a TCP or TLS stream, or datagrams.

use crate::udp::Flow;
use area::first_bytes::write_out;
use std::io;
use std::rc::Rc;
use transport::Stream;

pub enum SessionClient {
    Stream(Stream),
    Datagrams(Rc<Flow>),
}

impl SessionClient {
    /// A datagram is dropped if the socket is full.
    pub async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            SessionClient::Stream(stream) => write_out(stream, bytes).await,
            SessionClient::Datagrams(flow) => flow.send(bytes).map(|_| ()),
        }
    }
}
