//! Metrics: what is counted stands in one table (`tables.rs`), with name, kind, unit and a line of documentation.
//!
//! Every thread has cells of its own, apart from those of other threads by cache lines; it changes them with a plain load and
//! store, and whoever reads adds up those of all threads. Nothing is locked while something is counted. A [`Zone`] is a second set
//! of cells for one thing that the configuration names: a server, a location, a cache. What has no zone costs nothing more.
//!
//! No name and no value of a label comes from a peer: how many samples there are is decided by the configuration.

#![forbid(unsafe_code)]

#[macro_use]
mod table;
mod cells;
mod gather;
mod nginx;
mod reference;
mod render;
mod tables;
#[cfg(test)]
mod tests;
mod zone;

pub use gather::{Family, Sample, Value, gather};
pub use nginx::nginx;
pub use reference::reference;
pub use render::{OPENMETRICS_TYPE, PROMETHEUS_TYPE, json, openmetrics, prometheus};
pub use table::{BOUNDS_MICROS, Counter, Gauge, Histogram, Kind, Row, Set, Tabled, Unit};
pub use tables::*;
pub use zone::{Lease, Values, Zone, prepare_thread};
