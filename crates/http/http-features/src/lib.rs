//! Features of the http area that transform and log, and all that have no crate of their own: one directory each. The others
//! stand in `http-acme`, `http-api`, `http-auth`, `http-compression`, `http-content` and `http-proxy`; the server's `http_registry`
//! lists all. Features do not depend on each other.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod fuzzing;

mod access_log;
mod addition;
mod browser;
mod charset;
mod cors;
mod degradation;
mod echo;
mod geo;
mod geoip;
mod geoip2;
mod headers;
mod headers_more;
mod http2;
mod http3;
mod json;
mod keyval;
mod left_out;
mod map;
mod not_modified;
mod range;
mod redirect_to;
mod rewrite;
mod rewrite_prefix;
mod session_log;
mod set_misc;
mod shared;
mod split_clients;
mod ssi;
mod ssl;
mod sub_filter;
mod upload_progress;
mod userid;
mod xslt;

use http_engine::Feature;

/// Features of this crate, sorted by name.
pub static FEATURES: &[&dyn Feature] = &[
    &crate::access_log::AccessLog,
    &crate::addition::Addition,
    &crate::browser::BrowserFeature,
    &crate::charset::Charset,
    &crate::cors::CorsFeature,
    &crate::degradation::DegradationFeature,
    &crate::echo::Echo,
    &crate::geo::Geo,
    &crate::geoip::GeoipFeature,
    &crate::geoip2::Geoip2Feature,
    &crate::headers::Headers,
    &crate::headers_more::HeadersMore,
    &crate::http2::Http2Feature,
    &crate::http3::Http3Feature,
    &crate::json::Json,
    &crate::keyval::KeyvalFeature,
    &crate::left_out::LeftOut,
    &crate::map::Map,
    &crate::not_modified::NotModified,
    &crate::range::Range,
    &crate::redirect_to::Redirect,
    &crate::rewrite::RewriteRules,
    &crate::rewrite_prefix::RewritePrefix,
    &crate::set_misc::SetMisc,
    &crate::session_log::SessionLog,
    &crate::split_clients::SplitClients,
    &crate::ssl::Ssl,
    &crate::ssi::Ssi,
    &crate::sub_filter::SubFilter,
    &crate::upload_progress::UploadProgress,
    &crate::userid::UserId,
    &crate::xslt::XsltFilter,
];
