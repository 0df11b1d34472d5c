//! A connection to the server, in clear or in TLS.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Certificate of the cases' servers, made once per run.
pub struct Identity {
    /// The server's certificate and its key, as PEM.
    pub certificate: String,
    pub key: String,
    pub roots: RootCertStore,
}

impl Identity {
    fn new() -> Result<Identity, rcgen::Error> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate()?;
        let root = authority.clone().self_signed(&authority_key)?;
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["localhost", "a.test", "b.test", "c.test"].map(String::from))?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&authority, &authority_key))?.pem();
        let mut roots = RootCertStore::empty();
        let _ = roots.add(root.der().clone());
        Ok(Identity { certificate, key: key.serialize_pem(), roots })
    }
}

pub static IDENTITY: LazyLock<Result<Identity, rcgen::Error>> = LazyLock::new(Identity::new);

/// A certificate for `localhost` and its key, as PEM, for tests of a server.
///
/// # Errors
/// The generation failed.
pub fn test_identity() -> Result<(&'static str, &'static str), String> {
    let identity = IDENTITY.as_ref().map_err(ToString::to_string)?;
    Ok((&identity.certificate, &identity.key))
}

pub enum Wire {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// # Errors
    /// The connection is refused; the first octets reveal a failed handshake.
    pub fn connect(port: u16, alpn: Option<&str>, patience: Duration) -> Result<Wire, String> {
        let socket = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        let _ = socket.set_read_timeout(Some(patience));
        let Some(alpn) = alpn else { return Ok(Wire::Clear(socket)) };
        Wire::over_tls(socket, "localhost", alpn)
    }
    /// A connection in TLS with a server of this name.
    ///
    /// # Errors
    /// As [`Wire::connect`].
    pub fn named(port: u16, name: &str, alpn: &str, patience: Duration) -> Result<Wire, String> {
        let socket = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        let _ = socket.set_read_timeout(Some(patience));
        Wire::over_tls(socket, name, alpn)
    }
    fn over_tls(socket: TcpStream, name: &str, alpn: &str) -> Result<Wire, String> {
        let identity = IDENTITY.as_ref().map_err(ToString::to_string)?;
        let mut config = ClientConfig::builder().with_root_certificates(identity.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let name = ServerName::try_from(name.to_string()).map_err(|e| e.to_string())?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(|e| e.to_string())?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(tls, socket))))
    }
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Wire::Clear(socket) => socket.write_all(bytes).map_err(|e| e.to_string()),
            Wire::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()).map_err(|e| e.to_string()),
        }
    }
    /// Receives more bytes; `false` at the end.
    ///
    /// # Errors
    /// Nothing comes for too long, or TLS is broken.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> Result<bool, String> {
        let mut buf = [0; 16 * 1024];
        let read = match self {
            Wire::Clear(socket) => socket.read(&mut buf),
            Wire::Tls(stream) => stream.read(&mut buf),
        };
        match read {
            Ok(n) => {
                into.extend_from_slice(&buf[..n]);
                Ok(n > 0)
            }
            // nginx ends some connections without TLS's word of it.
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }
}
