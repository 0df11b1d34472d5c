//! Checks that a browser sends a request for a page of this server, and not for a page of another site: for the dashboard
//! and for changes by the API.

use aws_lc_rs::hmac;
use http_engine::{HttpArea, Request};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use variables::names::ServerName;

/// Answer to a request for a host that is not this server's.
pub const UNKNOWN_HOST: &str = "The dashboard answers for addresses, for localhost and for the names of its server.\n\
                                Add this host to \"server_name\".\n";

/// Detects a change of the API that a browser sends for a page of another site, or for a page whose own name resolves
/// to this server (DNS rebinding). Programs send neither `Origin` nor `Sec-Fetch-Site`.
pub fn is_foreign(r: &Request, names: &OwnNames) -> bool {
    let (site, origin) = (field(r, b"sec-fetch-site"), field(r, b"origin"));
    is_foreign_of(site, origin, field(r, b"host"), || names.has(r.target.host()))
}

fn is_foreign_of(
    site: Option<&[u8]>,
    origin: Option<&[u8]>,
    host: Option<&[u8]>,
    is_known: impl FnOnce() -> bool,
) -> bool {
    match (site, origin) {
        (None, None) => false,
        // Sent by the user, not by a page.
        (Some(b"none"), None) => !is_known(),
        _ => !is_own_of(site, origin, host) || !is_known(),
    }
}

/// The names of the server (`server_name`).
#[derive(Clone)]
pub struct OwnNames(Arc<[ServerName<HttpArea>]>);

impl std::fmt::Debug for OwnNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(super::written)).finish()
    }
}

impl OwnNames {
    pub fn new(names: &[ServerName<HttpArea>]) -> OwnNames {
        OwnNames(names.into())
    }
    /// Tells whether a host is an address, `localhost`, or a name of the server or below one. Other names may be those of a
    /// page whose name resolves to this server (DNS rebinding).
    pub fn has(&self, host: &[u8]) -> bool {
        let host = String::from_utf8_lossy(host).to_ascii_lowercase();
        let literal = host.trim_matches(['[', ']']);
        if host.is_empty() || literal.parse::<IpAddr>().is_ok() || host == "localhost" || host.ends_with(".localhost") {
            return true;
        }
        let host = host.as_bytes();
        let is_below = |name: &[u8]| host.strip_suffix(name).is_some_and(|rest| rest.ends_with(b"."));
        self.0.iter().any(|name| match name {
            ServerName::Exact(name) | ServerName::Below(name) => !name.is_empty() && (host == name || is_below(name)),
            // With its dot.
            ServerName::Suffix(end) => host.ends_with(end),
            ServerName::Prefix(start) => host.starts_with(start),
            // A pattern that exceeds its limit matches nothing.
            ServerName::Regex(pattern) => pattern.is_match(host).unwrap_or(false),
        })
    }
}

fn field<'a>(r: &'a Request, name: &[u8]) -> Option<&'a [u8]> {
    r.headers().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Tells whether a browser says that a page of this origin sends the request. Without `Sec-Fetch-Site` (cleartext to other
/// machines) `Origin` must name this host. A page without a referrer sends forms with the origin `null`.
pub fn is_own(r: &Request) -> bool {
    is_own_of(field(r, b"sec-fetch-site"), field(r, b"origin"), field(r, b"host"))
}

fn is_own_of(site: Option<&[u8]>, origin: Option<&[u8]>, host: Option<&[u8]>) -> bool {
    let host = host.unwrap_or_default().to_ascii_lowercase();
    let is_host = |origin: &[u8]| {
        let origin = origin.to_ascii_lowercase();
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        authority.is_some_and(|authority| !host.is_empty() && authority == host)
    };
    match (site, origin) {
        (Some(b"same-origin"), None | Some(b"null")) => true,
        (Some(b"same-origin") | None, Some(origin)) => is_host(origin),
        _ => false,
    }
}

fn key() -> &'static hmac::Key {
    static KEY: OnceLock<hmac::Key> = OnceLock::new();
    KEY.get_or_init(|| {
        let mut secret = [0; 32];
        net::random::fill(&mut secret);
        hmac::Key::new(hmac::HMAC_SHA256, &secret)
    })
}

/// Bytes of the random part of a token. Tokens differ, so that lengths of compressed pages do not betray one.
const NONCE_BYTES: usize = 16;

fn sign(nonce: &[u8], location: &[u8]) -> hmac::Tag {
    hmac::sign(key(), &[b"dashboard ", nonce, location].concat())
}

/// Returns a token for the forms of a location. It is valid until the process ends.
pub fn form_token(location: &[u8]) -> String {
    let mut nonce = [0; NONCE_BYTES];
    net::random::fill(&mut nonce);
    let tag = sign(&nonce, location);
    nonce.iter().chain(tag.as_ref()).map(|byte| format!("{byte:02x}")).collect()
}

/// Takes constant time.
pub fn is_token(location: &[u8], text: &str) -> bool {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()))?;
        u8::from_str_radix(text, 16).ok()
    });
    let token: Option<Vec<u8>> = digits.collect();
    let parts = token.as_ref().and_then(|token| token.split_at_checked(NONCE_BYTES));
    parts.is_some_and(|(nonce, tag)| hmac::verify(key(), &[b"dashboard ", nonce, location].concat(), tag).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use variables::regex::Pattern;

    #[test]
    fn hosts_of_others_are_unknown() {
        let (pattern, _) = Pattern::at_run_time(br"^admin\d+\.example\.net$").expect("a pattern");
        let names = OwnNames::new(&[
            ServerName::Exact(Vec::new()),
            ServerName::Exact(b"example.com".to_vec()),
            ServerName::Suffix(b".example.org".to_vec()),
            ServerName::Prefix(b"www.".to_vec()),
            ServerName::Below(b"below.net".to_vec()),
            ServerName::Regex(Arc::new(pattern)),
        ]);
        for host in [
            "127.0.0.1",
            "::1",
            "[::1]",
            "localhost",
            "a.localhost",
            "example.com",
            "A.example.org",
            "www.x",
            "b.below.net",
            "below.net",
            "Admin7.example.net",
            "",
        ] {
            assert!(names.has(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.com",
            "notexample.com",
            "example.com.evil.com",
            "example.org",
            "1.2.3.4.evil.com",
            "admin7.example.net.evil.com",
        ] {
            assert!(!names.has(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn only_the_own_origin_may_send_forms() {
        let own = |site: &str, origin: &str, host: &str| {
            let some = |text: &'static str| Some(text.as_bytes()).filter(|text| !text.is_empty());
            let leak = |text: &str| -> &'static str { String::leak(text.to_string()) };
            is_own_of(some(leak(site)), some(leak(origin)), some(leak(host)))
        };
        for (site, origin, host) in [
            ("same-origin", "http://a:80", "a:80"),
            ("same-origin", "null", "a"),
            ("same-origin", "", "a"),
            ("", "https://A", "a"),
        ] {
            assert!(own(site, origin, host), "{site} {origin} {host}");
        }
        for (site, origin, host) in [
            ("", "", "a"),
            ("", "null", "a"),
            ("", "http://b", "a"),
            ("", "http://a:81", "a:80"),
            ("", "ftp://a", "a"),
            ("cross-site", "http://a", "a"),
            ("same-site", "http://a", "a"),
            ("none", "http://a", "a"),
            ("none", "", "a"),
            ("same-origin", "http://b", "a"),
            ("", "http://", ""),
        ] {
            assert!(!own(site, origin, host), "{site} {origin} {host}");
        }
    }

    #[test]
    fn changes_of_pages_need_their_own_name() {
        let foreign = |site: &str, origin: &str, known: bool| {
            let field = |text: &'static str| Some(text.as_bytes()).filter(|text| !text.is_empty());
            let leak = |text: &str| -> &'static str { String::leak(text.into()) };
            is_foreign_of(field(leak(site)), field(leak(origin)), Some(b"a:80"), || known)
        };
        for (site, origin, known) in
            [("", "", false), ("", "http://a:80", true), ("same-origin", "http://a:80", true), ("none", "", true)]
        {
            assert!(!foreign(site, origin, known), "{site} {origin} {known}");
        }
        for (site, origin, known) in [
            // A name that resolves to this server.
            ("", "http://a:80", false),
            ("same-origin", "http://a:80", false),
            ("none", "", false),
            ("", "http://b", true),
            ("", "null", true),
            ("cross-site", "", true),
            ("same-site", "http://a:80", true),
        ] {
            assert!(foreign(site, origin, known), "{site} {origin} {known}");
        }
    }

    #[test]
    fn tokens_belong_to_their_location() {
        let token = form_token(b"/a/");
        assert_eq!(token.len(), 96);
        assert_ne!(token, super::form_token(b"/a/"));
        assert!(is_token(b"/a/", &token) && !is_token(b"/b/", &token));
        for wrong in
            ["", "00", "+f", &token[1..], &format!("{token}0"), &token.replace(|c: char| c.is_ascii_digit(), "a")]
        {
            assert!(!is_token(b"/a/", wrong), "{wrong}");
        }
    }
}
