//! Passes interim responses (RFC 9110, 15.2) if `early_hints` permits. nginx passes only 103
//! (`ngx_http_upstream_process_early_hints`) and takes others for final ones.

use super::PassPlan;
use bytes::Bytes;
use http_engine::{Request, template};
use http_types::{Known, ResponseHead, Version};
use observe::Severity;
use std::task::{Context, Poll};

/// Returns an interim response for the client; `None`: it is not passed on. 100 and 101 concern the server's connection. `total`: bytes
/// of all interim responses.
pub fn interim_response(
    plan: &PassPlan,
    r: &mut Request,
    head: &ResponseHead,
    buf: &[u8],
    total: u64,
) -> Option<Bytes> {
    if r.is_subrequest() || r.progress.is_post_action() || r.target.version() < Version::Http11 {
        return None;
    }
    let conditions = r.loc().core.conf.early_hints.clone()?;
    if !conditions.0.iter().any(|condition| template::is_true(&condition.eval(r))) {
        return None;
    }
    if total > plan.conf.buffer_size {
        r.log(Severity::Info, format_args!("upstream sent too big early hints"));
        return None;
    }
    let mut out = match head.status {
        103 => b"HTTP/1.1 103 Early Hints\r\n".to_vec(),
        status => [format!("HTTP/1.1 {status} ").as_bytes(), head.reason.of(buf), b"\r\n"].concat(),
    };
    let empty = out.len();
    for field in &head.fields.all {
        let (name, value) = (field.name.of(buf), field.value.of(buf));
        let framing = matches!(
            field.known,
            Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::ContentLength | Known::Upgrade
        );
        if !framing && !plan.hidden.has(field.known, name) {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
    // A 103 without fields has no information; of other responses the status counts.
    if head.status == 103 && out.len() == empty {
        return None;
    }
    out.extend_from_slice(b"\r\n");
    Some(out.into())
}

/// Writes an interim response; also ends when the client disconnects, which the request's own watch detects.
pub fn poll_write(r: &mut Request, bytes: &mut Bytes, cx: &mut Context<'_>) -> Poll<()> {
    let Some(watch) = r.incoming.watch() else { return Poll::Ready(()) };
    let before = bytes.len();
    let polled = watch.poll_interim(cx, bytes);
    r.accounting.add_sent((before - bytes.len()) as u64, 0);
    polled.map(drop)
}
