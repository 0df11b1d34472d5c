//! Connections of sessions and towards servers: a socket in its thread's event queue, in cleartext or over TLS.
//! A [`Stream`] is connected, or made of an accepted socket; [`LocalError`] says that there is no socket to connect.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod secure;
mod stream;

pub use secure::HandshakeError;
pub use stream::{BindAddress, ConnectFuture, ConnectOptions, LocalError, Stream, datagram_socket};
