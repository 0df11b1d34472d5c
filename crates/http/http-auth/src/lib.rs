//! Features that decide who may ask and how often: access rules, logins, tokens, limits.
//! One directory per feature; the server's `http_registry` lists all.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use http_engine::Feature;

mod access;
mod auth_basic;
mod auth_failure_limit;
mod auth_jwt;
mod auth_oidc;
mod auth_request;
mod auth_require;
mod limit_conn;
mod limit_req;
mod realip;
mod referer;
mod secure_link;
mod shared;

pub static FEATURES: &[&dyn Feature] = &[
    &access::AccessRules,
    &auth_basic::AuthBasic,
    &auth_failure_limit::AuthFailureLimit,
    &auth_jwt::AuthJwt,
    &auth_oidc::AuthOidc,
    &auth_request::AuthRequest,
    &auth_require::AuthRequire,
    &limit_conn::LimitConn,
    &limit_req::LimitReq,
    &realip::Realip,
    &referer::Referer,
    &secure_link::SecureLink,
];
