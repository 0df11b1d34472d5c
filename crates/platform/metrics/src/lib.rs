//! Metrics; `tables.rs` lists them with name, kind, unit and documentation.
//! Every thread changes its own cells with plain loads and stores; readers sum over threads. A [`Zone`] is a set of
//! cells for a configured object (server, location, cache). No name or label value comes from a peer: the configuration
//! bounds the samples.

#![forbid(unsafe_code)]

#[macro_use]
mod table;
mod cells;
mod codes;
mod exemplar;
mod gather;
mod lifecycle;
mod nginx;
mod reading;
mod reference;
mod render;
mod tables;
#[cfg(test)]
mod tests;
mod workers;
mod zone;

pub use cells::{bucket, mark_worker};
pub use exemplar::Exemplar;
pub use gather::{Family, Sample, Value, gather};
pub use lifecycle::{Lifecycle, LoadRecord};
pub use nginx::nginx;
pub use reading::{Reading, Times, WorkerCounts, readings, reset_workers, reset_zones, workers};
pub use reference::reference;
pub use render::{OPENMETRICS_TYPE, PROMETHEUS_TYPE, json, openmetrics, prometheus, write_labels};
pub use table::{BOUNDS_MICROS, Counter, Gauge, Histogram, MetricKind, Row, Set, Tabled, Unit};
pub use tables::*;
pub use workers::worker_zone;
pub use zone::{Here, Lease, Values, Zone, prepare_thread};
