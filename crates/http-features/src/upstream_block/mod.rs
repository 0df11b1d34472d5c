//! The `upstream` block (nginx: `ngx_http_upstream_module` and its balancers): servers, how one is chosen, what is kept.

use crate::shared::groups::Groups;
use conf_schema::value::{Msec, Number, parse_sec, parse_size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature, Template, listen};
use std::any::Any;
use std::sync::Arc;
use upstream::{Address, Group, KeepAlive, Method, PeerSpec};

directives! {
    /// What an upstream block is told.
    pub struct UpstreamConf from UpstreamInput {
        /// A server of the group, and its parameters.
        server: Servers,
        /// Chooses the server with the fewest connections.
        least_conn: Marker,
        /// Chooses by the client's address.
        ip_hash: Marker,
        /// Chooses by a key.
        hash: HashKey,
        /// Chooses at random, or the better of two.
        random: RandomValue,
        /// Idle connections that each thread keeps to the group.
        keepalive: KeepaliveValue,
        /// Requests after which a connection is closed.
        keepalive_requests: Number,
        /// Age at which a connection is closed.
        keepalive_time: Msec,
        /// How long an idle connection is kept.
        keepalive_timeout: Msec,
        /// Shared memory of the group: ours is always shared by all threads; name and size are checked.
        zone: Zone,
    }
}

/// A directive without arguments.
#[derive(Clone, Copy)]
pub struct Marker;

impl Value for Marker {
    const SYNTAX: &'static str = "";
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        Ok(Marker)
    }
}

/// `hash key [consistent]`
#[derive(Clone)]
pub struct HashKey {
    key: Template,
    consistent: bool,
}

impl Value for HashKey {
    const SYNTAX: &'static str = "key [consistent]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key = Template::parse(cx, d)?;
        let consistent = match d.args.get(1).map(|w| w.text().into_owned()).as_deref() {
            None => false,
            Some("consistent") => true,
            Some(other) => return Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
        };
        Ok(HashKey { key, consistent })
    }
}

/// `random [two [least_conn]]`
#[derive(Clone, Copy)]
pub struct RandomValue {
    two: bool,
}

impl Value for RandomValue {
    const SYNTAX: &'static str = "[two [method]]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |i: usize| d.args.get(i).map(|w| w.text().into_owned());
        match (word(0).as_deref(), word(1).as_deref()) {
            (None, _) => Ok(RandomValue { two: false }),
            (Some("two"), None | Some("least_conn")) => Ok(RandomValue { two: true }),
            (Some("two"), Some(other)) => Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
            (Some(other), _) => Err(Problem::says(format!("invalid parameter \"{other}\"")).at(0)),
        }
    }
}

/// `keepalive connections [local]`
#[derive(Clone, Copy)]
pub struct KeepaliveValue {
    connections: usize,
    local: bool,
}

impl Value for KeepaliveValue {
    const SYNTAX: &'static str = "connections [local]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let connections = word
            .parse::<usize>()
            .map_err(|_| Problem::says(format!("invalid value \"{word}\" in \"keepalive\" directive")).at(0))?;
        let local = match d.args.get(1).map(|w| w.text().into_owned()).as_deref() {
            None => false,
            Some("local") => true,
            Some(other) => return Err(Problem::says(format!("invalid parameter \"{other}\"")).at(1)),
        };
        Ok(KeepaliveValue { connections, local })
    }
}

/// `zone name [size]`
#[derive(Clone)]
pub struct Zone;

impl Value for Zone {
    const SYNTAX: &'static str = "name [size]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        if name.is_empty() {
            return Err(Problem::says("invalid zone name \"\"").at(0));
        }
        if let Some(size) = d.args.get(1) {
            let bytes = parse_size(&size.bytes)
                .ok_or_else(|| Problem::says(format!("invalid zone size \"{}\"", size.text())).at(1))?;
            if bytes < 8 * 4096 {
                return Err(Problem::says(format!("zone \"{name}\" is too small")).at(1));
            }
        }
        Ok(Zone)
    }
}

/// The servers of the block in order, an entry an address.
#[derive(Clone)]
pub struct Servers(Vec<PeerSpec>);

impl Value for Servers {
    const SYNTAX: &'static str = "address [parameter ...]";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let addresses =
            listen::addresses(&name, 80).map_err(|why| Problem::says(format!("{why} in upstream \"{name}\"")).at(0))?;
        let mut spec = PeerSpec::new(name, Address::Unix("".into()));
        for (index, word) in d.args.iter().enumerate().skip(1) {
            parameter(&mut spec, &word.text()).map_err(|p| p.at(index))?;
        }
        let specs = addresses.into_iter().map(|a| {
            let address = match a {
                net::listen::Address::Ip(ip) => Address::Ip(ip),
                net::listen::Address::Unix(path) => Address::Unix(path),
            };
            PeerSpec { address, ..spec.clone() }
        });
        Ok(Servers(specs.collect()))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn parameter(spec: &mut PeerSpec, text: &str) -> Result<(), Problem> {
    let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
    let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
    let number = || value.and_then(|v| v.parse::<u32>().ok()).ok_or_else(invalid);
    match (name, value) {
        ("weight", Some(_)) => spec.weight = number().and_then(|n| if n > 0 { Ok(n) } else { Err(invalid()) })?,
        ("max_conns", Some(_)) => spec.max_conns = number()?,
        ("max_fails", Some(_)) => spec.max_fails = number()?,
        ("fail_timeout", Some(v)) => spec.fail_timeout_ms = parse_sec(v.as_bytes()).ok_or_else(invalid)? * 1000,
        ("backup", None) => spec.backup = true,
        ("down", None) => spec.down = true,
        ("route", Some(v)) if v.len() <= 32 => spec.route = v.into(),
        _ => return Err(invalid()),
    }
    Ok(())
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
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &Directive, cx: &mut Cx) -> Result<(), Problem> {
        let conf = own.and_then(|own| own.downcast::<UpstreamInput>().ok()).map(|input| input.resolve());
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(conf) = conf.filter(|c| c.server.is_some()) else {
            return Err(Problem::says("no servers are inside upstream"));
        };
        let specs = conf.server.map(|s| s.0).unwrap_or_default();
        let mut key = None;
        let mut method = Method::RoundRobin;
        if conf.least_conn.is_some() {
            method = Method::LeastConn;
        } else if conf.ip_hash.is_some() {
            method = Method::IpHash;
        } else if let Some(hash) = conf.hash {
            method = Method::Hash(hash.consistent);
            key = Some(hash.key);
        } else if let Some(random) = conf.random {
            method = Method::Random { two: random.two };
        }
        if matches!(method, Method::Hash(_) | Method::IpHash | Method::Random { .. }) && specs.iter().any(|s| s.backup)
        {
            return Err(Problem::says("balancing method does not support parameter \"backup\""));
        }
        let mut keep = KeepAlive::default();
        if let Some(k) = conf.keepalive {
            keep.connections = k.connections;
            keep.local = k.local;
        }
        keep.requests_max = conf.keepalive_requests.map_or(keep.requests_max, |n| n.0);
        keep.time_ms = conf.keepalive_time.map_or(keep.time_ms, |n| n.0);
        keep.timeout_ms = conf.keepalive_timeout.map_or(keep.timeout_ms, |n| n.0);
        let group = Arc::new(Group::new(&name, specs, method, keep, true));
        cx.get::<Groups>().add(&name, group, key)
    }
}
