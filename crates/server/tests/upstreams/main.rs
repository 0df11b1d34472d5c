//! Servers behind us: the proxied protocols, groups, health; stream and mail.

#[path = "../support/mod.rs"]
mod support;

mod backends;
mod balancer;
mod cache_nodes;
mod dns;
mod dns_load;
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
