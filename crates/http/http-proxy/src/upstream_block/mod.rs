//! The `upstream` block (nginx: `ngx_http_upstream_module` and balancers). `sticky.rs` parses `sticky`, `ours.rs`
//! Tidegate's own directives, `upstream_directives` servers and balancers.

mod ours;
mod sticky;

use area::zones;
use conf_schema::value::{Msec, Number};
use conf_schema::{At, ContextArea, Cx, Directive, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HttpArea, HttpBuild};
use http_upstream::groups::{HttpGroups, RequestRules, UpstreamRef};
use http_upstream::resolving::{HttpResolver, ResolveRules, ResolverLine};
use ours::{EjectionValue, RetryBudget};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use sticky::StickyValue;
use upstream::names::NameTask;
use upstream::{BalanceMethod, Extras, Group, KeepAlive, ServerSource};
use upstream_directives::inventory::{Inventory, ListedGroup};
use upstream_directives::managed;
use upstream_directives::methods::{self, KeepaliveValue, LeastTime, Marker, QueueValue, RandomValue, Zone};
use upstream_directives::servers::{Servers, check_parameters};
use upstream_directives::state::StateValue;

type HashKey = methods::HashKey<HttpArea>;

directives! {
    pub struct UpstreamConf from UpstreamInput {
        /// Adds a server to the group, with parameters.
        /// Differs: a name that does not resolve causes a warning, and the server is not used until it resolves; nginx
        /// rejects the configuration.
        server: Servers,
        /// Selects the server with the fewest active connections, relative to its weight.
        least_conn: Marker,
        /// Selects the server by the client's address: the first three octets of IPv4, all of IPv6.
        ip_hash: Marker,
        /// Selects the server by the hash of a key.
        hash: HashKey,
        /// Selects a random server, or the better of two.
        random: RandomValue,
        /// Selects the server with the lowest average time and fewest connections.
        least_time: LeastTime,
        /// Binds clients to servers: by a cookie, by a route in the request, or by learned sessions.
        sticky: StickyValue,
        /// Queues requests while no server can accept them.
        queue: QueueValue,
        /// Maximum number of idle connections to the group, per worker thread.
        keepalive: KeepaliveValue,
        /// Binds a connection to a server to the client's connection, once the client sends `Authorization` with `Negotiate` or `NTLM`:
        /// its later requests are passed over this connection only. Needs idle connections (`keepalive`).
        /// Differs: clients over HTTP/2, HTTP/3 and UNIX-domain sockets are not bound (each of their logins gets a connection that is not kept), and neither are connections to servers over HTTP/2.
        ntlm: Marker,
        /// Maximum number of requests per connection.
        keepalive_requests: Number,
        /// Maximum age of a connection.
        keepalive_time: Msec,
        /// Maximum idle time of a connection.
        keepalive_timeout: Msec,
        /// Counts every server of the group in `metrics`. All threads always share the state of a group; name and size
        /// are checked and have no further effect.
        zone: Zone,
        /// File that stores the servers of the group. `api` writes it, and every start reads it. Requires `zone`, and
        /// cannot be combined with `server` lines.
        state: StateValue,
        /// Name servers for the names of this group, instead of those of the http block.
        resolver: ResolverLine,
        /// Maximum time to resolve a name.
        resolver_timeout: Msec,
        /// Temporarily excludes a server whose responses fail (500, 502, 503, 504, or no response): after `errors`
        /// failures in a row (default: 5; 0 disables this rule), or if the share `rate` of `requests` (20) or more
        /// responses within `window` (10s) failed (without `rate` this rule is off). The first exclusion lasts `time`
        /// (30s), each further one as much longer, up to tenfold. At most `share` (50%) of the servers are excluded.
        outlier_ejection: EjectionValue,
        /// Maximum share of the group's requests of the last 10 seconds that may be retried with another server.
        /// `least` retries per second (default: 1) are permitted regardless.
        retry_budget: RetryBudget,
    }
}

pub struct UpstreamBlock;

impl Feature for UpstreamBlock {
    fn table(&self) -> FeatureTable {
        UpstreamConf::table("upstream_block", ContextArea::HttpUpstream)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        zones::check_shares(http.cx, Zone::kind(false))?;
        let inventory = Inventory::of(http.cx);
        inventory.http.set_present();
        // First: other work needs the servers of state files.
        http.background.insert(0, http.cx.get::<HttpGroups>().names.clone());
        Ok(())
    }
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &Directive, cx: &mut Cx) -> Result<(), Problem> {
        let input = own.and_then(|own| own.downcast::<UpstreamInput>().ok());
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(input) = input.filter(|input| input.server.is_some() || input.state.is_some()) else {
            return Err(Problem::says("no servers are inside upstream"));
        };
        check_parameters(d)?;
        let method = method(&input, d, cx);
        let named = make(&name, method, input.resolve(), cx)?;
        cx.get::<HttpGroups>().add(&name, named)
    }
}

fn make(
    name: &str,
    (method, key): (BalanceMethod, Option<http_engine::HttpTemplate>),
    conf: UpstreamConf,
    cx: &mut Cx,
) -> Result<UpstreamRef, Problem> {
    let lines = conf.server.map(|s| s.0).unwrap_or_default();
    managed::check_state(conf.state.as_ref(), conf.zone.as_ref(), !lines.is_empty())?;
    if conf.state.is_none() && lines.iter().all(|line| line.spec.backup) {
        return Err(Problem::says(format!("no servers in upstream \"{name}\"")));
    }
    let mut keep = KeepAlive::default();
    if let Some(k) = conf.keepalive {
        (keep.connections, keep.local) = (k.connections, k.local);
    }
    keep.ntlm = conf.ntlm.is_some();
    keep.requests_max = conf.keepalive_requests.map_or(keep.requests_max, |n| n.0);
    keep.time_ms = conf.keepalive_time.map_or(keep.time_ms, |n| n.0);
    keep.timeout_ms = conf.keepalive_timeout.map_or(keep.timeout_ms, |n| n.0);
    let resolving = resolving(conf.resolver, conf.resolver_timeout, cx);
    if lines.iter().any(|line| matches!(line.source, ServerSource::Resolved { .. })) {
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
        stream: false,
        roster: conf.zone.as_ref().map(|_| managed::state_roster(name, false, conf.state.as_ref())),
    };
    let group = Arc::new(Group::with(name, lines, method, keep, true, extras));
    let names = cx.get::<HttpGroups>().names.clone();
    let GroupLines { resolver, timeout } = resolving;
    let listed = ListedGroup {
        group: group.clone(),
        zone: conf.zone.map(|zone| zone.0),
        resolves: resolver.is_some(),
        state: conf.state.map(|state| state.0),
    };
    managed::list_group(cx, listed, &names);
    names.keep(NameTask { group: group.clone(), resolver, timeout });
    let sticky = conf.sticky.map(|s| s.finish(name, cx)).transpose()?;
    let rules = (key.is_some() || sticky.is_some()).then(|| Arc::new(RequestRules { key, sticky }));
    Ok(UpstreamRef { group, rules })
}

struct GroupLines {
    resolver: Option<Arc<resolver::NameResolver>>,
    timeout: Duration,
}

fn resolving(own: Option<ResolverLine>, own_timeout: Option<Msec>, cx: &mut Cx) -> GroupLines {
    let http: Option<ResolveRules> = cx.get::<HttpResolver>().resolving.clone();
    let outer_timeout = cx.get::<HttpResolver>().timeout.unwrap_or(Duration::from_secs(30));
    GroupLines {
        resolver: own.map(|line| line.0).or(http.map(|r| r.resolver)),
        timeout: own_timeout.map_or(outer_timeout, |t| t.duration()),
    }
}

/// Directives that choose a method.
const METHODS: [&[u8]; 5] = [b"least_conn", b"ip_hash", b"hash", b"random", b"least_time"];

/// Returns the last method; as in nginx, every further one gets a warning.
fn method(input: &UpstreamInput, d: &Directive, cx: &mut Cx) -> (BalanceMethod, Option<http_engine::HttpTemplate>) {
    let mut found = Vec::new();
    let mut add = |at: At, method, key| found.push((at.span.start, method, key));
    if let Some(given) = &input.least_conn {
        add(given.at, BalanceMethod::LeastConn, None);
    }
    if let Some(given) = &input.ip_hash {
        add(given.at, BalanceMethod::IpHash, None);
    }
    if let Some(given) = &input.hash {
        add(given.at, BalanceMethod::Hash(given.value.consistent), Some(given.value.key.clone()));
    }
    if let Some(given) = &input.random {
        add(given.at, given.value.0, None);
    }
    if let Some(given) = &input.least_time {
        add(given.at, given.value.0, None);
    }
    found.sort_by_key(|(start, ..)| *start);
    // A repeated method counts, too, as does a method behind `sticky`.
    let items = d.block.as_deref().unwrap_or_default();
    let is_method = |line: &&Directive| METHODS.contains(&&*line.name.bytes);
    let lines = conf_syntax::list_directives(items).into_iter();
    let lines = lines.filter(|line| is_method(line) || line.name.bytes == b"sticky");
    for again in lines.skip(1).filter(is_method) {
        cx.warn(again, "load balancing method redefined");
    }
    found.pop().map_or((BalanceMethod::RoundRobin, None), |(_, method, key)| (method, key))
}
