//! Metrics; `tables.rs` lists them with name, kind, unit and documentation.
//! Every thread changes its own cells with plain loads and stores; readers sum over threads. A [`MetricZone`] is a set of
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

pub use cells::{bucket_index, mark_worker};
pub use exemplar::Exemplar;
pub use gather::{FamilySample, MetricFamily, SampleValue, gather_families};
pub use lifecycle::{Lifecycle, LoadRecord};
pub use nginx::exporter_text;
pub use reading::{Reading, Times, WorkerCounts, reset_workers, reset_zones, worker_counts, zone_readings};
pub use reference::metrics_reference;
pub use render::{OPENMETRICS_TYPE, PROMETHEUS_TYPE, metrics_json, openmetrics_text, prometheus_text, write_labels};
pub use table::{BOUNDS_MICROS, Counter, Gauge, Histogram, MetricKind, MetricRow, MetricSet, MetricTable, Unit};
pub use tables::*;
pub use workers::worker_zone;
pub use zone::{Here, Lease, MetricZone, ZoneValues, prepare_thread};
