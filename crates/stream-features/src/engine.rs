//! Phases of a session: post_accept, preaccess, access, ssl, preread, content, log (nginx:
//! `ngx_stream_core_run_phases`).

use crate::client::SessionClient;
use crate::plan::{ContentResult, Flow, Handler};
use crate::session::StreamSession;
use crate::sessions::{Host, PassedClient, SessionPlace};
use crate::{first_bytes, handshake};
use area::sessions::Cause;
use metrics::{process, stream_zone as row};
use observe::Severity;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use variables::Session;

pub(crate) async fn serve(
    mut s: Box<StreamSession>,
    mut client: SessionClient,
    place: SessionPlace,
    host: Rc<dyn Host>,
) {
    let udp = if s.udp { "udp " } else { "" };
    if s.srv().error_log.wants(Severity::Info) {
        let peer = s.peer.map_or_else(|| "unix:".to_string(), |peer| peer.to_string());
        let address = s.plan.listeners.get(s.listener).map(|l| l.spec.address.to_string()).unwrap_or_default();
        s.note(Severity::Info, format_args!("{udp}client {peer} connected to {address}"));
    }
    let _active = ActiveStream::begin(&s);
    let end = {
        let work = pin!(phases(&mut s, &mut client));
        place.control().run(work).await
    };
    let end = end.unwrap_or_else(|cause| {
        match cause {
            Cause::Timeout => s.log(Severity::Info, format_args!("shutdown timeout")),
            Cause::Shutdown => s.note(Severity::Info, format_args!("disconnected on shutdown")),
        }
        ContentResult::Status(200)
    });
    match end {
        ContentResult::Status(status) => {
            finish(&mut s, status);
            // Drops the session first: its client may start another one on another thread, which must not be counted
            // twice.
            drop(s);
            drop(client);
        }
        ContentResult::Pass(to) => {
            let passes = s.passes.saturating_add(1);
            drop(place);
            let SessionClient::Stream(stream) = client else { return };
            if host.pass(PassedClient { stream, peer: s.peer, proxy: s.proxy.take(), passes }, &to).is_err() {
                s.log(Severity::Error, format_args!("port not found for \"{to}\""));
                finish(&mut s, 200);
            }
        }
    }
}

struct ActiveStream {
    _lease: Option<metrics::Lease>,
}

impl ActiveStream {
    fn begin(s: &StreamSession) -> ActiveStream {
        process::STREAM_SESSIONS.up();
        let zone = s.srv().zone.as_ref();
        let lease = zone.map(|zone| {
            zone.up(row::CONNECTIONS);
            zone.lease(row::PROCESSING)
        });
        ActiveStream { _lease: lease }
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        process::STREAM_SESSIONS.down();
    }
}

fn finish(s: &mut StreamSession, status: u16) {
    s.status = status;
    let plan = s.plan.clone();
    let class = metrics::session_class(status);
    process::STREAM_SESSIONS_ENDED.up_at(class);
    if let Some(zone) = &plan.srv(s.server).zone {
        zone.up_at(row::SESSIONS, class);
        zone.add(row::RECEIVED, s.received);
        zone.add(row::SENT, s.sent);
        zone.note(row::TIME, base::clock::now().micros_since(s.started));
    }
    for logger in &plan.srv(s.server).loggers {
        logger.log(s);
    }
}

/// Returns `Some` if the session ends.
fn phase<'h>(s: &mut StreamSession, handlers: impl Iterator<Item = &'h Arc<dyn Handler>>) -> Option<ContentResult> {
    for handler in handlers {
        match handler.run(s) {
            Flow::Declined => {}
            Flow::Done => return None,
            Flow::End(status) => return Some(ContentResult::Status(status)),
        }
    }
    None
}

/// Boxes short-lived futures, which would enlarge the session's future.
async fn phases(s: &mut StreamSession, client: &mut SessionClient) -> ContentResult {
    let plan = s.plan.clone();
    let Some(listener) = plan.listeners.get(s.listener) else {
        base::bug!("no listener {}", s.listener);
        return ContentResult::Status(500);
    };
    if let (true, SessionClient::Stream(stream)) = (listener.proxy_protocol, &*client)
        && let Err(status) = Box::pin(first_bytes::proxy_header(s, stream)).await
    {
        return ContentResult::Status(status);
    }
    let server = plan.srv(s.server);
    let handlers = server.post_accept.iter().chain(server.preaccess.iter().map(|(_, handler)| handler));
    if let Some(end) = phase(s, handlers).or_else(|| phase(s, server.access.iter())) {
        return end;
    }
    if let (true, SessionClient::Stream(stream)) = (listener.ssl && s.tls.is_none(), &mut *client)
        && let Err(status) = Box::pin(handshake::make_handshake(s, stream)).await
    {
        return ContentResult::Status(status);
    }
    // SNI may have selected another server.
    if !plan.srv(s.server).preread.is_empty()
        && let Err(status) = Box::pin(first_bytes::preread_bytes(s, client)).await
    {
        return ContentResult::Status(status);
    }
    let server = plan.srv(s.server);
    s.doing = "";
    if let (true, SessionClient::Stream(stream)) = (server.tcp_nodelay, &*client) {
        stream.hurry();
    }
    match &server.content {
        Some(content) => content.run(s, client).await,
        None => ContentResult::Status(500),
    }
}
