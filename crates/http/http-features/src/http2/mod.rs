//! http2 (nginx: `ngx_http_v2_module`): limits of the protocol, which is in `wire-h2` and `worker`.

use conf_schema::value::{Flag, Number, Size};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
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
        http2_recv_buffer_size: RecvBufferSize = "256k",
        /// Memory per connection in nginx. The value is checked and has no effect.
        http2_pool_size: PoolSize = "4k",
        /// Size of nginx's table of streams. The value is checked and has no effect.
        http2_streams_index_size: IndexSize = "32",
        /// Obsolete: see `keepalive_timeout`.
        http2_idle_timeout: Obsolete,
        /// Obsolete: server push was removed.
        http2_max_concurrent_pushes: Obsolete,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_field_size: Obsolete,
        /// Obsolete: see `large_client_header_buffers`.
        http2_max_header_size: Obsolete,
        /// Obsolete: see `keepalive_requests`.
        http2_max_requests: Obsolete,
        /// Obsolete: server push was removed.
        http2_push: Obsolete,
        /// Obsolete: server push was removed.
        http2_push_preload: Obsolete,
        /// Obsolete: see `client_header_timeout`.
        http2_recv_timeout: Obsolete,
    }
}

/// nginx's bounds (`ngx_http_v2_preread_size`, `ngx_http_v2_chunk_size`).
const PREREAD_MAX: u64 = (1 << 31) - 1;
const CHUNK_MAX: u64 = (1 << 24) - 1;

pub struct Http2Feature;

impl Feature for Http2Feature {
    fn table(&self) -> FeatureTable {
        Http2Conf::table("http2", ContextArea::Http)
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

/// Size of nginx's receive buffer: more than the bytes of a frame that it keeps between reads.
#[derive(Clone, Copy, Debug)]
struct RecvBufferSize;

impl ValueKind for RecvBufferSize {
    const SYNTAX: &'static str = Size::SYNTAX;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        /// nginx: `NGX_HTTP_V2_STATE_BUFFER_SIZE`.
        const KEPT_BYTES: u64 = 16;
        match Size::parse(cx, d)? {
            Size(..=KEPT_BYTES) => {
                Err(Problem::says(format!("\"{}\" directive value is too small", d.name.text())).at(0))
            }
            Size(_) => Ok(RecvBufferSize),
        }
    }
}

/// Size of nginx's table of streams: a power of two.
#[derive(Clone, Copy, Debug)]
struct IndexSize;

impl ValueKind for IndexSize {
    const SYNTAX: &'static str = Number::SYNTAX;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        if Number::parse(cx, d)?.0.is_power_of_two() {
            return Ok(IndexSize);
        }
        Err(Problem::says(format!("\"{}\" directive must be a power of two", d.name.text())).at(0))
    }
}

/// Value of an obsolete directive, without effect. Warns with its successor (nginx: `ngx_http_v2_obsolete`).
#[derive(Clone, Copy, Debug)]
struct Obsolete;

impl ValueKind for Obsolete {
    const SYNTAX: &'static str = "value";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.name.text();
        let instead = match name.as_ref() {
            "http2_idle_timeout" => Some("keepalive_timeout"),
            "http2_max_field_size" | "http2_max_header_size" => Some("large_client_header_buffers"),
            "http2_max_requests" => Some("keepalive_requests"),
            "http2_recv_timeout" => Some("client_header_timeout"),
            _ => None,
        };
        let text = match instead {
            Some(instead) => format!("the \"{name}\" directive is obsolete, use the \"{instead}\" directive instead"),
            None => format!("the \"{name}\" directive is obsolete, ignored"),
        };
        cx.warn(d, text);
        Ok(Obsolete)
    }
}

static ROWS: &[Builtin] = &[Builtin::one(
    "http2",
    |r, out| {
        if r.target.version() == Version::Http20 {
            out.extend_from_slice(if r.connection().tls.is_some() { b"h2" } else { b"h2c" });
        }
        true
    },
    "The negotiated protocol: `h2` over TLS, `h2c` in cleartext; otherwise empty.",
)];
