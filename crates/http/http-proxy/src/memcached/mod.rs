//! memcached (nginx: `ngx_http_memcached_module`): responds with the value of a key; `text.rs` has the protocol.

pub mod text;

use conf_schema::value::{Flag, Msec, Number, Own, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::core_table::Conditions;
use http_engine::{BlockPlan, Feature, HttpTemplate, Request};
use http_types::Method;
use http_upstream::binding::BindTo;
use http_upstream::exchange::conf::{NextUpstream, PassConf};
use http_upstream::exchange::{Announce, PassPlan, UpstreamProtocol};
use http_upstream::target::{PassTarget, Scheme, UpstreamTarget};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;
use text::MemcachedReader;
use upstream::SerialCodec;

conf_schema::word_set! {
    /// `memcached_next_upstream`, with the bits of `proxy_next_upstream`.
    pub struct NextMemcached {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_RESPONSE = 4 "invalid_response", NOT_FOUND = 512 "not_found",
        OFF = 2048 "off", DENIED = 8192 "denied",
    }
}

directives! {
    pub struct MemcachedConf from MemcachedInput {
        /// Responds with the value that a memcached server has for `$memcached_key`.
        memcached_pass: Own<MemcachedPass>,
        /// Local address of connections to the server.
        memcached_bind: BindTo,
        /// Determines the local address anew for each server, from variables such as `$upstream_last_addr`.
        memcached_bind_dynamic: Flag = "off",
        /// Denies the connection to a selected server if a value is empty or `0`; see `proxy_allow_upstream`.
        memcached_allow_upstream: Conditions,
        /// Maximum size of one read from the server, and of the first line of its response.
        memcached_buffer_size: Size = "4k",
        /// Maximum time to establish a connection.
        memcached_connect_timeout: Msec = "60s",
        /// Marks values with this flag as gzip-compressed.
        memcached_gzip_flag: Number = "0",
        /// Conditions under which a request is passed to the next server.
        memcached_next_upstream: NextMemcached = "error timeout",
        /// Maximum time for passing a request to further servers; 0: no limit.
        memcached_next_upstream_timeout: Msec = "0",
        /// Maximum number of servers per request; 0: no limit.
        memcached_next_upstream_tries: Number = "0",
        /// Maximum time between two reads from the server.
        memcached_read_timeout: Msec = "60s",
        /// Maximum time between two writes to the server.
        memcached_send_timeout: Msec = "60s",
        /// Enables TCP keepalive (SO_KEEPALIVE) on connections to the server.
        memcached_socket_keepalive: Flag = "off",
    }
}

static SCHEME: Scheme = Scheme { plain: "memcached", secure: None, written: false, ports: (0, 0), has_uri: false };

#[derive(Clone)]
pub struct MemcachedPass {
    target: Arc<PassTarget>,
    key: HttpTemplate,
}

impl ValueKind for MemcachedPass {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let address = d.args.first().map(|w| w.text()).unwrap_or_default();
        if address.contains('$') {
            let why = if address.contains(':') { "host not found" } else { "no port" };
            let problem = Problem::says(format!("{why} in upstream \"{address}\"")).at(0);
            return Err(problem.hint("memcached_pass takes no variables"));
        }
        let target = Arc::new(PassTarget::parse(&SCHEME, cx, d)?);
        let key = HttpTemplate::compile(cx, d, b"$memcached_key")?;
        Ok(MemcachedPass { target, key })
    }
}

pub struct MemcachedFeature;

impl Feature for MemcachedFeature {
    fn table(&self) -> FeatureTable {
        MemcachedConf::table("memcached", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<MemcachedConf>() else { return Ok(()) };
        let Some(Own(MemcachedPass { target, key })) = conf.memcached_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let pass = PassConf {
            // Only the key is sent, and nothing is read ahead of the client.
            pass_request_body: false,
            pass_request_headers: false,
            buffering: false,
            force_ranges: true,
            intercept_errors: true,
            intercept_404: true,
            buffer_size: conf.memcached_buffer_size.0,
            next_upstream: NextUpstream(conf.memcached_next_upstream.0),
            next_upstream_tries: conf.memcached_next_upstream_tries.0,
            next_upstream_timeout: conf.memcached_next_upstream_timeout.0,
            connect_timeout: conf.memcached_connect_timeout.duration(),
            send_timeout: conf.memcached_send_timeout.duration(),
            read_timeout: conf.memcached_read_timeout.duration(),
            socket_keepalive: conf.memcached_socket_keepalive,
            bind: conf.memcached_bind.clone(),
            bind_dynamic: conf.memcached_bind_dynamic,
            allow_upstream: conf.memcached_allow_upstream.clone(),
            ..PassConf::new("memcached")
        };
        let protocol =
            MemcachedProtocol { key, gzip_flag: u32::try_from(conf.memcached_gzip_flag.0).unwrap_or(u32::MAX) };
        PassPlan::new(pass, Box::new(protocol), bound, [].into_iter().collect()).mount(block)
    }
}

struct MemcachedProtocol {
    key: HttpTemplate,
    gzip_flag: u32,
}

impl MemcachedProtocol {
    /// Fails with the response's status.
    fn key_of(&self, r: &mut Request) -> Result<Vec<u8>, u16> {
        let key = self.key.eval(r);
        if key.is_empty() {
            r.log(Severity::Error, format_args!("the \"$memcached_key\" variable is not set"));
            return Err(500);
        }
        Ok(key)
    }
}

impl UpstreamProtocol for MemcachedProtocol {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        Some(Box::new(MemcachedReader::new(self.gzip_flag)))
    }
    fn admits(&self, r: &mut Request) -> Result<(), u16> {
        match r.target.method() {
            Method::Get | Method::Head => {
                if r.incoming.take_broken_body() {
                    return Err(400);
                }
                r.discard_body();
                r.set_content_type();
                // Before a server is selected.
                self.key_of(r).map(|_| ())
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
        text::put_get(&self.key_of(r)?, out);
        Ok(true)
    }
    fn missing(&self, r: &mut Request) -> Option<String> {
        let key = text::escape_key(&self.key.eval(r));
        Some(format!("key: \"{}\" was not found by memcached", String::from_utf8_lossy(&key)))
    }
    fn method(&self, _: &mut Request) -> Method {
        // The value is sent whatever the request's method.
        Method::Get
    }
}
