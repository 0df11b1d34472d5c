//! A probe's request over HTTP/2 or HTTP/3.

use super::Round;
use super::probe::{BODY_MAX, judge_head};
use http_client::{ClientFailure, ClientStep};
use http_engine::Request;
use std::future::poll_fn;
use std::sync::Arc;
use upstream::mux::MuxStream;
use upstream::{Event, Peer, ResponseEvent, Stop};
use upstream_directives::checks::ProbeFailure;

/// Sends the request, and reads and judges the response.
pub async fn judge_stream(
    round: &Round,
    peer: &Arc<Peer>,
    r: &mut Request,
    mut stream: Box<dyn MuxStream>,
) -> Result<(), ProbeFailure> {
    stream.queue(&[], true);
    match poll_fn(|cx| stream.poll_flush(cx)).await {
        // The reason is the next event.
        Ok(()) | Err(Stop::Refused) => {}
        Err(Stop::Failed(e)) => return Err(ClientFailure::Io(ClientStep::Send, e).into()),
    }
    let mut body = Vec::new();
    loop {
        match poll_fn(|cx| stream.poll_event(cx)).await {
            ResponseEvent::Event(Event::Head(start)) => {
                judge_head(round, peer, r, start.answer)?;
                if !round.wants_body() && round.check.keepalive_ms.is_none() {
                    return Ok(());
                }
            }
            ResponseEvent::Event(Event::Body(bytes)) => {
                body.extend_from_slice(&bytes);
                if body.len() >= BODY_MAX {
                    body.truncate(BODY_MAX);
                    break;
                }
            }
            ResponseEvent::Event(Event::End(_)) => break,
            ResponseEvent::Event(Event::Interim(..) | Event::Stderr(_)) => {}
            ResponseEvent::Closed => return Err(ClientFailure::Closed.into()),
            ResponseEvent::Failed(e) => return Err(ClientFailure::Io(ClientStep::Receive, e).into()),
            ResponseEvent::Wrong(why) | ResponseEvent::Unprocessed(why) => return Err(why.0.into()),
        }
    }
    Ok(round.judge_body(&body)?)
}
