//! What a row of the table is, and the macro that makes rows of it.

use std::marker::PhantomData;

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often which times were taken.
    Histogram,
}

impl Kind {
    /// Prometheus's word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// What is counted: a base unit of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    None,
    /// Told in seconds; the cells hold microseconds.
    Seconds,
    Bytes,
}

impl Unit {
    /// The unit's name, which a metric's name ends with; empty for things.
    pub fn word(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }
}

/// Upper bounds of the buckets of histograms, in microseconds (5 ms to 10 s); what is above them all has one more. They are those
/// of nginx's API.
pub const BOUNDS_MICROS: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000, 2_500_000, 5_000_000,
    7_500_000, 10_000_000,
];
/// Cells of a histogram: its buckets, the one above them, the sum.
pub(crate) const HISTOGRAM_CELLS: usize = BOUNDS_MICROS.len() + 2;

/// A metric.
#[derive(Debug)]
pub struct Row {
    /// Without the `_total` of counters.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// One line for people: HELP, and the manual.
    pub doc: &'static str,
    /// The label that tells apart what is counted, and all its values; empty: there is none.
    pub label: &'static str,
    pub values: &'static [&'static str],
}

impl Row {
    /// How many cells it takes.
    pub const fn width(&self) -> usize {
        match self.kind {
            Kind::Histogram => HISTOGRAM_CELLS,
            _ if self.values.is_empty() => 1,
            _ => self.values.len(),
        }
    }
    /// The name that samples have: counters end with `_total`.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            _ => self.name.to_string(),
        }
    }
}

/// The metrics of one kind of thing.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    /// What has these metrics.
    pub doc: &'static str,
    /// Labels that say which of these things it is; their values come from the configuration.
    pub labels: &'static [&'static str],
    pub rows: &'static [Row],
}

impl Set {
    /// Cells of all rows.
    pub const fn width(&self) -> usize {
        offset(self.rows, self.rows.len())
    }
}

/// The first cell of a row.
pub(crate) const fn offset(rows: &[Row], index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        sum += rows[at].width();
        at += 1;
    }
    sum
}

/// The type that stands for a set.
pub trait Tabled: 'static {
    const SET: &'static Set;
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
            pub(crate) const fn new(rows: &[Row], index: usize) -> Self {
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
    /// Where a counter's cells are.
    Counter
    /// Where a gauge's cells are.
    Gauge
    /// Where a histogram's cells are.
    Histogram
}

/// The table of metrics. A module is a set: in brackets stand the labels that name the thing; then, line by line, documentation,
/// the constant that code counts with, kind, unit, name, and the values of a label.
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
                use $crate::table::{self, Row, Set, Tabled};

                /// Stands for this set.
                #[derive(Clone, Copy, Debug)]
                pub struct Of;

                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Index { $($row),+ }

                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    kind: table::Kind::$kind,
                    unit: table::Unit::$unit,
                    doc: concat!($($doc),+),
                    label: concat!($($label)?),
                    values: &[$($($value),+)?],
                }),+];

                /// The set.
                pub static SET: Set = Set {
                    name: stringify!($set),
                    doc: concat!($($set_doc),+),
                    labels: &[$($zone_label),*],
                    rows: ROWS,
                };

                impl Tabled for Of {
                    const SET: &'static Set = &SET;
                }

                $(
                    $(#[doc = $doc])+
                    pub const $row: table::$kind<Of> = table::$kind::new(ROWS, Index::$row as usize);
                )+
            }
        )+
        /// Every set, in the order in which they are told.
        pub static SETS: &[&$crate::table::Set] = &[$(&$set::SET),+];
    };
}
