//! Executes a plan: points in rounds, the watched server, and the report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::data::column_names;
use super::plan::Plan;
use super::watcher::Watcher;
use super::{find, live, worker};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::redirect::is_redirect;
use crate::engine::request::RequestSpec;
use crate::engine::run::{RunControl, RunOutcome, run_job};
use crate::interrupt;
use crate::observe::kernel::Counters;
use crate::observe::machine::ObservedMachine;
use crate::observe::processes::{ProcessGroup, is_local};
use crate::observe::status::StatusText;
use crate::report::build::{self, Watch};
use crate::report::model::{Point, RateVerdict, Report, Round, Target};
use crate::report::verdict::judge_rounds;

/// Interval of looks at the server; memory is read less often, since it costs more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const MEMORY_EVERY: u32 = 4;

/// Executes a plan; `command` is quoted in the report. Fails when a run cannot start.
pub fn execute_plan(plan: &Plan, command: &[String]) -> Result<Report, String> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let found = match &plan.find {
        Some(objective) => find::search_rate(plan, objective)?,
        None => {
            let points = points(plan)?;
            let capacity = build::greatest_capacity(&points);
            find::Search { points, capacity, ..find::Search::default() }
        }
    };
    let job = plan.base();
    let own_notes = plan.notes.iter().cloned().chain(no_http2(job, &found.points)).chain(refused(&found.points));
    let notes = own_notes.chain(interrupt::reason().map(|why| format!("stopped by {why}"))).collect();
    Ok(Report {
        tool: "tidegate bench".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        title: plan.title.clone(),
        command: std::iter::once("tidegate bench".to_string()).chain(command.iter().cloned()).collect(),
        started,
        machine: ObservedMachine::read(),
        target: Target {
            url: plan.url.clone(),
            address: job.target.address.to_string(),
            loopback: is_local(&job.target.address),
            tls: tls_words(job),
            requests: job.requests.iter().take(100).map(|r| request_words(job, r)).collect(),
        },
        load: plan.sentence(),
        quantity: plan.quantity.into(),
        open_loop: plan.open_loop,
        points: found.points,
        capacity: found.capacity,
        search: found.sentence,
        undecided: found.undecided,
        interrupted: interrupt::told(),
        notes,
    })
}

/// Method and path of a request, with the origin of another server than the first.
fn request_words(job: &Job, request: &RequestSpec) -> String {
    let server = request.server.checked_sub(1).and_then(|number| job.servers.get(number));
    format!(
        "{} {}{}",
        request.method,
        server.map_or(String::new(), crate::engine::job::Target::origin),
        column_names(&request.path)
    )
}

/// Note about a refused first connection.
fn refused(points: &[Point]) -> Option<String> {
    let mut rounds = points.iter().flat_map(|point| &point.rounds);
    let why = rounds.find_map(|round| round.refused.as_ref())?;
    Some(format!("the run ended at its first connection: {why}"))
}

/// Marks a point whose answers were all redirects that nothing asked for: the page itself was not measured.
fn judge_redirects(job: &Job, rounds: &[Round], verdict: RateVerdict) -> RateVerdict {
    let asked = job.follow > 0 || job.requests.iter().any(|request| !request.expect.status.is_empty());
    let statuses = || rounds.iter().flat_map(|round| round.statuses.keys());
    if asked || verdict.failed || statuses().next().is_none() || !statuses().all(|status| is_redirect(*status)) {
        return verdict;
    }
    let mut seen: Vec<String> = statuses().map(u16::to_string).collect();
    seen.dedup();
    let reason = format!(
        "every response was a redirect ({}): the page behind it was not measured; --follow 5 follows redirects, --expect-status 3xx measures them",
        seen.join(", ")
    );
    let reasons = std::iter::once(reason).chain(verdict.reasons).collect();
    RateVerdict { word: "redirected".into(), reasons, usable: false, failed: false }
}

fn no_http2(job: &Job, points: &[Point]) -> Option<String> {
    let broken = LoadFailure::Protocol.word();
    let mut rounds = points.iter().flat_map(|point| &point.rounds).peekable();
    let unanswered = rounds.peek().is_some() && rounds.all(|r| r.answers == 0 && r.failures.contains_key(broken));
    let clear = job.http2.is_some() && job.target.tls.is_none();
    (clear && unanswered).then(|| {
        "no response over HTTP/2: in cleartext the server must accept HTTP/2 with prior knowledge (`http2 on;`), as there is no negotiation".into()
    })
}

fn tls_words(job: &Job) -> String {
    match &job.target.tls {
        None => String::new(),
        Some(tls) => {
            let version = if tls.version.is_empty() { "TLS" } else { &format!("TLS {}", tls.version) };
            let handshakes = if tls.resume { "resumed handshakes" } else { "full handshakes" };
            let checked = if tls.ca.is_some() { "certificate verified" } else { "certificate not verified" };
            format!("{version}, {handshakes}, {checked}")
        }
    }
}

/// Measures all points in all rounds. A round covers every point, so that drift affects them alike.
fn points(plan: &Plan) -> Result<Vec<Point>, String> {
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); plan.values.len()];
    // A server that was there may be away for a while, as in a restart.
    let mut reached = false;
    'all: for round in 0..plan.rounds {
        for (i, value) in plan.values.iter().enumerate() {
            if interrupt::told() {
                break 'all;
            }
            let label = live::round_label(plan, *value, round);
            let job = Job { end_if_refused: plan.workers.is_empty() && !reached, ..plan.job(*value, round) };
            let measured = measure_round(plan, &job, &label)?;
            reached |= measured.refused.is_none();
            let refused = measured.refused.is_some();
            if !measured.interrupted || (rounds[i].is_empty() && measured.due > 0) {
                rounds[i].push(measured);
            }
            if refused {
                break 'all;
            }
        }
    }
    let point = |(value, rounds): (&f64, Vec<Round>)| Point {
        value: *value,
        verdict: judge_redirects(plan.base(), &rounds, judge_rounds(&rounds, plan.open_loop)),
        rounds,
    };
    Ok(plan.values.iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty()).map(point).collect())
}

pub fn measure_round(plan: &Plan, job: &Job, label: &str) -> Result<Round, String> {
    let view = live::View::new(plan.live, label, job);
    let control = RunControl::until(interrupt::flag());
    let watcher = Watcher::new(&plan.abort_on, plan.metrics.as_ref(), label);
    let mut watcher = watcher.with_collectors(&plan.collectors).with_start(&control.began, job.warmup);
    let seen = run_watched(plan.server.clone(), plan.page.clone(), job, &control.began, || {
        if plan.workers.is_empty() {
            run_job(job, &control, |moment| {
                view.show(moment);
                if let Some(why) = watcher.see(moment) {
                    interrupt::stop(&why);
                }
            })
        } else {
            worker::coordinate_workers(&plan.workers, &plan.access, job, &control)
        }
    });
    for words in watcher.finish() {
        eprintln!("tidegate bench: {words}");
    }
    seen.map(|seen| {
        let mut round = build::build_round(&seen.outcome, plan.open_loop, &seen.watch, seen.kernel);
        round.settle_others(seen.wall);
        round.interrupted = interrupt::told();
        round
    })
}

/// Runs `work` while a thread watches the server from the moment in `began`, and reads the kernel's counters around it.
pub fn run_watched(
    server: Option<ProcessGroup>,
    page: Option<StatusText>,
    job: &Job,
    began: &Arc<OnceLock<Instant>>,
    work: impl FnOnce() -> Result<RunOutcome, String>,
) -> Result<WatchedServer, String> {
    let done = Arc::new(AtomicBool::new(false));
    let watch: Arc<Mutex<Watch>> = Arc::default();
    let (before, begin) = (Counters::read(), Instant::now());
    let handle = (server.is_some() || page.is_some()).then(|| {
        let (done, watch, began) = (done.clone(), watch.clone(), began.clone());
        let (warmup, length) = (job.warmup, job.profile.seconds());
        let mut group = server.unwrap_or_else(|| ProcessGroup::by_pids(&[]));
        group.pids();
        thread::spawn(move || look_on(group, page, &began, (warmup, length), &done, &watch))
    });
    let outcome = work();
    done.store(true, Ordering::Relaxed);
    if let Some(handle) = handle {
        handle.thread().unpark();
        let _ = handle.join();
    }
    let (kernel, wall) = (Counters::read().since(&before), begin.elapsed().as_secs_f64());
    let watch = watch.lock().map(|w| w.clone()).unwrap_or_default();
    Ok(WatchedServer { outcome: outcome?, watch, kernel, wall })
}

pub struct WatchedServer {
    pub outcome: RunOutcome,
    pub watch: Watch,
    pub kernel: Counters,
    pub wall: f64,
}

fn look_on(
    mut group: ProcessGroup,
    page: Option<StatusText>,
    began: &OnceLock<Instant>,
    (warmup, length): (f64, f64),
    done: &AtomicBool,
    watch: &Mutex<Watch>,
) {
    while began.get().is_none() && !done.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_millis(2));
    }
    let Some(began) = began.get() else { return };
    let start = *began + Duration::from_secs_f64(warmup);
    let end = start + Duration::from_secs_f64(length);
    let mut number = 0;
    let mut next = start;
    loop {
        while Instant::now() < next && !done.load(Ordering::Relaxed) {
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
        let now = Instant::now();
        let last = done.load(Ordering::Relaxed) || now >= end;
        let mut look = group.look(number % MEMORY_EVERY == 0 || last);
        let at = now.saturating_duration_since(start).as_secs_f64();
        // A status page costs the server a request: read once a second and at the ends.
        let status = page.as_ref().filter(|_| number % MEMORY_EVERY == 0 || last).and_then(|p| p.read().ok());
        if let Ok(mut watch) = watch.lock() {
            if look.memory == 0.0 {
                look.memory = watch.looks.last().map_or(0.0, |l| l.1.memory);
            }
            watch.looks.push((at, look));
            watch.statuses.extend(status);
        }
        if last {
            return;
        }
        number += 1;
        next = (now + LOOK_EVERY).min(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_redirects_is_no_result_unless_asked_for() {
        let mut job = crate::engine::sim::sim_job(1, 1.0);
        let round =
            |statuses: &[u16]| Round { statuses: statuses.iter().map(|s| (*s, 5)).collect(), ..Round::default() };
        let valid = RateVerdict { word: "valid".into(), usable: true, ..RateVerdict::default() };
        let word = |job: &Job, statuses: &[u16]| judge_redirects(job, &[round(statuses)], valid.clone());
        let judged = word(&job, &[301, 302]);
        assert!(
            judged.word == "redirected" && !judged.usable && judged.reasons[0].contains("(301, 302)"),
            "{judged:?}"
        );
        for statuses in [&[200, 301][..], &[304], &[]] {
            assert_eq!(word(&job, statuses).word, "valid");
        }
        job.requests[0].expect.status = vec![301];
        assert_eq!(word(&job, &[301]).word, "valid");
    }
}
