//! Redirects of a run (`--follow`): the target that an answer names, and the requests that follow it.

use std::sync::Arc;

use super::request::PreparedRequest;

/// Statuses whose `Location` is followed (RFC 9110, 15.4).
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Tells whether the following request is a GET without a body: always after 303, after 301 and 302 for POST
/// (RFC 9110, 15.4.2 to 15.4.4, as browsers do).
pub fn becomes_get(status: u16, method: &[u8]) -> bool {
    match status {
        303 => method != b"GET" && method != b"HEAD",
        301 | 302 => method == b"POST",
        _ => false,
    }
}

/// Resolves a `Location` against the target of its request (RFC 3986, 5.2): the target of the following request.
/// `origin` is the server's own origin, such as `http://host:8080`. Fails with the reason if the target is on another
/// server or cannot be requested.
pub fn resolve_location(location: &[u8], target: &[u8], origin: &str) -> Result<Vec<u8>, String> {
    let whole = String::from_utf8_lossy(location).into_owned();
    if location.is_empty() {
        return Err("a redirect without Location".into());
    }
    if location.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return Err(format!("a redirect to `{}`, which is no URI", whole.escape_default()));
    }
    let text = whole.split('#').next().unwrap_or_default();
    let scheme = origin.split(':').next().unwrap_or_default();
    let rest = match text.strip_prefix("//") {
        Some(_) => format!("{scheme}:{text}"),
        None => text.to_string(),
    };
    let local = match rest.find("://").filter(|at| rest[..*at].bytes().all(|b| b.is_ascii_alphanumeric())) {
        Some(at) => {
            let end = rest[at + 3..].find(['/', '?']).map_or(rest.len(), |n| at + 3 + n);
            let authority = plain_authority(&rest[..at], &rest[at + 3..end]);
            if !origin.eq_ignore_ascii_case(&authority) {
                return Err(format!("a redirect to another server, {authority}"));
            }
            match &rest[end..] {
                path if path.starts_with('/') => path.to_string(),
                query => format!("/{query}"),
            }
        }
        None => rest,
    };
    let base = String::from_utf8_lossy(target).into_owned();
    let base_path = base.split('?').next().unwrap_or_default();
    let joined = match local.as_bytes().first() {
        Some(b'/') => local,
        Some(b'?') => format!("{base_path}{local}"),
        None => base,
        Some(_) => format!("{}/{local}", base_path.rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let (path, query) = joined.split_at(joined.find('?').unwrap_or(joined.len()));
    Ok(format!("{}{query}", without_dots(path)).into_bytes())
}

/// Origin without the scheme's default port.
fn plain_authority(scheme: &str, authority: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    let usual = if scheme == "https" { ":443" } else { ":80" };
    format!("{scheme}://{}", authority.strip_suffix(usual).unwrap_or(authority))
}

/// Removes dot segments (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

/// A request whose text is fixed from its first sending on, with its redirects so far.
#[derive(Clone, Debug)]
pub struct FixedRequest {
    pub request: Arc<PreparedRequest>,
    /// Time of the first sending.
    pub sent: u64,
    pub redirects: u32,
}

/// Fixed requests in flight or waiting, by number from 1 on.
#[derive(Debug, Default)]
pub struct FixedRequests {
    requests: Vec<Option<FixedRequest>>,
    free: Vec<u32>,
}

impl FixedRequests {
    /// Keeps a request until [`FixedRequests::remove`]; returns its number.
    pub fn insert(&mut self, request: FixedRequest) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.requests[number as usize - 1] = Some(request);
                number
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() as u32
            }
        }
    }

    /// The request of a number; `None` for 0.
    pub fn get(&self, number: u32) -> Option<&FixedRequest> {
        self.requests.get((number as usize).checked_sub(1)?)?.as_ref()
    }

    /// Forgets a request; nothing for 0.
    pub fn remove(&mut self, number: u32) -> Option<FixedRequest> {
        let taken = self.requests.get_mut((number as usize).checked_sub(1)?)?.take();
        if taken.is_some() {
            self.free.push(number);
        }
        taken
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved_against_their_request() {
        for (location, expected) in [
            ("/b?c#d", "/b?c"),
            ("http://h:8080/b", "/b"),
            ("HTTP://H:8080", "/"),
            ("http://h:8080?q", "/?q"),
            ("//h:8080/x", "/x"),
            ("?y", "/a/b?y"),
            ("c", "/a/c"),
            ("../c", "/c"),
            ("../../../c/./d/..", "/c/"),
            ("#top", "/a/b?q=/x"),
        ] {
            let found = resolve_location(location.as_bytes(), b"/a/b?q=/x", "http://h:8080");
            assert_eq!(found.as_deref(), Ok(expected.as_bytes()), "{location}");
        }
        assert_eq!(resolve_location(b"https://h/", b"/", "https://h").as_deref(), Ok(&b"/"[..]));
        assert_eq!(resolve_location(b"https://h:443/", b"/", "https://h").as_deref(), Ok(&b"/"[..]));
        for (location, words) in [
            ("https://h:8080/b", "another server, https://h:8080"),
            ("http://other/", "another server, http://other"),
            ("", "without Location"),
            ("/a b", "no URI"),
        ] {
            let why = resolve_location(location.as_bytes(), b"/a", "http://h:8080").unwrap_err();
            assert!(why.contains(words), "{location}: {why}");
        }
    }

    #[test]
    fn the_method_follows_as_in_browsers() {
        assert!(becomes_get(303, b"PUT") && becomes_get(302, b"POST") && becomes_get(301, b"POST"));
        assert!(!becomes_get(307, b"POST") && !becomes_get(308, b"PUT") && !becomes_get(303, b"HEAD"));
        assert!(!becomes_get(301, b"PUT") && is_redirect(308) && !is_redirect(304) && !is_redirect(300));
    }
}
