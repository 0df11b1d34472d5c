//! Runs an experiment: in every round and level each server has a turn, in random order, so that drift affects all
//! alike and figures pair up.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use figures::rng::Rng;
use figures::units::parse_seconds;
use serde::{Deserialize, Serialize};

use super::compare::{self, FigureComparison};
use super::dry;
use super::file::{Lab, LabServer, Workload};
use super::probe::{self, ProbeResponse};
use super::scale::ScaledValue;
use super::servers::{self, RunningServer, TestMachine, is_installed, split_command};
use super::{LabFailure, LabOptions};
use crate::bench::execute::run_watched;
use crate::engine::job::{Http2, Http3, Job, Model, Target, Think, Tls};
use crate::engine::profile::{Arrivals, Profile};
use crate::engine::run::{RunControl, run_job};
use crate::interrupt;
use crate::observe::machine::ObservedMachine;
use crate::observe::processes::ProcessGroup;
use crate::report::build;
use crate::report::model::{Capacity, Point, RateVerdict, Round};
use crate::report::verdict::judge_rounds;

/// `report.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub title: String,
    pub about: String,
    pub machine: ObservedMachine,
    pub server_cpus: Vec<usize>,
    pub client_cpus: Vec<usize>,
    pub rounds: usize,
    pub seconds: f64,
    pub base: String,
    pub servers: Vec<ServerResult>,
    pub workloads: Vec<WorkloadResult>,
    pub missing: Vec<String>,
    pub differences: Vec<String>,
    #[serde(default)]
    pub interrupted: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerResult {
    pub name: String,
    pub version: String,
    pub note: String,
    pub command: String,
    pub capacity: Option<Capacity>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkloadResult {
    pub name: String,
    pub quantity: String,
    pub open_loop: bool,
    pub requests: Vec<String>,
    /// One line per server, in the order of [`Results::servers`].
    pub lines: Vec<LabLine>,
    pub comparisons: Vec<FigureComparison>,
    /// Machines of each level, where the workload has `scale`.
    #[serde(default)]
    pub scale: Vec<ScaledValue>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabLine {
    pub server: String,
    pub seen: Option<ProbeResponse>,
    pub points: Vec<Point>,
    pub bottleneck: String,
}

/// Processors of servers and client: by option, or the two halves of the machine.
fn processors(options: &LabOptions, machine: &ObservedMachine) -> (Vec<usize>, Vec<usize>) {
    let half = machine.cpus.div_ceil(2);
    let or = |given: &[usize], other: Vec<usize>| if given.is_empty() { other } else { given.to_vec() };
    let client: Vec<usize> = if machine.cpus > 1 { (half..machine.cpus).collect() } else { vec![0] };
    (or(&options.server_cpus, (0..half).collect()), or(&options.client_cpus, client))
}

/// Runs or (dry run) describes an experiment; writes to `out`, resolves files from `base`. Fails when it cannot start.
pub fn conduct_experiment(
    lab: &Lab,
    options: &LabOptions,
    out: &Path,
    base: &Path,
) -> Result<Option<Results>, LabFailure> {
    let machine = ObservedMachine::read();
    let (server_cpus, client_cpus) = processors(options, &machine);
    let clash = server_cpus.iter().any(|a| client_cpus.iter().any(|b| machine.share_a_core(*a, *b)));
    if clash {
        eprintln!("tidegate lab: servers and client are on threads of the same cores; they will disturb each other");
    }
    let testbed = TestMachine::prepare(lab, &out.join("work"), base, &server_cpus).map_err(LabFailure::usage)?;
    if options.dry_run {
        base::out!("{}", dry::describe_plan(lab, &testbed, &server_cpus, &client_cpus));
        return Ok(None);
    }
    let unwritable = |e: std::io::Error| LabFailure::usage(format!("{}: {e}", testbed.directory.display()));
    fs::create_dir_all(&testbed.directory).map_err(unwritable)?;
    testbed.build(lab)?;
    let mut missing = Vec::new();
    let mut present: Vec<&LabServer> = Vec::new();
    for server in &lab.servers {
        if !server.backend.is_empty() || is_installed(&testbed.fill(&server.command, &server.name)) {
            present.push(server);
        } else {
            missing.push(format!("{}: its program is not installed", server.name));
        }
    }
    let mut backends = Vec::new();
    for backend in &lab.backends {
        match testbed.start(backend) {
            Ok(running) => backends.push(running),
            Err(_) if interrupt::told() => break,
            Err(why) => return Err(why.into()),
        }
    }
    let mut bench = Bench {
        lab,
        testbed: &testbed,
        client_cpus: client_cpus.clone(),
        backends: &backends,
        rng: Rng::new(options.seed),
        seed: options.seed,
    };
    // Starts each once, to see which servers work and whether their answers agree.
    let mut seen: Vec<Vec<Option<ProbeResponse>>> = Vec::new();
    present.retain(|server| match bench.look(server) {
        Ok(answers) => {
            seen.push(answers);
            true
        }
        Err(why) => {
            missing.push(format!("{}: {why}", server.name));
            false
        }
    });
    if present.is_empty() && !interrupt::told() {
        return Err(format!("no server can be measured: {}", missing.join("; ")).into());
    }
    if interrupt::told() {
        missing.clear();
    }
    missing.iter().for_each(|m| eprintln!("tidegate lab: left out {m}"));
    let greatest = bench.greatest(&present)?;
    let rounds = bench.rounds(&present, &greatest)?;
    drop(backends);
    Ok(Some(assemble(lab, &testbed, &present, &seen, rounds, missing, machine, server_cpus, client_cpus)))
}

/// Rounds by workload, server and level.
type Rounds = Vec<Vec<Vec<(f64, Vec<Round>)>>>;

struct Bench<'a> {
    lab: &'a Lab,
    testbed: &'a TestMachine,
    client_cpus: Vec<usize>,
    backends: &'a [RunningServer],
    rng: Rng,
    seed: u64,
}

impl Bench<'_> {
    fn start(&self, server: &LabServer) -> Result<RunningServer, String> {
        match self.backends.iter().find(|b| b.name == server.backend) {
            Some(backend) => Ok(RunningServer::backend(&server.name, backend)),
            None => self.testbed.start(server),
        }
    }

    fn target(&self, server: &LabServer, workload: &Workload) -> Target {
        let port = self.testbed.port(&server.name);
        Target {
            host: "localhost".into(),
            port,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            tls: server.tls.then(|| Tls { resume: workload.resume, ..Tls::default() }),
            proxy: None,
            unix: None,
            sources: Vec::new(),
        }
    }

    fn job(&self, server: &LabServer, workload: &Workload, value: f64, seconds: f64, round: usize) -> Job {
        let arrivals = if workload.arrivals == "fixed" { Arrivals::Fixed } else { Arrivals::Poisson };
        let think = workload.think.split_once(',').map_or((workload.think.as_str(), false), |(t, _)| (t, true));
        let think = Think { mean: parse_seconds(think.0).unwrap_or(0.0), random: think.1 };
        let model = match workload.load.as_str() {
            "connections" | "users" => Model::Closed { think },
            "rate" => Model::Open { arrivals },
            _ => Model::Connections { arrivals, think },
        };
        let calls = workload.calls.unwrap_or(u32::from(workload.load == "connection-rate"));
        let threads = if self.lab.threads == 0 { self.client_cpus.len() } else { self.lab.threads };
        let timeout = parse_seconds(&workload.timeout).unwrap_or(5.0);
        let (_, warmup) = self.lab.times();
        Job {
            requests: workload.specs(),
            headers: workload.headers.clone(),
            model,
            connections_max: workload.connections,
            calls,
            pipeline: workload.streams.unwrap_or(1),
            http2: workload.streams.filter(|_| !workload.http3).map(|_| Http2::default()),
            http3: workload.http3.then(|| Http3 { early_data: workload.early_data, ..Http3::default() }),
            warmup,
            timeout,
            connect_timeout: timeout,
            threads: threads.max(1),
            cores: self.client_cpus.clone(),
            seed: self.seed.wrapping_add(round as u64 * 7919),
            interval: (seconds / 20.0).clamp(0.1, 1.0),
            profile: Profile::constant(value, seconds),
            ..Job::closed(self.target(server, workload), 1, 1.0)
        }
    }

    /// Starts a server, sends each workload's first request once, and stops it.
    fn look(&self, server: &LabServer) -> Result<Vec<Option<ProbeResponse>>, String> {
        let running = self.start(server)?;
        let mut answers = Vec::new();
        for workload in &self.lab.workloads {
            if !workload.includes(&server.name) {
                answers.push(None);
                continue;
            }
            let spec = workload.specs().remove(0);
            let seen = probe::probe_once(&self.job(server, workload, 1.0, 1.0, 0), &spec);
            let seen = seen.map_err(|e| format!("workload `{}`: {e}", workload.name))?;
            if !spec.expect.allows(seen.status) {
                return Err(format!("workload `{}`: unexpected status {}", workload.name, seen.status));
            }
            answers.push(Some(seen));
        }
        drop(running);
        Ok(answers)
    }

    /// For levels in per cent: the greatest rate of any server in a short closed loop.
    fn greatest(&self, present: &[&LabServer]) -> Result<Vec<f64>, String> {
        let mut out = Vec::new();
        for workload in &self.lab.workloads {
            let mut most: f64 = 0.0;
            if workload.values.iter().any(|v| v.is_share()) {
                for server in present.iter().filter(|s| workload.includes(&s.name)) {
                    if interrupt::told() {
                        break;
                    }
                    let _running = match self.start(server) {
                        Ok(running) => running,
                        Err(_) if interrupt::told() => break,
                        Err(why) => return Err(why),
                    };
                    let mut job = self.job(server, workload, 64.0, 0.7, 0);
                    job.model = Model::Closed { think: Think::default() };
                    let outcome = run_job(&job, &RunControl::until(interrupt::flag()), |_| ())?;
                    let per_second = if workload.load == "connection-rate" {
                        outcome.total.connections as f64 / outcome.seconds.max(1e-9)
                    } else {
                        outcome.rps()
                    };
                    most = most.max(per_second);
                }
            }
            out.push(most);
        }
        Ok(out)
    }

    fn rounds(&mut self, present: &[&LabServer], greatest: &[f64]) -> Result<Rounds, String> {
        let levels: Vec<Vec<f64>> = self
            .lab
            .workloads
            .iter()
            .zip(greatest)
            .map(|(w, g)| w.values.iter().filter_map(|v| v.value(*g)).collect())
            .collect();
        let empty = |w: usize| levels[w].iter().map(|v| (*v, Vec::new())).collect::<Vec<_>>();
        let mut all: Rounds = (0..levels.len()).map(|w| present.iter().map(|_| empty(w)).collect()).collect();
        let turns: usize = levels.iter().map(Vec::len).sum::<usize>() * present.len() * self.lab.rounds;
        let mut turn = 0;
        'all: for round in 0..self.lab.rounds {
            if interrupt::told() {
                break;
            }
            // Restarts servers every round, so that effects of a start (memory layout, distribution of connections) are
            // part of the spread.
            let mut running: Vec<Option<RunningServer>> = present.iter().map(|_| None).collect();
            if !self.lab.isolate {
                for (slot, server) in running.iter_mut().zip(present) {
                    match self.start(server) {
                        Ok(started) => *slot = Some(started),
                        Err(_) if interrupt::told() => break 'all,
                        Err(why) => return Err(why),
                    }
                }
            }
            for w in 0..levels.len() {
                let workload = &self.lab.workloads[w];
                for (l, value) in levels[w].iter().enumerate() {
                    let mut order: Vec<usize> =
                        (0..present.len()).filter(|s| workload.includes(&present[*s].name)).collect();
                    self.rng.shuffle(&mut order);
                    for s in order {
                        turn += 1;
                        progress(turn, turns, &format!("{} {} {}", present[s].name, workload.name, value));
                        let alone = match &running[s] {
                            Some(_) => None,
                            None => match self.start(present[s]) {
                                Err(_) if interrupt::told() => break 'all,
                                started => Some(started?),
                            },
                        };
                        let server = alone.as_ref().or(running[s].as_ref()).map_or(0, RunningServer::pid);
                        let result = self.measure(present[s], workload, *value, round, server)?;
                        if interrupt::told() {
                            break 'all;
                        }
                        all[w][s][l].1.push(result);
                    }
                }
            }
        }
        progress(0, 0, "");
        Ok(all)
    }

    /// Has as many machines behind a server as the level needs, while the load runs.
    fn scale(&self, server: &LabServer, workload: &Workload, value: f64, job: &Job) -> Result<(), String> {
        let Some(scale) = &workload.scale else { return Ok(()) };
        std::thread::sleep(Duration::from_secs_f64(job.warmup));
        let port = |name: &String| format!("127.0.0.1:{}", self.testbed.port(name));
        let wanted: Vec<String> = scale.machines.iter().take(scale.wanted(value)).map(port).collect();
        let plain = Job { headers: Vec::new(), http2: None, http3: None, ..self.job(server, workload, 1.0, 1.0, 0) };
        scale.synchronize(&wanted, &|spec| probe::fetch_body(&plain, spec))
    }

    fn measure(
        &self,
        server: &LabServer,
        workload: &Workload,
        value: f64,
        round: usize,
        pid: u32,
    ) -> Result<Round, String> {
        let (seconds, _) = self.lab.times();
        let job = self.job(server, workload, value, seconds, round);
        let group = ProcessGroup::by_pids(&[pid]);
        // A directly addressed backend counts as the server.
        let pids: Vec<u32> = self.backends.iter().map(RunningServer::pid).filter(|backend| *backend != pid).collect();
        let mut behind = ProcessGroup::by_pids(&pids);
        let before = behind.look(false).cpu;
        let control = RunControl::until(interrupt::flag());
        let seen = std::thread::scope(|scope| {
            let scaling = scope.spawn(|| self.scale(server, workload, value, &job));
            let seen = run_watched(Some(group), None, &job, &control.began, || run_job(&job, &control, |_| ()))?;
            match scaling.join() {
                Ok(result) => result.map(|()| seen),
                Err(_) => Err("scale: the client failed".into()),
            }
        })?;
        let used = (behind.look(false).cpu - before) / (seconds + job.warmup).max(1e-9);
        let mut round = build::build_round(&seen.outcome, workload.is_open(), &seen.watch, seen.kernel);
        round.backend_processors = (!pids.is_empty()).then_some(used);
        round.settle_others(seen.wall);
        round.interrupted = interrupt::told();
        Ok(round)
    }
}

fn levels_of(workload: &Workload) -> impl Iterator<Item = f64> {
    workload.values.iter().filter_map(|level| level.value(0.0))
}

fn progress(turn: usize, turns: usize, what: &str) {
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        let text = if turns == 0 { "\r\x1b[2K".to_string() } else { format!("\r\x1b[2K{turn}/{turns}  {what}") };
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn version(server: &LabServer) -> String {
    let words = split_command(&server.version);
    let Some((program, args)) = words.split_first() else { return String::new() };
    let Ok(output) = servers::program_command(program, args).output() else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("").trim().to_string()
}

fn assemble(
    lab: &Lab,
    testbed: &TestMachine,
    present: &[&LabServer],
    seen: &[Vec<Option<ProbeResponse>>],
    rounds: Rounds,
    missing: Vec<String>,
    machine: ObservedMachine,
    server_cpus: Vec<usize>,
    client_cpus: Vec<usize>,
) -> Results {
    let first = present.first().map_or(lab.base.clone(), |s| s.name.clone());
    let base = if present.iter().any(|s| s.name == lab.base) { lab.base.clone() } else { first };
    let mut workloads = Vec::new();
    for (w, (workload, by_server)) in lab.workloads.iter().zip(rounds).enumerate() {
        let mut lines: Vec<LabLine> = Vec::new();
        for (s, levels) in by_server.into_iter().enumerate().filter(|(s, _)| workload.includes(&present[*s].name)) {
            let points: Vec<Point> = levels
                .into_iter()
                .filter(|(_, rounds)| !rounds.is_empty())
                .map(|(value, rounds)| Point { value, verdict: judge_rounds(&rounds, workload.is_open()), rounds })
                .collect();
            let bottleneck = compare::describe_bottleneck(&points, server_cpus.len(), &machine);
            lines.push(LabLine { server: present[s].name.clone(), seen: seen[s][w].clone(), points, bottleneck });
        }
        let comparisons = compare::compare_lines(&lines, &base, workload.is_open());
        workloads.push(WorkloadResult {
            name: workload.name.clone(),
            quantity: workload.quantity().into(),
            open_loop: workload.is_open(),
            requests: workload.specs().iter().map(|r| format!("{} {}", r.method, r.path)).collect(),
            lines,
            comparisons,
            scale: workload
                .scale
                .iter()
                .flat_map(|scale| levels_of(workload).map(|value| scale.scaled(value)))
                .collect(),
        });
    }
    let capacity = |name: &str| {
        let line = workloads.first()?.lines.iter().find(|l: &&LabLine| l.server == name)?;
        build::greatest_capacity(&line.points)
    };
    Results {
        title: lab.title.clone(),
        about: lab.about.trim().to_string(),
        rounds: lab.rounds,
        seconds: lab.times().0,
        servers: present
            .iter()
            .map(|s| ServerResult {
                name: s.name.clone(),
                version: version(s),
                note: s.note.clone(),
                command: if s.backend.is_empty() {
                    testbed.fill(&s.command, &s.name)
                } else {
                    format!("(the backend {} itself)", s.backend)
                }
                .replace(&testbed.directory.display().to_string(), "@DIR@"),
                capacity: capacity(&s.name),
            })
            .collect(),
        differences: compare::answer_differences(&workloads, &base),
        base,
        workloads,
        missing,
        machine,
        server_cpus,
        client_cpus,
        interrupted: interrupt::told(),
    }
}

pub fn line_verdict(line: &LabLine) -> Option<&RateVerdict> {
    line.points.iter().map(|p| &p.verdict).find(|v| v.word != "valid").or(line.points.first().map(|p| &p.verdict))
}
