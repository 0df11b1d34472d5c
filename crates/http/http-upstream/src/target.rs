//! Upstream server and request target of a request.

use crate::groups::{HttpGroups, UpstreamRef};
use crate::hosts::{self, NoTarget};
use conf_schema::{At, Cx, Directive, Problem};
use http_engine::{HttpTemplate, Request, clean, path};
use std::rc::Rc;
use std::sync::Arc;

/// Schemes and ports of a protocol's URLs.
#[derive(Debug)]
pub struct Scheme {
    /// Name of the scheme in cleartext, such as `http`.
    pub plain: &'static str,
    /// Name of the scheme over TLS; `None`: the protocol has none.
    pub secure: Option<&'static str>,
    /// Requires `http://`; otherwise it is optional, if `secure` is set.
    pub written: bool,
    /// Default ports, in cleartext and over TLS.
    pub ports: (u16, u16),
    /// The part after the host is a URI, which replaces the location's name.
    pub has_uri: bool,
}

impl Scheme {
    /// Returns the name.
    pub fn name(&self, tls: bool) -> &'static str {
        self.secure.filter(|_| tls).unwrap_or(self.plain)
    }
    const fn port(&self, tls: bool) -> u16 {
        if tls { self.ports.1 } else { self.ports.0 }
    }
    /// Splits off the scheme; returns the rest of a URL, and `true` for TLS.
    fn strip<'a>(&self, text: &'a str) -> Option<(&'a str, bool)> {
        let rest_of = |scheme: &str| {
            let start = text.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme))?;
            text.get(start.len()..)?.strip_prefix("://")
        };
        if let Some(rest) = rest_of(self.plain).filter(|_| self.written || self.secure.is_some()) {
            return Some((rest, false));
        }
        if let Some(rest) = self.secure.and_then(rest_of) {
            return Some((rest, true));
        }
        (!self.written).then_some((text, false))
    }
}

/// The argument of `proxy_pass` and its siblings.
pub enum PassTarget {
    /// A URL without variables, and the place of its line.
    Fixed(PassUrl, Option<At>),
    /// A URL with variables.
    Computed(HttpTemplate),
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassUrl {
    /// `host[:port]` or `unix:path`, as configured.
    pub host: String,
    /// `None`: without a URI part.
    pub uri: Option<String>,
    /// Connects over TLS.
    pub tls: bool,
}

impl PassTarget {
    /// Fails with nginx's message.
    pub fn parse(scheme: &Scheme, cx: &mut Cx, d: &Directive) -> Result<PassTarget, Problem> {
        let word = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let template = HttpTemplate::compile(cx, d, &word).map_err(|p| p.at(0))?;
        let Some(literal) = template.as_literal() else { return Ok(PassTarget::Computed(template)) };
        let at = d.args.first().map(|word| At { span: word.span, line: d.line }).filter(|at| at.line > 0);
        PassUrl::parse(scheme, &String::from_utf8_lossy(literal))
            .map(|url| PassTarget::Fixed(url, at))
            .map_err(|words| Problem::says(words).at(0))
    }
    /// Tells whether the URL has a URI part, which replaces the location's name. Unknown, and `false`, with variables.
    pub fn has_uri(&self) -> bool {
        matches!(self, PassTarget::Fixed(url, _) if url.uri.is_some())
    }
    /// Finds the URL's group, or creates one of the host's addresses. Fails with nginx's message.
    pub fn bind(&self, scheme: &'static Scheme, cx: &mut Cx) -> Result<TargetBinding, Problem> {
        Ok(match self {
            PassTarget::Computed(template) => {
                let groups = Arc::new(cx.get::<HttpGroups>().clone());
                TargetBinding::Computed { template: template.clone(), groups, scheme }
            }
            PassTarget::Fixed(url, at) => {
                // All groups are known now; errors are reported at the line with the URL.
                let named = hosts::bind_host(cx, &url.host, scheme.port(url.tls))
                    .map_err(|problem| Problem { inner: *at, ..problem })?;
                let origin = Arc::new(UrlOrigin::of(scheme, &url.host, url.tls));
                TargetBinding::Fixed { place: Arc::new(BoundTarget { named, origin }), uri: url.uri.clone() }
            }
        })
    }
}

impl PassUrl {
    /// Fails with nginx's message.
    pub fn parse(scheme: &Scheme, text: &str) -> Result<PassUrl, String> {
        let (rest, tls) = scheme.strip(text).ok_or("invalid URL prefix")?;
        if let Some(path) = rest.strip_prefix("unix:") {
            let (path, uri) = match path.split_once(':') {
                Some((path, uri)) => (path, Some(uri.to_string()).filter(|u| !u.is_empty())),
                None => (path, None),
            };
            if path.is_empty() {
                return Err(format!("no path in the unix domain socket in upstream \"{rest}\""));
            }
            return Ok(PassUrl { host: format!("unix:{path}"), uri, tls });
        }
        let end = rest.find(['/', '?']).filter(|_| scheme.has_uri).unwrap_or(rest.len());
        let (host, uri) = rest.split_at(end);
        if host.is_empty() || host.starts_with(':') {
            return Err(format!("no host in upstream \"{rest}\""));
        }
        let uri = (!uri.is_empty()).then(|| if uri.starts_with('?') { format!("/{uri}") } else { uri.into() });
        Ok(PassUrl { host: host.into(), uri, tls })
    }
}

/// Servers and origin of requests.
pub struct BoundTarget {
    /// The group.
    pub named: UpstreamRef,
    /// Host and port.
    pub origin: Arc<UrlOrigin>,
}

/// A target whose groups are known.
pub enum TargetBinding {
    /// The group and the URI part of a URL without variables.
    Fixed {
        /// Group and origin.
        place: Arc<BoundTarget>,
        /// URI part, which replaces the location's name; `None`: the URL has none.
        uri: Option<String>,
    },
    /// A URL with variables, and the groups that it can name.
    Computed {
        /// The URL.
        template: HttpTemplate,
        /// The groups of the configuration.
        groups: Arc<HttpGroups>,
        /// The protocol's schemes.
        scheme: &'static Scheme,
    },
}

/// The result of [`TargetBinding::place`].
pub struct OriginUri {
    /// Host and port.
    pub origin: Arc<UrlOrigin>,
    /// `None`: the protocol has no request target.
    pub uri: Option<Rc<[u8]>>,
}

/// Server group and request target of a try.
pub struct UpstreamTarget<'a> {
    /// The group.
    pub named: &'a UpstreamRef,
    /// Host and port.
    pub origin: &'a Arc<UrlOrigin>,
    /// The request target; `None`: the protocol has none.
    pub uri: Option<&'a Rc<[u8]>>,
}

impl UpstreamTarget<'_> {
    /// Returns the request target; empty if the protocol has none.
    pub fn uri(&self) -> &[u8] {
        self.uri.map_or(&[], |uri| &**uri)
    }
}

/// Host and port of a URL: default `Host`, `$proxy_host`, `$proxy_port`. In `Location::extensions` for literal URLs,
/// for earlier variables.
#[derive(Clone, Debug)]
pub struct UrlOrigin {
    /// As configured; the path of a UNIX-domain socket.
    pub written: Arc<str>,
    /// Host for the field `Host`, with the port unless it is the scheme's default.
    pub host: Arc<str>,
    /// The port; empty for a UNIX-domain socket.
    pub port: Arc<str>,
    /// Connects over TLS.
    pub tls: bool,
    /// The protocol's schemes.
    pub scheme: &'static Scheme,
}

impl UrlOrigin {
    /// Derives host and port of a URL's host as written.
    pub fn of(scheme: &'static Scheme, written: &str, tls: bool) -> UrlOrigin {
        let default = scheme.port(tls).to_string();
        let default = default.as_str();
        // The default port is omitted from `host`; a UNIX-domain socket has no port.
        let (host, port) = match written.rsplit_once(':') {
            _ if written.starts_with("unix:") => ("localhost", ""),
            Some((host, port)) if port.parse() == Ok(scheme.port(tls)) => (host, default),
            // No port follows the last colon of "[::1]".
            Some((_, port)) if !port.ends_with(']') => (written, port),
            _ => (written, default),
        };
        let shared: Arc<str> = written.into();
        let host = if host == written { shared.clone() } else { host.into() };
        UrlOrigin { host, port: port.into(), written: shared, tls, scheme }
    }
    /// Returns the name of the scheme.
    pub fn scheme(&self) -> &'static str {
        self.scheme.name(self.tls)
    }
}

impl TargetBinding {
    /// Returns the origin of a URL without variables.
    pub fn origin(&self) -> Option<Arc<UrlOrigin>> {
        Some(self.fixed()?.origin.clone())
    }
    /// Returns `None` if the group depends on the request.
    pub fn fixed(&self) -> Option<&Arc<BoundTarget>> {
        let TargetBinding::Fixed { place, .. } = self else { return None };
        Some(place)
    }
    /// Default cache key: scheme, host and upstream URI. `None`: needs evaluation (see [`TargetBinding::place`]).
    pub fn key(&self, r: &Request) -> Option<Vec<u8>> {
        let TargetBinding::Fixed { place, uri } = self else { return None };
        let uri = match uri {
            Some(base) if !r.target.has_left_location() => mapped(r, base.as_bytes()),
            _ => unparsed_uri(r),
        };
        Some(cache_key(&place.origin, &uri))
    }
    /// Origin and request target before name resolution, from which cache keys derive. Fails with a log message and the
    /// status.
    pub fn place(&self, r: &mut Request) -> Result<OriginUri, NoTarget> {
        match self {
            TargetBinding::Fixed { place, uri } => {
                let origin = &place.origin;
                let uri = match uri {
                    _ if !origin.scheme.has_uri => None,
                    Some(base) if !r.target.has_left_location() => Some(mapped(r, base.as_bytes())),
                    _ => Some(unparsed_uri(r)),
                };
                Ok(OriginUri { origin: origin.clone(), uri })
            }
            TargetBinding::Computed { template, scheme, .. } => computed(scheme, template, r),
        }
    }
    /// Finds the servers of a request, by name resolution if its URL is computed.
    ///
    /// # Errors
    /// A log message and the response's status.
    pub async fn find(&self, r: &mut Request, origin: Arc<UrlOrigin>) -> Result<Arc<BoundTarget>, NoTarget> {
        match self {
            TargetBinding::Fixed { place, .. } => Ok(place.clone()),
            TargetBinding::Computed { groups, .. } => {
                let found = Box::pin(hosts::named_group(groups, r, &origin.written, origin.scheme.port(origin.tls)));
                let named = found.await?;
                Ok(Arc::new(BoundTarget { named, origin }))
            }
        }
    }
}

fn computed(scheme: &'static Scheme, template: &HttpTemplate, r: &mut Request) -> Result<OriginUri, NoTarget> {
    let text = template.eval(r);
    // The URI part may contain any bytes; the part before it is ASCII.
    let end = text.iter().position(|c| !c.is_ascii()).unwrap_or(text.len());
    let (before, rest) = text.split_at(end);
    let shown = String::from_utf8_lossy(before);
    let no =
        |words: String| NoTarget { words: format!("{words} in \"{}\"", String::from_utf8_lossy(&text)), status: 500 };
    // As in nginx, a prefix alone is none.
    if scheme.written && rest.is_empty() && scheme.strip(&shown).is_some_and(|(rest, _)| rest.is_empty()) {
        return Err(no("invalid URL prefix".into()));
    }
    let url = PassUrl::parse(scheme, &shown).map_err(|words| match words.contains(" in upstream ") {
        true => NoTarget { words, status: 500 },
        false => no(words),
    })?;
    if clean::ends_line(url.host.as_bytes()) {
        return Err(no("invalid host".into()));
    }
    if url.uri.is_none() && !rest.is_empty() {
        return Err(no("invalid host".into()));
    }
    let uri = match url.uri {
        _ if !scheme.has_uri => None,
        None => Some(unparsed_uri(r)),
        Some(uri) => Some([uri.as_bytes(), rest].concat().into()),
    };
    Ok(OriginUri { origin: Arc::new(UrlOrigin::of(scheme, &url.host, url.tls)), uri })
}

/// Returns the default cache key: scheme, host and URI; for UNIX-domain sockets the path in place of the host.
pub fn cache_key(origin: &UrlOrigin, uri: &[u8]) -> Vec<u8> {
    // UNIX-domain sockets are distinguished by path, because all have the same `Host`.
    let scheme = origin.scheme().as_bytes();
    match origin.written.starts_with("unix:") {
        true => [scheme, b"://", origin.written.as_bytes(), b":", uri].concat(),
        false => [scheme, b"://", origin.host.as_bytes(), uri].concat(),
    }
}

/// Returns the URI of the request line if still valid, otherwise the current one, escaped.
pub fn unparsed_uri(r: &Request) -> Rc<[u8]> {
    if !r.target.is_path_changed() {
        return r.head.request_uri().of(&r.buf).into();
    }
    let mut out = Vec::with_capacity(r.target.path().len() + r.target.args().len() + 8);
    path::escape_uri(r.target.path(), &mut out);
    if !r.target.args().is_empty() {
        out.push(b'?');
        out.extend_from_slice(r.target.args());
    }
    out.into()
}

fn mapped(r: &Request, base: &[u8]) -> Rc<[u8]> {
    let location = r.loc();
    let rest = r.target.path().get(location.name.len().min(r.target.path().len())..).unwrap_or(b"");
    let mut out = base.to_vec();
    let sent = r.head.path.of(&r.buf);
    // As in nginx, a path that the client sent unescaped is passed on so, even if slashes and dots were merged.
    let escapes = match r.head.complex {
        true => memchr::memchr(b'%', sent).is_some() || rest.iter().any(|c| *c <= b' ' || *c == 0x7f),
        false => r.target.path()[..] != *sent,
    };
    if escapes || r.target.is_path_changed() {
        path::escape_uri(rest, &mut out);
    } else {
        out.extend_from_slice(rest);
    }
    if !r.target.args().is_empty() {
        out.push(b'?');
        out.extend_from_slice(r.target.args());
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    static HTTP: Scheme =
        Scheme { plain: "http", secure: Some("https"), written: true, ports: (80, 443), has_uri: true };
    static FASTCGI: Scheme = Scheme { plain: "fastcgi", secure: None, written: false, ports: (0, 0), has_uri: false };
    static UWSGI: Scheme =
        Scheme { plain: "uwsgi", secure: Some("suwsgi"), written: false, ports: (0, 0), has_uri: false };

    #[test]
    fn schemes_have_default_ports() {
        let host = |scheme: &Scheme, text: &str| PassUrl::parse(scheme, text).map(|url| (url.host, url.tls));
        assert_eq!(host(&FASTCGI, "a:9000"), Ok(("a:9000".into(), false)));
        assert_eq!(host(&FASTCGI, "unix:/s"), Ok(("unix:/s".into(), false)));
        assert_eq!(host(&UWSGI, "a:9000"), Ok(("a:9000".into(), false)));
        assert_eq!(host(&UWSGI, "uwsgi://a:9000"), Ok(("a:9000".into(), false)));
        assert_eq!(host(&UWSGI, "suwsgi://a:9000"), Ok(("a:9000".into(), true)));
    }

    #[test]
    fn urls_are_divided() {
        let url =
            |host: &str, uri: Option<&str>| Ok(PassUrl { host: host.into(), uri: uri.map(Into::into), tls: false });
        for (text, want) in [
            ("http://a", url("a", None)),
            ("http://a:80/", url("a:80", Some("/"))),
            ("HTTP://a/b?c", url("a", Some("/b?c"))),
            ("http://a?c", url("a", Some("/?c"))),
            ("http://unix:/s", url("unix:/s", None)),
            ("http://unix:/s:/b", url("unix:/s", Some("/b"))),
            ("https://a:443/", Ok(PassUrl { tls: true, ..url("a:443", Some("/")).expect("a URL") })),
            ("ftp://a", Err("invalid URL prefix".into())),
            ("http:///b", Err("no host in upstream \"/b\"".into())),
        ] {
            assert_eq!(PassUrl::parse(&HTTP, text), want, "{text}");
        }
    }

    #[test]
    fn keys_have_origin_and_uri() {
        let key = |written: &str, uri: &[u8]| super::cache_key(&UrlOrigin::of(&HTTP, written, false), uri);
        assert_eq!(super::cache_key(&UrlOrigin::of(&HTTP, "a:443", true), b"/b"), b"https://a/b");
        assert_eq!(key("a:81", b"/b"), b"http://a:81/b");
        assert_eq!(key("a:80", b"/b"), key("a", b"/b"));
        // Two UNIX-domain sockets are two servers, though both have the host "localhost".
        assert_eq!(key("unix:/s", b"/b"), b"http://unix:/s:/b");
    }

    #[test]
    fn hosts_and_ports() {
        for (written, host, port) in [
            ("a", "a", "80"),
            ("a:80", "a", "80"),
            ("a:8080", "a:8080", "8080"),
            ("[::1]", "[::1]", "80"),
            ("[::1]:80", "[::1]", "80"),
            ("[::1]:81", "[::1]:81", "81"),
            ("unix:/tmp/a:80", "localhost", ""),
        ] {
            let origin = UrlOrigin::of(&HTTP, written, false);
            assert_eq!((&*origin.host, &*origin.port), (host, port), "{written}");
        }
    }
}
