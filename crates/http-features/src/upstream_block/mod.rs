//! The `upstream` block (nginx: `ngx_http_upstream_module` and its balancers): servers, how one is chosen, what is kept.
//!
//! `sticky.rs` reads the arguments of `sticky`, `ours.rs` those of what nginx does not have; `server` lines and balancers are
//! read in `session_engine::upstreams`.

mod ours;
mod sticky;

use conf_schema::value::{Msec, Number};
use conf_schema::{Area, At, Cx, Directive, Problem, Table, directives};
use http_engine::{BlockPlan, Feature, HttpBuild};
use http_upstream::groups::{Groups, Rules, UpstreamRef};
use http_upstream::resolving::{HttpResolver, ResolverLine, Resolving};
use ours::{EjectionValue, RetryBudget};
use session_engine::upstreams::methods::{self, KeepaliveValue, LeastTime, Marker, QueueValue, RandomValue, Zone};
use session_engine::upstreams::servers::Servers;
use session_engine::zones;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use sticky::StickyValue;
use upstream::names::Naming;
use upstream::{Extras, Group, KeepAlive, Method, Source};

type HashKey = methods::HashKey<http_engine::Request>;

directives! {
    /// What an upstream block is told.
    pub struct UpstreamConf from UpstreamInput {
        /// A server of the group, and its parameters.
        /// Differs: a name that does not resolve is a warning of -t and of a start, and the server is out of use until it does; nginx refuses the
        /// configuration.
        server: Servers,
        /// Chooses the server with the fewest connections.
        least_conn: Marker,
        /// Chooses by the client's address.
        ip_hash: Marker,
        /// Chooses by a key.
        hash: HashKey,
        /// Chooses at random, or the better of two.
        random: RandomValue,
        /// Chooses the server that is likely to be done first, by its average times and its connections.
        least_time: LeastTime,
        /// Binds clients to servers: by a cookie of ours, a route in the request, or sessions that are learnt.
        sticky: StickyValue,
        /// Requests that no server can take wait until one can.
        queue: QueueValue,
        /// Idle connections that each thread keeps to the group.
        keepalive: KeepaliveValue,
        /// Requests after which a connection is closed.
        keepalive_requests: Number,
        /// Age at which a connection is closed.
        keepalive_time: Msec,
        /// How long an idle connection is kept.
        keepalive_timeout: Msec,
        /// Has every server of the group counted (`metrics`). Shared memory it needs not: ours is always shared by all threads; name
        /// and size are checked.
        zone: Zone,
        /// Name servers for the group's own names; else those of the http block.
        resolver: ResolverLine,
        /// How long a name may take.
        resolver_timeout: Msec,
        /// Puts a server aside for a while that answers with errors (500, 502, 503, 504) or not at all.
        outlier_ejection: EjectionValue,
        /// The share of the group's requests that may be tried again with another server.
        retry_budget: RetryBudget,
    }
}

/// The feature.
pub struct UpstreamBlock;

impl Feature for UpstreamBlock {
    fn table(&self) -> Table {
        UpstreamConf::table("upstream_block", Area::HttpUpstream)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        zones::check_shares(http.cx, Zone::kind(false))?;
        http.background.push(http.cx.get::<Groups>().names.clone());
        Ok(())
    }
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &Directive, cx: &mut Cx) -> Result<(), Problem> {
        let input = own.and_then(|own| own.downcast::<UpstreamInput>().ok());
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(input) = input.filter(|input| input.server.is_some()) else {
            return Err(Problem::says("no servers are inside upstream"));
        };
        let method = method(&input, d, cx);
        let named = make(&name, method, input.resolve(), cx)?;
        cx.get::<Groups>().add(&name, named)
    }
}

fn make(
    name: &str,
    (method, key): (Method, Option<http_engine::Template>),
    conf: UpstreamConf,
    cx: &mut Cx,
) -> Result<UpstreamRef, Problem> {
    let lines = conf.server.map(|s| s.0).unwrap_or_default();
    if !method.takes_backups() && lines.iter().any(|line| line.spec.backup) {
        return Err(Problem::says("balancing method does not support parameter \"backup\""));
    }
    if !method.takes_backups() && lines.iter().any(|line| line.spec.slow_start_ms > 0) {
        return Err(Problem::says("balancing method does not support parameter \"slow_start\""));
    }
    if lines.iter().all(|line| line.spec.backup) {
        return Err(Problem::says(format!("no servers in upstream \"{name}\"")));
    }
    let mut keep = KeepAlive::default();
    if let Some(k) = conf.keepalive {
        (keep.connections, keep.local) = (k.connections, k.local);
    }
    keep.requests_max = conf.keepalive_requests.map_or(keep.requests_max, |n| n.0);
    keep.time_ms = conf.keepalive_time.map_or(keep.time_ms, |n| n.0);
    keep.timeout_ms = conf.keepalive_timeout.map_or(keep.timeout_ms, |n| n.0);
    let resolving = resolving(conf.resolver, conf.resolver_timeout, cx);
    if lines.iter().any(|line| matches!(line.source, Source::Resolved { .. })) {
        if conf.zone.is_none() {
            return Err(Problem::says(format!(
                "resolving names at run time requires upstream \"{name}\" to be in shared memory"
            ))
            .hint("add a \"zone\" directive"));
        }
        if resolving.resolver.is_none() {
            let words = format!("no resolver defined to resolve names at run time in upstream \"{name}\"");
            return Err(Problem::says(words));
        }
    }
    let extras = Extras {
        queue: conf.queue.map(|q| q.0),
        ejection: conf.outlier_ejection.map(|e| e.0),
        budget: conf.retry_budget.map(|b| b.0),
        counted: conf.zone.is_some(),
    };
    let group = Arc::new(Group::with(name, lines, method, keep, true, extras));
    let Wanted { resolver, timeout } = resolving;
    cx.get::<Groups>().names.keep(Naming { group: group.clone(), resolver, timeout });
    let sticky = conf.sticky.map(|s| s.finish(name, cx)).transpose()?;
    let rules = (key.is_some() || sticky.is_some()).then(|| Arc::new(Rules { key, sticky }));
    Ok(UpstreamRef { group, rules })
}

/// Who is asked for names.
struct Wanted {
    resolver: Option<Arc<upstream::resolver::Resolver>>,
    timeout: Duration,
}

fn resolving(own: Option<ResolverLine>, own_timeout: Option<Msec>, cx: &mut Cx) -> Wanted {
    let http: Option<Resolving> = cx.get::<HttpResolver>().resolving.clone();
    let outer_timeout = cx.get::<HttpResolver>().timeout.unwrap_or(Duration::from_secs(30));
    Wanted {
        resolver: own.map(|line| line.0).or(http.map(|r| r.resolver)),
        timeout: own_timeout.map_or(outer_timeout, |t| t.duration()),
    }
}

/// The method that was named last; more than one is said to be a mistake, as in nginx.
fn method(input: &UpstreamInput, d: &Directive, cx: &mut Cx) -> (Method, Option<http_engine::Template>) {
    let mut found = Vec::new();
    let mut add = |at: At, method, key| found.push((at.span.start, at, method, key));
    if let Some(given) = &input.least_conn {
        add(given.at, Method::LeastConn, None);
    }
    if let Some(given) = &input.ip_hash {
        add(given.at, Method::IpHash, None);
    }
    if let Some(given) = &input.hash {
        add(given.at, Method::Hash(given.value.consistent), Some(given.value.key.clone()));
    }
    if let Some(given) = &input.random {
        add(given.at, given.value.0, None);
    }
    if let Some(given) = &input.least_time {
        add(given.at, given.value.0, None);
    }
    found.sort_by_key(|(start, ..)| *start);
    for (_, at, ..) in found.iter().skip(1) {
        let place = Directive { span: at.span, line: at.line, ..d.clone() };
        cx.warn(&place, "load balancing method redefined");
    }
    found.pop().map_or((Method::RoundRobin, None), |(_, _, method, key)| (method, key))
}
