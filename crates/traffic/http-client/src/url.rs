//! Absolute `http` and `https` URLs (RFC 9110, section 4.2).

use std::fmt;
use std::net::IpAddr;

/// A parsed URL; it has no user information and no fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// The scheme is `https`.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    pub port: u16,
    /// Path and query; begins with a slash.
    pub target: String,
}

impl Url {
    /// Parses an absolute URL.
    ///
    /// # Errors
    /// A description of the invalid part.
    pub fn parse(text: &str) -> Result<Url, &'static str> {
        if !text.bytes().all(|c| c.is_ascii_graphic()) {
            return Err("invalid character");
        }
        let scheme = |name: &str| text.get(..name.len()).filter(|s| s.eq_ignore_ascii_case(name));
        let (tls, rest) = match (scheme("http://"), scheme("https://")) {
            (Some(prefix), _) => (false, text.get(prefix.len()..)),
            (_, Some(prefix)) => (true, text.get(prefix.len()..)),
            _ => return Err("invalid URL prefix"),
        };
        let rest = rest.unwrap_or_default();
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err("user information is not supported");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(address) => {
                let (host, port) = address.split_once(']').ok_or("invalid IPv6 address")?;
                if !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
                    return Err("invalid IPv6 address");
                }
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or("invalid port")?) })
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err("no host");
        }
        let port = match port {
            None => [80, 443][usize::from(tls)],
            Some(digits) if digits.bytes().all(|c| c.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0).ok_or("invalid port")?
            }
            Some(_) => return Err("invalid port"),
        };
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Url { tls, host: host.to_ascii_lowercase(), port, target: format!("{slash}{target}") })
    }

    /// Returns the value of the `Host` field: without the scheme's default port.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == [80, 443][usize::from(self.tls)] { host } else { format!("{host}:{}", self.port) }
    }

    /// Parses a reference within the server of `self`: an absolute URL or a path (RFC 3986, section 4.2, without relative
    /// paths).
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn join(&self, reference: &str) -> Result<Url, &'static str> {
        match reference.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => {
                let scheme = if self.tls { "https" } else { "http" };
                Url::parse(&format!("{scheme}://{}{reference}", self.authority()))
            }
            _ => Url::parse(reference),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}{}", if self.tls { "s" } else { "" }, self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown() {
        for (text, host, port, target, shown) in [
            ("http://a.example", "a.example", 80, "/", "http://a.example/"),
            ("HTTPS://A.example:443/b?c#d", "a.example", 443, "/b?c", "https://a.example/b?c"),
            ("https://[::1]:8443?x", "::1", 8443, "/?x", "https://[::1]:8443/?x"),
            ("http://127.0.0.1:81/", "127.0.0.1", 81, "/", "http://127.0.0.1:81/"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!((url.host.as_str(), url.port, url.target.as_str()), (host, port, target), "{text}");
            assert_eq!(url.to_string(), shown);
            assert_eq!(Url::parse(shown).as_ref(), Ok(&url));
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        for text in [
            "",
            "ftp://a/",
            "http://",
            "http:///a",
            "http://a:0/",
            "http://a:/",
            "http://a:70000/",
            "http://a:+1/",
            "http://[a]/",
            "http://[::1/",
            "http://[::1]80/",
            "http://u@a/",
            "http://a b/",
            "http://a/\r\nB: c",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn references_are_resolved() {
        let base = Url::parse("https://a.example:8443/b").expect("valid");
        assert_eq!(base.join("/c").map(|u| u.to_string()), Ok("https://a.example:8443/c".into()));
        assert_eq!(base.join("http://b.example/").map(|u| u.to_string()), Ok("http://b.example/".into()));
        assert!(base.join("//b.example/").is_err() && base.join("c").is_err());
    }
}
