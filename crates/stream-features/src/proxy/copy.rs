//! Copies bytes in both directions (nginx: `ngx_stream_proxy_process`) with `area::relay`.

use super::connect::{ServerTries, end_try, proxy_header};
use super::{PassSettings, ProxyProtocol};
use crate::first_bytes;
use crate::session::StreamSession;
use area::relay::{Direction, HalfClose, Relay, RelayEnd, Terms};
use observe::{Severity, os_error};
use std::future::poll_fn;
use transport::Stream;
use variables::Session;

/// Returns the session's status.
pub async fn copy_streams(passing: &PassSettings, s: &mut StreamSession, client: &Stream) -> u16 {
    let plan = s.plan.clone();
    let replaced = match &plan.srv(s.server).first_message {
        Some(filter) => {
            s.doing = "reading the first message";
            let limit = passing.conf.proxy_timeout.duration();
            match Box::pin(first_bytes::first_message(s, client, &**filter, limit)).await {
                Ok(bytes) => Some(bytes),
                Err(status) => return status,
            }
        }
        None => None,
    };
    let Some(named) = Box::pin(passing.group(s)).await else { return 500 };
    let mut servers = ServerTries::new(passing, &named, s);
    let (server, mut active) = match Box::pin(servers.connect(s)).await {
        Ok(connected) => connected,
        Err(status) => {
            end_try(s);
            return status;
        }
    };
    let conf = &passing.conf;
    let (upload_rate, download_rate) = (conf.proxy_upload_rate.get(s), conf.proxy_download_rate.get(s));
    s.doing = "proxying connection";
    let mut first = Vec::new();
    // With TLS the header preceded the handshake.
    if passing.tls.is_none() && conf.proxy_protocol != ProxyProtocol::Off {
        match proxy_header(conf.proxy_protocol, s, false) {
            Some(header) => first = header,
            None => return 500,
        }
    }
    s.received += s.preread.len() as u64;
    let sent = std::mem::take(&mut s.preread);
    first.append(&mut replaced.unwrap_or(sent));
    if s.srv().error_log.wants(Severity::Info)
        && let Some(local) = server.local_address()
    {
        s.note(Severity::Info, format_args!("proxy {local} connected to {}", active.peer().text));
    }
    servers.connected(s, &mut active, true);
    let up = Direction::new(first, s.received, upload_rate);
    let down = Direction::new(Vec::new(), 0, download_rate);
    let terms = Terms {
        buffer_bytes: passing.buffer_bytes,
        half_close: if conf.proxy_half_close { HalfClose::Both } else { HalfClose::Neither },
        timeout_ms: conf.proxy_timeout.0,
        stalled_ms: conf.proxy_timeout.0,
    };
    let mut copy = Relay::new(client, &server, up, down, terms);
    let over = poll_fn(|cx| {
        let over = copy.poll(cx);
        account(&copy, s);
        if let Some((e, of_server)) = copy.take_broken() {
            not_read(s, if of_server { &server } else { client }, &e, of_server);
        }
        if copy.take_answered() {
            servers.answered(s, &mut active);
        }
        over
    })
    .await;
    account(&copy, s);
    if let Some(one) = s.tries.last() {
        active.transferred(one.bytes_sent, one.bytes_received);
    }
    end_try(s);
    say(s, over, |to_client| if to_client { client.is_secure() } else { server.is_secure() });
    drop((server, active));
    200
}

/// Logs a failed read, which ends a direction as the end of input does.
fn not_read(s: &mut StreamSession, from: &Stream, e: &std::io::Error, of_server: bool) {
    let (level, doing) = match of_server {
        true => (Severity::Error, "proxying and reading from upstream"),
        false => (Severity::Info, "proxying and reading from client"),
    };
    let before = std::mem::replace(&mut s.doing, doing);
    let call = if from.is_secure() { "SSL_read" } else { "recv" };
    s.log(level, format_args!("{call}() failed {}", os_error(e)));
    s.doing = before;
}

fn say(s: &mut StreamSession, over: RelayEnd, is_secure: impl Fn(bool) -> bool) {
    let (up, down) = s.tries.last().map_or((0, 0), |one| (one.bytes_received, one.bytes_sent));
    match over {
        RelayEnd::Closed(server) => {
            let who = if server { "upstream" } else { "client" };
            let (received, sent) = (s.received, s.sent);
            s.note(
                Severity::Info,
                format_args!(
                    "{who} disconnected, bytes from/to client:{received}/{sent}, bytes from/to upstream:{up}/{down}"
                ),
            );
        }
        RelayEnd::Silence => s.log(Severity::Info, format_args!("connection timed out (110: Connection timed out)")),
        RelayEnd::Broken(e, to_client) => {
            let (level, doing) = match to_client {
                true => (Severity::Info, "proxying and sending to client"),
                false => (Severity::Error, "proxying and sending to upstream"),
            };
            s.doing = doing;
            let call = if is_secure(to_client) { "SSL_write" } else { "writev" };
            s.log(level, format_args!("{call}() failed {}", os_error(&e)));
        }
    }
}

fn account(copy: &Relay<&Stream, &Stream>, s: &mut StreamSession) {
    s.received = copy.up.received;
    s.sent = copy.down.sent;
    if let Some(one) = s.tries.last_mut() {
        one.bytes_received = copy.down.received;
        one.bytes_sent = copy.up.sent;
    }
}
