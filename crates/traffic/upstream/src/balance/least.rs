//! Server with the smallest figure by weight; round robin among equals.

use super::{Attempts, Choice, Time, usable};
use crate::group::Group;
use crate::peer::{Peer, average};
use std::sync::Arc;

/// Steps, and maximum, of compared response times in milliseconds.
const STEP_MS: u64 = 20;
const TIME_MAX_MS: u64 = 5000;

/// `least_conn`: the server with the fewest connections by weight.
pub fn fewest_connections(
    group: &Group,
    list: &[Arc<Peer>],
    choice: &Choice<'_>,
    attempts: &Attempts,
) -> Option<usize> {
    least(group, list, choice, attempts, |peer| peer.active())
}

/// `least_time`: the server with the smallest estimated time by weight. First corrects the averages by the age of
/// unanswered requests.
pub fn least_time(
    group: &Group,
    list: &[Arc<Peer>],
    choice: &Choice<'_>,
    attempts: &Attempts,
    time: Time,
) -> Option<usize> {
    for (index, peer) in list.iter().enumerate() {
        if usable(list, index, choice.now, attempts) {
            peer.with_state(|s| {
                if let Some(each) = s.inflight_last.checked_div(s.inflight) {
                    let flown = each + choice.now.millis_since(s.inflight_changed);
                    s.inflight_time = average(s.inflight_time, flown);
                }
            });
        }
    }
    least(group, list, choice, attempts, |peer| estimate_time(peer, choice, time))
}

/// Estimated time for a server's pending work (nginx: `ngx_http_upstream_least_time_eta`).
pub fn estimate_time(peer: &Peer, choice: &Choice<'_>, time: Time) -> u64 {
    let mut ms = peer.with_state(|s| {
        let mut ms = match time {
            Time::Header => s.header_time,
            Time::LastByte => s.response_time,
        };
        let idle = choice.now.millis_since(s.checked);
        if idle > peer.spec.fail_timeout_ms && s.checked.0 > 0 {
            // Gives a slow server another chance over time.
            ms >>= (idle / (peer.spec.fail_timeout_ms + 1000)).min(63);
        }
        if s.inflight > 0 { ms.max(s.inflight_time) } else { ms }
    });
    if ms > TIME_MAX_MS {
        ms = TIME_MAX_MS;
    } else {
        ms += STEP_MS - ms % STEP_MS;
    }
    ms * (1 + peer.active())
}

fn least(
    group: &Group,
    list: &[Arc<Peer>],
    choice: &Choice<'_>,
    attempts: &Attempts,
    figure: impl Fn(&Peer) -> u64,
) -> Option<usize> {
    let mut figures = vec![None; list.len()];
    let mut best: Option<(usize, u128, u128)> = None;
    let mut many = false;
    for (index, peer) in list.iter().enumerate() {
        if !usable(list, index, choice.now, attempts) {
            continue;
        }
        let (value, weight) = (u128::from(figure(peer)), weight(peer, choice));
        figures[index] = Some((value, weight));
        match best {
            Some((_, v, w)) if value * w == v * weight => many = true,
            Some((_, v, w)) if value * w > v * weight => {}
            _ => (best, many) = (Some((index, value, weight)), false),
        }
    }
    let (index, value, weight) = best?;
    if !many {
        return Some(index);
    }
    let equal = |other: usize| figures[other].is_some_and(|(v, w)| v * weight == value * w);
    group.weighted(list, choice, attempts, index, None, equal)
}

fn weight(peer: &Peer, choice: &Choice<'_>) -> u128 {
    let weight = u128::from(peer.spec.weight.max(1)) * 1000;
    match peer.with_state(|s| peer.share(s, choice.now)) {
        Some((part, whole)) => (weight * u128::from(part) / u128::from(whole)).max(1),
        None => weight,
    }
}
