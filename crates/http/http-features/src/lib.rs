//! Features of the http area that transform, pass on and log: one directory each. The others stand in `http-auth`,
//! `http-compression`, `http-content` and `http-control`; the server's `http_registry` lists all. Features do not depend
//! on each other.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod fuzzing;

mod access_log;
mod addition;
mod backend_weights;
mod browser;
mod cache;
mod charset;
mod cors;
mod degradation;
mod early_body;
mod echo;
mod fastcgi;
mod geo;
mod geoip;
mod geoip2;
mod grpc;
mod headers;
mod headers_more;
mod health_check;
mod http2;
mod http3;
mod json;
mod keyval;
mod left_out;
mod map;
mod memcached;
mod mirror;
mod not_modified;
mod proxy;
mod range;
mod redirect_to;
mod resolver;
mod rewrite;
mod rewrite_prefix;
mod scgi;
mod session_log;
mod set_misc;
mod shared;
mod slice;
mod split_clients;
mod ssi;
mod ssl;
mod sub_filter;
mod tunnel;
mod upload_progress;
mod upstream_block;
mod userid;
mod uwsgi;
mod xslt;

use http_engine::Feature;

/// Features of this crate, sorted by name.
pub static FEATURES: &[&dyn Feature] = &[
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
