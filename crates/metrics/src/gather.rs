//! Adds up what was counted: families of samples, for whoever tells them.

use crate::cells;
use crate::table::{BOUNDS_MICROS, Kind, Row, Set, Unit, offset};
use crate::{SETS, process, zone};

/// A metric with all its samples.
#[derive(Debug)]
pub struct Family {
    pub row: &'static Row,
    pub samples: Vec<Sample>,
}

/// What one thing has of a metric.
#[derive(Debug)]
pub struct Sample {
    /// Names of labels and their values.
    pub labels: Vec<(&'static str, String)>,
    pub value: Value,
}

/// A sample's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// In the row's unit; seconds as microseconds.
    Number(u64),
    /// How many were in each bucket, the one above all bounds last; and the sum of microseconds.
    Times { buckets: Vec<u64>, sum: u64 },
}

/// Everything that there is to tell, in the order of the table. Sets of which there is nothing have no families.
pub fn gather() -> Vec<Family> {
    let zones = zone::all();
    let mut families = Vec::new();
    for set in SETS {
        let things: Vec<(&[String], Vec<u64>)> = if set.name == process::SET.name {
            vec![(&[], with_waiting(&cells::sums()))]
        } else {
            zones.iter().filter(|zone| zone.set.name == set.name).map(|zone| (&*zone.labels, zone.sums())).collect()
        };
        if things.is_empty() {
            continue;
        }
        for (index, row) in set.rows.iter().enumerate() {
            let at = offset(set.rows, index);
            let samples =
                things.iter().flat_map(|(names, sums)| of_row(set, row, names, sums.get(at..).unwrap_or(&[])));
            families.push(Family { row, samples: samples.collect() });
        }
    }
    families
}

/// Connections that wait are those that are neither read nor written.
fn with_waiting(sums: &[u64]) -> Vec<u64> {
    let mut sums = sums.to_vec();
    let busy = process::CONNECTIONS_READING.sum() + process::CONNECTIONS_WRITING.sum();
    if let Some(waiting) = sums.get_mut(process::CONNECTIONS_WAITING.at) {
        *waiting = process::CONNECTIONS_ACTIVE.sum().saturating_sub(busy);
    }
    sums
}

fn of_row(set: &Set, row: &'static Row, names: &[String], cells: &[u64]) -> Vec<Sample> {
    let labels: Vec<(&'static str, String)> = set.labels.iter().copied().zip(names.iter().cloned()).collect();
    if row.kind == Kind::Histogram {
        let buckets = cells.get(..=BOUNDS_MICROS.len()).unwrap_or_default().to_vec();
        let sum = cells.get(row.width() - 1).copied().unwrap_or_default();
        return vec![Sample { labels, value: Value::Times { buckets, sum } }];
    }
    let values = (0..row.width()).map(|index| {
        let mut labels = labels.clone();
        if let Some(value) = row.values.get(index) {
            labels.push((row.label, (*value).to_string()));
        }
        let number = cells.get(index).copied().unwrap_or_default();
        let number = if row.kind == Kind::Gauge { cells::floor(number) } else { number };
        Sample { labels, value: Value::Number(number) }
    });
    values.collect()
}

/// A number in the unit that it is told in.
pub(crate) fn told(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Seconds => seconds(number),
        Unit::None | Unit::Bytes => number.to_string(),
    }
}

/// Microseconds as seconds, exactly.
pub(crate) fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_string() }
}
