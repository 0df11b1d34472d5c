//! What to think of a figure: every one gets a verdict, and a rate that is not the server's is not called one.

use figures::stats::mean_interval;
use figures::units::{Unit, seconds};

use super::model::{Round, Verdict};
use crate::engine::failure::Failure;
use crate::engine::ports::TIME_WAIT;

/// A client thread that is busier than this may itself be the limit.
pub const BUSY_MAX: f64 = 0.85;
/// The generator's lateness at p99 must stay below this share of the latency at p99.
pub const LAG_SHARE_MAX: f64 = 0.10;
/// Lateness below this many seconds is not worth a word.
pub const LAG_MIN: f64 = 100e-6;
/// Failures beyond this share make the figure one of errors.
pub const ERRORS_MAX: f64 = 0.01;
/// An open loop in which a smaller share of the offered rate is answered is overloaded.
pub const ANSWERED_MIN: f64 = 0.99;
/// So many requests without answer at the end of a run are no overload.
const ON_THE_WAY: u64 = 10;
/// Half width of the 95 % interval over rounds, relative to the mean, beyond which a figure is not repeatable.
pub const SPREAD_MAX: f64 = 0.05;

/// CPU seconds of a `connect` call, on average, beyond which most of them are a search for a port. Without a search a call, with
/// the handshake that loopback does in it, takes some 30 µs.
pub const CONNECT_MAX: f64 = 150e-6;

/// Processors used by other programs that deserve a word.
pub const OTHERS_MAX: f64 = 0.15;

const MORE_PORTS: &str = "add addresses with --source, keep connections, or close them with --reset";

/// Judges the rounds of one point.
pub fn judge(rounds: &[Round], open_loop: bool) -> Verdict {
    let mut reasons = Vec::new();
    let mut word = "";
    let mut note = |name: &'static str, reason: String| {
        if word.is_empty() {
            word = name;
        }
        reasons.push(reason);
    };
    let worst = |f: &dyn Fn(&Round) -> f64| rounds.iter().map(f).fold(0.0, f64::max);
    let of = |r: &Round, class: Failure| r.failures.get(class.word()).copied().unwrap_or(0);

    let ports = rounds.iter().map(|r| of(r, Failure::PortsExhausted)).sum::<u64>();
    let descriptors = rounds.iter().map(|r| of(r, Failure::DescriptorsExhausted)).sum::<u64>();
    if ports > 0 {
        note("port-bound", format!("{ports} connections found no local port: {MORE_PORTS}"));
    }
    let search = worst(&|r| r.ports.connect_cpu.unwrap_or(0.0));
    if ports == 0 && search > CONNECT_MAX {
        note(
            "port-bound",
            format!(
                "connect took {} of processor time on average: most local ports are taken, and finding a free one is a long search; {MORE_PORTS}",
                seconds(search)
            ),
        );
    }
    if let Some(reason) = rounds.iter().find_map(used_again) {
        note("port-bound", reason);
    }
    if descriptors > 0 {
        note(
            "client-bound",
            format!("{descriptors} connections found no file descriptor: raise the limit (ulimit -n)"),
        );
    }
    // What was never sent because the server was too slow is overload, not error.
    let backlog = |r: &Round| of(r, Failure::Unsent) + of(r, Failure::Unfinished);
    let errors = worst(&|r| {
        let all: u64 = r.failures.values().sum();
        (all - backlog(r)) as f64 / r.due.max(r.answers).max(1) as f64
    });
    let failed = errors > ERRORS_MAX || rounds.iter().any(|r| r.good == 0);
    if errors > ERRORS_MAX {
        note("error-bound", format!("{} of the requests failed", Unit::Share.write(errors)));
    } else if failed {
        note("error-bound", "there was no right answer at all".into());
    }
    let busy = worst(&|r| r.client_busy.iter().copied().fold(0.0, f64::max));
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
        let (lag, latency) = (r.lag.as_ref()?.p99, r.latency.as_ref()?.p99);
        (lag > LAG_MIN && lag > latency * LAG_SHARE_MAX).then_some((lag, latency))
    });
    if let Some((lag, latency)) = late {
        note(
            "client-bound",
            format!("the generator was late by {} at p99, with a latency of {} at p99", seconds(lag), seconds(latency)),
        );
    }
    // A few requests are always on their way when the run ends.
    let answered = rounds
        .iter()
        .filter(|r| r.answers + ON_THE_WAY < r.due)
        .map(|r| r.answers as f64 / r.due.max(1) as f64)
        .fold(f64::INFINITY, f64::min);
    if open_loop && answered < ANSWERED_MIN {
        note(
            "overloaded",
            format!(
                "only {} of the offered rate was answered in time: latencies show the length of the queue and of the run",
                Unit::Share.write(answered)
            ),
        );
    }
    if let Some(r) = rounds.iter().filter(|r| r.starves()).max_by_key(|r| r.starved) {
        note(
            "overloaded",
            format!(
                "{} of {} users waited for more than half of the run in vain: the latencies are those of the others",
                r.starved, r.users
            ),
        );
    }
    let rates: Vec<f64> = rounds.iter().map(|r| r.rps).collect();
    let spread = mean_interval(&rates, 0.95).relative_half_width();
    if rates.len() >= 3 && spread > SPREAD_MAX {
        note("not repeatable", format!("the rounds scatter by ± {} (95 %)", Unit::Share.write(spread)));
    }
    let usable = !matches!(word, "client-bound" | "port-bound" | "error-bound" | "not repeatable");
    let word = if word.is_empty() { "valid" } else { word }.to_string();
    remarks(rounds, &mut reasons);
    Verdict { word, reasons, usable, failed }
}

/// Connects timed out while ports were used again within the time for which the other side, or a firewall between, keeps them.
fn used_again(r: &Round) -> Option<String> {
    let timeouts = r.failures.get(Failure::ConnectTimeout.word()).copied().unwrap_or(0);
    let within = (r.connections + timeouts) as f64 * (TIME_WAIT / r.seconds.max(1e-9)).min(1.0);
    let many = timeouts as f64 > ERRORS_MAX * r.due.max(1) as f64;
    // A full accept queue drops connections too, and says so when the server is on this machine.
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
    if rounds.len() == 1 {
        reasons.push("one run: its spread is not known (--rounds 5 would show it)".into());
    }
    let overflows = rounds.iter().map(|r| r.kernel.listen_overflows).sum::<u64>();
    if overflows > 0 {
        reasons.push(format!(
            "{overflows} connections met a full accept queue; each costs a second that looks like latency"
        ));
    }
    let steal = rounds.iter().map(|r| r.kernel.steal / r.seconds.max(1e-9)).fold(0.0, f64::max);
    if steal > 0.02 {
        reasons.push(format!("the hypervisor took {} of a processor away", Unit::Share.write(steal)));
    }
    let others = rounds.iter().filter_map(|r| r.others).fold(0.0, f64::max);
    if others > OTHERS_MAX {
        reasons.push(format!("other programs on this machine used {others:.2} processors meanwhile"));
    }
    let throttled = rounds.iter().map(|r| r.kernel.throttled).fold(0.0, f64::max);
    if throttled > 0.0 {
        reasons.push(format!("a CPU quota held this machine back for {}", seconds(throttled)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::kernel::Counters;
    use crate::report::model::{Ports, Times};

    fn round(rps: f64) -> Round {
        Round {
            seconds: 1.0,
            due: rps as u64,
            answers: rps as u64,
            good: rps as u64,
            rps,
            client_busy: vec![0.3],
            latency: Some(Times { p99: 0.010, ..Times::default() }),
            lag: Some(Times { p99: 0.000_5, ..Times::default() }),
            ..Round::default()
        }
    }

    fn word(rounds: &[Round], open: bool) -> String {
        judge(rounds, open).word
    }

    #[test]
    fn each_verdict_has_its_cause() {
        assert_eq!(word(&[round(1000.0)], true), "valid");
        let busy = Round { client_busy: vec![0.2, 0.95], ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&busy), false), "client-bound");
        assert!(!judge(&[busy], false).usable);
        let late = Round { lag: Some(Times { p99: 0.002, ..Times::default() }), ..round(1000.0) };
        assert_eq!(word(&[late], true), "client-bound");
        let failing =
            |class: Failure, n: u64| Round { failures: [(class.word().to_string(), n)].into(), ..round(1000.0) };
        assert_eq!(word(&[failing(Failure::PortsExhausted, 1)], true), "port-bound");
        let slow = Ports { sources: 1, available: 28_232, connect_cpu: Some(400e-6) };
        assert_eq!(word(&[Round { ports: slow, ..failing(Failure::ConnectTimeout, 50) }], true), "port-bound");
        let short = Ports { connect_cpu: Some(20e-6), ..slow };
        let again = Round { ports: short, connections: 30_000, ..failing(Failure::ConnectTimeout, 50) };
        assert_eq!(word(std::slice::from_ref(&again), true), "port-bound");
        let wide = Round { ports: Ports { available: 100_000, ..short }, ..again.clone() };
        assert_eq!(word(&[wide], true), "error-bound", "no port was used twice");
        let full = Round { kernel: Counters { listen_overflows: 50, ..Counters::default() }, ..again };
        assert_eq!(word(&[full], true), "error-bound", "it was the accept queue");
        assert_eq!(word(&[failing(Failure::Reset, 11)], true), "error-bound");
        assert_eq!(word(&[failing(Failure::Reset, 9)], true), "valid");
        assert_eq!(word(&[Round { good: 0, ..round(1000.0) }], true), "error-bound");
        let over =
            Round { answers: 900, failures: [(Failure::Unsent.word().to_string(), 100)].into(), ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&over), true), "overloaded");
        let starving = Round { users: 1000, starved: 700, ..round(1000.0) };
        assert_eq!(word(std::slice::from_ref(&starving), false), "overloaded");
        assert_eq!(word(&[Round { starved: 10, ..starving }], false), "valid");
        assert_eq!(word(&[Round { due: 2000, ..round(1000.0) }], false), "valid", "a closed loop offers nothing");
    }

    #[test]
    fn an_impossible_rate_is_not_given_a_latency_by_name() {
        // A billion requests a second were asked for, a thousand came: whatever the percentiles are, the verdict says so.
        let r = Round { due: 1_000_000_000, ..round(1000.0) };
        let v = judge(&[r], true);
        assert_eq!(v.word, "overloaded");
        assert!(v.reasons[0].contains("length of the queue"));
    }

    #[test]
    fn rounds_that_scatter_are_not_repeatable() {
        let rounds: Vec<Round> = [1000.0, 1200.0, 900.0].map(round).to_vec();
        assert_eq!(word(&rounds, false), "not repeatable");
        let rounds: Vec<Round> = [1000.0, 1003.0, 998.0].map(round).to_vec();
        assert_eq!(word(&rounds, false), "valid");
        assert!(judge(&rounds[..1], false).reasons[0].contains("one run"));
    }
}
