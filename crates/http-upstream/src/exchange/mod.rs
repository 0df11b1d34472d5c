//! Passing a request on to servers, whatever the protocol (nginx: `ngx_http_upstream.c`).
//!
//! `conf.rs` has the table that each protocol mounts, `target.rs` says where to and under which URI, `run.rs` chooses servers and
//! tries them, `conversation.rs` talks with one, `response.rs` turns the answer into ours, `storage.rs` has what is stored of it,
//! `body.rs` passes the body on, piece by piece, as fast as the client takes it. What a protocol adds is a [`Protocol`], and the
//! `upstream::SerialCodec` that it makes for each connection.

pub mod block;
pub mod body;
pub mod conf;
mod conversation;
mod direct;
mod early_hints;
pub mod fuzzing;
mod light;
mod response;
mod run;
mod storage;
pub mod target;

use crate::caching::{self, CacheRequest, Caching, Storing};
use crate::groups::UpstreamRef;
use crate::probing::{Prober, Probing, Timeouts};
use crate::tls::{UpstreamTls, Wanted};
use conf::PassConf;
use conf_schema::Problem;
use http_engine::plan::Folder;
use http_engine::{BlockPlan, Flow, Handler, Request};
use http_types::{BodyLength, Method, NameSet};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use target::{Bound, UpstreamTarget};
use upstream::SerialCodec;

/// How the body of a request is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    Nothing,
    Length(u64),
    /// As it comes, without a length.
    Chunked,
}

/// A protocol towards servers, as one location speaks it.
pub trait Protocol: Send + Sync {
    /// The client's side of a new connection; `None`: it carries many streams.
    fn codec(&self) -> Option<Box<dyn SerialCodec>>;
    /// Whether connections carry many streams (HTTP/2); [`Protocol::write`] then writes a header block.
    fn multiplexes(&self) -> bool {
        false
    }
    /// Looks at a request before anything else is done with it.
    ///
    /// # Errors
    /// The status that it ends with.
    fn admits(&self, r: &mut Request) -> Result<(), u16> {
        let _ = r;
        Ok(())
    }
    /// Writes all that goes before the body. `false`: it says something else of the body's length than is so, as the operator wants
    /// it; a server could take the body for another request, so that the connection must not see another one.
    ///
    /// # Errors
    /// The status that the request ends with.
    fn write(
        &self,
        plan: &PassPlan,
        r: &mut Request,
        target: &UpstreamTarget<'_>,
        announce: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16>;
    /// The same of a request that only asks how the server is, in HTTP/1.1: what [`Prober`] sends.
    fn write_probe(&self, plan: &PassPlan, r: &mut Request, target: &UpstreamTarget<'_>, out: &mut Vec<u8>) {
        let _ = (plan, r, target, out);
    }
    /// The method that the server sees: whether its answer has a body.
    fn method(&self, r: &mut Request) -> Method {
        if CacheRequest::of(r).is_some_and(|asking| asking.as_get) { Method::Get } else { r.head.method }
    }
    /// Whether a body can be passed on as it comes.
    fn may_stream(&self, length: BodyLength) -> bool {
        let _ = length;
        true
    }
    /// The rest of a request is sent while the response is read.
    fn goes_both_ways(&self) -> bool {
        false
    }
    /// Whether a server says who it is and what time it has: a client is told no other, where that is passed on.
    fn says_server_and_date(&self) -> bool {
        false
    }
    /// Responses are heads of HTTP/1 that pass unchanged but for hidden fields, and for those that [`Protocol::redirect`] is
    /// asked about; `Some(true)`: cookies do, too.
    fn relays(&self) -> Option<bool> {
        None
    }
    /// A URL of the server's (`Location`, `Refresh`), as the client is told it; `None`: as it is.
    fn redirect(&self, r: &mut Request, url: &[u8]) -> Option<Vec<u8>> {
        let _ = (r, url);
        None
    }
    /// The same for a `Set-Cookie`.
    fn cookie(&self, r: &mut Request, value: &[u8]) -> Option<Vec<u8>> {
        let _ = (r, value);
        None
    }
}

/// Everything that one location's passing on needs, prepared.
pub struct PassPlan {
    pub conf: PassConf,
    pub protocol: Box<dyn Protocol>,
    pub target: Bound,
    /// Which connections are its own (`keepalive ... local`): a number, unique in the process.
    own_scope: usize,
    /// Which connections of a group it shares with other locations: those of its protocol.
    shared_scope: usize,
    /// Names of response fields that are not passed on.
    pub hidden: NameSet,
    pub caching: Option<Arc<Caching>>,
    pub storing: Option<Arc<Storing>>,
    /// How connections over TLS are made.
    pub tls: Option<UpstreamTls>,
    /// See `light.rs`.
    light: bool,
}

/// Fields of responses that are for us, whatever the protocol.
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
    pub fn new(conf: PassConf, protocol: Box<dyn Protocol>, target: Bound, hidden: NameSet) -> PassPlan {
        static SCOPES: AtomicUsize = AtomicUsize::new(1);
        let own_scope = SCOPES.fetch_add(1, Ordering::Relaxed);
        // Far away from the numbers of locations.
        let shared_scope = conf.prefix.bytes().fold(usize::MAX / 2, |n, byte| n.rotate_left(7) ^ usize::from(byte));
        PassPlan {
            conf,
            protocol,
            target,
            own_scope,
            shared_scope,
            hidden,
            caching: None,
            storing: None,
            tls: None,
            light: false,
        }
    }
    /// Whose idle connections its requests may use.
    fn scope(&self, group: &upstream::Group) -> usize {
        if group.keepalive.local { self.own_scope } else { self.shared_scope }
    }
    /// Makes it a location's content.
    ///
    /// # Errors
    /// What the protocol's own part of the location says wrongly.
    pub fn mount(mut self, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(temp) = &self.conf.temp_path {
            let folder = Folder { path: temp.path.clone(), needed: false };
            if !block.folders.contains(&folder) {
                block.folders.push(folder);
            }
        }
        let location = &mut block.location;
        location.auto_redirect = location.name.ends_with(b"/") && !location.regex && !location.exact;
        if let Some(origin) = self.target.origin() {
            location.extensions.push(origin);
        }
        let prefix = self.conf.prefix;
        self.caching = location.all::<Arc<Caching>>().find(|caching| caching.family == prefix).cloned();
        self.storing = location.all::<Arc<Storing>>().find(|storing| storing.family == prefix).cloned();
        location.passes = true;
        self.light = light::is_possible(&self);
        let plan = Arc::new(self);
        location.extensions.push(Arc::new(Probing(plan.clone())));
        let in_place = direct::is_possible(&plan) && !is_reference();
        location.content = Some(Arc::new(Pass { plan, in_place }));
        Ok(())
    }
}

impl Prober for PassPlan {
    fn named(&self) -> Option<UpstreamRef> {
        match &self.target {
            Bound::Fixed { named, .. } if self.conf.prefix == "proxy" => Some(named.clone()),
            _ => None,
        }
    }
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        if let Bound::Fixed { named, origin, .. } = &self.target {
            let (named, origin) = (Cow::Borrowed(named), Cow::Borrowed(origin));
            let target = UpstreamTarget { named, origin, uri: Some(uri.as_bytes().into()) };
            self.protocol.write_probe(self, r, &target, &mut out);
        }
        let told = out.windows(13).any(|w| w.eq_ignore_ascii_case(b"\r\nconnection:"));
        if close && !told && out.ends_with(b"\r\n\r\n") {
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"Connection: close\r\n\r\n");
        }
        out
    }
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<Wanted>, String> {
        match (&self.target, &self.tls) {
            (Bound::Fixed { origin, .. }, Some(tls)) if origin.tls => tls.wanted(r, &origin.host, address).map(Some),
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

/// What a proxied request's task may take, in bytes.
const TASK_BYTES_MAX: usize = 1024;

struct Pass {
    plan: Arc<PassPlan>,
    /// See `direct.rs`.
    in_place: bool,
}

/// Everything goes by way of `run.rs`: tests compare what comes of it with what is done in place.
fn is_reference() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| std::env::var_os("TIDEGATE_EXCHANGE").is_some_and(|value| value == "task"))
}

impl Handler for Pass {
    fn run(&self, r: &mut Request) -> Flow {
        if let Err(status) = self.plan.protocol.admits(r) {
            return Flow::Status(status);
        }
        if let Some(caching) = &self.plan.caching {
            let give = |r: &mut Request, head: &_, buf: &_| response::take(&self.plan, r, head, buf);
            if let Some(flow) = caching::at_once(caching, r, &give, |r| self.plan.target.key(r)) {
                return flow;
            }
        }
        if self.in_place && direct::is_for(r) {
            return Flow::Exchange(direct::Direct::new(&self.plan));
        }
        let plan = self.plan.clone();
        Flow::Later(Box::new(move |mut r| {
            let task = async move {
                let flow = run::run(&plan, &mut r, None).await;
                (r, flow)
            };
            // It is moved when it begins, with every request: what is rare has boxes of its own.
            debug_assert!(size_of_val(&task) <= TASK_BYTES_MAX, "{} bytes", size_of_val(&task));
            Box::pin(task)
        }))
    }
}
