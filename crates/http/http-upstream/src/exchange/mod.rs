//! Passes requests to servers, for all protocols (nginx: `ngx_http_upstream.c`).
//! A protocol mounts the table of `conf.rs` and implements [`UpstreamProtocol`] and `upstream::SerialCodec`. `crate::target` finds
//! server and URI, `upstream_exchange.rs` tries servers, `connect.rs` connects to one and `conversation.rs` talks to it, `accept.rs` decides
//! about a head, `response.rs` converts it, `body.rs` passes bodies on. `task.rs` does what precedes where that takes time: it reads the
//! body, asks the cache (`storage.rs`) and resolves names.

mod accept;
pub mod block;
pub mod body;
pub mod conf;
mod connect;
mod conversation;
mod early_hints;
mod failure;
pub mod fuzzing;
mod headless;
mod light;
mod response;
pub mod round_trip;
mod storage;
mod task;
mod upstream_exchange;

use crate::caching::{self, CachePlan, CacheRequest, StoreRules};
use crate::groups::UpstreamRef;
use crate::probing::{ProbeBody, Prober, Timeouts};
use crate::target::{TargetBinding, UpstreamTarget};
use crate::tls::{UpstreamTls, UpstreamTlsRequest};
use conf::PassConf;
use conf_schema::Problem;
use http_engine::plan::Folder;
use http_engine::{BlockPlan, Flow, Handler, Request};
use http_types::{BodyLength, Method, NameSet};
use std::sync::{Arc, OnceLock};
use transport::ConnectOptions;
use upstream::{Scope, SerialCodec};
use upstream_exchange::UpstreamExchange;

/// The announcement of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// No body.
    Nothing,
    /// This many bytes.
    Length(u64),
    /// Streamed, of unknown length.
    Chunked,
}

/// A protocol to servers, with the settings of one location.
pub trait UpstreamProtocol: Send + Sync {
    /// Returns the codec of a new connection; `None`: multiplexed.
    fn codec(&self) -> Option<Box<dyn SerialCodec>>;
    /// Tells whether connections are multiplexed (HTTP/2, HTTP/3); [`UpstreamProtocol::write`] then writes a header block.
    fn multiplexes(&self) -> bool {
        false
    }
    /// HTTP/3
    fn over_quic(&self) -> bool {
        false
    }
    /// Fails with the response's status.
    fn admits(&self, r: &mut Request) -> Result<(), u16> {
        let _ = r;
        Ok(())
    }
    /// Writes all bytes before the body. `false`: configured fields contradict the body's length or announce a close, so
    /// the connection must not be reused. Fails with the response's status.
    fn write(
        &self,
        plan: &PassPlan,
        r: &mut Request,
        target: &UpstreamTarget<'_>,
        announce: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16>;
    /// Returns the method sent to the server, which determines the presence of a response body.
    fn method(&self, r: &mut Request) -> Method {
        if CacheRequest::of(r).is_some_and(|asking| asking.as_get) { Method::Get } else { r.head.method }
    }
    /// Words for the log when [`conf::PassConf::intercept_404`] replaces a response.
    fn missing(&self, r: &mut Request) -> Option<String> {
        let _ = r;
        None
    }
    /// Tells whether a body of this length can be streamed.
    fn may_stream(&self, length: BodyLength) -> bool {
        let _ = length;
        true
    }
    /// Tells whether the protocol is full-duplex: the request continues during the response.
    fn goes_both_ways(&self) -> bool {
        false
    }
    /// Tells whether only the server's own `Server` and `Date`, if passed on, are sent to the client.
    fn says_server_and_date(&self) -> bool {
        false
    }
    /// `Some` if HTTP/1 heads pass unchanged except hidden fields and those for [`UpstreamProtocol::redirect`]; `Some(true)`:
    /// including cookies.
    fn relays(&self) -> Option<bool> {
        None
    }
    /// Rewrites a server's URL (`Location`, `Refresh`) for the client; `None`: unchanged.
    fn redirect(&self, r: &mut Request, url: &[u8]) -> Option<Vec<u8>> {
        let _ = (r, url);
        None
    }
    /// Returns `None` for an unchanged cookie.
    fn cookie(&self, r: &mut Request, value: &[u8]) -> Option<Vec<u8>> {
        let _ = (r, value);
        None
    }
}

/// The way in which a location passes requests on. Made by a protocol's feature with [`PassPlan::new`], completed by
/// [`PassPlan::mount`].
pub struct PassPlan {
    /// Settings that all protocols share.
    pub conf: PassConf,
    /// The protocol.
    pub protocol: Box<dyn UpstreamProtocol>,
    /// Servers, and the URI that they are asked for.
    pub target: TargetBinding,
    /// Scope of the location's own idle connections (`keepalive ... local`); unique in the process.
    own_scope: Scope,
    /// Scope of idle connections shared with other locations of the protocol.
    shared_scope: Scope,
    /// Names of response fields that are not passed to the client.
    pub hidden: NameSet,
    /// The cache.
    pub caching: Option<Arc<CachePlan>>,
    /// `proxy_store`.
    pub storing: Option<Arc<StoreRules>>,
    /// TLS settings towards servers.
    pub tls: Option<UpstreamTls>,
    light: bool,
}

/// Response fields that nginx hides by default (`ngx_http_proxy_hide_headers`).
pub const HIDDEN: &[&str] = &[
    "date",
    "server",
    "x-pad",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

impl PassPlan {
    /// Creates a plan without cache, storage and TLS.
    pub fn new(
        conf: PassConf,
        protocol: Box<dyn UpstreamProtocol>,
        target: TargetBinding,
        hidden: NameSet,
    ) -> PassPlan {
        let shared_scope = Scope::shared(conf.prefix);
        PassPlan {
            conf,
            protocol,
            target,
            own_scope: Scope::own(),
            shared_scope,
            hidden,
            caching: None,
            storing: None,
            tls: None,
            light: false,
        }
    }
    fn scope(&self, group: &upstream::Group) -> Scope {
        if group.keepalive.local { self.own_scope } else { self.shared_scope }
    }
    /// Makes the plan the content handler of a block's location. Takes cache and storage from the location, whose
    /// features must have been planned.
    pub fn mount(mut self, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(temp) = &self.conf.temp_path {
            let folder = Folder { path: temp.path.clone(), needed: false, is_state: false };
            if !block.folders.contains(&folder) {
                block.folders.push(folder);
            }
        }
        let location = &mut block.location;
        location.auto_redirect = location.name.ends_with(b"/") && !location.regex;
        if let Some(origin) = self.target.origin() {
            location.extensions.push(origin);
        }
        let prefix = self.conf.prefix;
        self.caching = location.all::<Arc<CachePlan>>().find(|caching| caching.family == prefix).cloned();
        self.storing = location.all::<Arc<StoreRules>>().find(|storing| storing.family == prefix).cloned();
        location.passes = true;
        self.light = light::is_possible(&self) && !is_reference();
        let plan = Arc::new(self);
        location.extensions.push(Arc::new(ProbeBody(plan.clone())));
        let in_place = upstream_exchange::is_possible_in_place(&plan) && !is_reference();
        location.content = Some(Arc::new(PassHandler { plan, in_place }));
        Ok(())
    }
}

impl Prober for PassPlan {
    fn named(&self) -> Option<UpstreamRef> {
        match &self.target {
            TargetBinding::Fixed { place, .. } if ["proxy", "grpc"].contains(&self.conf.prefix) => {
                Some(place.named.clone())
            }
            _ => None,
        }
    }
    fn is_grpc(&self) -> bool {
        self.conf.prefix == "grpc"
    }
    fn multiplexes(&self) -> bool {
        self.protocol.multiplexes()
    }
    fn over_quic(&self) -> bool {
        self.protocol.over_quic()
    }
    fn method(&self, r: &mut Request) -> Method {
        self.protocol.method(r)
    }
    fn options(&self, r: &mut Request) -> ConnectOptions {
        connect::connect_options(self, r)
    }
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        if let Some(place) = self.target.fixed() {
            let uri = uri.as_bytes().into();
            let target = UpstreamTarget { named: &place.named, origin: &place.origin, uri: Some(&uri) };
            // Fails for no request without a client.
            let _ = self.protocol.write(self, r, &target, Announce::Nothing, &mut out);
        }
        if self.multiplexes() {
            return out;
        }
        let told = out.windows(13).any(|w| w.eq_ignore_ascii_case(b"\r\nconnection:"));
        if close && !told && out.ends_with(b"\r\n\r\n") {
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"Connection: close\r\n\r\n");
        }
        out
    }
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<UpstreamTlsRequest>, String> {
        match (self.target.fixed(), &self.tls) {
            (Some(place), Some(tls)) if place.origin.tls => tls.wanted(r, &place.origin.host, address).map(Some),
            _ => Ok(None),
        }
    }
    fn timeouts(&self) -> Timeouts {
        let conf = &self.conf;
        Timeouts { connect: conf.connect_timeout, send: conf.send_timeout, read: conf.read_timeout }
    }
    fn head_max(&self) -> usize {
        self.conf.buffer_size as usize
    }
}

/// Maximum size in bytes of a proxied request's task.
const TASK_BYTES_MAX: usize = 1024;

struct PassHandler {
    plan: Arc<PassPlan>,
    in_place: bool,
}

/// Tells whether all requests use tasks and whole heads: tests compare their results with those in place.
fn is_reference() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| std::env::var_os("TIDEGATE_EXCHANGE").is_some_and(|value| value == "task"))
}

impl Handler for PassHandler {
    fn run(&self, r: &mut Request) -> Flow {
        if let Err(status) = self.plan.protocol.admits(r) {
            return Flow::Status(status);
        }
        if let Some(caching) = &self.plan.caching {
            let give = |r: &mut Request, head: &_, buf: &_| response::take_stored(&self.plan, r, head, buf);
            if let Some(flow) = caching::at_once(caching, r, &give, |r| self.plan.target.key(r)) {
                return flow;
            }
        }
        if self.in_place
            && let Some(flow) = UpstreamExchange::in_place(&self.plan, r)
        {
            return flow;
        }
        let plan = self.plan.clone();
        Flow::Later(Box::new(move |mut r| {
            let task = async move {
                let flow = task::run_exchange(&plan, &mut r).await;
                (r, flow)
            };
            // The task is moved at the start of every request: rare parts are boxed.
            debug_assert!(size_of_val(&task) <= TASK_BYTES_MAX, "{} bytes", size_of_val(&task));
            Box::pin(task)
        }))
    }
}
