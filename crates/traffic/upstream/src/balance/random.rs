//! `random` and `random two`.

use super::least::estimate_time;
use super::{Attempts, Choice, MISSES_MAX, Time, by_weight, usable};
use crate::group::Group;
use crate::peer::Peer;
use std::sync::Arc;

struct WeightedDraw(u64);

impl WeightedDraw {
    fn draw(&mut self, list: &[Arc<Peer>]) -> Option<usize> {
        let total: u64 = list.iter().map(|p| u64::from(p.spec.weight)).sum();
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        by_weight(list, (self.0 >> 11) % total.max(1))
    }
}

/// `random`: a server by weight.
pub fn choose_one(group: &Group, list: &[Arc<Peer>], choice: &Choice<'_>, attempts: &mut Attempts) -> Option<usize> {
    let mut draw = WeightedDraw(choice.random | 1);
    while attempts.misses <= MISSES_MAX {
        let index = draw.draw(list)?;
        if usable(list, index, choice.now, attempts) {
            return Some(index);
        }
        attempts.misses += 1;
    }
    group.round_robin(list, choice, attempts, None)
}

/// `random two`: fewer connections, or faster.
pub fn choose_two(
    group: &Group,
    list: &[Arc<Peer>],
    choice: &Choice<'_>,
    attempts: &mut Attempts,
    time: Option<Time>,
) -> Option<usize> {
    let mut draw = WeightedDraw(choice.random | 1);
    let mut first: Option<usize> = None;
    let load = |index: usize| match time {
        None => u128::from(list[index].active()),
        Some(time) => u128::from(estimate_time(&list[index], choice, time)),
    };
    while attempts.misses <= MISSES_MAX {
        let index = draw.draw(list)?;
        if first == Some(index) || !usable(list, index, choice.now, attempts) {
            attempts.misses += 1;
            continue;
        }
        let Some(other) = first else {
            first = Some(index);
            continue;
        };
        let weight = |index: usize| u128::from(list[index].spec.weight);
        return Some(if load(index) * weight(other) > load(other) * weight(index) { other } else { index });
    }
    group.round_robin(list, choice, attempts, None)
}
