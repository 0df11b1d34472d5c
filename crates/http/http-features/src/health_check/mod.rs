//! `health_check` and `match` (documented with nginx's commercial edition): the control thread probes servers of groups
//! (`probe.rs`) and excludes those that fail (`matching.rs`).

mod matching;
mod probe;

use conf_schema::value::{Own, decimal, parse_msec};
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{Background, BlockPlan, Feature, HttpBuild, HttpPlan, LocalFuture};
use http_upstream::probing::Probing;
use matching::{Match, MatchBlocks, Matches};
use observe::{ErrorLog, Level};
use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;
use upstream::{Checked, Group, Peer};

directives! {
    pub struct HealthConf from HealthInput {
        /// Sends periodic requests to the servers of the location's group, and excludes servers that fail them.
        health_check: Own<Checks>,
        /// Defines conditions on status, fields and body of a response to a health check.
        r#match: MatchBlocks,
    }
}

#[derive(Clone)]
pub struct Checks(Vec<Check>);

#[derive(Clone, Debug)]
pub struct Check {
    /// The line as written, which identifies servers' states over a reload.
    id: String,
    interval_ms: u64,
    jitter_ms: u64,
    fails: u32,
    passes: u32,
    uri: String,
    mandatory: bool,
    persistent: bool,
    matching: Option<String>,
    port: Option<u16>,
    keepalive_ms: Option<u64>,
}

impl Value for Checks {
    const SYNTAX: &'static str = "[interval=time] [jitter=time] [fails=number] [passes=number] [uri=uri] \
                                  [mandatory [persistent]] [match=name] [port=number] [type=http] [keepalive_time=time]";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|w| w.text().into_owned()).collect();
        let mut check = Check {
            id: words.join(" "),
            interval_ms: 5000,
            jitter_ms: 0,
            fails: 1,
            passes: 1,
            uri: "/".into(),
            mandatory: false,
            persistent: false,
            matching: None,
            port: None,
            keepalive_ms: None,
        };
        for (index, text) in words.iter().enumerate() {
            parameter(&mut check, text).map_err(|p| p.at(index))?;
        }
        if check.persistent && !check.mandatory {
            return Err(Problem::says("\"persistent\" requires \"mandatory\""));
        }
        Ok(Checks(vec![check]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn parameter(check: &mut Check, text: &str) -> Result<(), Problem> {
    let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
    let (name, value) = text.split_once('=').map_or((text, ""), |(n, v)| (n, v));
    let time = || parse_msec(value.as_bytes()).ok_or_else(invalid);
    let count = || decimal::<u32>(value).filter(|n| *n > 0).ok_or_else(invalid);
    match name {
        "interval" => check.interval_ms = time().and_then(|ms| if ms > 0 { Ok(ms) } else { Err(invalid()) })?,
        "jitter" => check.jitter_ms = time()?,
        "fails" => check.fails = count()?,
        "passes" => check.passes = count()?,
        "uri" if value.starts_with('/') => check.uri = value.into(),
        "mandatory" if !text.contains('=') => check.mandatory = true,
        "persistent" if !text.contains('=') => check.persistent = true,
        "match" if !value.is_empty() => check.matching = Some(value.into()),
        "port" => check.port = Some(decimal(value).filter(|p| *p > 0).ok_or_else(invalid)?),
        "type" if value == "http" => {}
        "type" => return Err(Problem::says(format!("health checks of type \"{value}\" are not supported"))),
        "keepalive_time" => check.keepalive_ms = Some(time()?),
        _ => return Err(invalid()),
    }
    Ok(())
}

struct Checking {
    checks: Vec<(Check, Option<Arc<Match>>)>,
}

pub struct HealthCheck;

impl Feature for HealthCheck {
    fn table(&self) -> Table {
        HealthConf::table("health_check", Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HealthConf>() else { return Ok(()) };
        let Some(Own(Checks(checks))) = conf.health_check.clone().filter(|_| block.context == Contexts::location)
        else {
            return Ok(());
        };
        let find = |check: Check, cx: &mut Cx| {
            let found = check.matching.as_ref().map(|name| {
                let known = cx.get::<Matches>().0.get(name).cloned();
                known.ok_or_else(|| Problem::says(format!("unknown match \"{name}\"")))
            });
            Ok::<_, Problem>((check, found.transpose()?))
        };
        let checks: Result<Vec<_>, Problem> = checks.into_iter().map(|check| find(check, block.cx)).collect();
        block.location.extensions.push(Arc::new(Checking { checks: checks? }));
        Ok(())
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.background.push(Arc::new(Doctor));
        Ok(())
    }
}

struct Doctor;

#[derive(Clone)]
struct Round {
    plan: Weak<HttpPlan>,
    location: usize,
    check: Check,
    matching: Option<Arc<Match>>,
    group: Arc<Group>,
    log: Arc<ErrorLog>,
}

fn groups(plan: &HttpPlan) -> Vec<(Arc<Group>, Vec<(usize, Check, Option<Arc<Match>>)>)> {
    let mut all: Vec<(Arc<Group>, Vec<(usize, Check, Option<Arc<Match>>)>)> = Vec::new();
    for (index, location) in plan.locations.iter().enumerate() {
        let Some(group) = location.ext::<Probing>().and_then(|p| p.0.named()).map(|named| named.group) else {
            continue;
        };
        let at = all.iter().position(|(known, _)| Arc::ptr_eq(known, &group)).unwrap_or_else(|| {
            all.push((group, Vec::new()));
            all.len() - 1
        });
        if let (Some(checking), Some((_, checks))) = (location.ext::<Checking>(), all.get_mut(at)) {
            checks.extend(checking.checks.iter().map(|(check, matching)| (index, check.clone(), matching.clone())));
        }
    }
    all
}

impl Background<HttpPlan> for Doctor {
    /// Excludes servers with `mandatory` until checked, and forgets removed checks' verdicts.
    fn prepare(self: Arc<Self>, plan: Arc<HttpPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            for (group, checks) in groups(&plan) {
                let ids: Vec<&str> = checks.iter().map(|(_, check, _)| check.id.as_str()).collect();
                let mandatory = checks.iter().filter(|(_, check, _)| check.mandatory);
                group.check_first(mandatory.map(|(_, check, _)| check.id.clone()).collect());
                for peer in group.members().all() {
                    peer.keep_checks(&ids);
                    for (_, check, _) in &checks {
                        // The old configuration's verdicts hold until this one serves.
                        peer.begin_check(&check.id, check.mandatory, true);
                    }
                }
            }
        })
    }
    fn unsettled(&self, plan: &HttpPlan) -> Vec<String> {
        let lost = plan.locations.iter().filter(|location| {
            let group = location.ext::<Probing>().and_then(|p| p.0.named());
            location.ext::<Checking>().is_some() && group.is_none()
        });
        lost.map(|location| {
            let name = String::from_utf8_lossy(&location.name).into_owned();
            format!("\"health_check\" in location \"{name}\" has no group of servers to check")
        })
        .collect()
    }
    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut tasks = runtime::task::JoinSet::new();
            if let Some(strong) = plan.upgrade() {
                for words in self.unsettled(&strong) {
                    log.log(Level::Warn, 0, format_args!("{words}"));
                }
                for (group, checks) in groups(&strong) {
                    for (location, check, matching) in checks {
                        let (plan, group, log) = (plan.clone(), group.clone(), log.clone());
                        tasks.spawn_local(Round { plan, location, check, matching, group, log }.run());
                    }
                }
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

impl Round {
    async fn run(self) {
        let mut tasks = runtime::task::JoinSet::new();
        let mut known: Vec<Weak<Peer>> = Vec::new();
        loop {
            known.retain(|peer| peer.strong_count() > 0);
            for peer in self.group.members().all() {
                if !known.iter().any(|k| std::ptr::eq(k.as_ptr(), Arc::as_ptr(peer))) {
                    known.push(Arc::downgrade(peer));
                    peer.begin_check(&self.check.id, self.check.mandatory, self.check.persistent);
                    tasks.spawn_local(self.clone().watch(Arc::downgrade(peer)));
                }
            }
            // Looks for new servers at every check interval, at least once a second.
            runtime::time::sleep(Duration::from_millis(self.check.interval_ms.min(1000))).await;
            tasks.reap();
        }
    }

    /// Probes a server while it belongs to the group.
    async fn watch(self, peer: Weak<Peer>) {
        let (mut failed, mut passed) = (0u32, 0u32);
        let mut kept = None;
        while let Some(peer) = peer.upgrade() {
            let found = probe::once(&self, &peer, &mut kept).await;
            base::clock::update();
            let now = base::clock::now();
            let found = match found {
                Ok(()) => Ok(()),
                Err(probe::ProbeFailure::Server(why)) => Err(why),
                Err(probe::ProbeFailure::Unopened(level, words)) => {
                    let (text, name) = (&peer.text, &self.group.name);
                    self.log.log(level, 0, format_args!("{words} while checking {text} of upstream \"{name}\""));
                    drop(peer);
                    self.pause().await;
                    continue;
                }
            };
            peer.history().probed(found.as_ref().err().map(String::as_str));
            match found {
                Ok(()) => (failed, passed) = (0, passed.saturating_add(1)),
                Err(_) => (failed, passed) = (failed.saturating_add(1), 0),
            }
            let name = &self.group.name;
            // The first response decides about an unchecked server.
            let unknown = peer.checks_say() == Checked::Unknown;
            let verdict = match found {
                Ok(()) if passed >= self.check.passes || unknown => {
                    Some((Checked::Healthy, Level::Notice, "healthy".into()))
                }
                Err(why) if failed >= self.check.fails || unknown => {
                    Some((Checked::Unhealthy, Level::Warn, format!("unhealthy: {why}")))
                }
                _ => None,
            };
            if let Some((found, level, words)) = verdict
                && peer.check(&self.check.id, found, now)
            {
                let text = &peer.text;
                self.log.log(level, 0, format_args!("health check: {text} of upstream \"{name}\" is {words}"));
            }
            drop(peer);
            self.pause().await;
        }
    }

    /// Waits for the next probe of a server.
    async fn pause(&self) {
        let jitter = match self.check.jitter_ms {
            0 => 0,
            most => u64::from_le_bytes(net::random::bytes16()[..8].try_into().unwrap_or_default()) % (most + 1),
        };
        runtime::time::sleep(Duration::from_millis(self.check.interval_ms + jitter)).await;
    }
}
