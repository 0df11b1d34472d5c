//! Features of the http area that pass requests to servers: protocols, groups, caches and health checks, one directory each. The
//! crate `http-upstream` has what they share. Features do not depend on each other.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod fuzzing;

mod backend_weights;
mod cache;
mod early_body;
mod fastcgi;
mod grpc;
mod health_check;
mod memcached;
mod mirror;
mod proxy;
mod resolver;
mod scgi;
mod slice;
mod tunnel;
mod upstream_block;
mod uwsgi;

use http_engine::Feature;

/// Features of this crate, sorted by name.
pub static FEATURES: &[&dyn Feature] = &[
    &crate::backend_weights::BackendWeights,
    &crate::cache::FastcgiCache,
    &crate::cache::ProxyCache,
    &crate::cache::ScgiCache,
    &crate::cache::UwsgiCache,
    &crate::cache::ResponseMemory,
    &crate::early_body::EarlyBody,
    &crate::fastcgi::Fastcgi,
    &crate::grpc::Grpc,
    &crate::health_check::HealthCheck,
    &crate::memcached::MemcachedFeature,
    &crate::mirror::Mirror,
    &crate::proxy::HttpProxy,
    &crate::resolver::HttpResolverLine,
    &crate::scgi::Scgi,
    &crate::slice::SliceFeature,
    &crate::tunnel::Tunnel,
    &crate::upstream_block::UpstreamBlock,
    &crate::uwsgi::Uwsgi,
];
