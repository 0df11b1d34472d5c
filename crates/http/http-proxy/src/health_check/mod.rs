//! `health_check` and `match` (documented with nginx's commercial edition): the control thread probes servers of groups
//! (`probe.rs`) and excludes those that fail (`matching.rs`).

mod grpc;
mod matching;
mod probe;
mod stream;

use conf_schema::value::{Own, parse_decimal, parse_msec};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::{Background, BlockPlan, Feature, HttpBuild, HttpPlan, LocalFuture};
use http_upstream::probing::ProbeBody;
use matching::Match;
use observe::{ErrorLog, Severity};
use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use upstream::{Group, Peer};
use upstream_directives::checks::{self, MatchBlocks, Matches, Probe, ProbeFailure, Schedule};

directives! {
    pub struct HealthConf from HealthInput {
        /// Sends periodic requests to the servers of the location's group, and excludes servers that fail them. Requests use the
        /// location's protocol, TLS, timeouts and fields: with `proxy_http_version 2` and `grpc_pass`, HTTP/2. `type=grpc`, with
        /// `grpc_pass`: calls the gRPC Health Checking Protocol. `sync` (an extension of Tidegate): a probe that the server has passed
        /// on another node of `shared_store` replaces this node's next one.
        health_check: Own<Checks>,
        /// Defines conditions on status, fields and body of a response to a health check.
        r#match: MatchBlocks<Match>,
    }
}

#[derive(Clone)]
pub struct Checks(Vec<HealthCheckLine>);

#[derive(Clone, Debug)]
pub struct HealthCheckLine {
    schedule: Schedule,
    /// `None`: `/`
    uri: Option<String>,
    matching: Option<String>,
    keepalive_ms: Option<u64>,
    grpc: Option<GrpcService>,
}

/// `type=grpc`
#[derive(Clone, Debug, Default)]
pub struct GrpcService {
    /// Empty: the whole server.
    name: String,
    /// Status of a failed call that counts as healthy.
    accepted: Option<u32>,
}

impl ValueKind for Checks {
    const SYNTAX: &'static str = "[interval=time] [jitter=time] [fails=number] [passes=number] [uri=uri] \
                                  [mandatory [persistent]] [match=name] [port=number] [keepalive_time=time] \
                                  [sync] [type=http|grpc [grpc_service=name] [grpc_status=code]]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|w| w.text().into_owned()).collect();
        let schedule = Schedule::new(words.join(" "));
        let mut check = HealthCheckLine { schedule, uri: None, matching: None, keepalive_ms: None, grpc: None };
        for (index, text) in words.iter().enumerate() {
            parameter(cx, &mut check, text).map_err(|p| p.at(index))?;
        }
        check.schedule.verify()?;
        Ok(Checks(vec![check]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn parameter(cx: &mut Cx, check: &mut HealthCheckLine, text: &str) -> Result<(), Problem> {
    let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
    let (name, value) = text.split_once('=').map_or((text, ""), |(n, v)| (n, v));
    if let Some(service) = &mut check.grpc {
        match name {
            "grpc_service" if !value.is_empty() => service.name = value.into(),
            "grpc_status" => {
                service.accepted = Some(parse_decimal(value).filter(|code| *code > 0).ok_or_else(invalid)?)
            }
            "uri" | "match" => return Err(incompatible()),
            _ => return Err(invalid().hint("\"type=grpc\" follows all other parameters")),
        }
        return Ok(());
    }
    if check.schedule.take(cx, "http", text)? {
        return Ok(());
    }
    match name {
        "uri" if value.starts_with('/') => check.uri = Some(value.into()),
        "match" if !value.is_empty() => check.matching = Some(value.into()),
        "type" if value == "http" => {}
        "type" if value == "grpc" && (check.uri.is_some() || check.matching.is_some()) => return Err(incompatible()),
        "type" if value == "grpc" => check.grpc = Some(GrpcService::default()),
        "type" => return Err(Problem::says(format!("health checks of type \"{value}\" are not supported"))),
        "keepalive_time" => check.keepalive_ms = Some(parse_msec(value.as_bytes()).ok_or_else(invalid)?),
        _ => return Err(invalid()),
    }
    Ok(())
}

fn incompatible() -> Problem {
    Problem::says("\"type=grpc\" is incompatible with \"uri\" and \"match\"")
}

struct HealthProbe {
    checks: Vec<(HealthCheckLine, Option<Arc<Match>>)>,
}

pub struct HealthCheck;

impl Feature for HealthCheck {
    fn table(&self) -> FeatureTable {
        HealthConf::table("health_check", ContextArea::Http)
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
        let find = |check: HealthCheckLine, cx: &mut Cx| {
            let found = check.matching.as_ref().map(|name| Matches::find(cx, name)).transpose()?;
            Ok::<_, Problem>((check, found))
        };
        let checks: Result<Vec<_>, Problem> = checks.into_iter().map(|check| find(check, block.cx)).collect();
        block.location.extensions.push(Arc::new(HealthProbe { checks: checks? }));
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
    check: HealthCheckLine,
    matching: Option<Arc<Match>>,
    group: Arc<Group>,
}

impl Round {
    fn uri(&self) -> &str {
        self.check.uri.as_deref().unwrap_or("/")
    }
    fn wants_body(&self) -> bool {
        self.matching.as_deref().is_some_and(Match::wants_body)
    }
    fn judge_body(&self, body: &[u8]) -> Result<(), String> {
        self.matching.as_deref().map_or(Ok(()), |matching| matching.body(body))
    }
}

fn groups(plan: &HttpPlan) -> Vec<(Arc<Group>, Vec<(usize, HealthCheckLine, Option<Arc<Match>>)>)> {
    let mut all: Vec<(Arc<Group>, Vec<(usize, HealthCheckLine, Option<Arc<Match>>)>)> = Vec::new();
    for (index, location) in plan.locations.iter().enumerate() {
        let Some(group) = location.ext::<ProbeBody>().and_then(|p| p.0.named()).map(|named| named.group) else {
            continue;
        };
        let is_grpc = location.ext::<ProbeBody>().is_some_and(|p| p.0.is_grpc());
        let at = all.iter().position(|(known, _)| Arc::ptr_eq(known, &group)).unwrap_or_else(|| {
            all.push((group, Vec::new()));
            all.len() - 1
        });
        if let (Some(checking), Some((_, checks))) = (location.ext::<HealthProbe>(), all.get_mut(at)) {
            let spoken = checking.checks.iter().filter(|(check, _)| check.grpc.is_none() || is_grpc);
            checks.extend(spoken.map(|(check, matching)| (index, check.clone(), matching.clone())));
        }
    }
    all
}

impl Background<HttpPlan> for Doctor {
    fn prepare(self: Arc<Self>, plan: Arc<HttpPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            for (group, checks) in groups(&plan) {
                let schedules: Vec<&Schedule> = checks.iter().map(|(_, check, _)| &check.schedule).collect();
                checks::prepare_checks(&group, &schedules);
            }
        })
    }
    fn unsettled(&self, plan: &HttpPlan) -> Vec<String> {
        let mut lost = Vec::new();
        for location in &plan.locations {
            let Some(checking) = location.ext::<HealthProbe>() else { continue };
            let name = String::from_utf8_lossy(&location.name);
            let probing = location.ext::<ProbeBody>().filter(|p| p.0.named().is_some());
            let Some(ProbeBody(prober)) = probing else {
                lost.push(format!("\"health_check\" in location \"{name}\" has no group of servers to check"));
                continue;
            };
            if let Some(named) = prober.named() {
                let name = &named.group.name;
                lost.extend(checking.checks.iter().filter_map(|(check, _)| check.schedule.sharing_complaint(name)));
            }
            if !prober.is_grpc() && checking.checks.iter().any(|(check, _)| check.grpc.is_some()) {
                lost.push(format!(
                    "\"health_check\" with \"type=grpc\" in location \"{name}\" does not check the servers of \"proxy_pass\""
                ));
            }
        }
        lost
    }
    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut tasks = runtime::task::JoinSet::new();
            if let Some(strong) = plan.upgrade() {
                for words in self.unsettled(&strong) {
                    log.log(Severity::Warn, 0, format_args!("{words}"));
                }
                for (group, checks) in groups(&strong) {
                    for (location, check, matching) in checks {
                        let (plan, group, log) = (plan.clone(), group.clone(), log.clone());
                        let schedule = check.schedule.clone();
                        let round = Round { plan, location, check, matching, group: group.clone() };
                        tasks.spawn_local(checks::watch_group(Rc::new(round), schedule, group, log));
                    }
                }
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

impl Probe for Round {
    type Kept = Option<probe::IdleConnection>;
    async fn probe(&self, peer: &Arc<Peer>, kept: &mut Self::Kept) -> Result<(), ProbeFailure> {
        probe::probe_once(self, peer, kept).await
    }
}
