//! Hosts with a port, as directives name them.

use conf_schema::value::parse_decimal;

/// Splits a host and optional port; fails with nginx's message.
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    if text.contains(['/', '?']) {
        return Err("invalid host");
    }
    // As in nginx, the port of a name begins at its first colon.
    let (host, port) = match text.starts_with('[') {
        true => match text.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        },
        false => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => None,
        Some(port) => Some(parse_decimal(port).filter(|p| *p > 0).ok_or("invalid port")?),
    };
    if host.is_empty() { Err("no host") } else { Ok((host, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_end_at_the_port() {
        for (text, want) in [
            ("a", Ok(("a", None))),
            ("a:81", Ok(("a", Some(81)))),
            ("[::1]", Ok(("[::1]", None))),
            ("[::1]:82", Ok(("[::1]", Some(82)))),
            ("a:", Err("invalid port")),
            ("a:99999", Err("invalid port")),
            ("10.0.0.1:9000:8080", Err("invalid port")),
            (":80", Err("no host")),
            ("http://", Err("invalid host")),
            ("a?b:80", Err("invalid host")),
        ] {
            assert_eq!(host_and_port(text), want, "{text}");
        }
    }
}
