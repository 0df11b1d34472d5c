//! TCP, UDP and TLS that is not HTTP.

use crate::backends::Backend;
use crate::http::ServerTls;
use crate::names::{HostName, ObjectOrigin};

/// A socket whose connections go to backends.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamListener {
    /// All connections, or sessions of datagrams, go to one list of backends.
    Plain { origin: ObjectOrigin, backends: Vec<Backend> },
    /// The name that the client sends (SNI) decides. A connection without a known name is closed.
    Tls(Vec<StreamHost>),
}

/// Name of a TLS listener.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamHost {
    pub origin: ObjectOrigin,
    pub name: HostName,
    pub action: StreamAction,
    pub backends: Vec<Backend>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StreamAction {
    /// The backend has the certificate.
    Passthrough,
    /// The server decrypts.
    Terminate(ServerTls),
}
