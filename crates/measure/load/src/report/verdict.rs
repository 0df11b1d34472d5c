//! Verdicts: a rate limited by anything else is not attributed to the server.

use figures::stats::mean_interval;
use figures::units::{Unit, format_counted, format_seconds};

use super::model::{RateVerdict, Round};
use crate::engine::failure::LoadFailure;
use crate::engine::ports::TIME_WAIT;

/// Busy share of a client thread above which it may be the limit.
pub const BUSY_MAX: f64 = 0.85;
/// Generator's lateness at p99 as a share of the latency at p99.
pub const LAG_SHARE_MAX: f64 = 0.10;
/// Seconds below which lateness is ignored.
pub const LAG_MIN: f64 = 100e-6;
/// Share of failures above which a point is error-bound.
pub const ERRORS_MAX: f64 = 0.01;
/// Answered share of an open loop's offered rate below which it is overloaded.
pub const ANSWERED_MIN: f64 = 0.99;
/// Unanswered requests at the end of a run that are no overload.
const ON_THE_WAY: u64 = 10;
/// Relative half width of the 95 % interval over rounds above which a figure is not repeatable.
pub const SPREAD_MAX: f64 = 0.05;

/// Mean CPU seconds of `connect` above which port searches dominate; without one, a call takes some 30 µs on loopback.
pub const CONNECT_MAX: f64 = 150e-6;

/// Processors used by other programs that are worth a remark.
pub const OTHERS_MAX: f64 = 0.15;
/// Share of time that a client thread may wait for an occupied processor.
pub const WAITED_MAX: f64 = 0.05;
/// [`WAITED_MAX`] if the server occupied the processor.
const SHARED_MAX: f64 = 0.25;
/// [`WAITED_MAX`] for the server's threads, as a share of their runnable time.
const SERVER_WAITED_MAX: f64 = 0.10;
/// Share of a processor that the hypervisor may take.
const STEAL_MAX: f64 = 0.10;
/// Seconds of a round below which shares of its time mean little.
pub const SHORT: f64 = 0.1;
/// Seconds of waiting or stolen time (counted in ticks of up to 10 ms) that make a disturbance: one scheduler slice is
/// some milliseconds.
const WAITED_MIN: f64 = 0.010;
const STEAL_MIN: f64 = 0.030;
/// Answers below which p99 rests on a handful; lateness is then judged at p90.
const ENOUGH_FOR_P99: u64 = 1000;
/// Growth of the wait per second of due time: 1 % above the server's capacity.
const GROWTH_MAX: f64 = 0.01;

const MORE_PORTS: &str = "add addresses with --source, keep connections, or close them with --reset";

pub fn judge_rounds(rounds: &[Round], open_loop: bool) -> RateVerdict {
    let mut reasons = Vec::new();
    let mut word = "";
    let mut note = |name: &'static str, reason: String| {
        if word.is_empty() {
            word = name;
        }
        reasons.push(reason);
    };
    let worst = |f: &dyn Fn(&Round) -> f64| rounds.iter().map(f).fold(0.0, f64::max);
    let of = |r: &Round, class: LoadFailure| r.failures.get(class.word()).copied().unwrap_or(0);

    let ports = rounds.iter().map(|r| of(r, LoadFailure::PortsExhausted)).sum::<u64>();
    let descriptors = rounds.iter().map(|r| of(r, LoadFailure::DescriptorsExhausted)).sum::<u64>();
    if ports > 0 {
        note(
            "port-bound",
            format!("{} found no local port: {MORE_PORTS}", format_counted(ports, "connection", "connections")),
        );
    }
    let search = worst(&|r| r.ports.connect_cpu.unwrap_or(0.0));
    if ports == 0 && search > CONNECT_MAX {
        note(
            "port-bound",
            format!(
                "connect took {} of CPU time on average: most local ports are taken, and finding a free one is a long search; {MORE_PORTS}",
                format_seconds(search)
            ),
        );
    }
    if let Some(reason) = rounds.iter().find_map(used_again) {
        note("port-bound", reason);
    }
    if descriptors > 0 {
        note(
            "client-bound",
            format!(
                "{} found no file descriptor: raise the limit (ulimit -n)",
                format_counted(descriptors, "connection", "connections")
            ),
        );
    }
    // Requests unsent because of a slow server are overload, not errors.
    let backlog = |r: &Round| of(r, LoadFailure::Unsent) + of(r, LoadFailure::Unfinished);
    let errors = worst(&|r| {
        let all: u64 = r.failures.values().sum();
        (all - backlog(r)) as f64 / r.due.max(r.answers).max(1) as f64
    });
    let spoilt = errors > ERRORS_MAX || rounds.iter().any(|r| r.good == 0);
    // For the exit status and requirements an unsent request has failed.
    let overran = rounds.iter().any(|r| open_loop && overruns(r) && falls_behind(r));
    let silent = rounds.iter().filter_map(|r| Some((r.silence?, r.seconds))).max_by(|a, b| a.0.total_cmp(&b.0));
    let failed = spoilt || overran || silent.is_some() || worst(&Round::error_share) > ERRORS_MAX;
    if errors > ERRORS_MAX {
        note("error-bound", format!("{} of the requests failed", Unit::Share.write(errors)));
    } else if rounds.iter().all(|r| r.due == 0 && r.answers == 0) {
        note("error-bound", "no request was due in the measured time".into());
    } else if spoilt {
        note("error-bound", "no request succeeded".into());
    }
    if let Some((silence, seconds)) = silent {
        note(
            "error-bound",
            format!(
                "no answer in the last {} of {}, in which requests failed: rates are averages over that time as well",
                format_seconds(silence),
                format_seconds(seconds)
            ),
        );
    }
    if let Some(reason) = rounds.iter().find_map(disturbed) {
        note("disturbed", reason);
    }
    let busy = worst(&|r| if r.seconds < SHORT { 0.0 } else { r.client_busy.iter().copied().fold(0.0, f64::max) });
    if busy > BUSY_MAX {
        note(
            "client-bound",
            format!(
                "a client thread was busy for {} of the time (limit {}): the server may be able to do more",
                Unit::Share.write(busy),
                Unit::Share.write(BUSY_MAX)
            ),
        );
    }
    let late = rounds.iter().find_map(|r| {
        let (lag, latency) = (r.lag.as_ref()?, r.latency.as_ref()?);
        let many = r.answers >= ENOUGH_FOR_P99;
        let (place, lag, latency) = if many { ("p99", lag.p99, latency.p99) } else { ("p90", lag.p90, latency.p90) };
        (lag > LAG_MIN && lag > latency * LAG_SHARE_MAX).then_some((place, lag, latency))
    });
    if let Some((place, lag, latency)) = late {
        let waited = worst(&|r| r.client_waited.iter().copied().fold(0.0, f64::max)) > WAITED_MAX / 5.0;
        let others = worst(&|r| r.others.unwrap_or(0.0)) > OTHERS_MAX;
        // A client that is not busy is late because other programs ran.
        let word = if busy <= BUSY_MAX && (waited || others) { "disturbed" } else { "client-bound" };
        note(
            word,
            format!(
                "the generator was late by {} at {place}, with a latency of {}",
                format_seconds(lag),
                format_seconds(latency)
            ),
        );
    }
    if let Some(r) = rounds.iter().filter(|r| open_loop && falls_behind(r)).max_by_key(|r| r.failed() + r.late) {
        note(
            "overloaded",
            format!(
                "the server did not keep up with the offered rate: {}{}; latencies show the length of the queue and of the run",
                r.account(),
                overrun_words(r)
            ),
        );
    }
    if let Some(r) = rounds.iter().filter(|r| r.starves()).max_by_key(|r| r.starved) {
        note(
            "overloaded",
            format!(
                "{} of {} users got no response for more than half of the run; the latencies exclude them",
                r.starved, r.users
            ),
        );
    }
    // In an open loop the answered share counts, not the chance of arrivals.
    let rate = |r: &Round| if open_loop { r.rps / r.offered.max(1e-9) } else { r.rps };
    let rates: Vec<f64> = rounds.iter().map(rate).collect();
    let spread = mean_interval(&rates, 0.95).relative_half_width();
    if rates.len() >= 3 && spread > SPREAD_MAX {
        note("not repeatable", format!("the rounds differ by ± {} (95 %)", Unit::Share.write(spread)));
    }
    let usable = is_usable(word);
    let word = if word.is_empty() { "valid" } else { word }.to_string();
    remarks(rounds, &mut reasons);
    RateVerdict { word, reasons, usable, failed }
}

pub fn is_usable(word: &str) -> bool {
    !matches!(word, "client-bound" | "disturbed" | "port-bound" | "error-bound" | "not repeatable")
}

/// Tells whether an open loop fell behind because of the server: missing answers beyond their latency, a growing queue,
/// or unsent requests.
pub fn falls_behind(r: &Round) -> bool {
    // A few requests are always in flight at the end.
    let missing = r.answers + ON_THE_WAY < r.due && (r.answers as f64) < r.due as f64 * ANSWERED_MIN || overruns(r);
    let of = |class: LoadFailure| r.failures.get(class.word()).copied().unwrap_or(0);
    let lost = (of(LoadFailure::Unsent) + of(LoadFailure::Unfinished) + of(LoadFailure::Timeout)) as f64
        > (1.0 - ANSWERED_MIN) * r.due as f64;
    missing && (lost || r.growth.is_none_or(|growth| growth > GROWTH_MAX))
}

/// Tells whether the answers of an open loop with a number of requests took longer than its schedule, beyond requests
/// that are on the way.
fn overruns(r: &Round) -> bool {
    let after = |scheduled: f64| (r.seconds - scheduled) * r.rps > ON_THE_WAY as f64;
    r.scheduled.is_some_and(|scheduled| scheduled < r.seconds * ANSWERED_MIN && after(scheduled))
}

fn overrun_words(r: &Round) -> String {
    match r.scheduled.filter(|_| overruns(r)) {
        Some(scheduled) => {
            format!(" in {}, which were due within {}", format_seconds(r.seconds), format_seconds(scheduled))
        }
        None => String::new(),
    }
}

/// Describes other load on the processors of client or server.
fn disturbed(r: &Round) -> Option<String> {
    let share = |v: f64| Unit::Share.write(v);
    let client = r.client_waited.iter().copied().fold(0.0, f64::max);
    let others = r.others.filter(|others| *others > OTHERS_MAX);
    // Client and server on one processor are a poor but valid set-up; other programs are not.
    let own = others.is_none() && r.server.is_some();
    if client > if own { SHARED_MAX } else { WAITED_MAX } && client * r.seconds > WAITED_MIN {
        let who = match (others, &r.server) {
            (Some(others), _) => format!("other programs used {others:.2} CPUs at the same time"),
            (None, Some(_)) => "the server used them: give each side its own (--pin)".to_string(),
            (None, None) => "other programs used them".to_string(),
        };
        return Some(format!("a client thread waited for a CPU for {} of the time: {who}", share(client)));
    }
    if let (Some(others), Some(server)) = (others, &r.server) {
        let waited = server.waited / (server.processors + server.waited).max(1e-9);
        let long = server.waited > 0.01 && server.waited * r.seconds > WAITED_MIN;
        if long && waited > SERVER_WAITED_MAX {
            return Some(format!(
                "the server waited for a CPU for {} of the time that it could have run: other programs used {others:.2} \
                 CPUs at the same time",
                share(waited)
            ));
        }
    }
    let steal = r.kernel.steal / r.seconds.max(1e-9);
    (steal > STEAL_MAX && r.kernel.steal > STEAL_MIN).then(|| format!("the hypervisor took {} of a CPU", share(steal)))
}

/// Detects connect timeouts from ports reused within TIME_WAIT of the server or a firewall.
fn used_again(r: &Round) -> Option<String> {
    let timeouts = r.failures.get(LoadFailure::ConnectTimeout.word()).copied().unwrap_or(0);
    let within = (r.connections + timeouts) as f64 * (TIME_WAIT / r.seconds.max(1e-9)).min(1.0);
    let many = timeouts as f64 > ERRORS_MAX * r.due.max(1) as f64;
    // A full accept queue drops connections too, which a local server's counters show.
    let used_up = r.ports.available > 0 && within > r.ports.available as f64;
    (many && used_up && r.kernel.listen_overflows == 0).then(|| {
        format!(
            "{timeouts} connects timed out while each of the {} local ports was used more than once a minute: what lies between, or \
             the server, may still hold the old connections; {MORE_PORTS}",
            r.ports.available
        )
    })
}

/// Facts that do not spoil a figure but belong beside it.
fn remarks(rounds: &[Round], reasons: &mut Vec<String>) {
    if let Some(r) = rounds.iter().find(|r| r.interrupted) {
        reasons.push(format!("it was stopped after {}", format_seconds(r.seconds)));
    }
    if let Some(r) = rounds.iter().find(|r| r.seconds < SHORT && r.answers > 0) {
        let waited = r.client_waited.iter().copied().fold(0.0, f64::max);
        let of = if waited > WAITED_MAX {
            format!(", for {} of which the client waited for a CPU", Unit::Share.write(waited))
        } else {
            String::new()
        };
        reasons.push(format!(
            "it lasted {}{of}: too short to tell the server from a pause of the machine",
            format_seconds(r.seconds)
        ));
    }
    if rounds.len() == 1 {
        reasons.push("one run: its spread is not known (--rounds 5 would show it)".into());
    }
    let overflows = rounds.iter().map(|r| r.kernel.listen_overflows).sum::<u64>();
    if overflows > 0 {
        reasons.push(format!(
            "{} met a full accept queue; each costs a second that looks like latency",
            format_counted(overflows, "connection", "connections")
        ));
    }
    let steal = rounds.iter().map(|r| r.kernel.steal / r.seconds.max(1e-9)).fold(0.0, f64::max);
    let seen = rounds.iter().map(|r| r.kernel.steal).fold(0.0, f64::max) > STEAL_MIN;
    if seen && steal > 0.02 && steal <= STEAL_MAX {
        reasons.push(format!("the hypervisor took {} of a CPU", Unit::Share.write(steal)));
    }
    let waited = rounds.iter().flat_map(|r| &r.client_waited).copied().fold(0.0, f64::max);
    // Short rounds have the remark already, or nothing to report.
    if waited > WAITED_MAX && !reasons.iter().any(|r| r.contains("waited for a CPU")) {
        reasons.push(format!(
            "the client waited for a CPU for {} of the time, which the server used: give each side its own (--pin)",
            Unit::Share.write(waited)
        ));
    }
    let others = rounds.iter().filter_map(|r| r.others).fold(0.0, f64::max);
    let said = reasons.iter().any(|r| r.contains("other programs"));
    if others > OTHERS_MAX && !said {
        reasons.push(format!("other programs on this machine used {others:.2} CPUs at the same time"));
    }
    let throttled = rounds.iter().map(|r| r.kernel.throttled).fold(0.0, f64::max);
    if throttled > 0.0 {
        reasons.push(format!("a CPU quota held this machine back for {}", format_seconds(throttled)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::kernel::Counters;
    use crate::report::model::{PortUse, ServerUse, Times};

    fn round(rps: f64) -> Round {
        Round {
            seconds: 1.0,
            due: rps as u64,
            in_time: rps as u64,
            answers: rps as u64,
            good: rps as u64,
            rps,
            offered: 1000.0,
            client_busy: vec![0.3],
            latency: Some(Times { p99: 0.010, ..Times::default() }),
            lag: Some(Times { p99: 0.000_5, ..Times::default() }),
            ..Round::default()
        }
    }

    fn word(rounds: &[Round], open: bool) -> String {
        judge_rounds(rounds, open).word
    }

    #[test]
    fn a_run_without_requests_says_so() {
        let verdict = judge_rounds(&[Round { due: 0, answers: 0, good: 0, in_time: 0, ..round(1000.0) }], false);
        assert_eq!((verdict.word.as_str(), verdict.failed), ("error-bound", true));
        assert_eq!(verdict.reasons[0], "no request was due in the measured time");
    }

    #[test]
    fn each_verdict_has_its_cause() {
        assert_eq!(word(&[round(1000.0)], true), "valid");
        let busy = Round { client_busy: vec![0.2, 0.95], ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&busy), false), "client-bound");
        assert!(!judge_rounds(&[busy], false).usable);
        let late = Round { lag: Some(Times { p99: 0.002, ..Times::default() }), ..round(1000.0) };
        assert_eq!(word(&[late], true), "client-bound");
        let failing =
            |class: LoadFailure, n: u64| Round { failures: [(class.word().to_string(), n)].into(), ..round(1000.0) };
        assert_eq!(word(&[failing(LoadFailure::PortsExhausted, 1)], true), "port-bound");
        let slow = PortUse { sources: 1, available: 28_232, connect_cpu: Some(400e-6) };
        assert_eq!(word(&[Round { ports: slow, ..failing(LoadFailure::ConnectTimeout, 50) }], true), "port-bound");
        let short = PortUse { connect_cpu: Some(20e-6), ..slow };
        let again = Round { ports: short, connections: 30_000, ..failing(LoadFailure::ConnectTimeout, 50) };
        assert_eq!(word(std::slice::from_ref(&again), true), "port-bound");
        let wide = Round { ports: PortUse { available: 100_000, ..short }, ..again.clone() };
        assert_eq!(word(&[wide], true), "error-bound", "no port was used twice");
        let full = Round { kernel: Counters { listen_overflows: 50, ..Counters::default() }, ..again };
        assert_eq!(word(&[full], true), "error-bound", "it was the accept queue");
        assert_eq!(word(&[failing(LoadFailure::Reset, 11)], true), "error-bound");
        assert_eq!(word(&[failing(LoadFailure::Reset, 9)], true), "valid");
        assert_eq!(word(&[Round { good: 0, ..round(1000.0) }], true), "error-bound");
        let over =
            Round { answers: 900, failures: [(LoadFailure::Unsent.word().to_string(), 100)].into(), ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&over), true), "overloaded");
        assert!(judge_rounds(&[over], true).failed, "what was never sent has failed");
        let died = Round { silence: Some(2.5), seconds: 4.0, client_waited: vec![0.4], ..round(1000.0) };
        let verdict = judge_rounds(&[died], false);
        assert!(verdict.word == "error-bound" && verdict.failed && !verdict.usable, "{verdict:?}");
        assert!(verdict.reasons[0].starts_with("no answer in the last 2.5 s of 4 s"), "{verdict:?}");
        let starving = Round { users: 1000, starved: 700, ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&starving), false), "overloaded");
        assert_eq!(word(&[Round { starved: 10, ..starving }], false), "valid");
        assert_eq!(word(&[Round { due: 2000, ..round(1000.0) }], false), "valid", "a closed loop offers nothing");
    }

    #[test]
    fn an_impossible_rate_is_not_given_a_latency_by_name() {
        // A billion requests/s offered, a thousand answered.
        let r = Round { due: 1_000_000_000, ..round(1000.0) };
        let v = judge_rounds(&[r], true);
        assert_eq!(v.word, "overloaded");
        assert!(v.reasons[0].contains("length of the queue"));
    }

    #[test]
    fn a_slow_answer_is_no_queue() {
        // Answers take 3 s: those of the last 3 s come after the end, without a queue.
        let flat = Round { due: 1000, answers: 700, late: 300, growth: Some(0.0), ..round(700.0) };
        assert_eq!(word(std::slice::from_ref(&flat), true), "valid");
        assert_eq!(word(&[Round { growth: Some(0.3), ..flat.clone() }], true), "overloaded");
        let lost = [(LoadFailure::Unfinished.word().to_string(), 300)].into();
        assert_eq!(word(&[Round { late: 0, failures: lost, ..flat }], true), "overloaded");
    }

    #[test]
    fn runs_without_a_processor_are_disturbed() {
        let server = |waited| Some(ServerUse { processors: 0.8, waited, ..ServerUse::default() });
        let starved = Round { client_waited: vec![0.4], others: Some(1.0), ..round(1000.0) };
        let v = judge_rounds(std::slice::from_ref(&starved), false);
        assert!(v.word == "disturbed" && !v.usable && v.reasons[0].contains("other programs"), "{v:?}");
        assert_eq!(v.reasons.iter().filter(|r| r.contains("other programs")).count(), 1, "said once");
        let shared = Round { others: Some(0.0), server: server(0.0), ..starved };
        assert!(judge_rounds(&[shared], false).reasons[0].contains("--pin"));
        let pushed = Round { server: server(0.3), others: Some(0.9), ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&pushed), false), "disturbed");
        assert_eq!(word(&[Round { others: Some(0.0), ..pushed }], false), "valid", "its own threads are many");
        let late = Round { lag: Some(Times { p99: 0.002, ..Times::default() }), others: Some(0.5), ..round(1000.0) };
        assert_eq!(word(&[late], true), "disturbed");
    }

    #[test]
    fn a_short_run_does_not_cry_wolf() {
        // Fifty requests in 3 ms: one scheduler slice, first faults, a tick of steal.
        let steal = Counters { steal: 0.01, ..Counters::default() };
        let (client_waited, client_busy) = (vec![0.6], vec![0.95]);
        let short =
            Round { seconds: 0.003, client_waited, client_busy, others: Some(1.0), kernel: steal, ..round(50.0) };
        let v = judge_rounds(std::slice::from_ref(&short), false);
        assert!(v.word == "valid" && v.usable, "{v:?}");
        assert!(v.reasons[0].contains("lasted 3 ms, for 60 % of which the client waited"), "{v:?}");
        let server = Some(ServerUse { processors: 0.5, waited: 0.5, ..ServerUse::default() });
        assert_eq!(word(&[Round { server, ..short.clone() }], false), "valid");
        // A wait of 18 ms is a disturbance; equal shares of a whole second are none.
        assert_eq!(word(&[Round { seconds: 0.03, ..short.clone() }], false), "disturbed");
        assert_eq!(word(&[Round { seconds: 1.0, ..short.clone() }], false), "disturbed");
        assert_eq!(word(&[Round { seconds: 1.0, client_waited: vec![0.0], ..short }], false), "client-bound");
    }

    #[test]
    fn one_late_request_of_fifty_is_no_late_generator() {
        let late = Times { p90: 0.000_01, p99: 0.002, ..Times::default() };
        let latency = Some(Times { p90: 0.001, p99: 0.003, ..Times::default() });
        let few = Round { seconds: 0.5, lag: Some(late), latency, ..round(50.0) };
        assert_eq!(word(std::slice::from_ref(&few), true), "valid");
        let all = Times { p90: 0.002, ..few.lag.clone().unwrap() };
        assert_eq!(word(&[Round { lag: Some(all), ..few.clone() }], true), "client-bound");
        assert_eq!(word(&[Round { answers: 1000, due: 1000, good: 1000, ..few }], true), "client-bound");
    }

    #[test]
    fn rounds_that_scatter_are_not_repeatable() {
        let rounds: Vec<Round> = [1000.0, 1200.0, 900.0].map(round).to_vec();
        assert_eq!(word(&rounds, false), "not repeatable");
        let rounds: Vec<Round> = [1000.0, 1003.0, 998.0].map(round).to_vec();
        assert_eq!(word(&rounds, false), "valid");
        assert!(judge_rounds(&rounds[..1], false).reasons[0].contains("one run"));
    }
}
