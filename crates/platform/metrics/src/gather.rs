//! Sums the cells into families of samples for the exposition formats.

use crate::cells;
use crate::exemplar::Exemplar;
use crate::lifecycle::Lifecycle;
use crate::table::{BUCKETS, MetricKind, MetricRow, MetricSet, Unit, offset};
use crate::{SETS, process, zone};
use std::sync::Arc;

#[derive(Debug)]
pub struct MetricFamily {
    pub row: &'static MetricRow,
    pub samples: Vec<FamilySample>,
}

#[derive(Debug)]
pub struct FamilySample {
    pub labels: Vec<(&'static str, String)>,
    pub value: SampleValue,
    /// When counting began, in milliseconds since 1970.
    pub created_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleValue {
    /// In the row's unit; seconds as microseconds.
    Number(u64),
    /// Counts per bucket, the last one unbounded, the sum in microseconds, and exemplars by bucket (empty: none).
    Times { buckets: Vec<u64>, sum: u64, exemplars: Vec<Option<Exemplar>> },
}

/// An object of a set: the process, or zones with equal labels.
struct Object<'a> {
    names: &'a [String],
    sums: Vec<u64>,
    created_ms: u64,
    zones: Vec<&'a zone::Cells>,
}

/// In the table's order; omits sets without objects.
pub fn gather_families() -> Vec<MetricFamily> {
    let zones = zone::all();
    let mut families = Vec::new();
    for set in SETS {
        let things = if set.name == process::SET.name {
            let sums = with_derived(&cells::sums());
            vec![Object { names: &[], sums, created_ms: Lifecycle::began_at(), zones: Vec::new() }]
        } else {
            of_zones(zones.iter().filter(|zone| zone.set.name == set.name))
        };
        if things.is_empty() {
            continue;
        }
        for (index, row) in set.rows.iter().enumerate() {
            let at = offset(set.rows, index);
            let samples = things.iter().flat_map(|thing| of_row(set, row, thing, at));
            families.push(MetricFamily { row, samples: samples.collect() });
        }
    }
    families
}

/// Sums zones with equal labels, which are neighbours.
fn of_zones<'a>(zones: impl Iterator<Item = &'a Arc<zone::Cells>>) -> Vec<Object<'a>> {
    let mut all: Vec<Object<'a>> = Vec::new();
    for zone in zones {
        match all.last_mut() {
            Some(thing) if *thing.names == *zone.labels => {
                thing.sums.iter_mut().zip(zone.sums()).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
                thing.created_ms = thing.created_ms.min(zone.created_ms);
                thing.zones.push(zone);
            }
            _ => {
                let created_ms = zone.created_ms;
                all.push(Object { names: &zone.labels, sums: zone.sums(), created_ms, zones: vec![zone] });
            }
        }
    }
    all
}

/// Adds derived metrics: waiting connections (neither reading nor writing), and event loop iterations.
fn with_derived(sums: &[u64]) -> Vec<u64> {
    let mut sums = sums.to_vec();
    let busy = process::CONNECTIONS_READING.sum() + process::CONNECTIONS_WRITING.sum();
    // Short turns of the event loops are not counted by duration.
    let first = process::LOOP_TIMES.sum_at();
    if let Some([sum, buckets @ ..]) = sums.get_mut(first..=first + BUCKETS) {
        let all = crate::workers::turns(buckets, process::LOOP_TURNS.sum());
        buckets.copy_from_slice(&all);
        *sum = process::LOOP_BUSY.sum();
    }
    if let Some(waiting) = sums.get_mut(process::CONNECTIONS_WAITING.at) {
        *waiting = process::CONNECTIONS_ACTIVE.sum().saturating_sub(busy);
    }
    sums
}

fn of_row(set: &MetricSet, row: &'static MetricRow, thing: &Object<'_>, at: usize) -> Vec<FamilySample> {
    let labels: Vec<(&'static str, String)> = set.labels.iter().copied().zip(thing.names.iter().cloned()).collect();
    let (cells, created_ms) = (thing.sums.get(at..).unwrap_or_default(), thing.created_ms);
    if row.kind == MetricKind::Histogram {
        let (sum, buckets) = match cells {
            [sum, rest @ ..] => (*sum, rest.get(..BUCKETS).unwrap_or_default().to_vec()),
            [] => (0, Vec::new()),
        };
        let exemplars = thing.zones.iter().map(|zone| zone.exemplars(at)).reduce(newest).unwrap_or_default();
        return vec![FamilySample { labels, value: SampleValue::Times { buckets, sum, exemplars }, created_ms }];
    }
    let values = (0..row.width()).map(|index| {
        let mut labels = labels.clone();
        if let Some(value) = row.values.get(index) {
            labels.push((row.label, (*value).to_string()));
        }
        let number = cells.get(index).copied().unwrap_or_default();
        let number = if row.kind == MetricKind::Gauge { cells::floor(number) } else { number };
        FamilySample { labels, value: SampleValue::Number(number), created_ms }
    });
    values.collect()
}

/// Bucket by bucket.
fn newest(mut one: Vec<Option<Exemplar>>, other: Vec<Option<Exemplar>>) -> Vec<Option<Exemplar>> {
    one.resize(one.len().max(other.len()), None);
    one.iter_mut().zip(other).for_each(|(known, more)| *known = zone::newer(*known, more));
    one
}

pub(crate) fn told(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Seconds => seconds(number),
        Unit::None | Unit::Bytes => number.to_string(),
    }
}

/// Exact.
pub(crate) fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_string() }
}
