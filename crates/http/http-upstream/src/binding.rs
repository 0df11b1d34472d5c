//! Local address of connections to servers (`proxy_bind`, `tunnel_bind`).

pub type BindTo = session_engine::upstreams::BindTo<http_engine::HttpArea>;
