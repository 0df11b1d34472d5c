//! http2 (nginx: `ngx_http_v2_module`): what the protocol may ask of us. The protocol itself is in the crate `wire-h2`, its
//! connections in `conn`.

use conf_schema::value::{Flag, Number, Size, Text};
use conf_schema::{Area, Complaint, Contexts, Cx, Level, Problem, Table, directives};
use http_engine::plan::Http2;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature};
use http_types::Version;
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct Http2Conf from Http2Input {
        /// Whether HTTP/2 is spoken: over TLS with clients that offer it, without with those that begin with its preface.
        http2: Flag = "off",
        /// Streams that a client may have at a time.
        http2_max_concurrent_streams: Number = "128",
        /// Octets of a request's body that a client may send before anybody reads it.
        http2_body_preread_size: Size = "64k",
        /// Octets of a response's body in one frame, at most.
        http2_chunk_size: Size = "8k",
        /// Whether requests of HTTP/1.1 may ask for HTTP/2 (`Upgrade: h2c`), on connections in clear and where `http2` is on. A proxy in
        /// front that passes the field on would let its clients past its rules.
        http2_upgrade: Flag = "off",
        /// Whether clients may open WebSockets in streams (RFC 8441). To locations and servers behind them they are requests with
        /// `Upgrade: websocket`, as those of HTTP/1.
        http2_websockets: Flag = "on",
        /// A buffer that all connections of a thread share; ours has a fixed size, the value is checked and has no effect.
        http2_recv_buffer_size: Size = "256k",
        /// Memory of a connection; ours needs no tuning, the value is checked and has no effect.
        http2_pool_size: Size = "4k",
        /// A table of streams; ours needs no tuning, the value is checked and has no effect.
        http2_streams_index_size: Number = "32",
        /// Obsolete: see `keepalive_timeout`.
        http2_idle_timeout: Text,
        /// Obsolete: server push is no more.
        http2_max_concurrent_pushes: Text,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_field_size: Text,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_header_size: Text,
        /// Obsolete: see `keepalive_requests`.
        http2_max_requests: Text,
        /// Obsolete: server push is no more.
        http2_push: Text,
        /// Obsolete: server push is no more.
        http2_push_preload: Text,
        /// Obsolete: see `client_header_timeout`.
        http2_recv_timeout: Text,
    }
}

/// nginx checks it in these words (`ngx_http_v2_preread_size`, `ngx_http_v2_chunk_size`).
const PREREAD_MAX: u64 = (1 << 31) - 1;
/// The largest payload of a frame.
const CHUNK_MAX: u64 = (1 << 24) - 1;

/// The feature.
pub struct Http2Feature;

impl Feature for Http2Feature {
    fn table(&self) -> Table {
        Http2Conf::table("http2", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        ROWS
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<Http2Conf>() else { return Ok(()) };
        if conf.http2_chunk_size.0 == 0 {
            return Err(Problem::says("the http2 chunk size cannot be zero"));
        }
        block.location.http2_chunk = conf.http2_chunk_size.0.min(CHUNK_MAX) as usize;
        if block.context != Contexts::server {
            return Ok(());
        }
        if conf.http2_body_preread_size.0 > PREREAD_MAX {
            return Err(Problem::says(format!("the maximum body preread buffer size is {PREREAD_MAX}")));
        }
        obsolete(conf, block.cx);
        block.location.extensions.push(Arc::new(Http2 {
            on: conf.http2,
            streams_max: u32::try_from(conf.http2_max_concurrent_streams.0).unwrap_or(u32::MAX).max(1),
            preread_bytes: conf.http2_body_preread_size.0 as u32,
            websockets: conf.http2_websockets,
            upgrade: conf.http2 && conf.http2_upgrade,
        }));
        Ok(())
    }
}

/// Directives that nginx knows no more say so, and what holds in their place.
fn obsolete(conf: &Http2Conf, cx: &mut Cx) {
    let all = [
        ("http2_idle_timeout", &conf.http2_idle_timeout, Some("keepalive_timeout")),
        ("http2_max_concurrent_pushes", &conf.http2_max_concurrent_pushes, None),
        ("http2_max_field_size", &conf.http2_max_field_size, Some("large_client_header_buffers")),
        ("http2_max_header_size", &conf.http2_max_header_size, Some("large_client_header_buffers")),
        ("http2_max_requests", &conf.http2_max_requests, Some("keepalive_requests")),
        ("http2_push", &conf.http2_push, None),
        ("http2_push_preload", &conf.http2_push_preload, None),
        ("http2_recv_timeout", &conf.http2_recv_timeout, Some("client_header_timeout")),
    ];
    for (name, value, instead) in all {
        if value.is_none() {
            continue;
        }
        let text = match instead {
            Some(instead) => format!("the \"{name}\" directive is obsolete, use the \"{instead}\" directive instead"),
            None => format!("the \"{name}\" directive is obsolete, ignored"),
        };
        let complaint = Complaint { level: Level::Warn, ..Complaint::emerg(text) };
        if !cx.warnings.contains(&complaint) {
            cx.warnings.push(complaint);
        }
    }
}

static ROWS: &[Builtin] = &[Builtin::one(
    "http2",
    |r, out| {
        let name: &[u8] = if r.connection().tls.is_some() { b"h2" } else { b"h2c" };
        let is_it = r.version == Version::Http20;
        out.extend_from_slice(if is_it { name } else { b"" });
        is_it
    },
    "The protocol as it was agreed on: `h2` over TLS, `h2c` without; empty for HTTP/1.",
)];
