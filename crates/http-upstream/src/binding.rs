//! The address that connections to servers are made from (`proxy_bind`, `tunnel_bind`).

pub type BindTo = session_engine::upstreams::BindTo<http_engine::Request>;
