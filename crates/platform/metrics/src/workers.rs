//! Metrics of a worker thread, read from its cells when metrics are gathered: the thread itself counts nothing twice.

use crate::cells::{self, CellBlock};
use crate::table::{BUCKETS, Counter, Gauge};
use crate::zone::MetricZone;
use crate::{process, worker};
use std::sync::atomic::Ordering;

/// Returns the zone of this thread, which shows its metrics until dropped. `cpu_micros` returns the thread's processor
/// time; it is called on other threads.
pub fn worker_zone(number: usize, cpu_micros: impl Fn() -> u64 + Send + Sync + 'static) -> MetricZone<worker::Of> {
    let zone = MetricZone::named(&[&number.to_string()]);
    let block = cells::own();
    zone.ask(move |values| {
        let counter = |counter: Counter<process::Of>| sum(block, counter.at, counter.width);
        let gauge = |gauge: Gauge<process::Of>| cells::floor(sum(block, gauge.at, gauge.width));
        values.set_count(worker::CONNECTIONS_ACCEPTED, counter(process::CONNECTIONS_ACCEPTED));
        values.set(worker::CONNECTIONS_ACTIVE, gauge(process::CONNECTIONS_ACTIVE));
        values.set_count(worker::REQUESTS, counter(process::HTTP_REQUESTS));
        values.set_count(worker::CPU, cpu_micros());
        let long: Vec<u64> = (0..BUCKETS).map(|bucket| sum(block, process::LOOP_TIMES.bucket_at(bucket), 1)).collect();
        let turns = turns(&long, counter(process::LOOP_TURNS));
        values.set_times(worker::TURNS, &turns, counter(process::LOOP_BUSY));
    });
    zone
}

/// Adds short turns, which are counted only among all, to the first bucket.
pub(crate) fn turns(long: &[u64], all: u64) -> Vec<u64> {
    let mut buckets = long.to_vec();
    let elsewhere: u64 = long.iter().skip(1).sum();
    if let Some(first) = buckets.first_mut() {
        *first = all.saturating_sub(elsewhere);
    }
    buckets
}

fn sum(block: &CellBlock, at: usize, width: usize) -> u64 {
    let cells = block.cells.iter().skip(at).take(width);
    cells.fold(0_u64, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SampleValue, gather_families};

    #[test]
    fn a_worker_shows_its_own_counts() {
        let thread = std::thread::spawn(|| {
            let _zone = worker_zone(41, || 1_500_000);
            let before = counts();
            for _ in 0..3 {
                process::LOOP_TURNS.up();
            }
            process::LOOP_TIMES.note(30_000);
            process::LOOP_BUSY.add(30_300);
            process::HTTP_REQUESTS.up_at(2);
            let after = counts();
            assert_eq!(after.0 - before.0, 1);
            assert_eq!((after.1 - before.1, after.2 - before.2), (3, 1));
            assert_eq!(after.3, 1_500_000);
        });
        thread.join().expect("the assertions hold");
        assert!(
            !gather_families()
                .iter()
                .any(|family| family.samples.iter().any(|s| s.labels == [("worker", "41".into())]))
        );
    }

    /// Requests, turns, turns between 25 and 50 ms, and processor time of the worker.
    fn counts() -> (u64, u64, u64, u64) {
        let families = gather_families();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.row.name == name).expect("the family");
            let sample = family.samples.iter().find(|sample| sample.labels == [("worker", "41".into())]);
            sample.expect("the worker").value.clone()
        };
        let number =
            |name: &str| if let SampleValue::Number(n) = value(name) { n } else { panic!("{name} is a number") };
        let SampleValue::Times { buckets, .. } = value("tidegate_worker_loop_turn_seconds") else { panic!("times") };
        (
            number("tidegate_worker_http_requests"),
            buckets.iter().sum(),
            buckets[3],
            number("tidegate_worker_cpu_seconds"),
        )
    }
}
