//! Local address of connections to servers (`proxy_bind`, `tunnel_bind`).

/// `proxy_bind` and its siblings: the address, with variables.
pub type BindTo = area::binding::BindTo<http_engine::HttpArea>;
