//! `health_check`, `health_check_timeout` and `match` (documented with nginx's commercial edition): the control thread
//! probes servers of groups (`probe.rs`) and excludes those that fail (`matching.rs`).

mod matching;
mod probe;

use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::plan::StreamPlan;
use area::background::{Background, LocalFuture};
use conf_schema::value::Msec;
use conf_schema::{At, ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use matching::Match;
use observe::{ErrorLog, Severity};
use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use upstream::Group;
use upstream_directives::checks::{self, MatchBlocks, Matches, Schedule};

directives! {
    pub struct HealthConf from HealthInput {
        /// Connects periodically to the servers of the server's group, and excludes servers that fail. `sync` (an extension of
        /// Tidegate): a check that the server has passed on another node of `shared_store` replaces this node's next one.
        health_check: CheckLines,
        /// Maximum time of a check.
        health_check_timeout: Msec = "5s",
        /// Defines a text to send to a server, and a text or regular expression that its answer must contain.
        r#match: MatchBlocks<Match>,
    }
}

#[derive(Clone)]
pub struct CheckLines(Vec<CheckLine>);

#[derive(Clone)]
struct CheckLine {
    schedule: Schedule,
    matching: Option<String>,
    udp: bool,
    at: At,
}

impl ValueKind for CheckLines {
    const SYNTAX: &'static str = "[interval=time] [jitter=time] [fails=number] [passes=number] \
                                  [mandatory [persistent]] [match=name] [port=number] [sync] [udp]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|w| w.text().into_owned()).collect();
        let schedule = Schedule::new(words.join(" "));
        let mut line = CheckLine { schedule, matching: None, udp: false, at: At { span: d.span, line: d.line } };
        for (index, text) in words.iter().enumerate() {
            if !line.schedule.take(cx, "stream", text).map_err(|p| p.at(index))? {
                match text.split_once('=') {
                    Some(("match", name)) if !name.is_empty() => line.matching = Some(name.into()),
                    None if text == "udp" => line.udp = true,
                    _ => return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index)),
                }
            }
        }
        line.schedule.verify()?;
        Ok(CheckLines(vec![line]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Checks of a server, among its extensions.
struct Checks(Vec<Arc<GroupCheck>>);

/// A check of a server's group.
pub struct GroupCheck {
    schedule: Schedule,
    matching: Option<Arc<Match>>,
    udp: bool,
    limit: Duration,
}

pub struct HealthCheck;

impl Feature for HealthCheck {
    fn table(&self) -> FeatureTable {
        HealthConf::table("health_check", ContextArea::Stream)
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        stream.background.push(Arc::new(Doctor));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HealthConf>() else { return Ok(()) };
        let Some(CheckLines(lines)) = &conf.health_check else { return Ok(()) };
        let mut checks = Checks(Vec::new());
        for line in lines {
            let matching = line.matching.as_ref().map(|name| Matches::find(block.cx, name)).transpose();
            let matching = matching.map_err(|problem| Problem { inner: Some(line.at), ..problem })?;
            let limit = conf.health_check_timeout.duration();
            let check = GroupCheck { schedule: line.schedule.clone(), matching, udp: line.udp, limit };
            checks.0.push(Arc::new(check));
        }
        block.server.extensions.push(Arc::new(checks));
        Ok(())
    }
}

struct Doctor;

/// Checks with their servers.
type Rounds = Vec<(usize, Arc<GroupCheck>)>;

/// Returns the groups with their checks and the servers that these stand in.
fn groups(plan: &StreamPlan) -> Vec<(Arc<Group>, Rounds)> {
    let mut all: Vec<(Arc<Group>, Rounds)> = Vec::new();
    for (index, server) in plan.servers.iter().enumerate() {
        for group in server.content.as_ref().map(|content| content.groups()).unwrap_or_default() {
            let checks = server.ext::<Checks>().into_iter().flat_map(|checks| &checks.0);
            let checks = checks.map(|check| (index, check.clone()));
            match all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &group)) {
                Some((_, known)) => known.extend(checks),
                None => all.push((group, checks.collect())),
            }
        }
    }
    all
}

impl Background<StreamPlan> for Doctor {
    fn prepare(self: Arc<Self>, plan: Arc<StreamPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            for (group, all) in groups(&plan) {
                let schedules: Vec<&Schedule> = all.iter().map(|(_, check)| &check.schedule).collect();
                checks::prepare_checks(&group, &schedules);
            }
        })
    }
    fn unsettled(&self, plan: &StreamPlan) -> Vec<String> {
        let has_group = |server: &crate::plan::StreamServer| {
            server.content.as_ref().is_some_and(|content| !content.groups().is_empty())
        };
        let lost = plan.servers.iter().filter(|server| server.ext::<Checks>().is_some() && !has_group(server));
        let lost = lost.map(|_| "\"health_check\" in a stream server has no group of servers to check".to_string());
        let all = groups(plan);
        let complaints = all.iter().flat_map(|(group, checks)| {
            checks.iter().filter_map(|(_, check)| check.schedule.sharing_complaint(&group.name))
        });
        lost.chain(complaints).collect()
    }
    fn run(self: Arc<Self>, plan: Weak<StreamPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut tasks = runtime::task::JoinSet::new();
            if let Some(strong) = plan.upgrade() {
                for words in self.unsettled(&strong) {
                    log.log(Severity::Warn, 0, format_args!("{words}"));
                }
                for (group, all) in groups(&strong) {
                    for (server, check) in all {
                        let schedule = check.schedule.clone();
                        let round = probe::Round { plan: plan.clone(), server, check };
                        tasks.spawn_local(checks::watch_group(Rc::new(round), schedule, group.clone(), log.clone()));
                    }
                }
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}
