//! List of features, and the stream area's entry points.

use crate::Builtin;
use crate::build::{self as builder, Feature};
use crate::plan::StreamPlan;
use conf_schema::{CheckedBlock, Complaint, ContextArea, Cx, FeatureTable, Schema};

/// All features, sorted by name. The phases and `PreaccessOrder` define the order of handlers.
static FEATURES: &[&dyn Feature] = &[
    &crate::access::StreamAccess,
    &crate::access_log::AccessLog,
    &crate::acme::Acme,
    &crate::dns::Dns,
    &crate::geo::Geo,
    &crate::geoip::GeoipFeature,
    &crate::geoip2::Geoip2Feature,
    &crate::health_check::HealthCheck,
    &crate::keyval::KeyvalFeature,
    &crate::limit_conn::LimitConn,
    &crate::map::Map,
    &crate::mqtt::Mqtt,
    &crate::pass::StreamPass,
    &crate::proxy::StreamProxy,
    &crate::realip::Realip,
    &crate::resolver::StreamResolverLine,
    &crate::return_text::Return,
    &crate::set::SetLine,
    &crate::split_clients::SplitClients,
    &crate::ssl::Ssl,
    &crate::ssl_preread::SslPreread,
    &crate::status_zone::StatusZone,
    &crate::upstream_block::UpstreamBlock,
];

pub fn stream_tables() -> Vec<FeatureTable> {
    builder::feature_tables(FEATURES)
}

pub fn stream_variables() -> impl Iterator<Item = &'static Builtin> {
    crate::variables::CORE.iter().chain(FEATURES.iter().flat_map(|f| f.variables()))
}

/// For a configuration.
pub fn offer_variables(cx: &mut Cx) {
    builder::offer_variables(FEATURES, cx);
}

/// Builds the plan of a checked stream block; warnings go to `cx.warnings`. Fails on unknown variables, conflicting
/// listen options, and missing zones.
pub fn build_stream(schema: &Schema, stream: &mut CheckedBlock<'_>, cx: &mut Cx) -> Result<StreamPlan, Vec<Complaint>> {
    builder::build_plan(FEATURES, stream, cx, &|feature| {
        schema.table_index(feature, ContextArea::Stream).or(schema.table_index(feature, ContextArea::StreamUpstream))
    })
}
