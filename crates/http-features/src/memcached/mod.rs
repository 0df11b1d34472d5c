//! memcached (nginx: `ngx_http_memcached_module`): the value of a key is the response. `text.rs` has the protocol.

pub mod text;

use conf_schema::value::{Flag, Msec, Number, Own, Size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature, Request, Template};
use http_types::Method;
use http_upstream::binding::BindTo;
use http_upstream::exchange::conf::{NextUpstream, PassConf};
use http_upstream::exchange::target::{Scheme, Target, UpstreamTarget};
use http_upstream::exchange::{Announce, PassPlan, Protocol};
use observe::Level;
use std::any::Any;
use std::sync::Arc;
use text::Memcached;
use upstream::SerialCodec;

conf_schema::word_set! {
    /// `memcached_next_upstream`; the bits are those of `proxy_next_upstream`.
    pub struct NextMemcached {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_RESPONSE = 4 "invalid_response", NOT_FOUND = 512 "not_found",
        OFF = 2048 "off",
    }
}

directives! {
    /// What the module is told in a block.
    pub struct MemcachedConf from MemcachedInput {
        /// The address of a memcached server: the response is the value of `$memcached_key`.
        memcached_pass: Own<PassTo>,
        /// The address that connections to servers are made from.
        memcached_bind: BindTo,
        /// The most that one read takes of a response, and its first line at most.
        memcached_buffer_size: Size = "4k",
        /// How long a connection may take to be established.
        memcached_connect_timeout: Msec = "60s",
        /// Values with this flag are compressed with gzip.
        memcached_gzip_flag: Number = "0",
        /// When the next server is tried.
        memcached_next_upstream: NextMemcached = "error timeout",
        /// How long the next server may be tried; 0: no limit.
        memcached_next_upstream_timeout: Msec = "0",
        /// How many servers are tried; 0: all.
        memcached_next_upstream_tries: Number = "0",
        /// How long the server may send nothing.
        memcached_read_timeout: Msec = "60s",
        /// How long the server may take nothing of a request.
        memcached_send_timeout: Msec = "60s",
        /// SO_KEEPALIVE on connections to servers.
        memcached_socket_keepalive: Flag = "off",
    }
}

static SCHEME: Scheme = Scheme { plain: "memcached", secure: None, written: false, ports: (0, 0), has_uri: false };

/// `memcached_pass address`
#[derive(Clone)]
pub struct PassTo {
    target: Arc<Target>,
    key: Template,
}

impl Value for PassTo {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let target = Arc::new(Target::parse(&SCHEME, cx, d)?);
        let key = Template::compile(cx, d, b"$memcached_key")?;
        Ok(PassTo { target, key })
    }
}

/// The feature.
pub struct MemcachedFeature;

impl Feature for MemcachedFeature {
    fn table(&self) -> Table {
        MemcachedConf::table("memcached", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<MemcachedConf>() else { return Ok(()) };
        let Some(Own(PassTo { target, key })) = conf.memcached_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let pass = PassConf {
            // Nothing but its key goes to the server, and nothing is read ahead of the client.
            pass_request_body: false,
            pass_request_headers: false,
            buffering: false,
            buffer_size: conf.memcached_buffer_size.0,
            next_upstream: NextUpstream(conf.memcached_next_upstream.0),
            next_upstream_tries: conf.memcached_next_upstream_tries.0,
            next_upstream_timeout: conf.memcached_next_upstream_timeout.0,
            connect_timeout: conf.memcached_connect_timeout.duration(),
            send_timeout: conf.memcached_send_timeout.duration(),
            read_timeout: conf.memcached_read_timeout.duration(),
            socket_keepalive: conf.memcached_socket_keepalive,
            bind: conf.memcached_bind.clone(),
            ..PassConf::new("memcached")
        };
        let protocol = Spoken { key, gzip_flag: u32::try_from(conf.memcached_gzip_flag.0).unwrap_or(u32::MAX) };
        PassPlan::new(pass, Box::new(protocol), bound, [].into_iter().collect()).mount(block)
    }
}

/// memcached's text protocol as one location speaks it.
struct Spoken {
    key: Template,
    gzip_flag: u32,
}

impl Protocol for Spoken {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        Some(Box::new(Memcached::new(self.gzip_flag)))
    }
    fn admits(&self, r: &mut Request) -> Result<(), u16> {
        match r.method {
            Method::Get | Method::Head => {
                r.discard_body();
                r.set_content_type();
                Ok(())
            }
            _ => Err(405),
        }
    }
    fn write(
        &self,
        _: &PassPlan,
        r: &mut Request,
        _: &UpstreamTarget<'_>,
        _: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let key = self.key.eval(r);
        if key.is_empty() {
            r.log(Level::Error, format_args!("the \"$memcached_key\" variable is not set"));
            return Err(500);
        }
        text::put_get(&key, out);
        Ok(true)
    }
    fn method(&self, _: &mut Request) -> Method {
        // The value comes, whatever the client has asked with.
        Method::Get
    }
}
