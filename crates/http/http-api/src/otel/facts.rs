//! Facts of a request that both conventions have as attributes.

use http_engine::Request;

/// As nginx's `ngx_otel_module`.
pub fn span_status(r: &Request) -> u16 {
    if r.progress.error_status() != 0 { r.progress.error_status() } else { r.out.status() }
}

pub fn variable_value(r: &mut Request, name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    (r.variable_named(name, &mut out) && !out.is_empty()).then_some(out)
}

/// Splits the address of a server: host and port, or a socket's path.
pub fn server_address(text: &str) -> (&str, Option<u16>) {
    if text.starts_with("unix:") {
        return (text, None);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    match port.parse() {
        Ok(port) => (host.trim_start_matches('[').trim_end_matches(']'), Some(port)),
        Err(_) => (text, None),
    }
}

/// Returns the protocol's version: `1.1`, `2.0`; none for HTTP/0.9.
pub fn protocol_version(r: &mut Request) -> Option<Vec<u8>> {
    let protocol = variable_value(r, "server_protocol")?;
    protocol.strip_prefix(b"HTTP/").map(<[u8]>::to_vec)
}

/// 0 without a `Content-Length`.
pub fn request_length(r: &Request) -> u64 {
    let length = r.header(http_types::Known::ContentLength);
    length.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok()).unwrap_or(0)
}

/// Falls back to the host of the request.
pub fn server_name(r: &Request) -> Vec<u8> {
    if r.srv().name.is_empty() { r.target.host().to_vec() } else { r.srv().name.clone() }
}

/// Unless it is the scheme's.
pub fn unusual_port(r: &Request) -> Option<u16> {
    let net::Address::Ip(address) = &*r.connection().local else { return None };
    let usual = if r.connection().tls.is_some() { 443 } else { 80 };
    (address.port() != usual).then_some(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        assert_eq!(server_address("127.0.0.1:80"), ("127.0.0.1", Some(80)));
        assert_eq!(server_address("[::1]:8080"), ("::1", Some(8080)));
        assert_eq!(server_address("unix:/a:1"), ("unix:/a:1", None));
        assert_eq!(server_address("backend"), ("backend", None));
    }
}
