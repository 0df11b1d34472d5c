//! First bytes of a connection: PROXY protocol header, preread phase, and a first message that is replaced (nginx: `ngx_stream_proxy_protocol_handler`,
//! `ngx_stream_core_preread_phase`).

use crate::client::SessionClient;
use crate::plan::{FirstMessage, Flow, LookedUp, Preread, ReplacedHandler};
use crate::session::StreamSession;
use area::first_bytes::{self, HeaderFault};
use observe::Severity;
use runtime::time::{sleep_for, with_timeout};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use transport::Stream;
use variables::Session;

/// Reads a PROXY protocol header and no further bytes. Fails with the session's status.
pub async fn proxy_header(s: &mut StreamSession, stream: &Stream) -> Result<(), u16> {
    s.doing = "reading PROXY protocol";
    let idle_timer = s.srv().proxy_protocol_timeout;
    let Ok(header) = with_timeout(idle_timer, first_bytes::proxy_header(stream)).await else {
        s.log(Severity::Info, format_args!("client timed out (110: Connection timed out)"));
        return Err(200);
    };
    match header {
        Ok(header) => s.proxy = Some(Box::new(header)),
        Err(fault) => {
            let (level, words) = fault.words();
            if let Some(words) = words {
                s.log(level, format_args!("{words}"));
            }
            return Err(if matches!(fault, HeaderFault::Invalid(_)) { 400 } else { 200 });
        }
    }
    s.doing = "initializing session";
    Ok(())
}

/// Waits for more than `seen` bytes in the socket and peeks all of them; an unchanged length means end of input.
async fn news(s: &StreamSession, stream: &Stream, seen: usize, buf: &mut Vec<u8>) -> Result<(), u16> {
    match first_bytes::await_news(stream, seen, buf).await {
        Ok(()) if buf.is_empty() => Err(200),
        Ok(()) => Ok(()),
        Err(e) => {
            s.log(Severity::Info, format_args!("recv() failed {}", observe::os_error(&e)));
            Err(200)
        }
    }
}

/// Runs the preread handlers; without TLS the bytes stay in the socket. Fails with the session's status.
pub async fn preread_bytes(s: &mut StreamSession, client: &SessionClient) -> Result<(), u16> {
    let plan = s.plan.clone();
    let server = plan.srv(s.server);
    for who in &server.preread {
        let flow = match client {
            SessionClient::Datagrams(_) => {
                let bytes = std::mem::take(&mut s.preread);
                let looked = who.look(s, Some(&bytes));
                s.preread = bytes;
                looked
            }
            SessionClient::Stream(_) => who.look(s, None),
        };
        let flow = match (flow, client) {
            (LookedUp::Flow(flow), _) => flow,
            (LookedUp::More, SessionClient::Datagrams(_)) => Flow::Declined,
            (LookedUp::More, SessionClient::Stream(stream)) => {
                s.doing = "prereading client data";
                let mut time = pin!(sleep_for(server.preread_timeout));
                let mut waits = pin!(wait_for(s, stream, &**who, server.preread_bytes));
                poll_fn(|cx| match waits.as_mut().poll(cx) {
                    Poll::Ready(flow) => Poll::Ready(flow),
                    // nginx ends such a session without a message.
                    Poll::Pending => time.as_mut().poll(cx).map(|()| Err(200)),
                })
                .await?
            }
        };
        match flow {
            Flow::Declined => {}
            Flow::Done => return Ok(()),
            Flow::End(status) => return Err(status),
        }
    }
    Ok(())
}

/// Bytes read at once for a first message.
const MESSAGE_READ_BYTES: usize = 4096;

/// Reads a first message to its end, which may take this long. Returns the bytes for the server; `StreamSession::preread` keeps
/// those of the client. Fails with the session's status.
pub async fn first_message(
    s: &mut StreamSession,
    stream: &Stream,
    filter: &dyn FirstMessage,
    limit: Duration,
) -> Result<Vec<u8>, u16> {
    let reading = async {
        loop {
            let bytes = std::mem::take(&mut s.preread);
            let replaced = if bytes.is_empty() { ReplacedHandler::More } else { filter.replace(s, &bytes) };
            s.preread = bytes;
            match replaced {
                ReplacedHandler::By(length, mut message) => {
                    message.extend_from_slice(s.preread.get(length..).unwrap_or_default());
                    return Ok(message);
                }
                ReplacedHandler::End(status) => return Err(status),
                ReplacedHandler::More => {}
            }
            s.preread.reserve(MESSAGE_READ_BYTES);
            match stream.read_buf(&mut s.preread).await {
                Ok(1..) => {}
                Ok(0) => return Err(200),
                Err(e) => {
                    s.log(Severity::Info, format_args!("recv() failed {}", observe::os_error(&e)));
                    return Err(200);
                }
            }
        }
    };
    let read = with_timeout(limit, reading).await;
    read.unwrap_or_else(|_| {
        s.log(Severity::Info, format_args!("client timed out (110: Connection timed out)"));
        Err(200)
    })
}

fn full(s: &StreamSession) -> u16 {
    s.log(Severity::Error, format_args!("preread buffer full"));
    400
}

/// Polls a preread handler until it decides, for at most `most` bytes.
async fn wait_for(s: &mut StreamSession, stream: &Stream, who: &dyn Preread, most: usize) -> Result<Flow, u16> {
    if stream.is_secure() {
        // Decrypted bytes cannot be put back: they are kept for the content handler.
        loop {
            let mut bytes = Vec::new();
            bytes.reserve_exact(most.saturating_sub(s.preread.len()).max(1));
            match stream.read_buf(&mut bytes).await {
                Ok(1..) => {}
                _ => return Err(200),
            }
            s.preread.append(&mut bytes);
            let bytes = std::mem::take(&mut s.preread);
            let looked = who.look(s, Some(&bytes));
            s.preread = bytes;
            match looked {
                LookedUp::Flow(flow) => return Ok(flow),
                LookedUp::More if s.preread.len() >= most => return Err(full(s)),
                LookedUp::More => {}
            }
        }
    }
    let mut bytes: Vec<u8> = Vec::new();
    bytes.reserve_exact(most.max(1));
    let mut seen = 0;
    loop {
        news(s, stream, seen, &mut bytes).await?;
        if bytes.len() == seen {
            return Err(200);
        }
        seen = bytes.len();
        match who.look(s, Some(&bytes)) {
            LookedUp::Flow(flow) => return Ok(flow),
            LookedUp::More if bytes.len() >= most => return Err(full(s)),
            LookedUp::More => {}
        }
    }
}
