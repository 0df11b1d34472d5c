//! Connects to a server: TCP or a UNIX-domain socket with TLS, or QUIC, each step within `proxy_connect_timeout`.

use super::PassPlan;
use super::conversation::PeerContext;
use super::failure::{self, TryFailure, note_at, note_failure};
use crate::target::UpstreamTarget;
use crate::tls::UpstreamTlsRequest;
use crate::upstream_state::{self, UpstreamState};
use area::unopened_failure;
use http_engine::{LocalFuture, Request};
use observe::{Severity, os_error};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::TlsError;
use tls::verify::VerifyVerdict;
use transport::{ConnectFuture, ConnectOptions, HandshakeError, Stream};
use upstream::{ConnectError, Connection, H2Lease, H3Lease, IdleTimer, Peer, PooledConnection, Scope};

const CONNECTING: &str = "connecting to";
const HANDSHAKING: &str = "SSL handshaking to";

/// A connection that is being established, with its handshake; dropped, it closes. [`ConnectState::begin`], then
/// [`ConnectState::poll`] until ready.
pub struct ConnectState {
    options: ConnectOptions,
    scope: Scope,
    wanted: Option<Box<UpstreamTlsRequest>>,
    timer: IdleTimer,
    step: ConnectStep,
}

enum ConnectStep {
    Tcp(ConnectFuture),
    Tls(LocalFuture<Result<Stream, HandshakeError>>),
    Quic(LocalFuture<Result<H3Lease, ConnectError>>),
}

impl ConnectState {
    /// Starts to connect. `wanted`: over TLS.
    pub fn begin(
        r: &mut Request,
        context: &PeerContext<'_>,
        scope: Scope,
        wanted: Option<Box<UpstreamTlsRequest>>,
    ) -> Result<ConnectState, TryFailure> {
        let address = &context.peer.spec.address;
        let over_quic = context.plan.protocol.over_quic();
        let crypto = match (&wanted, over_quic) {
            (_, false) => None,
            (Some(wanted), true) => {
                let why = |why| context.note(r, &format!("QUIC cannot be used ({why})"), CONNECTING);
                Some(wanted.quic().map_err(why)?)
            }
            (None, true) => {
                context.note(r, "HTTP/3 needs an https URL", CONNECTING);
                return Err(TryFailure::Final(502));
            }
        };
        let options = connect_options(context.plan, r);
        let step = match crypto {
            Some(crypto) => {
                let (group, address) = (context.target.named.group.clone(), address.clone());
                ConnectStep::Quic(Box::pin(
                    async move { H3Lease::connect(crypto, &options, &group, &address, scope).await },
                ))
            }
            None => match ConnectFuture::begin(address, &options) {
                Ok(connecting) => ConnectStep::Tcp(connecting),
                Err(e) => return Err(not_connected(r, context, &options, &e)),
            },
        };
        Ok(ConnectState { options, scope, wanted, timer: IdleTimer::default(), step })
    }

    /// Waits for the connection. The same `context` as at the beginning.
    pub fn poll(
        &mut self,
        r: &mut Request,
        context: &PeerContext<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Connection, TryFailure>> {
        loop {
            let (polled, doing) = match &mut self.step {
                ConnectStep::Tcp(connecting) => match connecting.poll(cx) {
                    Poll::Ready(Ok(stream)) => match self.wanted.as_deref() {
                        None => return Poll::Ready(Ok(self.established(context, stream))),
                        Some(wanted) => match begin_handshake(r, context, wanted, stream) {
                            Ok(handshake) => {
                                (self.step, self.timer) = (ConnectStep::Tls(handshake), IdleTimer::default());
                                continue;
                            }
                            Err(why) => return Poll::Ready(Err(why)),
                        },
                    },
                    Poll::Ready(Err(e)) => (Poll::Ready(not_connected(r, context, &self.options, &e)), CONNECTING),
                    Poll::Pending => (Poll::Pending, CONNECTING),
                },
                ConnectStep::Tls(handshake) => match handshake.as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(self.established(context, stream))),
                    Poll::Ready(Err(e)) => {
                        let name = self.wanted.as_ref().map(|wanted| wanted.name()).unwrap_or_default();
                        (Poll::Ready(context.note(r, &handshake_words(&e, &name), HANDSHAKING)), HANDSHAKING)
                    }
                    Poll::Pending => (Poll::Pending, HANDSHAKING),
                },
                ConnectStep::Quic(connecting) => match connecting.as_mut().poll(cx) {
                    Poll::Ready(Ok(lease)) => return Poll::Ready(Ok(Connection::Mux(Box::new(lease)))),
                    Poll::Ready(Err(ConnectError::Io(e))) => {
                        (Poll::Ready(not_connected(r, context, &self.options, &e)), CONNECTING)
                    }
                    Poll::Ready(Err(ConnectError::Handshake(why))) => {
                        let words = format!("QUIC handshake failed ({why})");
                        (Poll::Ready(context.note(r, &words, HANDSHAKING)), CONNECTING)
                    }
                    Poll::Pending => (Poll::Pending, CONNECTING),
                },
            };
            return match polled {
                Poll::Ready(why) => Poll::Ready(Err(why)),
                Poll::Pending if self.timer.poll_over(cx, context.plan.conf.connect_timeout) => {
                    Poll::Ready(Err(failure::timed_out(r, context.target, doing)))
                }
                Poll::Pending => Poll::Pending,
            };
        }
    }

    fn established(&self, context: &PeerContext<'_>, stream: Stream) -> Connection {
        let (group, address) = (&context.target.named.group, context.peer.spec.address.clone());
        match context.plan.protocol.codec() {
            Some(codec) => Connection::Serial(PooledConnection::new(stream, codec, group, address, self.scope)),
            None => Connection::Mux(Box::new(H2Lease::new(stream, group, address, self.scope))),
        }
    }
}

/// Starts a TLS handshake (nginx: `ngx_http_upstream_ssl_init_connection`).
fn begin_handshake(
    r: &mut Request,
    context: &PeerContext<'_>,
    wanted: &UpstreamTlsRequest,
    mut stream: Stream,
) -> Result<LocalFuture<Result<Stream, HandshakeError>>, TryFailure> {
    let failed = |why| context.note(r, &format!("SSL_do_handshake() failed (SSL: {why})"), HANDSHAKING);
    let tls = wanted.stream().map_err(failed)?;
    Ok(Box::pin(async move { stream.handshake(tls).await.map(|()| stream) }))
}

fn handshake_words(e: &HandshakeError, name: &str) -> String {
    match e {
        HandshakeError::Closed => "peer closed connection in SSL handshake".into(),
        HandshakeError::Io(e) => format!("peer closed connection in SSL handshake {}", os_error(e)),
        HandshakeError::Tls(TlsError::Verify(VerifyVerdict::HOST)) => {
            format!("upstream SSL certificate does not match \"{name}\"")
        }
        HandshakeError::Tls(TlsError::Verify(verdict)) => {
            format!("upstream SSL certificate verify error: ({}:{})", verdict.0, verdict.reason())
        }
        HandshakeError::Tls(why) => format!("SSL_do_handshake() failed (SSL: {why})"),
    }
}

/// Returns the socket's options for a request.
pub fn connect_options(plan: &PassPlan, r: &mut Request) -> ConnectOptions {
    let conf = &plan.conf;
    let (from, transparent) = upstream_state::local_address(r, &conf.bind, conf.bind_dynamic);
    ConnectOptions {
        from,
        transparent,
        keepalive: conf.socket_keepalive,
        receive_buffer: conf.receive_buffer,
        send_buffer: conf.send_buffer,
    }
}

fn not_connected(r: &mut Request, context: &PeerContext<'_>, options: &ConnectOptions, e: &io::Error) -> TryFailure {
    let PeerContext { peer, target, .. } = *context;
    if let Some((level, words)) = unopened_failure(e) {
        note_at(level, r, peer, target, &words, CONNECTING);
        if let Some(one) = UpstreamState::last(r) {
            one.has_no_socket = true;
        }
        return TryFailure::Final(500);
    }
    let refused = options.transparent && e.kind() == io::ErrorKind::PermissionDenied;
    let level = if upstream::is_usual(e) { Severity::Error } else { Severity::Crit };
    let words = format!("{} failed {}", upstream::connect_call(peer, e), os_error(e));
    let failed = note_at(level, r, peer, target, &words, CONNECTING);
    if refused { TryFailure::Final(500) } else { failed }
}

/// Returns the TLS requirements of a connection; `None`: cleartext.
///
/// # Errors
/// A certificate of ours cannot be loaded.
pub fn tls_request(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Arc<Peer>,
) -> Result<Option<Box<UpstreamTlsRequest>>, TryFailure> {
    let Some(tls) = plan.tls.as_ref().filter(|_| target.origin.tls) else { return Ok(None) };
    match tls.wanted(r, &target.origin.host, peer.spec.address.to_string()) {
        Ok(wanted) => Ok(Some(Box::new(wanted))),
        Err(why) => {
            note_failure(r, peer, target, &why, CONNECTING);
            Err(TryFailure::Final(500))
        }
    }
}
