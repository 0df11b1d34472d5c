//! Searching the highest rate that keeps an objective: double until it breaks, then halve the gap, then make sure.

use super::execute::measure;
use super::live;
use super::plan::{Find, Plan};
use crate::report::build;
use crate::report::model::{Bounds, Capacity, Point, Round};
use crate::report::verdict::judge;

/// The gap between the highest good and the lowest bad rate at which the search ends, relative.
const GAP: f64 = 0.03;
/// Rate to begin with.
const FIRST: f64 = 500.0;
/// Never more probes than this.
const PROBES_MAX: usize = 40;
/// Repeats at the edge; all of them must keep the objective.
const REPEATS: usize = 3;

/// Searches; gives every rate that was tried as a point, by rate, and the capacity.
///
/// # Errors
/// What a run says that cannot be made.
pub fn search(plan: &Plan, objective: &Find) -> Result<(Vec<Point>, Option<Capacity>), String> {
    let mut tried: Vec<(f64, Vec<Round>)> = Vec::new();
    let edge = edge(|rate| {
        let round = tried.len();
        let result = measure(plan, &plan.job(rate, round), &live::label(plan, rate, 0))?;
        let kept = keeps(objective, &result);
        match tried.iter_mut().find(|(r, _)| *r == rate) {
            Some((_, rounds)) => rounds.push(result),
            None => tried.push((rate, vec![result])),
        }
        Ok(kept)
    })?;
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    let points: Vec<Point> =
        tried.into_iter().map(|(value, rounds)| Point { value, verdict: judge(&rounds, true), rounds }).collect();
    let capacity = edge.and_then(|(good, bad)| {
        let point = points.iter().find(|p| p.value == good)?;
        let bounds = Bounds { low: good, mid: good, high: bad };
        Some(build::capacity(point, objective.text.clone(), bounds))
    });
    Ok((points, capacity))
}

/// Whether a round keeps the objective, keeps up with its rate, and has few errors.
fn keeps(objective: &Find, round: &Round) -> bool {
    let answered = round.answers as f64 / round.due.max(1) as f64;
    answered >= crate::report::verdict::ANSWERED_MIN
        && round.error_share() <= crate::report::verdict::ERRORS_MAX
        && objective.conditions.iter().all(|c| c.of(round).is_some_and(|v| c.met(v)))
}

/// The search itself: the highest rate that was good in every repeat, and the lowest that was bad. `None` when not even the
/// lowest rate is good.
fn edge(mut good_at: impl FnMut(f64) -> Result<bool, String>) -> Result<Option<(f64, f64)>, String> {
    let (mut good, mut bad, mut rate, mut probes) = (0.0, f64::INFINITY, FIRST, 0);
    loop {
        // Double, then halve the gap.
        while probes < PROBES_MAX && (bad.is_infinite() || bad / f64::max(good, 1.0) > 1.0 + GAP) {
            probes += 1;
            if good_at(rate)? {
                good = rate
            } else {
                bad = rate
            }
            rate = match (good, bad) {
                (_, bad) if bad.is_infinite() => rate * 2.0,
                (0.0, bad) if bad <= 2.0 => return Ok(None),
                (0.0, bad) => bad / 4.0,
                (good, bad) => ((good * bad).sqrt()).round(),
            };
            if rate == good || rate == bad {
                break;
            }
        }
        if good == 0.0 {
            return Ok(None);
        }
        // One good run at the edge may be luck: all repeats must be good, or the edge is lower.
        let mut sure = true;
        for _ in 1..REPEATS {
            probes += 1;
            if !good_at(good)? {
                sure = false;
                break;
            }
        }
        if sure || probes >= PROBES_MAX {
            return Ok(Some((good, bad)));
        }
        bad = good;
        good = 0.0;
        rate = (bad * 0.93).round();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::rng::Rng;

    #[test]
    fn a_sharp_edge_is_found() {
        for limit in [700.0, 12_345.0, 90_000.0, 30.0] {
            let mut probes = 0;
            let (good, bad) = edge(|r| {
                probes += 1;
                Ok(r <= limit)
            })
            .unwrap()
            .unwrap();
            assert!(good <= limit && limit < bad && bad / good < 1.08, "{limit}: {good} {bad}");
            assert!(probes < 25);
        }
    }

    #[test]
    fn a_noisy_edge_is_found_from_below() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let found = edge(|r| Ok(r <= 10_000.0 * (1.0 + 0.03 * rng.normal()))).unwrap().unwrap().0;
            assert!((8_500.0..10_800.0).contains(&found), "{found}");
        }
    }

    #[test]
    fn a_hopeless_server_has_no_edge() {
        assert_eq!(edge(|_| Ok(false)).unwrap(), None);
        assert!(edge(|_| Err("down".into())).is_err());
    }
}
