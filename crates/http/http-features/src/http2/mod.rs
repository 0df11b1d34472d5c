//! http2 (nginx: `ngx_http_v2_module`): limits of the protocol, which is in `wire-h2` and `conn`.

use conf_schema::value::{Flag, Number, Size, Text};
use conf_schema::{Area, Complaint, Contexts, Cx, Level, Problem, Table, directives};
use http_engine::core_table::PoolSize;
use http_engine::plan::Http2;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature};
use http_types::Version;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct Http2Conf from Http2Input {
        /// Enables HTTP/2: over TLS by ALPN, in cleartext with prior knowledge.
        http2: Flag = "off",
        /// Maximum number of concurrent streams per connection.
        http2_max_concurrent_streams: Number = "128",
        /// Bytes of a request body that a client may send before a handler reads it.
        http2_body_preread_size: Size = "64k",
        /// Maximum bytes of response body per frame.
        http2_chunk_size: Size = "8k",
        /// Accepts HTTP/1.1 requests that upgrade to HTTP/2 (`Upgrade: h2c`) in cleartext, if `http2` is on. Behind a
        /// proxy that forwards the field, clients could bypass the proxy's rules.
        http2_upgrade: Flag = "off",
        /// Accepts WebSockets in HTTP/2 streams (RFC 8441). Locations and upstream servers see them as HTTP/1.1
        /// requests with `Upgrade: websocket`.
        http2_websockets: Flag = "on",
        /// Size of nginx's shared receive buffer. The value is checked and has no effect.
        http2_recv_buffer_size: Size = "256k",
        /// Memory per connection in nginx. The value is checked and has no effect.
        http2_pool_size: PoolSize = "4k",
        /// Size of nginx's table of streams. The value is checked and has no effect.
        http2_streams_index_size: Number = "32",
        /// Obsolete: see `keepalive_timeout`.
        http2_idle_timeout: Text,
        /// Obsolete: server push was removed.
        http2_max_concurrent_pushes: Text,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_field_size: Text,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_header_size: Text,
        /// Obsolete: see `keepalive_requests`.
        http2_max_requests: Text,
        /// Obsolete: server push was removed.
        http2_push: Text,
        /// Obsolete: server push was removed.
        http2_push_preload: Text,
        /// Obsolete: see `client_header_timeout`.
        http2_recv_timeout: Text,
    }
}

/// nginx's bounds (`ngx_http_v2_preread_size`, `ngx_http_v2_chunk_size`).
const PREREAD_MAX: u64 = (1 << 31) - 1;
const CHUNK_MAX: u64 = (1 << 24) - 1;

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

/// Warns about obsolete directives and their replacements.
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
        let is_it = r.target.version == Version::Http20;
        out.extend_from_slice(if is_it { name } else { b"" });
        is_it
    },
    "The negotiated protocol: `h2` over TLS, `h2c` in cleartext; otherwise empty.",
)];
