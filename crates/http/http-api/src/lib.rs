//! Features that report on the server and change it: API, dashboard, metrics, traces, status pages. Each
//! feature has a directory.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub use api::{
    Attachment, ConfigRefusal, ConfigReply, ConfigRequest, Configuration, EXPLAIN_PATIENCE, Explainer, Terms,
    configurations_kept, explain_with, has_api, has_dashboard, has_writes, serve_configuration,
};

/// Bodies of the fuzz targets of this crate.
pub mod fuzzing {
    pub use crate::api::fuzzing::api;
}

use http_engine::Feature;

mod api;
mod explain;
mod metrics_page;
mod otel;
mod prometheus;
mod shared;
mod status_zone;
mod stub_status;
mod vhost_traffic_status;

pub static FEATURES: &[&dyn Feature] = &[
    &api::ApiFeature,
    &api::DashboardFeature,
    &explain::ExplainFeature,
    &metrics_page::MetricsPage,
    &otel::OtelFeature,
    &prometheus::PrometheusFeature,
    &status_zone::StatusZone,
    &stub_status::StubStatus,
    &vhost_traffic_status::VhostTrafficStatus,
];
