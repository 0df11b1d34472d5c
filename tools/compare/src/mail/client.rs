//! One client: its steps, and everything that it received.

use cases::IDENTITY;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(4);
/// Maximum wait for a reply; none is a result, too.
const REPLY: Duration = Duration::from_millis(250);
/// Between two parts of a reply.
const QUIET: Duration = Duration::from_millis(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    Send(Vec<u8>),
    /// Waits for a reply.
    Wait,
    /// Waits for the rest of the earlier bytes to arrive.
    Pause,
    /// A TLS handshake.
    Tls,
    /// Waits for replies that an authentication server delays.
    Long,
}

/// How a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRoute {
    /// Last number of the server's address.
    pub host: u8,
    /// Last number of the client's own address.
    pub from: u8,
    pub with_certificate: bool,
}

enum MailLink {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Over,
}

impl MailLink {
    fn socket(&self) -> Option<&TcpStream> {
        match self {
            MailLink::Clear(socket) => Some(socket),
            MailLink::Tls(stream) => Some(&stream.sock),
            MailLink::Over => None,
        }
    }
    /// Acknowledges replies at once: a server that holds the next reply until then, and closes with unread input, loses it.
    fn hurry(&self) {
        if let Some(socket) = self.socket() {
            let _ = SockRef::from(socket).set_tcp_quickack(true);
        }
    }
    fn send(&mut self, bytes: &[u8]) {
        self.hurry();
        // A server that has closed reads no more.
        let _ = match self {
            MailLink::Clear(socket) => socket.write_all(bytes),
            MailLink::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            MailLink::Over => Ok(()),
        };
    }
    /// Reads until nothing comes for `quiet`, after a wait of `first` for the first bytes; `false`: the end.
    fn read(&mut self, into: &mut Vec<u8>, first: Duration, quiet: Duration) -> bool {
        let mut buf = [0; 16 * 1024];
        let mut wait = first;
        loop {
            self.hurry();
            if let Some(socket) = self.socket() {
                let _ = socket.set_read_timeout(Some(wait));
            }
            let read = match self {
                MailLink::Clear(socket) => socket.read(&mut buf),
                MailLink::Tls(stream) => stream.read(&mut buf),
                MailLink::Over => Ok(0),
            };
            match read {
                Ok(n @ 1..) => into.extend_from_slice(&buf[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return true,
                _ => return false,
            }
            wait = quiet;
        }
    }
}

fn connect(route: ClientRoute, port: u16) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, 0, route.from), 0)).into())?;
    socket.connect(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, route.host), port)).into())?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

fn handshake(socket: TcpStream, with_certificate: bool) -> Result<MailLink, String> {
    let say = |e: &dyn std::fmt::Display| e.to_string();
    let identity = IDENTITY.as_ref().map_err(|e| say(e))?;
    let config = ClientConfig::builder().with_root_certificates(identity.roots.clone());
    let config = if with_certificate {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(|e| say(&e))?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| say(&e))?;
        config.with_client_auth_cert(vec![certificate], key).map_err(|e| say(&e))?
    } else {
        config.with_no_client_auth()
    };
    let name = ServerName::try_from("localhost").map_err(|e| say(&e))?;
    let tls = ClientConnection::new(Arc::new(config), name).map_err(|e| say(&e))?;
    let _ = socket.set_read_timeout(Some(PATIENCE));
    let mut stream = StreamOwned::new(tls, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|e| say(&e))?;
    }
    Ok(MailLink::Tls(Box::new(stream)))
}

/// Tells whether a server agrees to a handshake.
fn accepts(reply: &[u8]) -> bool {
    const YES: [&[u8]; 3] = [b"OK completed\r\n", b"+OK\r\n", b"Start TLS\r\n"];
    const NO: [&[u8]; 5] = [b"BAD", b"-ERR", b"50", b"BYE", b"said"];
    let has = |word: &&[u8]| reply.windows(word.len()).any(|bytes| bytes == *word);
    YES.iter().any(has) && !NO.iter().any(has)
}

/// Runs the steps, and reads until the end.
///
/// # Errors
/// No connection.
pub fn run_steps(route: ClientRoute, port: u16, steps: &[ClientStep]) -> std::io::Result<Vec<u8>> {
    let mut link = MailLink::Clear(connect(route, port)?);
    let mut all = Vec::new();
    let mut goes_on = true;
    // Where the reply to the last bytes starts; `None`: nothing was sent.
    let mut reply: Option<usize> = None;
    for step in steps {
        match step {
            ClientStep::Send(bytes) => {
                reply = Some(all.len());
                link.send(bytes);
            }
            ClientStep::Wait if goes_on => goes_on = link.read(&mut all, REPLY, QUIET),
            ClientStep::Long if goes_on => goes_on = link.read(&mut all, PATIENCE, QUIET),
            ClientStep::Pause if goes_on => goes_on = link.read(&mut all, QUIET, QUIET),
            ClientStep::Tls if reply.is_some_and(|from| !accepts(all.get(from..).unwrap_or_default())) => {}
            ClientStep::Tls => {
                if let MailLink::Clear(socket) = std::mem::replace(&mut link, MailLink::Over) {
                    match handshake(socket, route.with_certificate) {
                        Ok(secure) => {
                            link = secure;
                            all.extend_from_slice(b"[tls]");
                        }
                        Err(_) => all.extend_from_slice(b"[no tls]"),
                    }
                }
            }
            ClientStep::Wait | ClientStep::Long | ClientStep::Pause => {}
        }
    }
    // The server may end the connection by itself; otherwise the client does.
    if goes_on && link.read(&mut all, REPLY, REPLY) {
        all.extend_from_slice(b"[client closes]");
        if let MailLink::Tls(stream) = &mut link {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        if let Some(socket) = link.socket() {
            let _ = socket.shutdown(Shutdown::Write);
        }
        if link.read(&mut all, PATIENCE, PATIENCE) {
            all.extend_from_slice(b"[nothing more for a long time]");
        }
    }
    Ok(all)
}
