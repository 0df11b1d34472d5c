//! Features of the http area: one directory each, listed in `registry.rs`. Features do not depend on each other.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod fuzzing;
pub mod registry;

pub use acme::{Listed as AcmeCertificate, listed as acme_certificates};
pub use api::{
    Configuration, EXPLAIN_PATIENCE, Explainer, Refusal, Reply, Terms, What, configurations_kept, explain_with,
    has_api, has_dashboard, has_writes, serve_configuration,
};

mod access;
mod access_log;
mod acme;
mod addition;
mod api;
mod auth_basic;
mod auth_failure_limit;
mod auth_jwt;
mod auth_oidc;
mod auth_request;
mod autoindex;
mod brotli;
mod browser;
mod cache;
mod charset;
mod dav;
mod degradation;
mod early_body;
mod echo;
mod empty_gif;
mod explain;
mod fastcgi;
mod flv;
mod geo;
mod geoip;
mod geoip2;
mod grpc;
mod gunzip;
mod gzip;
mod gzip_static;
mod headers;
mod headers_more;
mod health_check;
mod htaccess;
mod http2;
mod http3;
mod image_filter;
mod index;
mod keyval;
mod left_out;
mod limit_conn;
mod limit_req;
mod map;
mod memcached;
mod metrics_page;
mod mirror;
mod mp4;
mod not_modified;
mod otel;
mod prometheus;
mod proxy;
mod random_index;
mod range;
mod realip;
mod referer;
mod resolver;
mod rewrite;
mod scgi;
mod secure_link;
mod set_misc;
mod shared;
mod slice;
mod split_clients;
mod ssi;
mod ssl;
mod static_files;
mod status_zone;
mod stub_status;
mod sub_filter;
mod try_files;
mod tunnel;
mod upload_progress;
mod upstream_block;
mod userid;
mod uwsgi;
mod vhost_traffic_status;
mod zstd;

pub use registry::{build, offer_variables, tables, variables};
