//! Connections of clients: HTTP/1.1, HTTP/2, HTTP/3, TLS, their limits and their abuse.

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod broken_connections;
mod broken_requests;
mod connection_limit;
mod connections;
mod departures;
mod early_answers;
mod exact_windows;
mod headless;
mod http2;
mod http2_tunnels;
mod http3;
mod http3_bounds;
mod http3_datagrams;
mod http3_hq;
mod key_isolation;
mod listening;
mod pipelining;
mod stream_bounds;
mod tls;
