//! Where a request goes, and the URI it has there.

use crate::shared::groups::{Groups, Named};
use crate::shared::hosts::{self, NoAim};
use conf_schema::{Cx, Directive, Problem};
use http_engine::{Request, Template, clean, path};
use std::borrow::Cow;
use std::sync::Arc;

/// The URL of `proxy_pass`.
pub enum Target {
    /// Known when the configuration is read.
    Fixed(Url),
    /// Made for each request.
    Computed(Template),
}

/// A URL in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `host[:port]` or `unix:path`, as written.
    pub host: String,
    /// `None`: no URI part was given.
    pub uri: Option<String>,
    /// The scheme is https.
    pub tls: bool,
}

impl Target {
    /// # Errors
    /// nginx's words for a URL that is none.
    pub fn parse(cx: &mut Cx, d: &Directive) -> Result<Target, Problem> {
        let word = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let template = Template::compile(cx, d, &word).map_err(|p| p.at(0))?;
        let Some(literal) = template.as_literal() else { return Ok(Target::Computed(template)) };
        Url::parse(&String::from_utf8_lossy(literal)).map(Target::Fixed).map_err(|words| Problem::says(words).at(0))
    }
    pub fn has_uri(&self) -> bool {
        matches!(self, Target::Fixed(url) if url.uri.is_some())
    }
    /// Finds the group that the URL names, or makes one of the host's addresses.
    ///
    /// # Errors
    /// nginx's words for a host that is none.
    pub fn bind(&self, cx: &mut Cx) -> Result<Bound, Problem> {
        Ok(match self {
            Target::Computed(template) => {
                Bound::Computed { template: template.clone(), groups: Arc::new(cx.get::<Groups>().clone()) }
            }
            Target::Fixed(url) => {
                let named = hosts::bind(cx, &url.host, default_port(url.tls))?;
                Bound::Fixed { named, uri: url.uri.clone(), origin: Origin::of(&url.host, url.tls) }
            }
        })
    }
}

impl Url {
    /// # Errors
    /// nginx's words.
    pub fn parse(text: &str) -> Result<Url, String> {
        let (rest, tls) = match text.get(..7) {
            Some(scheme) if scheme.eq_ignore_ascii_case("http://") => (&text[7..], false),
            _ if text.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://")) => (&text[8..], true),
            _ => return Err("invalid URL prefix".into()),
        };
        if let Some(path) = rest.strip_prefix("unix:") {
            let (path, uri) = match path.split_once(':') {
                Some((path, uri)) => (path, Some(uri.to_string()).filter(|u| !u.is_empty())),
                None => (path, None),
            };
            if path.is_empty() {
                return Err("no path in the unix domain socket".into());
            }
            return Ok(Url { host: format!("unix:{path}"), uri, tls });
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, uri) = rest.split_at(end);
        if host.is_empty() || host.starts_with(':') {
            return Err(format!("no host in upstream \"{rest}\""));
        }
        let uri = (!uri.is_empty()).then(|| if uri.starts_with('?') { format!("/{uri}") } else { uri.into() });
        Ok(Url { host: host.into(), uri, tls })
    }
    /// `http://` or `https://`.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https://" } else { "http://" }
    }
}

/// A target with its group.
pub enum Bound {
    Fixed { named: Named, uri: Option<String>, origin: Origin },
    Computed { template: Template, groups: Arc<Groups> },
}

/// The target of one request: which host, and the request target to send.
pub struct Place {
    pub origin: Origin,
    pub uri: Vec<u8>,
}

/// The same with its servers.
pub struct Aim<'a> {
    pub named: Cow<'a, Named>,
    pub origin: Origin,
    /// The request target to send.
    pub uri: Vec<u8>,
}

/// Host and port as a URL names them: the default `Host`, `$proxy_host`, `$proxy_port`. That of a literal URL is kept in
/// `Location::things`, too: what the variables say before a request was passed on.
#[derive(Clone, Debug)]
pub struct Origin {
    /// As written: of a socket of the file system its path.
    pub written: Arc<str>,
    pub host: Arc<str>,
    pub port: Arc<str>,
    /// The scheme is https.
    pub tls: bool,
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl Origin {
    pub fn of(written: &str, tls: bool) -> Origin {
        let default = if tls { "443" } else { "80" };
        // The default port is not named, written or not; a socket of the file system has none.
        let (host, port) = match written.rsplit_once(':') {
            _ if written.starts_with("unix:") => ("localhost", ""),
            Some((host, port)) if port.parse() == Ok(default_port(tls)) => (host, default),
            // The last colon of "[::1]" is not followed by a port.
            Some((_, port)) if !port.ends_with(']') => (written, port),
            _ => (written, default),
        };
        let shared: Arc<str> = written.into();
        let host = if host == written { shared.clone() } else { host.into() };
        Origin { host, port: port.into(), written: shared, tls }
    }
}

impl Bound {
    /// Host and port, where they do not depend on the request.
    pub fn origin(&self) -> Option<Origin> {
        let Bound::Fixed { origin, .. } = self else { return None };
        Some(origin.clone())
    }
    /// The key of a cache that was given none: scheme, host and the URI that is asked for. `None`: it takes a moment to say.
    pub fn key(&self, r: &Request) -> Option<Vec<u8>> {
        let Bound::Fixed { uri, origin, .. } = self else { return None };
        let uri = match uri {
            Some(base) if !r.left_location => mapped(r, base.as_bytes()),
            _ => unparsed(r),
        };
        Some(key(origin, &uri))
    }
    /// What a request is passed to, before any name is resolved: what is stored of it is found by this.
    ///
    /// # Errors
    /// Words for the error log and the status that the request ends with.
    pub fn place(&self, r: &mut Request) -> Result<Place, NoAim> {
        match self {
            Bound::Fixed { uri, origin, .. } => {
                let uri = match uri {
                    Some(base) if !r.left_location => mapped(r, base.as_bytes()),
                    _ => unparsed(r),
                };
                Ok(Place { origin: origin.clone(), uri })
            }
            Bound::Computed { template, .. } => computed(template, r),
        }
    }
    /// The servers of that place.
    ///
    /// # Errors
    /// As [`Bound::place`].
    pub async fn aim(&self, r: &mut Request, place: Place) -> Result<Aim<'_>, NoAim> {
        let Place { origin, uri } = place;
        let named = match self {
            Bound::Fixed { named, .. } => Cow::Borrowed(named),
            Bound::Computed { groups, .. } => {
                let found = Box::pin(hosts::named(groups, r, &origin.written, default_port(origin.tls)));
                Cow::Owned(found.await?)
            }
        };
        Ok(Aim { named, origin, uri })
    }
}

/// Where a URL with variables points to.
fn computed(template: &Template, r: &mut Request) -> Result<Place, NoAim> {
    let text = template.eval(r);
    // The URI part may hold any bytes; what stands before it is text.
    let end = text.iter().position(|c| !c.is_ascii()).unwrap_or(text.len());
    let (before, rest) = text.split_at(end);
    let shown = String::from_utf8_lossy(before);
    let no = |words| NoAim { words: format!("{words} in \"{}\"", String::from_utf8_lossy(&text)), status: 500 };
    let url = Url::parse(&shown).map_err(no)?;
    if clean::ends_line(url.host.as_bytes()) {
        return Err(no("invalid host".into()));
    }
    if url.uri.is_none() && !rest.is_empty() {
        return Err(no("invalid host".into()));
    }
    let uri = match url.uri {
        None => unparsed(r),
        Some(uri) => [uri.as_bytes(), rest].concat(),
    };
    Ok(Place { origin: Origin::of(&url.host, url.tls), uri })
}

/// See [`Bound::key`].
pub fn key(origin: &Origin, uri: &[u8]) -> Vec<u8> {
    // Sockets of the file system are told apart by their paths, whatever `Host` they get.
    let scheme: &[u8] = if origin.tls { b"https://" } else { b"http://" };
    match origin.written.starts_with("unix:") {
        true => [scheme, origin.written.as_bytes(), b":", uri].concat(),
        false => [scheme, origin.host.as_bytes(), uri].concat(),
    }
}

/// The URI as the client wrote it, while it holds; else the current one, escaped.
fn unparsed(r: &Request) -> Vec<u8> {
    if !r.path_changed {
        return r.head.request_uri().of(&r.buf).to_vec();
    }
    let mut out = Vec::with_capacity(r.path.len() + r.args.len() + 8);
    path::escape_uri(&r.path, &mut out);
    if !r.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&r.args);
    }
    out
}

/// The URL's own URI in place of the location's name.
fn mapped(r: &Request, base: &[u8]) -> Vec<u8> {
    let location = r.loc();
    let rest = r.path.get(location.name.len().min(r.path.len())..).unwrap_or(b"");
    let mut out = base.to_vec();
    if r.head.complex || r.path_changed || r.path != r.head.path.of(&r.buf) {
        path::escape_uri(rest, &mut out);
    } else {
        out.extend_from_slice(rest);
    }
    if !r.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&r.args);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = |host: &str, uri: Option<&str>| Ok(Url { host: host.into(), uri: uri.map(Into::into), tls: false });
        for (text, want) in [
            ("http://a", url("a", None)),
            ("http://a:80/", url("a:80", Some("/"))),
            ("HTTP://a/b?c", url("a", Some("/b?c"))),
            ("http://a?c", url("a", Some("/?c"))),
            ("http://unix:/s", url("unix:/s", None)),
            ("http://unix:/s:/b", url("unix:/s", Some("/b"))),
            ("https://a:443/", Ok(Url { tls: true, ..url("a:443", Some("/")).expect("a URL") })),
            ("ftp://a", Err("invalid URL prefix".into())),
            ("http:///b", Err("no host in upstream \"/b\"".into())),
        ] {
            assert_eq!(Url::parse(text), want, "{text}");
        }
    }

    #[test]
    fn keys() {
        let key = |written: &str, uri: &[u8]| super::key(&Origin::of(written, false), uri);
        assert_eq!(super::key(&Origin::of("a:443", true), b"/b"), b"https://a/b");
        assert_eq!(key("a:81", b"/b"), b"http://a:81/b");
        assert_eq!(key("a:80", b"/b"), key("a", b"/b"));
        // Two sockets of the file system are two servers, though both are "localhost" to themselves.
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
            let origin = Origin::of(written, false);
            assert_eq!((&*origin.host, &*origin.port), (host, port), "{written}");
        }
    }
}
