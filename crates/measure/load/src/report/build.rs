//! Builds the report's data from the engine's outcome.

use super::model::{Bounds, Capacity, Point, PortUse, RequestUse, Round, ServerUse, StatusUse, Tick, Times};
use crate::engine::latency::Latency;
use crate::engine::run::{Moment, RunOutcome};
use crate::engine::timeline::{Coarse, RequestCounts};
use crate::observe::kernel::Counters;
use crate::observe::processes::ProcessSample;
use crate::observe::status::Status;
use crate::protocol::grpc::code_name;

/// Seconds without an answer at the end of a run that tell a dead server from a slow one, and their share of the run.
const SILENCE_MIN: f64 = 1.0;
const SILENCE_SHARE_MIN: f64 = 0.1;

/// Looks at the server during a round, with seconds from the measured start.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    pub looks: Vec<(f64, ProcessSample)>,
    /// Status pages with their own timestamps.
    pub statuses: Vec<(f64, Status)>,
}

fn by_status(watch: &Watch) -> Option<StatusUse> {
    let (first, last) = (watch.statuses.first()?, watch.statuses.last()?);
    let span = last.0 - first.0;
    let grown = |of: fn(&Status) -> Option<f64>| Some(of(&last.1)? - of(&first.1)?).filter(|n| *n >= 0.0);
    if span <= 0.0 {
        return None;
    }
    let most = |of: fn(&Status) -> Option<f64>| watch.statuses.iter().filter_map(|s| of(&s.1)).reduce(f64::max);
    let (requests, cpu) = (grown(|s| s.requests), grown(|s| s.cpu));
    Some(StatusUse {
        requests_per_second: requests.map(|n| n / span),
        connections_per_second: grown(|s| s.accepted).map(|n| n / span),
        active: most(|s| s.active),
        dropped: grown(|s| s.accepted).zip(grown(|s| s.handled)).map(|(a, h)| (a - h).max(0.0)),
        processors: cpu.map(|cpu| cpu / span),
        cpu_per_request: cpu.zip(requests.filter(|n| *n > 0.0)).map(|(cpu, n)| cpu / n),
        memory: most(|s| s.memory),
    })
}

pub fn latency_times(latency: &Latency) -> Option<Times> {
    if latency.count() == 0 {
        return None;
    }
    let (min, max) = latency.range();
    let q = |q: f64| latency.quantile(q);
    Some(Times {
        count: latency.count(),
        mean: latency.mean(),
        deviation: latency.deviation(),
        min,
        max,
        p50: q(0.5),
        p75: q(0.75),
        p90: q(0.9),
        p95: q(0.95),
        p99: q(0.99),
        p999: q(0.999),
        p9999: q(0.9999),
        histogram: latency.encode(),
    })
}

pub fn build_round(outcome: &RunOutcome, open_loop: bool, watch: &Watch, kernel: Counters) -> Round {
    let t = &outcome.total;
    let seconds = outcome.seconds.max(1e-9);
    // A refused first connection ends a run before its measured part.
    let per_second = |n: u64| if outcome.seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let bytes = t.body_bytes + t.other_bytes;
    Round {
        seconds,
        due: t.due,
        in_time: t.in_time,
        late: t.late,
        answers: t.answers,
        good: t.good,
        connections: t.connections,
        scheduled: outcome.scheduled,
        offered: match outcome.scheduled {
            // The rate of the schedule, however long the server took. One request has no rate.
            Some(scheduled) if t.due > 1 && scheduled > 0.0 => t.due as f64 / scheduled,
            _ => per_second(t.due),
        },
        rps: per_second(t.answers),
        good_rps: per_second(t.good),
        connections_per_second: per_second(t.connections),
        bytes_per_second: per_second(bytes),
        bytes_per_response: bytes as f64 / t.answers.max(1) as f64,
        failures: t.failures.seen().map(|(c, n)| (c.word().to_string(), n)).collect(),
        statuses: t.statuses.sorted().into_iter().collect(),
        grpc_statuses: t.codes.sorted().into_iter().map(|(code, n)| (code_name(code), n)).collect(),
        messages: t.messages,
        resets: t.resets.sorted().into_iter().collect(),
        again: t.again,
        redirects: t.redirects,
        answer_error: outcome.answer_error.clone(),
        malformed: outcome.malformed.clone(),
        data_used_up: outcome.used_up > 0 && outcome.rows_left == 0,
        machines: outcome.machines.clone(),
        latency: latency_times(&t.corrected),
        service: if open_loop { latency_times(t.raw()) } else { None },
        lag: if open_loop { latency_times(&t.lag) } else { None },
        first_byte: latency_times(&t.first_byte),
        connect: latency_times(&t.connect),
        handshake: latency_times(&t.handshake),
        client_busy: outcome.busy.clone(),
        client_waited: outcome.waited.clone(),
        client_cpu_per_request: (t.answers > 0).then(|| outcome.client_cpu / t.answers as f64),
        growth: outcome.timeline.slope(outcome.interval),
        interrupted: false,
        requests: outcome.kinds.0.iter().map(request_use).collect(),
        users: outcome.users,
        tls_error: outcome.tls_error.clone(),
        refused: outcome.refused.clone(),
        starved: outcome.starved,
        silence: final_silence(outcome),
        ports: PortUse {
            sources: t.connect_cost.sources.max(1) as usize,
            available: outcome.ports,
            // Few calls on an otherwise busy processor mean nothing.
            connect_cpu: (t.connect_cost.calls >= 30)
                .then(|| t.connect_cost.cpu as f64 * 1e-9 / t.connect_cost.calls as f64),
        },
        server: server_use(watch, outcome),
        status: by_status(watch),
        backend_processors: None,
        others: None,
        kernel,
        series: series(outcome, watch),
    }
}

/// Seconds without an answer at the end of a run in which requests failed: the server died.
fn final_silence(outcome: &RunOutcome) -> Option<f64> {
    let silence = outcome.seconds - outcome.last_answer;
    let is_long = silence >= SILENCE_MIN.max(outcome.seconds * SILENCE_SHARE_MIN);
    (outcome.total.answers > 0 && is_long && outcome.last_failure > outcome.last_answer).then_some(silence)
}

fn request_use(kind: &RequestCounts) -> RequestUse {
    let l = &kind.latency;
    let finite = |v: f64| Some(v).filter(|v| v.is_finite());
    RequestUse {
        answers: l.count,
        failed: kind.failed,
        mean: finite(l.mean()),
        p50: finite(l.quantile(0.5)),
        p99: finite(l.quantile(0.99)),
        max: finite(l.max()),
    }
}

fn server_use(watch: &Watch, outcome: &RunOutcome) -> Option<ServerUse> {
    let (first, last) = (watch.looks.first()?, watch.looks.last()?);
    let span = last.0 - first.0;
    if last.1.processes == 0 || span <= 0.0 {
        return None;
    }
    // Looks do not coincide with the ends of the measured part: uses the rate of use.
    let processors = (last.1.cpu - first.1.cpu) / span;
    let cpu = processors * outcome.seconds;
    Some(ServerUse {
        processes: watch.looks.iter().map(|l| l.1.processes).max().unwrap_or(0),
        threads: watch.looks.iter().map(|l| l.1.threads).max().unwrap_or(0),
        cpu,
        cpu_per_request: (outcome.total.answers > 0).then(|| cpu / outcome.total.answers as f64),
        processors,
        waited: (last.1.waited - first.1.waited) / span,
        memory_before: first.1.memory,
        memory_peak: watch.looks.iter().map(|l| l.1.memory).fold(0.0, f64::max),
    })
}

/// One interval of the time series; `due` holds times by due time.
pub fn build_tick(moment: &Moment, due: Option<&Coarse>, watch: &Watch) -> Tick {
    let (r, seconds) = (&moment.record, moment.seconds.max(1e-9));
    let finite = |f: &dyn Fn(&Coarse) -> f64| due.map(f).filter(|v| v.is_finite());
    let near = |t: f64| {
        watch.looks.iter().min_by(|a, b| (a.0 - t).abs().total_cmp(&(b.0 - t).abs())).filter(|l| (l.0 - t).abs() < 1.5)
    };
    let (before, after) = (near(moment.at - seconds), near(moment.at));
    let processors = match (before, after) {
        (Some(a), Some(b)) if b.0 > a.0 => Some((b.1.cpu - a.1.cpu) / (b.0 - a.0)),
        _ => None,
    };
    Tick {
        at: moment.at,
        offered: r.due as f64 / seconds,
        rps: r.answers as f64 / seconds,
        connections_per_second: r.connections as f64 / seconds,
        failures: r.failures.total(),
        mean: finite(&|d| d.mean()),
        p50: finite(&|d| d.quantile(0.5)),
        p99: finite(&|d| d.quantile(0.99)),
        max: finite(&|d| d.max()),
        open: moment.open,
        pending: moment.pending,
        processors,
        memory: after.map(|l| l.1.memory).filter(|m| *m > 0.0),
    }
}

fn series(outcome: &RunOutcome, watch: &Watch) -> Vec<Tick> {
    outcome.moments.iter().enumerate().map(|(i, m)| build_tick(m, outcome.timeline.0.get(i), watch)).collect()
}

/// Greatest usable rate of the points, as a capacity without objective.
pub fn greatest_capacity(points: &[Point]) -> Option<Capacity> {
    let usable = points.iter().filter(|p| p.verdict.usable);
    let best = usable.max_by(|a, b| a.rps().mid.total_cmp(&b.rps().mid))?;
    Some(point_capacity(best, String::new(), best.rps().into()))
}

pub fn point_capacity(point: &Point, objective: String, rps: Bounds) -> Capacity {
    Capacity {
        rps,
        objective,
        cpu_seconds_per_request: point.interval(|r| r.server.as_ref()?.cpu_per_request).map(|i| i.mid),
        bytes_per_response: point.interval(|r| Some(r.bytes_per_response)).map_or(0.0, |i| i.mid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::RateVerdict;

    fn look(cpu: f64) -> ProcessSample {
        ProcessSample { cpu, processes: 1, threads: 1, memory: 1e6, ..ProcessSample::default() }
    }

    #[test]
    fn without_an_answer_nothing_costs_anything_a_request() {
        let watch = Watch { looks: vec![(0.0, look(1.0)), (1.0, look(1.5))], ..Watch::default() };
        let outcome = RunOutcome { seconds: 1.0, client_cpu: 0.3, ..RunOutcome::default() };
        let r = build_round(&outcome, false, &watch, Counters::default());
        let server = r.server.clone().unwrap();
        assert_eq!((server.cpu_per_request, r.client_cpu_per_request), (None, None));
        assert!((server.processors - 0.5).abs() < 1e-9);
        let json = serde_json::to_string(&r).unwrap();
        let back: Round = serde_json::from_str(&json).unwrap();
        assert_eq!(back.server.unwrap().cpu_per_request, None);
    }

    #[test]
    fn a_run_is_silent_at_its_end_if_requests_failed_after_the_last_answer() {
        let silence = |seconds: f64, last_answer: f64, last_failure: f64| {
            let mut outcome = RunOutcome { seconds, last_answer, last_failure, ..RunOutcome::default() };
            outcome.total.answers = 1;
            final_silence(&outcome)
        };
        assert_eq!(silence(4.0, 1.5, 3.9), Some(2.5));
        assert_eq!(silence(4.0, 1.5, 1.0), None, "no request was owed an answer");
        assert_eq!(silence(4.0, 3.5, 3.9), None, "half a second");
        assert_eq!(silence(60.0, 57.0, 59.0), None, "a twentieth of the run");
        assert_eq!(silence(4.0, 6.0, 6.5), None, "the answer came after the end");
    }

    #[test]
    fn intervals_of_times_do_not_reach_below_zero() {
        let of = |mean: f64| Round { latency: Some(Times { mean, ..Times::default() }), ..Round::default() };
        let point =
            Point { value: 1.0, rounds: vec![of(0.001), of(0.001), of(0.030)], verdict: RateVerdict::default() };
        let i = point.interval(|r| r.latency.as_ref().map(|t| t.mean)).unwrap();
        assert!(i.low > 0.0 && i.low < i.mid && i.mid < i.high, "{i:?}");
        let errors = point.interval(|r| Some(r.error_share())).unwrap();
        assert_eq!((errors.low, errors.mid), (0.0, 0.0), "what is zero stays zero");
    }

    #[test]
    fn a_stall_is_a_mountain_over_time() {
        use crate::engine::job::Model;
        use crate::engine::profile::{Arrivals, Profile};
        use crate::engine::sim::{Sim, ok_answer, play_world, sim_job};
        // No answers between the second and the third second.
        let s = 1_000_000_000;
        let sim = Sim::new(Box::new(move |now, _, _| {
            let at = if (2 * s..3 * s).contains(&now) { 3 * s } else { now };
            vec![(at + 1_000_000, ok_answer())]
        }));
        let mut job = sim_job(1000, 5.0);
        job.model = Model::Open { arrivals: Arrivals::Fixed };
        job.profile = Profile::constant(100.0, 5.0);
        job.interval = 0.5;
        let (_, done) = play_world(sim, &job);
        let moment = |i: usize| Moment {
            at: (i + 1) as f64 * 0.5,
            seconds: 0.5,
            record: Default::default(),
            open: 0,
            pending: 0,
        };
        let outcome = RunOutcome {
            moments: (0..10).map(moment).collect(),
            timeline: done.timeline,
            interval: 0.5,
            ..RunOutcome::default()
        };
        let ticks = series(&outcome, &Watch::default());
        assert!(ticks.iter().all(|t| t.max.is_some()), "no gap");
        let high: Vec<f64> = ticks.iter().map(|t| (t.max.unwrap() * 10.0).round() / 10.0).collect();
        assert_eq!(high[3..7], [0.0, 1.0, 0.5, 0.0]);
    }
}
