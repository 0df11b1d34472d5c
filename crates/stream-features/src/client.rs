//! Connection to the client of a stream session: a TCP or TLS stream, or datagrams.

use area::first_bytes::write_out;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use transport::Stream;

pub enum SessionClient {
    Stream(Stream),
    Datagrams(Rc<dyn DatagramClient>),
}

/// The client's side of a datagram session.
pub trait DatagramClient {
    /// Ready with the next datagram of the client.
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>>;
    /// Sends a datagram; it is lost if the socket is full.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Stops receiving: queued and further datagrams belong to a new session.
    fn detach(&self);
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
