//! `health_check` and `match` (documented with nginx's commercial edition): the control thread probes servers of groups
//! (`probe.rs`) and excludes those that fail (`matching.rs`).

mod matching;
mod probe;

use conf_schema::value::{Own, parse_msec};
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{Background, BlockPlan, Feature, HttpBuild, HttpPlan, LocalFuture};
use http_upstream::probing::Probing;
use matching::Match;
use observe::{ErrorLog, Level};
use session_engine::checks::{self, MatchBlocks, Matches, Probe, ProbeFailure, Schedule};
use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use upstream::{Group, Peer};

directives! {
    pub struct HealthConf from HealthInput {
        /// Sends periodic requests to the servers of the location's group, and excludes servers that fail them.
        health_check: Own<Checks>,
        /// Defines conditions on status, fields and body of a response to a health check.
        r#match: MatchBlocks<Match>,
    }
}

#[derive(Clone)]
pub struct Checks(Vec<Check>);

#[derive(Clone, Debug)]
pub struct Check {
    schedule: Schedule,
    uri: String,
    matching: Option<String>,
    keepalive_ms: Option<u64>,
}

impl Value for Checks {
    const SYNTAX: &'static str = "[interval=time] [jitter=time] [fails=number] [passes=number] [uri=uri] \
                                  [mandatory [persistent]] [match=name] [port=number] [type=http] [keepalive_time=time]";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|w| w.text().into_owned()).collect();
        let schedule = Schedule::new(words.join(" "));
        let mut check = Check { schedule, uri: "/".into(), matching: None, keepalive_ms: None };
        for (index, text) in words.iter().enumerate() {
            parameter(&mut check, text).map_err(|p| p.at(index))?;
        }
        check.schedule.verify()?;
        Ok(Checks(vec![check]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn parameter(check: &mut Check, text: &str) -> Result<(), Problem> {
    if check.schedule.take(text)? {
        return Ok(());
    }
    let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
    let (name, value) = text.split_once('=').map_or((text, ""), |(n, v)| (n, v));
    match name {
        "uri" if value.starts_with('/') => check.uri = value.into(),
        "match" if !value.is_empty() => check.matching = Some(value.into()),
        "type" if value == "http" => {}
        "type" => return Err(Problem::says(format!("health checks of type \"{value}\" are not supported"))),
        "keepalive_time" => check.keepalive_ms = Some(parse_msec(value.as_bytes()).ok_or_else(invalid)?),
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
            let found = check.matching.as_ref().map(|name| Matches::find(cx, name)).transpose()?;
            Ok::<_, Problem>((check, found))
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

/// Probes for one line of a location.
struct Round {
    plan: Weak<HttpPlan>,
    location: usize,
    check: Check,
    matching: Option<Arc<Match>>,
    group: Arc<Group>,
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
    fn prepare(self: Arc<Self>, plan: Arc<HttpPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            for (group, checks) in groups(&plan) {
                let schedules: Vec<&Schedule> = checks.iter().map(|(_, check, _)| &check.schedule).collect();
                checks::prepare(&group, &schedules);
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
                        let schedule = check.schedule.clone();
                        let round = Round { plan, location, check, matching, group: group.clone() };
                        tasks.spawn_local(checks::watch(Rc::new(round), schedule, group, log));
                    }
                }
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

impl Probe for Round {
    type Kept = Option<probe::KeptConnection>;
    async fn probe(&self, peer: &Arc<Peer>, kept: &mut Self::Kept) -> Result<(), ProbeFailure> {
        probe::once(self, peer, kept).await
    }
}
