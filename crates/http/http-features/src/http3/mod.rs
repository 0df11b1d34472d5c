//! http3 (nginx: `ngx_http_v3_module`): limits of HTTP/3 and QUIC, which are in `wire-h3` and `worker`.

use conf_schema::value::{Flag, Number, Size};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives, words};
use http_engine::plan::{Congestion, Http3};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Request};
use http_types::Version;
use std::any::Any;
use std::sync::Arc;

words! {
    pub enum Control { Cubic = "cubic", Bbr = "bbr", Reno = "reno" }
}

directives! {
    pub struct Http3Conf from Http3Input {
        /// Enables HTTP/3 on listeners with the `quic` parameter.
        http3: Flag = "on",
        /// Enables HTTP/0.9 over QUIC (`hq-interop`), the protocol of interoperability tests: a stream carries `GET`
        /// and a path, and is answered by the response's body alone. Clients select it in the handshake, beside HTTP/3
        /// or, with `http3 off`, instead of it. Differs: requests with a version (`GET / HTTP/1.1`) get 400.
        http3_hq: Flag = "off",
        /// Maximum number of concurrent requests per connection.
        http3_max_concurrent_streams: Number = "128",
        /// Maximum bytes of a request body that a client may send before a handler reads it.
        http3_stream_buffer_size: Size = "64k",
        /// Maximum number of connection ids that the server stores per client; each lets the client migrate to another
        /// address. Differs: values below 2 count as 2, values above 5 as 5.
        quic_active_connection_id_limit: Number = "2",
        /// Congestion control of connections. `cubic` halves its rate at losses, like most TCP servers; `bbr` follows
        /// the measured bandwidth and round-trip time instead, and is several times faster on paths that lose packets
        /// at random (mobile and wireless networks), at some cost to other traffic there; `reno` is RFC 9002's. A
        /// listener has the value of its default server.
        quic_congestion_control: Control = "cubic",
        /// Sends several datagrams with one system call (generic segmentation offload); the network card or the kernel
        /// splits them. Tidegate sends single datagrams if the system does not support this.
        /// Differs: the default is "on".
        quic_gso: Flag = "on",
        /// File with a secret for address validation tokens and stateless resets, so that they remain valid across
        /// restarts. Without it, every start generates a random key.
        quic_host_key: HostKey,
        /// Validates the client's address with a Retry packet before a handshake. Each connection issues a token, valid
        /// once within 10 minutes, that validates the address for the next connection. With "off", clients are validated
        /// only while unfinished handshakes of unvalidated addresses hold a quarter of `worker_connections`, or all
        /// connections are in use.
        quic_retry: Flag = "off",
    }
}

/// Window that QUIC can express, and many connections can have.
const BUFFER_MAX: u64 = 1 << 30;

pub struct Http3Feature;

impl Feature for Http3Feature {
    fn table(&self) -> FeatureTable {
        Http3Conf::table("http3", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        ROWS
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<Http3Conf>() else { return Ok(()) };
        if block.context != Contexts::server {
            return Ok(());
        }
        block.location.extensions.push(Arc::new(Http3 {
            on: conf.http3,
            hq: conf.http3_hq,
            streams_max: u32::try_from(conf.http3_max_concurrent_streams.0).unwrap_or(u32::MAX).max(1),
            stream_buffer: conf.http3_stream_buffer_size.0.clamp(1, BUFFER_MAX) as u32,
            retry: conf.quic_retry,
            active_ids: conf.quic_active_connection_id_limit.0,
            gso: conf.quic_gso,
            congestion: match conf.quic_congestion_control {
                Control::Cubic => Congestion::Cubic,
                Control::Bbr => Congestion::Bbr,
                Control::Reno => Congestion::NewReno,
            },
            host_key: conf.quic_host_key.as_ref().map(|key| key.0.clone()),
        }));
        Ok(())
    }
}

/// Content of a key file.
#[derive(Clone, Debug)]
struct HostKey(Arc<[u8]>);

impl ValueKind for HostKey {
    const SYNTAX: &'static str = "file";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = cx.conf_full_name(&d.args.first().map(|word| word.text()).unwrap_or_default());
        let shown = path.display();
        let read = cx.store.read(&path);
        let bytes =
            read.map_err(|e| Problem::says(format!("open() \"{shown}\" failed {}", observe::os_error(&e))).at(0))?;
        if bytes.is_empty() {
            return Err(Problem::says(format!("\"{shown}\" zero key size")).at(0));
        }
        Ok(HostKey(bytes))
    }
}

/// Tells if a request of HTTP/0.9 came over QUIC.
fn is_hq(r: &Request) -> bool {
    r.connection().tls.as_ref().is_some_and(|facts| facts.alpn.as_deref() == Some(tls::quic::HQ))
}

static ROWS: &[Builtin] = &[Builtin::one(
    "http3",
    |r, out| {
        let protocol: &[u8] = match r.target.version() {
            Version::Http30 => b"h3",
            Version::Http09 if is_hq(r) => b"hq",
            _ => b"",
        };
        out.extend_from_slice(protocol);
        true
    },
    "The negotiated protocol: `h3` for HTTP/3, `hq` for HTTP/0.9 over QUIC (`http3_hq`); otherwise empty.",
)];
