//! Servers behind us: the proxied protocols, groups, health; stream and mail.

#[path = "../support/mod.rs"]
mod support;

mod backends;
mod balancer;
mod groups;
mod health_checks;
mod http3_upstream;
mod kept_connections;
mod mail;
mod mail_clients;
mod names;
mod origins;
mod pauses;
mod proxy;
mod stream;
mod stream_checks;
