//! Stages of a session: PROXY protocol header, handshake, host name, greeting, dialogue (nginx: `ngx_mail_handler.c`).

use crate::handshake;
use crate::login::{call_failed, create_salt};
use crate::session::MailSession;
use crate::talk;
use area::first_bytes::{self, write_out};
use area::sessions::SessionSlot;
use base::clock;
use metrics::process;
use observe::Severity;
use resolver::ResolveFailure;
use resolver::ResolveRules;
use runtime::time::{timeout_at, with_timeout};
use std::net::SocketAddr;
use std::pin::pin;
use transport::Stream;
use variables::Session;
use variables::forwarded;

/// The session is over and its end is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionClosed;

/// Maximum bytes of premature input in the error log.
const EARLY_BYTES: usize = 512;

/// Bytes of one read at the end of a session, and their maximum number.
const DISCARDED_BYTES: usize = 4096;
const DISCARDED_READS_MAX: usize = 16;

struct ActiveSession;

impl ActiveSession {
    fn begin() -> ActiveSession {
        process::MAIL_SESSIONS.up();
        ActiveSession
    }
}

impl Drop for ActiveSession {
    fn drop(&mut self) {
        process::MAIL_SESSIONS.down();
    }
}

pub(crate) async fn serve(mut s: Box<MailSession>, mut stream: Stream, place: SessionSlot) {
    let _active = ActiveSession::begin();
    if s.srv().error_log.wants(Severity::Info) {
        let peer = s.peer.map_or_else(|| "unix:".to_string(), |peer| peer.to_string());
        s.note(Severity::Info, format_args!("client {peer} connected to {}", s.address_text()));
    }
    let end = {
        let work = pin!(session(&mut s, &mut stream));
        place.control.run(work).await
    };
    if end.is_err() && s.upstream.is_some() {
        s.doing = "proxying";
        s.log(Severity::Info, format_args!("shutdown timeout"));
    }
    discard(&stream);
}

/// Discards the client's received bytes: a close with unread bytes resets the connection, and the last replies may be lost.
fn discard(stream: &Stream) {
    let mut buf = Vec::with_capacity(DISCARDED_BYTES);
    for _ in 0..DISCARDED_READS_MAX {
        buf.clear();
        if !matches!(stream.try_read_buf(&mut buf), Ok(1..)) {
            return;
        }
    }
}

/// Boxes short-lived futures, which would enlarge the session's future.
async fn session(s: &mut MailSession, stream: &mut Stream) -> Result<(), SessionClosed> {
    let plan = s.plan.clone();
    let listener = plan.listeners.get(s.listener).ok_or(SessionClosed)?;
    if listener.proxy_protocol && s.proxy.is_none() {
        Box::pin(proxy_header(s, stream)).await?;
    }
    if listener.ssl && s.tls.is_none() {
        Box::pin(handshake::make_handshake(s, stream)).await?;
    }
    s.doing = "sending client greeting line";
    let server = plan.srv(s.server);
    if server.protocol.wants_host() {
        s.host = Box::pin(host(s)).await;
    }
    if server.protocol.needs_salt() {
        let random = net::random::bytes16().iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte));
        s.login.salt = create_salt(random, clock::unix_seconds(), &server.name);
    }
    if !server.protocol.greeting_delay().is_zero() {
        Box::pin(hold_greeting(s, stream)).await?;
    }
    // The timeout covers the greeting and all commands.
    let until = runtime::time::after(server.timeout);
    send_bytes(s, stream, &server.protocol.greeting(&s.login)).await?;
    talk::run_dialogue(s, stream, until).await
}

/// Fails when the client disconnects or reads nothing.
pub async fn send_bytes(s: &MailSession, stream: &Stream, bytes: &[u8]) -> Result<(), SessionClosed> {
    // Boxed: the session's future is as large as its largest part, and `timeout` takes an argument's memory four times.
    let writing = Box::pin(write_out(stream, bytes));
    match with_timeout(s.srv().timeout, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => {
            s.log(Severity::Info, format_args!("{}", call_failed("send", &e)));
            Err(SessionClosed)
        }
        Err(_) => Err(timed_out(s)),
    }
}

pub fn timed_out(s: &MailSession) -> SessionClosed {
    s.log(Severity::Info, format_args!("client timed out (110: Connection timed out)"));
    SessionClosed
}

async fn proxy_header(s: &mut MailSession, stream: &Stream) -> Result<(), SessionClosed> {
    s.doing = "reading PROXY protocol";
    let Ok(header) = with_timeout(s.srv().timeout, first_bytes::proxy_header(stream)).await else {
        return Err(timed_out(s));
    };
    match header {
        Ok(header) => s.proxy = Some(Box::new(header)),
        Err(fault) => {
            if let (level, Some(words)) = fault.words() {
                s.log(level, format_args!("{words}"));
            }
            return Err(SessionClosed);
        }
    }
    let named: Option<SocketAddr> = s.proxy.as_ref().and_then(|proxy| proxy.0.addresses.as_ref()).map(|a| a.source);
    if let Some(client) = named
        && forwarded::is_trusted(&s.srv().proxies, s.peer.map(|a| a.ip()))
    {
        s.peer = Some(client);
    }
    Ok(())
}

/// XCLIENT's words for no host name, and for a failed lookup (nginx: `ngx_mail_smtp_init_session`).
const UNAVAILABLE: &str = "[UNAVAILABLE]";
const TEMPUNAVAIL: &str = "[TEMPUNAVAIL]";

/// Returns the client's host name: the name of its address, if that name resolves to the address.
async fn host(s: &mut MailSession) -> String {
    let Some(ResolveRules { resolver, timeout }) = s.srv().resolving.clone() else { return UNAVAILABLE.into() };
    let Some(peer) = s.peer else { return TEMPUNAVAIL.into() };
    let fault =
        |why: ResolveFailure| if why == ResolveFailure::NoSuchName { UNAVAILABLE } else { TEMPUNAVAIL }.to_string();
    s.doing = "in resolving client address";
    let text = s.peer_text();
    let name = match resolver.name_of(peer.ip(), timeout).await {
        Ok(name) => name,
        Err(why) => {
            s.log(Severity::Error, format_args!("{text} could not be resolved ({}: {why})", why.code()));
            return fault(why);
        }
    };
    if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.') {
        s.log(Severity::Error, format_args!("{text} resolved to invalid host name \"{name}\""));
        return TEMPUNAVAIL.into();
    }
    s.doing = "in resolving client hostname";
    match resolver.resolve(&name, timeout).await {
        Ok(addresses) if addresses.contains(&peer.ip()) => name.to_string(),
        Ok(_) => UNAVAILABLE.into(),
        Err(why) => {
            s.log(Severity::Error, format_args!("\"{name}\" could not be resolved ({}: {why})", why.code()));
            fault(why)
        }
    }
}

/// Rejects a client that sends data before the greeting (`smtp_greeting_delay`).
async fn hold_greeting(s: &mut MailSession, stream: &Stream) -> Result<(), SessionClosed> {
    let plan = s.plan.clone();
    let protocol = &plan.srv(s.server).protocol;
    let mut early = Vec::with_capacity(EARLY_BYTES);
    let until = runtime::time::after(protocol.greeting_delay());
    let Ok(read) = timeout_at(until, stream.read_buf(&mut early)).await else { return Ok(()) };
    s.doing = "in delay pipelining state";
    match read {
        Ok(1..) => {
            let shown: String = String::from_utf8_lossy(&early)
                .chars()
                .map(|c| if matches!(c, '\r' | '\n') { '_' } else { c })
                .collect();
            s.log(Severity::Info, format_args!("client was rejected before greeting: \"{shown}\""));
            send_bytes(s, stream, protocol.too_early().as_bytes()).await?;
        }
        Ok(0) => {}
        Err(e) => s.log(Severity::Info, format_args!("{}", call_failed("recv", &e))),
    }
    Err(SessionClosed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_session_that_waits_for_a_command_is_small() {
        let (future, session) = (bytes(serve), size_of::<MailSession>());
        assert!(future < 700 && session < 500, "{future} and {session} bytes");
    }
}
