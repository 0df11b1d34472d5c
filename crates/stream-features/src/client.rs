//! The client's side of a session.

use crate::udp::Flow;
use session_engine::first_bytes::write_out;
use std::io;
use std::rc::Rc;
use upstream::Stream;

pub enum Client {
    Stream(Stream),
    Datagrams(Rc<Flow>),
}

impl Client {
    /// Sends all bytes; a datagram is lost if the socket is full.
    pub async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Client::Stream(stream) => write_out(stream, bytes).await,
            Client::Datagrams(flow) => flow.send(bytes).map(|_| ()),
        }
    }
}
