//! List of features, and the http area's entry points.

use conf_schema::{Area, Block, Complaint, Cx, Schema, Table};
use http_engine::variable::Builtin;
use http_engine::{Feature, HttpPlan};

/// Sorted by name; `FilterOrder` and `HandlerOrder` define the order of effects.
static FEATURES: &[&dyn Feature] = &[
    &crate::access::Access,
    &crate::access_log::AccessLog,
    &crate::acme::Acme,
    &crate::addition::Addition,
    &crate::api::ApiFeature,
    &crate::auth_basic::AuthBasic,
    &crate::auth_failure_limit::AuthFailureLimit,
    &crate::auth_jwt::AuthJwt,
    &crate::auth_oidc::AuthOidc,
    &crate::auth_request::AuthRequest,
    &crate::autoindex::Autoindex,
    &crate::brotli::Brotli,
    &crate::cache::FastcgiCache,
    &crate::browser::BrowserFeature,
    &crate::cache::ProxyCache,
    &crate::cache::ScgiCache,
    &crate::cache::UwsgiCache,
    &crate::cache::ResponseMemory,
    &crate::charset::Charset,
    &crate::api::DashboardFeature,
    &crate::dav::DavFeature,
    &crate::degradation::DegradationFeature,
    &crate::early_body::EarlyBody,
    &crate::echo::Echo,
    &crate::empty_gif::EmptyGif,
    &crate::explain::ExplainFeature,
    &crate::fastcgi::Fastcgi,
    &crate::flv::FlvFeature,
    &crate::geo::Geo,
    &crate::grpc::Grpc,
    &crate::geoip::GeoipFeature,
    &crate::geoip2::Geoip2Feature,
    &crate::gunzip::Gunzip,
    &crate::zstd::Zstd,
    &crate::gzip::Gzip,
    &crate::gzip_static::GzipStatic,
    &crate::headers::Headers,
    &crate::headers_more::HeadersMore,
    &crate::health_check::HealthCheck,
    &crate::htaccess::HtaccessFeature,
    &crate::http2::Http2Feature,
    &crate::http3::Http3Feature,
    &crate::image_filter::ImageFilter,
    &crate::index::Index,
    &crate::keyval::KeyvalFeature,
    &crate::left_out::LeftOut,
    &crate::limit_conn::LimitConn,
    &crate::limit_req::LimitReq,
    &crate::map::Map,
    &crate::memcached::MemcachedFeature,
    &crate::metrics_page::MetricsPage,
    &crate::mirror::Mirror,
    &crate::mp4::Mp4Feature,
    &crate::not_modified::NotModified,
    &crate::otel::OtelFeature,
    &crate::prometheus::PrometheusFeature,
    &crate::proxy::Proxy,
    &crate::random_index::RandomIndex,
    &crate::range::Range,
    &crate::realip::Realip,
    &crate::referer::Referer,
    &crate::resolver::Resolver,
    &crate::rewrite::Rewrite,
    &crate::scgi::Scgi,
    &crate::secure_link::SecureLink,
    &crate::set_misc::SetMisc,
    &crate::slice::SliceFeature,
    &crate::split_clients::SplitClients,
    &crate::ssl::Ssl,
    &crate::ssi::Ssi,
    &crate::static_files::StaticFiles,
    &crate::status_zone::StatusZone,
    &crate::stub_status::StubStatus,
    &crate::sub_filter::SubFilter,
    &crate::try_files::TryFiles,
    &crate::tunnel::Tunnel,
    &crate::upload_progress::UploadProgress,
    &crate::upstream_block::UpstreamBlock,
    &crate::userid::UserId,
    &crate::uwsgi::Uwsgi,
    &crate::vhost_traffic_status::VhostTrafficStatus,
];

pub fn tables() -> Vec<Table> {
    http_engine::build::tables(FEATURES)
}

pub fn variables() -> impl Iterator<Item = &'static Builtin> {
    http_engine::variables::CORE.iter().chain(FEATURES.iter().flat_map(|f| f.variables()))
}

pub fn offer_variables(cx: &mut Cx) {
    http_engine::build::offer_variables(FEATURES, cx);
}

/// Builds the plan of a checked http block; warnings go to `cx.warnings`. Fails on unknown variables, conflicting
/// listen options, and missing zones.
pub fn build(schema: &Schema, http: &mut Block<'_>, cx: &mut Cx) -> Result<HttpPlan, Vec<Complaint>> {
    http_engine::build::build(FEATURES, http, cx, &|feature| {
        schema.table_index(feature, Area::Http).or(schema.table_index(feature, Area::HttpUpstream))
    })
}
