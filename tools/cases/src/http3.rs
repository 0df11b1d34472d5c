//! An HTTP/3 client over its own socket.

use crate::expect::Answer;
use crate::http2::{Came, list_answer, request_fields, step_answers};
use crate::parse::{Act, CaseStep, Request};
use crate::wire::{IDENTITY, Identity};
use http_types::TakenLines;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig};
use rustls::RootCertStore;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire_h3::client::{Client, ClientEvent, ClientLimits};

/// The largest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// Longest wait for a datagram between two looks at QUIC's timers.
const GLANCE: Duration = Duration::from_millis(100);

pub struct Http3 {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    core: Client,
    patience: Duration,
    /// Set once the connection is over.
    lost: Option<String>,
}

impl Http3 {
    /// # Errors
    /// No free port.
    pub fn connect(port: u16, identity: &Identity, patience: Duration) -> Result<Http3, String> {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let config = config(identity.roots.clone())?;
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let connected = endpoint.connect(Instant::now(), config, to, "localhost");
        let (handle, quic) = connected.map_err(|e| e.to_string())?;
        let core = Client::new(quic, ClientLimits::default());
        Ok(Http3 { socket, endpoint, handle, core, patience, lost: None })
    }

    /// A connection to a server with the certificate of [`identity`](crate::identity).
    ///
    /// # Errors
    /// No free port, or the certificate could not be made.
    pub fn to(port: u16, patience: Duration) -> Result<Http3, String> {
        let identity = IDENTITY.as_ref().map_err(ToString::to_string)?;
        Http3::connect(port, identity, patience)
    }

    /// # Errors
    /// The unexpected answer.
    pub fn exchange(&mut self, step: &CaseStep) -> Result<Vec<Answer>, String> {
        let Act::Request(request) = &step.act else { return Err("only HTTP/1 and the stream block take that".into()) };
        step_answers(self.ask(request)?, step)
    }

    /// Sends a request, and reads the response.
    ///
    /// # Errors
    /// The connection is lost, or nothing comes for too long.
    pub fn ask(&mut self, request: &Request) -> Result<Came, String> {
        let until = Instant::now() + self.patience;
        let all = request_fields(request, "https");
        let has_body = request.body.is_some();
        let stream = loop {
            let mut lines = all.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
            if let Some(stream) = self.core.open(&mut lines, !has_body) {
                break stream;
            }
            // The handshake determines how many streams can be opened.
            self.step(until)?;
            while self.core.poll_event().is_some() {}
            if let Some(why) = &self.lost {
                return Err(format!("the connection is lost: {why}"));
            }
        };
        let mut body = request.body.as_deref().unwrap_or_default().as_bytes();
        let mut sent = !has_body;
        let mut came = Came::default();
        loop {
            if !sent {
                let taken = self.core.send_body(stream, body, true);
                body = body.get(taken..).unwrap_or_default();
                sent = body.is_empty();
            }
            if self.take_in(stream, &mut came)? {
                break;
            }
            self.step(until)?;
        }
        self.core.cancel(stream);
        self.send();
        Ok(came)
    }

    /// Takes the events of a stream in; tells if it is over.
    fn take_in(&mut self, stream: u64, came: &mut Came) -> Result<bool, String> {
        let mut over = false;
        while let Some(event) = self.core.poll_event() {
            match event {
                ClientEvent::Head { stream: id, list, .. } if id == stream => came.answers.push(list_answer(&list)?),
                ClientEvent::Body(id) if id == stream => loop {
                    match self.core.take_body(stream) {
                        TakenLines::Bytes(bytes) => {
                            let answer = came.answers.last_mut().ok_or("a body without a head")?;
                            answer.body.extend_from_slice(&bytes);
                        }
                        TakenLines::End => {
                            over = true;
                            break;
                        }
                        TakenLines::Broken => {
                            over = true;
                            came.reset.get_or_insert(0);
                            break;
                        }
                        TakenLines::Later | TakenLines::Gone => break,
                    }
                },
                ClientEvent::Trailers { stream: id, list } if id == stream => {
                    let answer_of = came.answers.last_mut().ok_or("trailers without a head")?;
                    answer_of.headers.extend(list_answer(&list)?.headers);
                }
                ClientEvent::Reset { stream: id, code } if id == stream && !over => {
                    over = true;
                    came.reset = Some(code as u32);
                }
                ClientEvent::Lost(why) => {
                    over = true;
                    self.lost = Some(why);
                }
                _ => {}
            }
        }
        if let Some(error) = self.core.failure() {
            return Err(error.words.to_string());
        }
        Ok(over)
    }

    fn send(&mut self) {
        let mut buf = Vec::new();
        loop {
            buf.clear();
            while let Some(event) = self.core.quic().poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.core.quic().handle_event(event);
                }
            }
            let Some(transmit) = self.core.quic().poll_transmit(Instant::now(), 1, &mut buf) else { return };
            // A datagram that is refused is lost, as any may be.
            let _ = self.socket.send_to(buf.get(..transmit.size).unwrap_or_default(), transmit.destination);
        }
    }

    /// Sends, and waits for a datagram or for QUIC's next timer.
    fn step(&mut self, until: Instant) -> Result<(), String> {
        self.send();
        let now = Instant::now();
        if now > until {
            return Err("nothing comes for too long".into());
        }
        let timer = self.core.quic().poll_timeout().map_or(GLANCE, |at| at.saturating_duration_since(now));
        let wait = timer.clamp(Duration::from_millis(1), GLANCE);
        self.socket.set_read_timeout(Some(wait)).map_err(|e| e.to_string())?;
        let mut buf = vec![0; DATAGRAM_MAX];
        match self.socket.recv_from(&mut buf) {
            Ok((length, from)) => {
                let bytes = buf.get(..length).unwrap_or_default().into();
                let mut reply = Vec::new();
                let event = self.endpoint.handle(Instant::now(), from, None, None, bytes, &mut reply);
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    self.core.quic().handle_event(event);
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            // The port is closed: QUIC gives up in its time.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e.to_string()),
        }
        let now = Instant::now();
        if self.core.quic().poll_timeout().is_some_and(|at| at <= now) {
            self.core.quic().handle_timeout(now);
        }
        self.core.drive();
        Ok(())
    }
}

impl Drop for Http3 {
    fn drop(&mut self) {
        self.core.close(Instant::now());
        self.send();
    }
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = config.map_err(|e| e.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicClientConfig::try_from(config).map_err(|e| e.to_string())?;
    Ok(ClientConfig::new(Arc::new(crypto)))
}
