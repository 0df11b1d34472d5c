//! Features that show and change the server: API, dashboard, metrics, traces, certificates by ACME.
//! One directory per feature; `http-features` has the registry of all.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub use acme::{Listed as AcmeCertificate, listed as acme_certificates};
pub use api::{EXPLAIN_PATIENCE, Explainer, explain_with, has_dashboard};

use http_engine::Feature;

mod acme;
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
    &acme::Acme,
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
