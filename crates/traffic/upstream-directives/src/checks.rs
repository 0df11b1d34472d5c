//! Health checks of a group's servers: when a server is probed, and how probes decide about it. The areas probe.

use crate::shared_checks::{CheckSharing, SharedPasses};
use area::shared_store::StoreSlot;
use area::unopened_failure;
use conf_schema::value::{parse_decimal, parse_msec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Line;
use net::Address;
use observe::{ErrorLog, Severity, os_error};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use upstream::{CheckState, Group, Peer};

/// Parameters of `health_check` in all areas.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The line as written, which identifies servers' states over a reload.
    pub id: String,
    pub interval_ms: u64,
    pub jitter_ms: u64,
    pub fails: u32,
    pub passes: u32,
    pub mandatory: bool,
    pub persistent: bool,
    pub port: Option<u16>,
    /// `sync`
    pub sharing: Option<CheckSharing>,
}

impl Schedule {
    pub fn new(id: String) -> Schedule {
        Schedule {
            id,
            interval_ms: 5000,
            jitter_ms: 0,
            fails: 1,
            passes: 1,
            mandatory: false,
            persistent: false,
            port: None,
            sharing: None,
        }
    }

    /// Takes a parameter. `false`: it belongs to the area, whose name is `area`.
    pub fn take(&mut self, cx: &mut Cx, area: &'static str, text: &str) -> Result<bool, Problem> {
        let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
        let (name, value) = text.split_once('=').map_or((text, ""), |(n, v)| (n, v));
        let time = || parse_msec(value.as_bytes()).ok_or_else(invalid);
        let count = || parse_decimal::<u32>(value).filter(|n| *n > 0).ok_or_else(invalid);
        match name {
            "interval" => self.interval_ms = time().and_then(|ms| if ms > 0 { Ok(ms) } else { Err(invalid()) })?,
            "jitter" => self.jitter_ms = time()?,
            "fails" => self.fails = count()?,
            "passes" => self.passes = count()?,
            "mandatory" if !text.contains('=') => self.mandatory = true,
            "persistent" if !text.contains('=') => self.persistent = true,
            "sync" if !text.contains('=') => {
                self.sharing = Some(CheckSharing::new(cx.get::<StoreSlot>().clone(), area));
            }
            "port" => self.port = Some(parse_decimal(value).filter(|p| *p > 0).ok_or_else(invalid)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Verifies the parameters together.
    pub fn verify(&self) -> Result<(), Problem> {
        match self.persistent && !self.mandatory {
            true => Err(Problem::says("\"persistent\" requires \"mandatory\"")),
            false => Ok(()),
        }
    }

    /// Returns a warning if the check has `sync`, and there is no store. Call after the whole configuration was read.
    pub fn sharing_complaint(&self, group: &str) -> Option<String> {
        let words = "\"sync\" of \"health_check\" has no effect without \"shared_store\"";
        let is_alone = self.sharing.as_ref().is_some_and(|sharing| !sharing.has_store());
        is_alone.then(|| format!("upstream \"{group}\": {words}"))
    }

    /// Returns the address to probe.
    pub fn address(&self, peer: &Peer) -> Address {
        match (&peer.spec.address, self.port) {
            (Address::Ip(ip), Some(port)) => Address::Ip(SocketAddr::new(ip.ip(), port)),
            (address, _) => address.clone(),
        }
    }

    fn pause(&self) -> Duration {
        let jitter = match self.jitter_ms {
            0 => 0,
            most => u64::from_le_bytes(net::random::bytes16()[..8].try_into().unwrap_or_default()) % (most + 1),
        };
        Duration::from_millis(self.interval_ms + jitter)
    }
}

/// A probe that failed.
#[derive(Debug)]
pub enum ProbeFailure {
    /// Reason for which the server counts as unhealthy.
    Server(String),
    /// No connection could be opened, which says nothing about the server.
    Unopened(Severity, String),
}

impl ProbeFailure {
    /// Judges an error of connecting.
    pub fn connecting(e: &io::Error) -> ProbeFailure {
        match unopened_failure(e) {
            Some((level, words)) => ProbeFailure::Unopened(level, words),
            None => ProbeFailure::Server(format!("connect() failed {}", os_error(e))),
        }
    }
}

impl From<String> for ProbeFailure {
    fn from(why: String) -> ProbeFailure {
        ProbeFailure::Server(why)
    }
}

impl From<http_client::ClientFailure> for ProbeFailure {
    fn from(why: http_client::ClientFailure) -> ProbeFailure {
        match &why {
            http_client::ClientFailure::Io(http_client::ClientStep::Connect, e) if unopened_failure(e).is_some() => {
                ProbeFailure::connecting(e)
            }
            why => ProbeFailure::Server(why.to_string()),
        }
    }
}

/// Tests of a `match` block.
pub trait Tests: Default + Send + Sync + 'static {
    /// Takes a line of the block.
    fn line(&mut self, cx: &mut Cx, line: &Line) -> Result<(), Problem>;
}

/// Blocks by name, in `Cx`.
pub struct Matches<T>(HashMap<String, Arc<T>>);

impl<T> Default for Matches<T> {
    fn default() -> Self {
        Matches(HashMap::new())
    }
}

impl<T: Tests> Matches<T> {
    /// Returns the block of this name. Fails with the message for `-t`.
    pub fn find(cx: &mut Cx, name: &str) -> Result<Arc<T>, Problem> {
        let known = cx.get::<Matches<T>>().0.get(name).cloned();
        known.ok_or_else(|| Problem::says(format!("unknown match \"{name}\"")))
    }
}

/// `match name { ... }`
pub struct MatchBlocks<T>(PhantomData<fn() -> T>);

impl<T> Clone for MatchBlocks<T> {
    fn clone(&self) -> Self {
        MatchBlocks(PhantomData)
    }
}

impl<T: Tests> ValueKind for MatchBlocks<T> {
    const SYNTAX: &'static str = "name { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let mut tests = T::default();
        for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            tests.line(cx, line).map_err(|p| p.on(line))?;
        }
        if cx.get::<Matches<T>>().0.insert(name.clone(), Arc::new(tests)).is_some() {
            return Err(Problem::says(format!("duplicate match \"{name}\"")).at(0));
        }
        Ok(MatchBlocks(PhantomData))
    }
}

/// Probes servers for one `health_check` line.
pub trait Probe: 'static {
    /// State between the probes of a server.
    type Kept: Default;
    fn probe(&self, peer: &Arc<Peer>, kept: &mut Self::Kept) -> impl Future<Output = Result<(), ProbeFailure>>;
}

/// Excludes servers with `mandatory` until they are checked, and forgets the verdicts of checks that the configuration
/// no longer has.
pub fn prepare_checks(group: &Group, schedules: &[&Schedule]) {
    let ids: Vec<&str> = schedules.iter().map(|schedule| schedule.id.as_str()).collect();
    let mandatory = schedules.iter().filter(|schedule| schedule.mandatory);
    group.check_first(mandatory.map(|schedule| schedule.id.clone()).collect());
    for peer in group.members().all() {
        peer.keep_checks(&ids);
        for schedule in schedules {
            // The old configuration's verdicts hold until this one serves.
            peer.begin_check(&schedule.id, schedule.mandatory, true);
        }
    }
}

/// Probes all servers of a group, also later ones; never returns.
pub async fn watch_group<P: Probe>(probe: Rc<P>, schedule: Schedule, group: Arc<Group>, log: Arc<ErrorLog>) {
    let mut tasks = runtime::task::JoinSet::new();
    let mut known: Vec<Weak<Peer>> = Vec::new();
    let schedule = Rc::new(schedule);
    let shared = Rc::new(SharedPasses::begin(&schedule, &group.name, &log));
    loop {
        known.retain(|peer| peer.strong_count() > 0);
        for peer in group.members().all() {
            if !known.iter().any(|k| std::ptr::eq(k.as_ptr(), Arc::as_ptr(peer))) {
                known.push(Arc::downgrade(peer));
                peer.begin_check(&schedule.id, schedule.mandatory, schedule.persistent);
                let (probe, schedule, name, log) =
                    (Rc::clone(&probe), Rc::clone(&schedule), group.name.clone(), log.clone());
                let (peer, shared) = (Arc::downgrade(peer), Rc::clone(&shared));
                tasks.spawn_local(async move {
                    watch_server(&*probe, &schedule, (*shared).as_ref(), &name, &log, peer).await;
                });
            }
        }
        // Looks for new servers at every check interval, at least once a second.
        runtime::time::sleep_for(Duration::from_millis(schedule.interval_ms.min(1000))).await;
        tasks.reap();
    }
}

/// Probes a server while it belongs to the group.
async fn watch_server<P: Probe>(
    probe: &P,
    schedule: &Schedule,
    shared: Option<&SharedPasses>,
    group: &str,
    log: &ErrorLog,
    peer: Weak<Peer>,
) {
    let (mut failed, mut passed) = (0u32, 0u32);
    let mut kept = P::Kept::default();
    while let Some(peer) = peer.upgrade() {
        let address = schedule.address(&peer);
        let is_elsewhere = shared.is_some_and(|shared| shared.has_passed_elsewhere(&address));
        let found = if is_elsewhere { Ok(()) } else { probe.probe(&peer, &mut kept).await };
        base::clock::update();
        let now = base::clock::now();
        let found = match found {
            Ok(()) => Ok(()),
            Err(ProbeFailure::Server(why)) => Err(why),
            Err(ProbeFailure::Unopened(level, words)) => {
                let text = &peer.text;
                log.log(level, 0, format_args!("{words} while checking {text} of upstream \"{group}\""));
                drop(peer);
                runtime::time::sleep_for(schedule.pause()).await;
                continue;
            }
        };
        if !is_elsewhere {
            peer.history().probed(found.as_ref().err().map(String::as_str));
            if let (Some(shared), Ok(())) = (shared, &found) {
                shared.tell_pass(&address);
            }
        }
        match found {
            Ok(()) => (failed, passed) = (0, passed.saturating_add(1)),
            Err(_) => (failed, passed) = (failed.saturating_add(1), 0),
        }
        // The first response decides about an unchecked server.
        let unknown = peer.checks_say() == CheckState::Unknown;
        let verdict = match found {
            Ok(()) if passed >= schedule.passes || unknown => {
                Some((CheckState::Healthy, Severity::Notice, "healthy".to_string()))
            }
            Err(why) if failed >= schedule.fails || unknown => {
                Some((CheckState::Unhealthy, Severity::Warn, format!("unhealthy: {why}")))
            }
            _ => None,
        };
        if let Some((found, level, words)) = verdict
            && peer.check(&schedule.id, found, now)
        {
            let text = &peer.text;
            log.log(level, 0, format_args!("health check: {text} of upstream \"{group}\" is {words}"));
        }
        drop(peer);
        runtime::time::sleep_for(schedule.pause()).await;
    }
}
