//! Connects to a server of a group, and to the next after a failure (nginx: `ngx_stream_proxy_connect`,
//! `ngx_stream_proxy_next_upstream`).

use super::target::Target;
use super::{BindTo, PassSettings, ProxyProtocol, UpstreamTls};
use crate::StreamArea;
use crate::groups::{SessionCounts, UpstreamRef};
use crate::session::{StreamSession, Try};
use area::{proxy_header, unopened_failure};
use base::clock::{self, Instant};
use net::Address;
use observe::{Severity, os_error};
use runtime::time::with_timeout;
use std::net::SocketAddr;
use tls::{TlsError, verify::VerifyVerdict};
use transport::{ConnectOptions, HandshakeError, Stream};
use upstream::{Attempts, Choice, PeerLease};
use variables::Session;

pub struct ServerTries<'a> {
    passing: &'a PassSettings,
    pub named: &'a UpstreamRef,
    attempts: Attempts,
    key: Vec<u8>,
    began: Instant,
    options: ConnectOptions,
}

impl<'a> ServerTries<'a> {
    pub fn new(passing: &'a PassSettings, named: &'a UpstreamRef, s: &mut StreamSession) -> ServerTries<'a> {
        let conf = &passing.conf;
        let (from, transparent) = BindTo::of(&conf.proxy_bind, s);
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let options = ConnectOptions {
            from,
            transparent,
            keepalive: conf.proxy_socket_keepalive,
            receive_buffer: size(conf.proxy_socket_rcvbuf.0),
            send_buffer: size(conf.proxy_socket_sndbuf.0),
        };
        let key = named.rules.as_ref().and_then(|rules| rules.key.as_ref()).map(|key| key.eval(s)).unwrap_or_default();
        ServerTries { passing, named, attempts: named.group.attempts(), key, began: clock::now(), options }
    }

    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// Selects the next server and starts its attempt. Fails with the session's status if there is none.
    pub fn next(&mut self, s: &mut StreamSession) -> Result<PeerLease, u16> {
        s.doing = "connecting to upstream";
        let group = &self.named.group;
        let random = if group.method.is_random() { number() | 1 } else { 1 };
        let choice = Choice { now: clock::now(), random, key: &self.key, bound: None };
        match group.choose(&choice, &mut self.attempts) {
            Some(active) => {
                let peer = active.peer();
                s.upstream = Some(peer.text.clone());
                s.tries.push(Try { peer: Some(peer.clone()), ..Try::new(peer.text.clone()) });
                let conf = &self.passing.conf;
                if conf.proxy_bind_dynamic {
                    (self.options.from, self.options.transparent) = BindTo::of(&conf.proxy_bind, s);
                }
                Ok(active)
            }
            None => {
                s.upstream = Some(group.name.as_str().into());
                s.tries.push(Try::new(group.name.as_str().into()));
                s.log(Severity::Error, format_args!("no live upstreams"));
                Err(502)
            }
        }
    }

    /// Records a failed connection; `Ok` to try another server, else the session's status.
    pub fn failed(&self, s: &mut StreamSession, mut active: PeerLease) -> Result<(), u16> {
        let conf = &self.passing.conf;
        let now = clock::now();
        blame_peer(s, &mut active);
        drop(active);
        end_try(s);
        let tries_max = match usize::try_from(conf.proxy_next_upstream_tries.0).unwrap_or(usize::MAX) {
            0 => self.attempts.tries(),
            most => most.min(self.attempts.tries()),
        };
        let time = conf.proxy_next_upstream_timeout.0;
        let late = time > 0 && now.millis_since(self.began) >= time;
        if self.attempts.asked() >= tries_max || !conf.proxy_next_upstream || late { Err(502) } else { Ok(()) }
    }

    /// Records a connection. `is_proof`: it clears failures of the server, which a datagram socket does not prove wrong.
    pub fn connected(&self, s: &mut StreamSession, active: &mut PeerLease, is_proof: bool) {
        active.connected(is_proof);
        let Some(one) = s.tries.last_mut() else { return };
        let ms = clock::now().millis_since(one.started);
        one.connect_ms = Some(ms);
        if self.counts() == SessionCounts::Connect {
            active.header(ms);
        }
    }

    /// Records the first bytes of a server.
    pub fn answered(&self, s: &mut StreamSession, active: &mut PeerLease) {
        let Some(one) = s.tries.last_mut() else { return };
        let ms = clock::now().millis_since(one.started);
        one.first_byte_ms = Some(ms);
        active.first_byte();
        if self.counts() == SessionCounts::FirstByte {
            active.header(ms);
        }
    }

    fn counts(&self) -> SessionCounts {
        self.named.rules.as_ref().map(|rules| rules.counts).unwrap_or_default()
    }

    /// Connects over TCP, and TLS if configured. Fails with the session's status if no server is available.
    pub async fn connect(&mut self, s: &mut StreamSession) -> Result<(Stream, PeerLease), u16> {
        loop {
            let active = self.next(s)?;
            match self.attempt(s, &active).await {
                Ok(stream) => return Ok((stream, active)),
                Err(ConnectFailure::Final(status)) => return Err(status),
                Err(ConnectFailure::Next) => self.failed(s, active)?,
            }
        }
    }

    async fn attempt(&self, s: &mut StreamSession, active: &PeerLease) -> Result<Stream, ConnectFailure> {
        let conf = &self.passing.conf;
        let to = &active.peer().spec.address;
        let idle_timer = conf.proxy_connect_timeout.duration();
        let mut stream = match with_timeout(idle_timer, Stream::connect(to, &self.options)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return Err(not_connected(s, active, &e)),
            Err(_) => {
                s.log(Severity::Error, format_args!("upstream timed out (110: Connection timed out)"));
                return Err(ConnectFailure::Next);
            }
        };
        if s.srv().tcp_nodelay {
            stream.hurry();
        }
        let Some(tls) = &self.passing.tls else { return Ok(stream) };
        // The header precedes the handshake, in one piece.
        let header = proxy_header(conf.proxy_protocol, s, false).ok_or(ConnectFailure::Final(500))?;
        if !header.is_empty() && stream.write_all(&header).await.is_err() {
            return Err(ConnectFailure::Final(200));
        }
        s.doing = "SSL handshaking to upstream";
        let (host, address) = (self.named.group.name.clone(), active.peer().text.to_string());
        match secure(self.passing, tls, s, &mut stream, &host, address).await {
            Ok(()) => Ok(stream),
            Err((words, failure)) => {
                s.log(Severity::Error, format_args!("{words}"));
                Err(failure)
            }
        }
    }
}

/// Performs the TLS handshake. Fails with the words for the log.
async fn secure(
    passing: &PassSettings,
    tls: &UpstreamTls<StreamArea>,
    s: &mut StreamSession,
    stream: &mut Stream,
    host: &str,
    address: String,
) -> Result<(), (String, ConnectFailure)> {
    let conf = &passing.conf;
    let mut wanted = tls.wanted(s, host, address).map_err(|why| (why, ConnectFailure::Final(500)))?;
    if let Some(alpn) = &conf.proxy_ssl_alpn {
        let names = alpn.0.iter().map(|name| name.eval(s));
        wanted.offer(names.filter(|name| (1..=255).contains(&name.len())).collect());
    }
    let handshake = match wanted.stream() {
        Ok(tls) => with_timeout(conf.proxy_connect_timeout.duration(), stream.handshake(tls)).await,
        Err(why) => return Err((format!("SSL_do_handshake() failed (SSL: {why})"), ConnectFailure::Next)),
    };
    let words = match handshake {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(HandshakeError::Closed)) => "peer closed connection in SSL handshake".into(),
        Ok(Err(HandshakeError::Io(e))) => format!("peer closed connection in SSL handshake {}", os_error(&e)),
        Ok(Err(HandshakeError::Tls(why))) => words_of(&why, &wanted.name()),
        Err(_) => "upstream timed out (110: Connection timed out)".into(),
    };
    Err((words, ConnectFailure::Next))
}

/// Prepares a connection of a health check; see `Content::begin_check`.
pub async fn begin_check(
    passing: &PassSettings,
    s: &mut StreamSession,
    stream: &mut Stream,
    address: &Address,
    has_data: bool,
) -> Result<(), String> {
    let (Target::Fixed(named), tls) = (&passing.target, &passing.tls) else { return Ok(()) };
    if has_data || tls.is_some() {
        let header = proxy_header(passing.conf.proxy_protocol, s, false).unwrap_or_default();
        if !header.is_empty() {
            stream.write_all(&header).await.map_err(|e| format!("send() failed {}", os_error(&e)))?;
        }
    }
    let Some(tls) = tls else { return Ok(()) };
    secure(passing, tls, s, stream, &named.group.name, address.to_string()).await.map_err(|(words, _)| words)
}

fn words_of(why: &TlsError, name: &str) -> String {
    match why {
        TlsError::Verify(VerifyVerdict::HOST) => format!("upstream SSL certificate does not match \"{name}\""),
        TlsError::Verify(verdict) => {
            format!("upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
        }
        why => format!("SSL_do_handshake() failed (SSL: {why})"),
    }
}

/// Counts a failure against the server, and logs that it is unavailable now.
pub fn blame_peer(s: &StreamSession, active: &mut PeerLease) {
    if active.failed(clock::now()) {
        s.log(Severity::Warn, format_args!("upstream server temporarily disabled"));
    }
}

/// Logs a failed connection, as nginx does, and judges whether another server may be tried.
pub fn not_connected(s: &mut StreamSession, active: &PeerLease, e: &std::io::Error) -> ConnectFailure {
    if let Some((level, words)) = unopened_failure(e) {
        s.log(level, format_args!("{words}"));
        if let Some(one) = s.tries.last_mut() {
            one.address = "".into();
        }
        return ConnectFailure::Final(500);
    }
    let level = if upstream::is_usual(e) { Severity::Error } else { Severity::Crit };
    s.log(level, format_args!("{} failed {}", upstream::connect_call(active.peer(), e), os_error(e)));
    ConnectFailure::Next
}

fn number() -> u64 {
    net::random::bytes16().iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

pub enum ConnectFailure {
    Next,
    /// Status of the session.
    Final(u16),
}

pub fn end_try(s: &mut StreamSession) {
    if let Some(one) = s.tries.last_mut()
        && one.session_ms.is_none()
    {
        one.session_ms = Some(clock::now().millis_since(one.started));
    }
}

/// Returns `None` if version and addresses allow no header.
pub fn proxy_header(version: ProxyProtocol, s: &StreamSession, has_datagrams: bool) -> Option<Vec<u8>> {
    let addresses: Option<(SocketAddr, SocketAddr)> = match (s.peer, &*s.local) {
        (Some(peer), Address::Ip(local)) => Some((peer, *local)),
        _ => None,
    };
    let mut out = Vec::new();
    match version {
        ProxyProtocol::Off => {}
        ProxyProtocol::On => wire_proxy::write_v1(addresses, &mut out),
        ProxyProtocol::V2 => out = proxy_header::version_2(addresses, s.tls.as_deref(), has_datagrams)?,
    }
    Some(out)
}
