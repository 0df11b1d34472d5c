//! The type of a row of the table, and the macro that declares rows.

use std::marker::PhantomData;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    /// Exposed in seconds; cells hold microseconds.
    Seconds,
    Bytes,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }
}

/// Upper bounds of histogram buckets in microseconds (5 ms to 10 s), as in nginx's API; one more bucket is unbounded.
pub const BOUNDS_MICROS: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000, 2_500_000, 5_000_000,
    7_500_000, 10_000_000,
];
/// Buckets of a histogram, the unbounded one included.
pub(crate) const BUCKETS: usize = BOUNDS_MICROS.len() + 1;
/// Cells of a histogram: the sum, then the buckets. The sum and the fastest buckets share a cache line with counters.
const HISTOGRAM_CELLS: usize = 1 + BUCKETS;

#[derive(Debug)]
pub struct MetricRow {
    /// Name without the `_total` of counters.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    pub doc: &'static str,
    /// Label with all its values; empty: none.
    pub label: &'static str,
    pub values: &'static [&'static str],
}

impl MetricRow {
    pub const fn width(&self) -> usize {
        match self.kind {
            MetricKind::Histogram => HISTOGRAM_CELLS,
            _ if self.values.is_empty() => 1,
            _ => self.values.len(),
        }
    }
    /// Name of samples: counters end with `_total`.
    pub fn sample_name(&self) -> String {
        match self.kind {
            MetricKind::Counter => format!("{}_total", self.name),
            _ => self.name.to_string(),
        }
    }
}

#[derive(Debug)]
pub struct MetricSet {
    pub name: &'static str,
    pub doc: &'static str,
    /// Labels that identify an object; their values come from the configuration.
    pub labels: &'static [&'static str],
    pub rows: &'static [MetricRow],
}

impl MetricSet {
    pub const fn width(&self) -> usize {
        offset(self.rows, self.rows.len())
    }
}

pub(crate) const fn offset(rows: &[MetricRow], index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        sum += rows[at].width();
        at += 1;
    }
    sum
}

/// Returns the number of exemplar slots before a row: one for each bucket of a histogram.
pub(crate) const fn slot(rows: &[MetricRow], index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        if matches!(rows[at].kind, MetricKind::Histogram) {
            sum += BUCKETS;
        }
        at += 1;
    }
    sum
}

/// Returns the first exemplar slot of the histogram with this first cell.
pub(crate) fn slot_of(rows: &[MetricRow], cell: usize) -> usize {
    slot(rows, (0..rows.len()).find(|index| offset(rows, *index) >= cell).unwrap_or(rows.len()))
}

pub trait MetricTable: 'static {
    const SET: &'static MetricSet;
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        pub struct $name<S> {
            pub(crate) at: usize,
            pub(crate) width: usize,
            of: PhantomData<fn() -> S>,
        }
        impl<S> $name<S> {
            pub(crate) const fn new(rows: &[MetricRow], index: usize) -> Self {
                $name { at: offset(rows, index), width: rows[index].width(), of: PhantomData }
            }
        }
        impl<S> Clone for $name<S> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<S> Copy for $name<S> {}
    )+};
}

places! {
    Counter
    Gauge
}

pub struct Histogram<S> {
    /// The first cell.
    pub(crate) at: usize,
    pub(crate) slot: usize,
    of: PhantomData<fn() -> S>,
}

impl<S> Histogram<S> {
    pub(crate) const fn new(rows: &[MetricRow], index: usize) -> Self {
        Histogram { at: offset(rows, index), slot: slot(rows, index), of: PhantomData }
    }
    /// Returns the cell of the sum, in microseconds.
    #[inline]
    pub(crate) const fn sum_at(self) -> usize {
        self.at
    }
    /// Returns the cell of a bucket.
    #[inline]
    pub(crate) const fn bucket_at(self, bucket: usize) -> usize {
        self.at + 1 + bucket
    }
}

impl<S> Clone for Histogram<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Histogram<S> {}

/// Declares the table. A module is a set, with its identifying labels in brackets; each row has documentation,
/// constant, kind, unit, name and label values.
macro_rules! metrics {
    ($(
        $(#[doc = $set_doc:literal])+
        pub mod $set:ident [$($zone_label:literal),*] {
            $(
                $(#[doc = $doc:literal])+
                $row:ident: $kind:ident $unit:ident $name:literal $(by $label:literal [$($value:literal),+ $(,)?])?;
            )+
        }
    )+) => {
        $(
            $(#[doc = $set_doc])+
            pub mod $set {
                use $crate::table::{self, MetricRow, MetricSet, MetricTable};

                #[derive(Clone, Copy, Debug)]
                pub struct Of;

                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Index { $($row),+ }

                const ROWS: &[MetricRow] = &[$(MetricRow {
                    name: $name,
                    kind: table::MetricKind::$kind,
                    unit: table::Unit::$unit,
                    doc: concat!($($doc),+),
                    label: concat!($($label)?),
                    values: &[$($($value),+)?],
                }),+];

                pub static SET: MetricSet = MetricSet {
                    name: stringify!($set),
                    doc: concat!($($set_doc),+),
                    labels: &[$($zone_label),*],
                    rows: ROWS,
                };

                impl MetricTable for Of {
                    const SET: &'static MetricSet = &SET;
                }

                $(
                    $(#[doc = $doc])+
                    pub const $row: table::$kind<Of> = table::$kind::new(ROWS, Index::$row as usize);
                )+
            }
        )+
        pub static SETS: &[&$crate::table::MetricSet] = &[$(&$set::SET),+];
    };
}
