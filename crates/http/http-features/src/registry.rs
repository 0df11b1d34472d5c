//! List of features, and the http area's entry points.

use conf_schema::{CheckedBlock, Complaint, ContextArea, Cx, FeatureTable, Schema};
use http_engine::variable::Builtin;
use http_engine::{Feature, HttpPlan};
use std::sync::LazyLock;

/// All features; `FilterOrder` and `HandlerOrder` define the order of effects.
static FEATURES: LazyLock<Vec<&'static dyn Feature>> = LazyLock::new(|| {
    [OWN, http_auth::FEATURES, http_compression::FEATURES, http_content::FEATURES, http_control::FEATURES].concat()
});

/// Sorted by name.
static OWN: &[&dyn Feature] = &[
    &crate::access_log::AccessLog,
    &crate::addition::Addition,
    &crate::backend_weights::BackendWeights,
    &crate::cache::FastcgiCache,
    &crate::browser::BrowserFeature,
    &crate::cache::ProxyCache,
    &crate::cache::ScgiCache,
    &crate::cache::UwsgiCache,
    &crate::cache::ResponseMemory,
    &crate::charset::Charset,
    &crate::cors::CorsFeature,
    &crate::degradation::DegradationFeature,
    &crate::early_body::EarlyBody,
    &crate::echo::Echo,
    &crate::fastcgi::Fastcgi,
    &crate::geo::Geo,
    &crate::grpc::Grpc,
    &crate::geoip::GeoipFeature,
    &crate::geoip2::Geoip2Feature,
    &crate::headers::Headers,
    &crate::headers_more::HeadersMore,
    &crate::health_check::HealthCheck,
    &crate::http2::Http2Feature,
    &crate::http3::Http3Feature,
    &crate::json::Json,
    &crate::keyval::KeyvalFeature,
    &crate::left_out::LeftOut,
    &crate::map::Map,
    &crate::memcached::MemcachedFeature,
    &crate::mirror::Mirror,
    &crate::not_modified::NotModified,
    &crate::proxy::HttpProxy,
    &crate::range::Range,
    &crate::redirect_to::Redirect,
    &crate::resolver::HttpResolverLine,
    &crate::rewrite::RewriteRules,
    &crate::rewrite_prefix::RewritePrefix,
    &crate::scgi::Scgi,
    &crate::set_misc::SetMisc,
    &crate::session_log::SessionLog,
    &crate::slice::SliceFeature,
    &crate::split_clients::SplitClients,
    &crate::ssl::Ssl,
    &crate::ssi::Ssi,
    &crate::sub_filter::SubFilter,
    &crate::tunnel::Tunnel,
    &crate::upload_progress::UploadProgress,
    &crate::upstream_block::UpstreamBlock,
    &crate::userid::UserId,
    &crate::uwsgi::Uwsgi,
    &crate::xslt::XsltFilter,
];

pub fn http_tables() -> Vec<FeatureTable> {
    http_engine::build::feature_tables(&FEATURES)
}

pub fn http_variables() -> impl Iterator<Item = &'static Builtin> {
    http_engine::variables::CORE.iter().chain(FEATURES.iter().flat_map(|f| f.variables()))
}

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
