//! The registry of the http area's features, and those that transform, pass on and log: one directory each. The others
//! stand in `http-auth`, `http-compression`, `http-content` and `http-control`. Features do not depend on each other.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod fuzzing;
pub mod registry;

pub use http_control::{
    AcmeCertificate, Attachment, ConfigRefusal, ConfigReply, ConfigRequest, Configuration, EXPLAIN_PATIENCE, Explainer,
    Terms, acme_certificates, configurations_kept, explain_with, has_api, has_dashboard, has_writes, local_root,
    local_roots, serve_configuration,
};

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

pub use registry::{build_http, http_tables, http_variables, offer_variables};
