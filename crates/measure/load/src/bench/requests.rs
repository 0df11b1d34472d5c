//! Targets and request descriptions from the command line's URLs and request lists.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use serde::Deserialize;

use super::cli::Options;
use crate::engine::job::{Target, Tls};
use crate::engine::request::{Expect, PreparedRequest, RequestSpec};
use crate::engine::tls;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestUrl {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
}

impl RequestUrl {
    /// Reads `http[s]://host[:port]/path?query`; the default scheme is http.
    pub fn parse(text: &str) -> Result<RequestUrl, String> {
        let wrong = |why: &str| format!("URL `{text}`: {why}");
        let (tls, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) => return Err(wrong(&format!("`{scheme}` is not http or https"))),
            None => (false, text),
        };
        let cut = rest.find(['/', '?', '#', '{']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(cut);
        let path = path.split('#').next().unwrap_or("");
        // The values of this template begin with a slash.
        let is_whole = path.starts_with('/') || path.starts_with("{{walk:");
        let path = if is_whole { path.to_string() } else { format!("/{path}") };
        if authority.contains('@') {
            return Err(wrong("user and password must be given in a header"));
        }
        let usual = if tls { 443 } else { 80 };
        let number = |t: &str| t.parse::<u16>().ok().filter(|p| *p > 0);
        let port = |t: &str| number(t).ok_or_else(|| wrong("the port is not a number from 1 to 65535"));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(|| wrong("`[` without `]`"))?;
                (host, after.strip_prefix(':').map_or(Ok(usual), port)?)
            }
            None if authority.parse::<std::net::Ipv6Addr>().is_ok() => {
                return Err(wrong(&format!("an IPv6 address stands in brackets: `[{authority}]`")));
            }
            None => match authority.rsplit_once(':') {
                Some((host, text)) => (host, port(text)?),
                None => (authority, usual),
            },
        };
        if host.is_empty() {
            return Err(wrong("there is no host"));
        }
        Ok(RequestUrl { tls, host: host.into(), port, path })
    }
}

/// Target of all URLs, which must agree in scheme, host and port.
pub fn request_target(options: &Options) -> Result<(Target, Vec<RequestUrl>), String> {
    let urls: Vec<RequestUrl> = options.urls.iter().map(|u| RequestUrl::parse(u)).collect::<Result<_, _>>()?;
    let first = urls.first().ok_or("no URL")?;
    if let Some(other) = urls.iter().find(|u| (u.tls, &u.host, u.port) != (first.tls, &first.host, first.port)) {
        let name = |u: &RequestUrl| format!("{}://{}:{}", if u.tls { "https" } else { "http" }, u.host, u.port);
        return Err(format!("all URLs must have the same server: {} differs from {}", name(other), name(first)));
    }
    let address = match options.connect_to {
        Some(address) => address,
        // With a unix socket, nothing is resolved, and no process is found by port.
        None if options.unix.is_some() => SocketAddr::from(([127, 0, 0, 1], 0)),
        None => resolve_name(&first.host, first.port)?,
    };
    let tls = match first.tls {
        false => None,
        true => Some(Tls {
            ca: options.cacert.as_deref().map(authorities).transpose()?,
            resume: options.resume,
            version: options.tls.clone(),
            ciphers: options.ciphers.clone(),
        }),
    };
    let target = Target {
        host: first.host.clone(),
        port: first.port,
        address,
        tls,
        unix: options.unix.clone(),
        sources: options.source.clone(),
    };
    Ok((target, urls))
}

/// Reads a file of CA certificates. Fails if it has none that can be used.
fn authorities(path: &Path) -> Result<String, String> {
    let pem = read_text(path)?;
    tls::read_authorities(&pem).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(pem)
}

/// Resolves a name; prefers IPv4, where test servers listen.
pub fn resolve_name(host: &str, port: u16) -> Result<SocketAddr, String> {
    let all: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|e| format!("`{host}` does not resolve: {e}"))?.collect();
    let preferred = all.iter().find(|a| a.is_ipv4()).or(all.first());
    preferred.copied().ok_or_else(|| format!("`{host}` has no address"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFile {
    request: Vec<RequestSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionFile {
    step: Vec<RequestSpec>,
}

/// Steps of a session. Every variable must be set before its use.
fn session(text: &str) -> Result<Vec<RequestSpec>, String> {
    let parsed: SessionFile = toml::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()))?;
    let mut known: Vec<&str> = Vec::new();
    for (i, step) in parsed.step.iter().enumerate() {
        let prepared = PreparedRequest::new(step, "h", &[], false)?;
        if let Some(name) = prepared.variables().find(|name| !known.contains(name)) {
            return Err(format!("step {} uses {{{{var:{name}}}}}, which no step before it extracts", i + 1));
        }
        known.extend(step.extract.keys().map(String::as_str));
    }
    if parsed.step.is_empty() { Err("the file has no step".into()) } else { Ok(parsed.step) }
}

pub fn build_requests(options: &Options, urls: &[RequestUrl]) -> Result<Vec<RequestSpec>, String> {
    let expect = Expect {
        status: options.expect_status.iter().cloned().flatten().collect(),
        length: options.expect_length,
        contains: options.expect_contains.clone(),
        hash: options.expect_hash.clone(),
    };
    let file = options.body.strip_prefix('@').map(|path| fs::read(path).map_err(|e| format!("{path}: {e}")));
    let (body, binary) = match file.transpose()?.map(String::from_utf8) {
        Some(Ok(text)) => (text, Vec::new()),
        Some(Err(bytes)) => (String::new(), bytes.into_bytes()),
        None => (options.body.clone(), Vec::new()),
    };
    let plain = |path: &str, weight: f64| RequestSpec {
        method: options.method.clone(),
        path: path.into(),
        weight,
        headers: Vec::new(),
        body: body.clone(),
        binary: binary.clone(),
        expect: expect.clone(),
        ..RequestSpec::get("")
    };
    if let Some(file) = &options.session {
        return session(&read_text(file)?).map_err(|e| format!("{}: {e}", file.display()));
    }
    if let Some(file) = &options.request_file {
        let parsed: RequestFile = toml::from_str(&read_text(file)?)
            .map_err(|e| format!("{}: {}", file.display(), figures::errors::plain_message(&e.to_string())))?;
        if let Some(request) = parsed.request.iter().find(|r| !r.extract.is_empty() || !r.think.is_empty()) {
            let (file, path) = (file.display(), &request.path);
            return Err(format!("{file}: extract and think of {path} belong to the steps of a --session"));
        }
        if parsed.request.is_empty() {
            return Err(format!("{}: the file has no request", file.display()));
        }
        return Ok(parsed.request);
    }
    if let Some(file) = &options.paths {
        let text = read_text(file)?;
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let list: Vec<RequestSpec> = lines
            .map(|line| match line.split_once(char::is_whitespace) {
                Some((weight, path)) if weight.parse::<f64>().is_ok() => {
                    plain(path.trim(), weight.parse().unwrap_or(1.0))
                }
                _ => plain(line, 1.0),
            })
            .collect();
        if list.is_empty() {
            return Err(format!("{}: the file has no path", file.display()));
        }
        return Ok(list);
    }
    Ok(urls.iter().map(|u| plain(&u.path, 1.0)).collect())
}

pub fn read_text(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| figures::errors::unreadable_file(path, &e))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = |t: &str| RequestUrl::parse(t).unwrap();
        let all = |u: RequestUrl| (u.tls, u.host, u.port, u.path);
        assert_eq!(all(url("http://h:8080/a?b#c")), (false, "h".into(), 8080, "/a?b".into()));
        assert_eq!(all(url("https://[::1]")), (true, "::1".into(), 443, "/".into()));
        assert_eq!(all(url("h?x")), (false, "h".into(), 80, "/?x".into()));
        let upper = RequestUrl::parse("HTTPS://h/A").unwrap();
        assert!(upper.tls && upper.port == 443 && upper.path == "/A");
        let bare = RequestUrl::parse("http://::1/").unwrap_err();
        assert!(bare.contains("`[::1]`"), "{bare}");
        for bad in ["ftp://h/", "http://", "http://h:x/", "http://u:p@h/", "http://[::1/"] {
            assert!(RequestUrl::parse(bad).is_err(), "{bad}");
        }
        let large = RequestUrl::parse("http://h:99999/").err();
        assert_eq!(large.as_deref(), Some("URL `http://h:99999/`: the port is not a number from 1 to 65535"));
    }

    #[test]
    fn request_files_say_where_they_are_wrong() {
        let text = "[[request]]\npath='/a'\nweight=3\nexpect={status=[404]}\n[[request]]\npath='/b'\nmethod='POST'\nbody='x'\n";
        let parsed: RequestFile = toml::from_str(text).unwrap();
        assert_eq!((parsed.request[0].weight, parsed.request[0].expect.status[0]), (3.0, 404));
        assert!(toml::from_str::<RequestFile>("[[request]]\npth='/a'\n").is_err());
    }

    #[test]
    fn the_session_that_is_shipped_is_well_formed() {
        let steps = session(include_str!("../../../../../examples/bench/login.toml")).unwrap();
        assert_eq!((steps.len(), steps[0].extract.len()), (3, 2));
    }

    #[test]
    fn sessions_use_what_was_extracted_before() {
        let steps = |text: &str| session(text);
        let login = "[[step]]\nmethod='POST'\npath='/login'\nextract={token='json:/t'}\nthink='1s'\n";
        let next = "[[step]]\npath='/a?t={{var:token}}'\n";
        assert_eq!(steps(&format!("{login}{next}")).unwrap().len(), 2);
        assert!(steps(&format!("{next}{login}")).unwrap_err().contains("step 1 uses {{var:token}}"));
        for bad in ["[[step]]\npath='/'\nextract={x='y'}\n", "[[step]]\npath='/'\nthink='x'\n", ""] {
            assert!(steps(bad).is_err(), "{bad}");
        }
    }
}
