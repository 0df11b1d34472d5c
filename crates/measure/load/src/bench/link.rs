//! Connection between a coordinator and a worker: lines of JSON, in cleartext or over TLS with certificates of both
//! sides.
//!
//! The coordinator opens: with [`OPENING`] in cleartext, or with a ClientHello. The worker reads the first byte, so that
//! a side that expects the other form is told so.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use figures::units::format_seconds;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};

use super::requests::read_text;
use crate::engine::job::Tls;
use crate::engine::tls;
use crate::protocol::malformed::quote_line;

/// Longest message in bytes; an hour's outcome fits.
const MESSAGE_MAX: u64 = 256 * 1024 * 1024;
/// Longest wait for a message; during a run, signs of life are messages.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two signs of life of a worker during a run.
const BEAT: Duration = Duration::from_secs(1);
/// First line of a coordinator in cleartext.
const OPENING: &[u8] = b"tidegate-bench\n";
/// First byte of a TLS record with a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 0x16;
const ALPN: &[u8] = b"tidegate-bench";
/// A certificate that is its own authority without being one for others.
const NO_AUTHORITY: &str = "make one with `-addext basicConstraints=critical,CA:FALSE`, or let an authority sign it";
/// Beginnings of the reasons of [`WorkerLink::receive`].
const SILENCE: &str = "no message within";
const UNEXPECTED: &str = "an unexpected message";

/// Certificate, key and authorities of one side, in PEM format.
#[derive(Clone, Debug)]
pub struct LinkTls {
    identity: (String, String),
    authorities: String,
}

impl LinkTls {
    /// Reads the files. Fails if one is unusable.
    pub fn read(certificate: &Path, key: &Path, authorities: &Path) -> Result<LinkTls, String> {
        let identity = (read_text(certificate)?, read_text(key)?);
        let read = tls::read_identity(&identity.0, &identity.1);
        read.map_err(|why| {
            let why = why.replace("the client's certificate", "the certificate").replace("the client's key", "the key");
            format!("{} and {}: {why}", certificate.display(), key.display())
        })?;
        tls::check_identity(&identity.0, &identity.1)
            .map_err(|why| format!("{} and {}: {why}", certificate.display(), key.display()))?;
        let pem = read_text(authorities)?;
        tls::read_authorities(&pem).map_err(|why| format!("{}: {why}", authorities.display()))?;
        Ok(LinkTls { identity, authorities: pem })
    }

    /// Certificate, key and authorities in PEM format.
    pub fn from_pem(certificate: &str, key: &str, authorities: &str) -> LinkTls {
        LinkTls { identity: (certificate.into(), key.into()), authorities: authorities.into() }
    }

    /// Configuration of a worker, which takes certificates of its authorities only. Fails on a key of another certificate.
    pub fn worker_config(&self) -> Result<Arc<ServerConfig>, String> {
        let (chain, key) = tls::read_identity(&self.identity.0, &self.identity.1)?;
        let (roots, _) = tls::read_authorities(&self.authorities)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|e| format!("CA certificates: {e}"))?;
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| format!("TLS: {e}"))?.with_client_cert_verifier(verifier);
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|e| format!("the certificate and its key: {e}"))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(config))
    }

    /// Connection of a coordinator to the worker `name` (`HOST:PORT`), whose certificate must name the host.
    pub(super) fn connect(&self, name: &str) -> Result<ClientConnection, String> {
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let spec = Tls { ca: Some(self.authorities.clone()), identity: Some(self.identity.clone()), ..Tls::default() };
        let client = tls::client_config(&spec, host, &[ALPN])?;
        ClientConnection::new(client.config, client.name).map_err(|e| format!("TLS: {e}"))
    }
}

/// Socket of a link; clones share its TLS state. One thread reads at a time.
struct LinkSocket {
    socket: TcpStream,
    tls: Option<Arc<Mutex<Connection>>>,
}

impl LinkSocket {
    fn try_clone(&self) -> io::Result<LinkSocket> {
        Ok(LinkSocket { socket: self.socket.try_clone()?, tls: self.tls.clone() })
    }
}

fn lock(tls: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn flush_records(tls: &mut Connection, mut socket: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

/// Takes in received bytes, none at the end of the stream. Fails on bytes that are not TLS, and on refused certificates.
fn take_records(tls: &mut Connection, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        tls.read_tls(&mut bytes)?;
        if let Err(why) = tls.process_new_packets() {
            // The alert tells the other side the reason.
            let _ = flush_records(tls, socket);
            return Err(io::Error::new(ErrorKind::InvalidData, why.to_string()));
        }
        if bytes.is_empty() {
            return flush_records(tls, socket);
        }
    }
}

impl Read for LinkSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.socket.read(buffer) };
        loop {
            match lock(tls).reader().read(buffer) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // An end without `close_notify`.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            // Reads without the lock: another thread may write meanwhile.
            let mut records = [0; 16 * 1024];
            let length = (&self.socket).read(&mut records)?;
            take_records(&mut lock(tls), &self.socket, records.get(..length).unwrap_or_default())?;
        }
    }
}

impl Write for LinkSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.socket.write(bytes) };
        let mut tls = lock(tls);
        let length = tls.writer().write(bytes)?;
        flush_records(&mut tls, &self.socket)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Shakes hands until `PATIENCE` is over.
fn shake_hands(mut tls: Connection, socket: &TcpStream) -> Result<Arc<Mutex<Connection>>, String> {
    let end = Instant::now() + PATIENCE;
    let mut records = [0; 16 * 1024];
    flush_records(&mut tls, socket).map_err(|e| e.to_string())?;
    while tls.is_handshaking() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("the TLS handshake took too long".into());
        }
        socket.set_read_timeout(Some(left)).map_err(|e| e.to_string())?;
        let mut reader = socket;
        let length = reader.read(&mut records).map_err(|e| format!("TLS handshake: {e}"))?;
        if length == 0 {
            return Err("the connection was closed during the TLS handshake".into());
        }
        take_records(&mut tls, socket, records.get(..length).unwrap_or_default()).map_err(|e| e.to_string())?;
    }
    socket.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    Ok(Arc::new(Mutex::new(tls)))
}

/// Explains a failed handshake, or the alert behind it, to the coordinator.
pub(super) fn explain_link(why: &str) -> String {
    let known = [
        (
            "InvalidContentType",
            "the worker does not speak TLS: start it with --cert, --key and --cacert, or leave --workers-cert out",
        ),
        ("BadSignature", "the authority of the worker's certificate is not in --workers-cacert"),
        ("UnknownIssuer", "the authority of the worker's certificate is not in --workers-cacert"),
        ("not valid for name", "the worker's certificate does not name its host in --workers"),
        (
            "UnknownCA",
            "the worker does not take the certificate of --workers-cert: its authority is not in the worker's --cacert",
        ),
        (
            "DecryptError",
            "the worker does not take the certificate of --workers-cert: its authority is not in the worker's --cacert",
        ),
        (
            "CaUsedAsEndEntity",
            "the worker's certificate is one of an authority, as `openssl req -x509` makes it: {NO_AUTHORITY}",
        ),
        (
            "CertificateUnknown",
            "the worker does not take the certificate of --workers-cert, and says why on its standard error; a certificate of an \
             authority, as `openssl req -x509` makes it, is one reason: {NO_AUTHORITY}",
        ),
        ("CertificateRequired", "the worker asks for a certificate: pass --workers-cert and --workers-key"),
    ];
    match known.iter().find(|(name, _)| why.contains(name)) {
        Some((_, words)) => words.replace("{NO_AUTHORITY}", NO_AUTHORITY),
        None if why.starts_with(SILENCE) => {
            format!("{why}: it hangs, serves another coordinator, or is no worker of `tidegate bench`")
        }
        None if why.starts_with(UNEXPECTED) => format!("is no worker of `tidegate bench`: {why}"),
        None => why.to_string(),
    }
}

/// Explains a failed handshake, or the alert behind it, to the worker.
fn explain_coordinator(why: &str) -> String {
    let known = [
        (
            "CaUsedAsEndEntity",
            "the coordinator's certificate is one of an authority, as `openssl req -x509` makes it: {NO_AUTHORITY}",
        ),
        ("UnknownIssuer", "the authority of the coordinator's certificate is not in --cacert"),
        ("BadSignature", "the authority of the coordinator's certificate is not in --cacert"),
        (
            "UnknownCA",
            "the coordinator does not take the certificate of --cert: its authority is not in --workers-cacert",
        ),
        (
            "DecryptError",
            "the coordinator does not take the certificate of --cert: its authority is not in --workers-cacert",
        ),
        ("CertificateUnknown", "the coordinator does not take the certificate of --cert, and says why"),
        ("BadCertificate", "the coordinator does not take the certificate of --cert, and says why"),
        ("peer sent no certificates", "the coordinator has no certificate (--workers-cert)"),
    ];
    let found = known.iter().find(|(name, _)| why.contains(name));
    found.map_or_else(|| why.to_string(), |(_, words)| words.replace("{NO_AUTHORITY}", NO_AUTHORITY))
}

/// Link of either side, which exchanges lines of JSON.
pub(super) struct WorkerLink {
    reader: BufReader<LinkSocket>,
    writer: LinkSocket,
}

/// Refusal in cleartext, in place of a greeting.
#[derive(Serialize, Deserialize)]
pub(super) struct LinkRefusal {
    pub(super) refused: String,
}

impl WorkerLink {
    fn new(socket: TcpStream, tls: Option<Arc<Mutex<Connection>>>) -> Result<WorkerLink, String> {
        let writer = LinkSocket { socket, tls };
        let reader = BufReader::new(writer.try_clone().map_err(|e| e.to_string())?);
        Ok(WorkerLink { reader, writer })
    }

    fn prepare_socket(socket: &TcpStream) -> Result<(), String> {
        let _ = socket.set_nodelay(true);
        let set = socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
        set.map_err(|e| e.to_string())
    }

    /// Link of a coordinator over a connected socket.
    pub(super) fn open(socket: TcpStream, tls: Option<ClientConnection>) -> Result<WorkerLink, String> {
        WorkerLink::prepare_socket(&socket)?;
        match tls {
            Some(tls) => {
                let tls = shake_hands(Connection::Client(tls), &socket).map_err(|why| explain_link(&why))?;
                WorkerLink::new(socket, Some(tls))
            }
            None => {
                let mut link = WorkerLink::new(socket, None)?;
                link.writer.write_all(OPENING).map_err(|e| e.to_string())?;
                Ok(link)
            }
        }
    }

    /// Link of a worker over an accepted socket. Fails, after telling the coordinator, if only one side wants TLS.
    pub(super) fn accept(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<WorkerLink, String> {
        WorkerLink::prepare_socket(&socket)?;
        let mut first = [0];
        if socket.peek(&mut first).map_err(|e| e.to_string())? == 0 {
            return Err("the connection was closed".into());
        }
        let (told, own) = match (tls, first == [HANDSHAKE]) {
            (Some(config), true) => {
                let tls = ServerConnection::new(config.clone()).map_err(|e| format!("TLS: {e}"))?;
                let tls = shake_hands(Connection::Server(tls), &socket).map_err(|why| explain_coordinator(&why))?;
                return WorkerLink::new(socket, Some(tls));
            }
            (None, false) => {
                let mut link = WorkerLink::new(socket, None)?;
                let mut opening = vec![0; OPENING.len()];
                let read = link.reader.read_exact(&mut opening);
                return match read.is_ok() && opening == OPENING {
                    true => Ok(link),
                    false => Err("not a coordinator of this version".into()),
                };
            }
            (Some(_), false) => (
                "it takes coordinators over TLS only: pass --workers-cert, --workers-key and --workers-cacert",
                "a coordinator without TLS was refused",
            ),
            (None, true) => (
                "it does not speak TLS",
                "the coordinator speaks TLS, and this worker has no --cert, --key and --cacert",
            ),
        };
        // Unread bytes would reset the connection, and the refusal would be lost.
        let mut link = WorkerLink::new(socket, None)?;
        let _ = link.reader.fill_buf();
        let _ = link.send(&LinkRefusal { refused: told.into() });
        Err(own.into())
    }

    /// Sets the longest wait of a read; that of a write is `PATIENCE`.
    pub(super) fn patience(&self, time: Duration) -> Result<(), String> {
        let socket = &self.writer.socket;
        let set = socket.set_read_timeout(Some(time)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
        set.map_err(|e| e.to_string())
    }

    /// Sets `stop` when the peer closes or sends anything (a stop that still waits for the figures) while a run keeps
    /// this thread busy; sends `alive` every [`BEAT`] meanwhile.
    pub(super) fn watch<T: Serialize>(&self, stop: &Arc<AtomicBool>, alive: &T) -> Result<LinkWatch, String> {
        let alive = serde_json::to_string(alive).map_err(|e| e.to_string())? + "\n";
        let mut stream = self.writer.try_clone().map_err(|e| e.to_string())?;
        self.patience(Duration::from_millis(200))?;
        let done = Arc::new(AtomicBool::new(false));
        let (over, stop) = (done.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut beat = Instant::now();
            while !over.load(Ordering::Relaxed) {
                match stream.read(&mut [0]) {
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
                    {
                        if beat.elapsed() >= BEAT {
                            beat = Instant::now();
                            // A failed write shows in the next read.
                            let _ = stream.write_all(alive.as_bytes());
                        }
                    }
                    Ok(1..) => stop.store(true, Ordering::Relaxed),
                    _ => {
                        stop.store(true, Ordering::Relaxed);
                        return true;
                    }
                }
            }
            false
        });
        Ok(LinkWatch { done, thread })
    }

    /// Handle that stops and closes the link from another thread.
    pub(super) fn handle(&self) -> Option<LinkHandle> {
        self.writer.try_clone().ok().map(LinkHandle)
    }

    pub(super) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let mut text = serde_json::to_string(message).map_err(|e| e.to_string())?;
        text.push('\n');
        self.writer.write_all(text.as_bytes()).map_err(|e| e.to_string())
    }

    pub(super) fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        let read = (&mut self.reader).take(MESSAGE_MAX).read_line(&mut line);
        let read = read.map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("{SILENCE} {}", format_seconds(PATIENCE.as_secs_f64()))
            }
            _ => e.to_string(),
        })?;
        if read == 0 {
            return Err("the connection was closed".into());
        }
        serde_json::from_str(&line).map_err(|_| format!("{UNEXPECTED}: {}", quote_line(line.as_bytes())))
    }
}

/// Stops and closes a link from another thread.
pub(super) struct LinkHandle(LinkSocket);

impl LinkHandle {
    /// Asks the worker to end its run and report the figures so far.
    pub(super) fn stop(&mut self) {
        let _ = self.0.write_all(b"\n");
    }

    pub(super) fn close(&self) {
        let _ = self.0.socket.shutdown(Shutdown::Both);
    }
}

/// Detects the closing of a link during a run.
pub(super) struct LinkWatch {
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<bool>,
}

impl LinkWatch {
    /// Ends the watch; true if the peer closed.
    pub(super) fn end(self) -> bool {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_worker_gives_signs_of_life() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = BufReader::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let link = WorkerLink::new(listener.accept().unwrap().0, None).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let watch = link.watch(&stop, &"alive").unwrap();
        let mut line = String::new();
        peer.read_line(&mut line).unwrap();
        assert_eq!(line, "\"alive\"\n");
        assert!(!watch.end() && !stop.load(Ordering::Relaxed));
    }

    #[test]
    fn silence_and_strangers_are_explained() {
        for (why, words) in [
            (format!("{SILENCE} 20 s"), "no message within 20 s: it hangs"),
            (format!("{UNEXPECTED}: `SSH-2.0`"), "is no worker of `tidegate bench`: an unexpected message: `SSH-2.0`"),
            ("invalid peer certificate: UnknownIssuer".to_string(), "the authority of the worker's certificate"),
            ("reset".to_string(), "reset"),
        ] {
            let explained = explain_link(&why);
            assert!(explained.starts_with(words), "{explained}");
        }
    }
}
