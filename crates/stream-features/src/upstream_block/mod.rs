//! The `upstream` block (nginx: `ngx_stream_upstream_module` and balancers); see `upstream_directives` and the
//! crate `upstream`.

use crate::StreamArea;
use crate::build::{Feature, StreamBuild};
use crate::groups::{SessionCounts, SessionRules, StreamGroups, StreamResolver, UpstreamRef};
use area::zones;
use conf_schema::value::Msec;
use conf_schema::{At, ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use upstream::balance::Time;
use upstream::names::NameTask;
use upstream::{BalanceMethod, Extras, Group, KeepAlive, ServerSource};
use upstream_directives::ResolverLine;
use upstream_directives::inventory::{Inventory, ListedGroup};
use upstream_directives::managed;
use upstream_directives::methods::{self, Marker, RandomValue, Zone};
use upstream_directives::servers::{StreamServers, check_parameters};
use upstream_directives::state::StateValue;

type HashKey = methods::HashKey<StreamArea>;

directives! {
    pub struct UpstreamConf from UpstreamInput {
        /// Adds a server to the group, with parameters.
        /// Differs: a name that does not resolve causes a warning, and the server is not used until it resolves; nginx
        /// rejects the configuration.
        server: StreamServers,
        /// Selects the server with the fewest connections, relative to its weight.
        least_conn: Marker,
        /// Selects the server by the hash of a key.
        hash: HashKey,
        /// Selects a random server, or the better of two.
        random: Random,
        /// Selects the server with the lowest average time and fewest connections.
        least_time: LeastTime,
        /// Name and size of shared memory. The values are checked; the state of a group is always shared by all
        /// threads.
        zone: Zone,
        /// File that stores the servers of the group. `api` writes it, and every start reads it. Requires `zone`, and
        /// cannot be combined with `server` lines.
        state: StateValue,
        /// Name servers for the names of this group, instead of those of the stream block.
        resolver: ResolverLine,
        /// Maximum time to resolve a name.
        resolver_timeout: Msec,
    }
}

fn time(text: &str) -> Option<(Time, SessionCounts)> {
    Some(match text {
        "connect" => (Time::Header, SessionCounts::Connect),
        "first_byte" => (Time::Header, SessionCounts::FirstByte),
        "last_byte" => (Time::LastByte, SessionCounts::FirstByte),
        _ => return None,
    })
}

#[derive(Clone, Copy)]
pub struct LeastTime(BalanceMethod, SessionCounts);

impl ValueKind for LeastTime {
    const SYNTAX: &'static str = "connect | first_byte | last_byte [inflight]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |index: usize| d.args.get(index).map(|w| w.text().into_owned());
        let text = word(0).unwrap_or_default();
        let Some((time, counts)) = time(&text) else {
            return Err(Problem::says(format!("invalid value \"{text}\"")).at(0));
        };
        match word(1).as_deref() {
            None => Ok(LeastTime(BalanceMethod::LeastTime { time, inflight: false }, counts)),
            Some("inflight") => Ok(LeastTime(BalanceMethod::LeastTime { time, inflight: true }, counts)),
            Some(other) => Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Random(BalanceMethod, SessionCounts);

impl ValueKind for Random {
    const SYNTAX: &'static str =
        "[two [least_conn | least_time=connect | least_time=first_byte | least_time=last_byte]]";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let by_time = match d.args.get(1).map(|w| w.text().into_owned()) {
            Some(text) if d.args.first().is_some_and(|w| w.bytes == b"two") => {
                text.strip_prefix("least_time=").and_then(time)
            }
            _ => None,
        };
        match by_time {
            Some((time, counts)) => Ok(Random(BalanceMethod::Two(Some(time)), counts)),
            None if d.args.get(1).is_some_and(|w| w.bytes.starts_with(b"least_time=")) => {
                let text = d.args.get(1).map(|w| w.text().into_owned()).unwrap_or_default();
                Err(Problem::says(format!("invalid parameter \"{text}\"")).at(1))
            }
            None => RandomValue::parse(cx, d).map(|value| Random(value.0, SessionCounts::FirstByte)),
        }
    }
}

pub struct UpstreamBlock;

impl Feature for UpstreamBlock {
    fn table(&self) -> FeatureTable {
        UpstreamConf::table("upstream_block", ContextArea::StreamUpstream)
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        zones::check_shares(stream.cx, Zone::kind(true))?;
        let names = stream.cx.get::<StreamGroups>().names.clone();
        Inventory::of(stream.cx).stream.set_present();
        stream.background.insert(0, names);
        Ok(())
    }
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &Directive, cx: &mut Cx) -> Result<(), Problem> {
        let input = own.and_then(|own| own.downcast::<UpstreamInput>().ok());
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(input) = input.filter(|input| input.server.is_some() || input.state.is_some()) else {
            return Err(Problem::says("no servers are inside upstream"));
        };
        check_parameters(d)?;
        let (method, rules) = method(&input, d, cx);
        let named = make(&name, method, rules, input.resolve(), cx)?;
        cx.get::<StreamGroups>().add(&name, named)
    }
}

fn make(
    name: &str,
    method: BalanceMethod,
    rules: SessionRules,
    conf: UpstreamConf,
    cx: &mut Cx,
) -> Result<UpstreamRef, Problem> {
    let lines = conf.server.map(|s| s.0).unwrap_or_default();
    managed::check_state(conf.state.as_ref(), conf.zone.as_ref(), !lines.is_empty())?;
    if conf.state.is_none() && lines.iter().all(|line| line.spec.backup) {
        return Err(Problem::says(format!("no servers in upstream \"{name}\"")));
    }
    let area = cx.get::<StreamResolver>();
    let outer = area.resolving.clone();
    let outer_timeout = area.timeout.unwrap_or(Duration::from_secs(30));
    let resolver = conf.resolver.map(|line| line.0).or(outer.map(|r| r.resolver));
    let timeout = conf.resolver_timeout.map_or(outer_timeout, |t| t.duration());
    if lines.iter().any(|line| matches!(line.source, ServerSource::Resolved { .. })) {
        if conf.zone.is_none() {
            let words = format!("resolving names at run time requires upstream \"{name}\" to be in shared memory");
            return Err(Problem::says(words).hint("add a \"zone\" directive"));
        }
        if resolver.is_none() {
            let words = format!("no resolver defined to resolve names at run time in upstream \"{name}\"");
            return Err(Problem::says(words));
        }
    }
    let roster = conf.zone.as_ref().map(|_| managed::state_roster(name, true, conf.state.as_ref()));
    let extras = Extras { counted: conf.zone.is_some(), stream: true, roster, ..Extras::default() };
    let group = Arc::new(Group::with(name, lines, method, KeepAlive::none(), true, extras));
    let names = cx.get::<StreamGroups>().names.clone();
    let listed = ListedGroup {
        group: group.clone(),
        zone: conf.zone.map(|zone| zone.0),
        resolves: resolver.is_some(),
        state: conf.state.map(|state| state.0),
    };
    managed::list_group(cx, listed, &names);
    names.keep(NameTask { group: group.clone(), resolver, timeout });
    Ok(UpstreamRef { group, rules: Some(Arc::new(rules)) })
}

/// Directives that choose a method.
const METHODS: [&[u8]; 4] = [b"least_conn", b"hash", b"random", b"least_time"];

/// Returns the last method; as in nginx, every further one gets a warning.
fn method(input: &UpstreamInput, d: &Directive, cx: &mut Cx) -> (BalanceMethod, SessionRules) {
    let mut found: Vec<(At, BalanceMethod, SessionRules)> = Vec::new();
    if let Some(given) = &input.least_conn {
        found.push((given.at, BalanceMethod::LeastConn, SessionRules::default()));
    }
    if let Some(given) = &input.hash {
        let rules = SessionRules { key: Some(given.value.key.clone()), ..SessionRules::default() };
        found.push((given.at, BalanceMethod::Hash(given.value.consistent), rules));
    }
    if let Some(given) = &input.random {
        found.push((given.at, given.value.0, SessionRules { counts: given.value.1, ..SessionRules::default() }));
    }
    if let Some(given) = &input.least_time {
        found.push((given.at, given.value.0, SessionRules { counts: given.value.1, ..SessionRules::default() }));
    }
    found.sort_by_key(|(at, ..)| at.span.start);
    // A repeated method counts, too.
    let items = d.block.as_deref().unwrap_or_default();
    let lines = conf_syntax::list_directives(items).into_iter().filter(|line| METHODS.contains(&&*line.name.bytes));
    for again in lines.skip(1) {
        cx.warn(again, "load balancing method redefined");
    }
    found.pop().map_or((BalanceMethod::RoundRobin, SessionRules::default()), |(_, method, rules)| (method, rules))
}
