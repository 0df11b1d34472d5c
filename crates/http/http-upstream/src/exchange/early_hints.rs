//! Passes interim responses (RFC 9110, 15.2) if `early_hints` permits. nginx passes only 103
//! (`ngx_http_upstream_process_early_hints`) and takes others for final ones.

use super::PassPlan;
use bytes::Bytes;
use http_engine::{Request, template};
use http_types::{Known, ResponseHead, Version};
use observe::Level;

/// Passes an interim response except 100 and 101, which concern the server's connection. `total`: bytes of all interim
/// responses.
pub async fn pass(plan: &PassPlan, r: &mut Request, head: &ResponseHead, buf: &[u8], total: u64) {
    if r.is_subrequest() || r.progress.post_action || r.target.version < Version::Http11 {
        return;
    }
    let Some(conditions) = r.loc().core.conf.early_hints.clone() else { return };
    if !conditions.0.iter().any(|condition| template::truthy(&condition.eval(r))) {
        return;
    }
    if total > plan.conf.buffer_size {
        r.log(Level::Info, format_args!("upstream sent too big early hints"));
        return;
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
        return;
    }
    out.extend_from_slice(b"\r\n");
    if let Some(watch) = r.incoming.watch.clone() {
        let length = out.len() as u64;
        let mut bytes = Bytes::from(out);
        // The request's own watch detects a disconnected client.
        std::future::poll_fn(|cx| watch.poll_interim(cx, &mut bytes)).await;
        r.accounting.bytes_sent += length - bytes.len() as u64;
    }
}
