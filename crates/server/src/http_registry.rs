//! All features of the http area, and the area's entry points.

use conf_schema::{CheckedBlock, Complaint, ContextArea, Cx, FeatureTable, Schema};
use http_engine::variable::Builtin;
use http_engine::{Feature, HttpPlan};
use std::sync::LazyLock;

/// All features; `FilterOrder` and `HandlerOrder` define the order of effects.
static FEATURES: LazyLock<Vec<&'static dyn Feature>> = LazyLock::new(|| {
    [
        // First: others use its resolvers and groups.
        http_proxy::FEATURES,
        http_features::FEATURES,
        http_auth::FEATURES,
        http_compression::FEATURES,
        http_content::FEATURES,
        http_acme::FEATURES,
        http_api::FEATURES,
        http_firewall::FEATURES,
    ]
    .concat()
});

/// Returns the tables of all features, for the schema.
pub fn http_tables() -> Vec<FeatureTable> {
    http_engine::build::feature_tables(&FEATURES)
}

/// Returns the built-in variables of the area.
pub fn http_variables() -> impl Iterator<Item = &'static Builtin> {
    http_engine::variables::CORE.iter().chain(FEATURES.iter().flat_map(|f| f.variables()))
}

/// Offers the variables to a configuration, before its blocks are read.
pub fn offer_variables(cx: &mut Cx) {
    http_engine::build::offer_variables(&FEATURES, cx);
}

/// Builds the plan of a checked http block; warnings go to `cx.warnings`. Fails on unknown variables, conflicting
/// listen options, and missing zones.
pub fn build_http(schema: &Schema, http: &mut CheckedBlock<'_>, cx: &mut Cx) -> Result<HttpPlan, Vec<Complaint>> {
    http_engine::build::build_plan(&FEATURES, http, cx, &|feature| {
        schema.table_index(feature, ContextArea::Http).or(schema.table_index(feature, ContextArea::HttpUpstream))
    })
}
