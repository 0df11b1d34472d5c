//! Targets and request descriptions from the command line's URLs and request lists.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use serde::Deserialize;

use super::cli::Options;
use crate::engine::job::{ProxyAccess, Target, Tls};
use crate::engine::request::{Expect, PreparedRequest, RequestSpec};
use crate::engine::tls;

/// Servers of a run.
const SERVERS_MAX: usize = 64;

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
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("grpc") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("grpcs") => (true, rest),
            Some((scheme, _)) => return Err(wrong(&format!("`{scheme}` is not http, https, ws, wss, grpc or grpcs"))),
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

/// Target of the first URL, and all URLs.
pub fn request_target(options: &Options) -> Result<(Target, Vec<RequestUrl>), String> {
    let urls: Vec<RequestUrl> = options.urls.iter().map(|u| RequestUrl::parse(u)).collect::<Result<_, _>>()?;
    let first = urls.first().ok_or("no URL")?;
    let target = url_target(options, first)?;
    Ok((target, urls))
}

/// Kind of the requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlKind {
    /// Requests over HTTP.
    Http,
    /// Messages over WebSocket (`ws`, `wss`).
    WebSocket,
    /// Calls of gRPC (`grpc`, `grpcs`).
    Grpc,
}

/// Finds the kind of the URLs. Fails if they are of several.
pub fn url_kind(options: &Options) -> Result<UrlKind, String> {
    let kind = |url: &String| {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("ws" | "wss") => UrlKind::WebSocket,
            Some("grpc" | "grpcs") => UrlKind::Grpc,
            _ => UrlKind::Http,
        }
    };
    let first = options.urls.first().map_or(UrlKind::Http, kind);
    match options.urls.iter().all(|url| kind(url) == first) {
        true => Ok(first),
        false => {
            Err("a run has either WebSockets (ws://, wss://), calls (grpc://, grpcs://) or requests over HTTP".into())
        }
    }
}

/// Gives each request the number of its server, and returns the targets beside the first. A request whose path is a
/// whole URL may name another server than the command line.
pub fn assign_servers(options: &Options, first: &Target, list: &mut [RequestSpec]) -> Result<Vec<Target>, String> {
    let mut targets = vec![first.clone()];
    for request in list {
        let lower = request.path.get(..8).unwrap_or(&request.path).to_ascii_lowercase();
        let schemes = ["http://", "https://", "ws://", "wss://", "grpc://", "grpcs://"];
        if !schemes.iter().any(|scheme| lower.starts_with(scheme)) {
            continue;
        }
        let url = RequestUrl::parse(&request.path)?;
        let is_of = |t: &Target| (t.tls.is_some(), t.host.as_str(), t.port) == (url.tls, url.host.as_str(), url.port);
        request.path = url.path.clone();
        request.server = match targets.iter().position(is_of) {
            Some(known) => known,
            None if targets.len() == SERVERS_MAX => return Err(format!("more than {SERVERS_MAX} servers")),
            None => {
                targets.push(url_target(options, &url)?);
                targets.len() - 1
            }
        };
    }
    targets.remove(0);
    let other = targets.first().map(Target::origin).unwrap_or_default();
    match () {
        () if targets.is_empty() => Ok(targets),
        () if options.session.is_some() => Err(format!(
            "--session: a step is for {other}, and the run for {}: a session has one server",
            first.origin()
        )),
        () if options.connect_to.is_some() || options.unix.is_some() => {
            Err(format!("--connect-to and --unix name one server, and {other} is another one"))
        }
        () => Ok(targets),
    }
}

/// Address, authorization and name of the proxy of `--proxy`.
fn proxy(text: &str) -> Result<(SocketAddr, ProxyAccess), String> {
    let wrong = |why: &str| format!("--proxy {text}: {why}");
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) => return Err(wrong(&format!("`{scheme}` is no HTTP proxy: write http://HOST:PORT"))),
        None => text,
    };
    let (login, authority) = match rest.rsplit_once('@') {
        Some((login, authority)) => (Some(login), authority),
        None => (None, rest),
    };
    let url = RequestUrl::parse(&format!("http://{authority}")).map_err(|why| wrong(&why))?;
    if url.path != "/" {
        return Err(wrong("a proxy has no path"));
    }
    use base64::Engine as _;
    let authorization = login.map(|l| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(l)));
    let address = resolve_name(&url.host, url.port).map_err(|why| wrong(&why))?;
    Ok((address, ProxyAccess { authorization }))
}

fn url_target(options: &Options, first: &RequestUrl) -> Result<Target, String> {
    let proxy = options.proxy.as_deref().map(proxy).transpose()?;
    let address = match (options.connect_to, &proxy) {
        (Some(address), _) => address,
        // The proxy resolves names.
        (None, Some((address, _))) => *address,
        // With a unix socket, nothing is resolved, and no process is found by port.
        (None, None) if options.unix.is_some() => SocketAddr::from(([127, 0, 0, 1], 0)),
        (None, None) => resolve_name(&first.host, first.port)?,
    };
    let identity = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let identity = (read_text(cert)?, read_text(key)?);
            let read = tls::check_identity(&identity.0, &identity.1);
            read.map_err(|why| format!("--cert {} --key {}: {why}", cert.display(), key.display()))?;
            Some(identity)
        }
        _ => None,
    };
    let tls = match first.tls {
        false => None,
        true => Some(Tls {
            ca: options.cacert.as_deref().map(authorities).transpose()?,
            identity,
            resume: options.resume,
            version: options.tls.clone(),
            ciphers: options.ciphers.clone(),
        }),
    };
    Ok(Target {
        host: first.host.clone(),
        port: first.port,
        address,
        tls,
        unix: options.unix.clone(),
        proxy: proxy.map(|(_, access)| access),
        sources: options.source.clone(),
    })
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

/// A step whose message is its body, as templates see it.
fn with_data(step: &RequestSpec) -> RequestSpec {
    let mut step = step.clone();
    match &step.data {
        serde_json::Value::Null => {}
        serde_json::Value::String(text) => step.body = text.clone(),
        other => step.body = other.to_string(),
    }
    step
}

/// Parses the steps of a session. Fails if a variable is used before its step.
pub fn parse_session(text: &str) -> Result<Vec<RequestSpec>, String> {
    let parsed: SessionFile = toml::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()))?;
    // Those of a step's group are known behind the group.
    let (mut known, mut coming): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, step) in parsed.step.iter().enumerate() {
        match step.parallel {
            true if i == 0 => return Err("step 1 is parallel, and there is no step before it".into()),
            true => {}
            false => known.append(&mut coming),
        }
        if step.grpc.is_empty() && step.path.is_empty() {
            return Err(format!("step {} has neither `path` nor `grpc`", i + 1));
        }
        if step.grpc.is_empty() && !step.data.is_null() {
            return Err(format!("step {}: `data` is the message of a call (`grpc`); a request has a `body`", i + 1));
        }
        let prepared = PreparedRequest::new(&with_data(step), "h", &[], false)?;
        if let Some(name) = prepared.variables().find(|name| !known.contains(name)) {
            let hint =
                if coming.contains(&name) { ": it is sent at the same time as that step (parallel)" } else { "" };
            return Err(format!("step {} uses {{{{var:{name}}}}}, which no step before it extracts{hint}", i + 1));
        }
        coming.extend(step.extract.keys().map(String::as_str));
    }
    if parsed.step.is_empty() { Err("the file has no step".into()) } else { Ok(parsed.step) }
}

/// Options that the requests of a run come from, for messages.
pub fn request_source(options: &Options) -> String {
    let file = |name: &str, path: &Option<std::path::PathBuf>| Some(format!("{name} {}", path.as_ref()?.display()));
    let source = file("--session", &options.session).or_else(|| file("--request-file", &options.request_file));
    source.or_else(|| file("--paths", &options.paths)).unwrap_or_else(|| "URL and --body".into())
}

pub fn build_requests(options: &Options, urls: &[RequestUrl]) -> Result<Vec<RequestSpec>, String> {
    let expect = Expect {
        status: options.expect_status.iter().cloned().flatten().collect(),
        length: options.expect_length,
        contains: options.expect_contains.clone(),
        hash: options.expect_hash.clone(),
        grpc: Vec::new(),
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
        return parse_session(&read_text(file)?).map_err(|e| format!("{}: {e}", file.display()));
    }
    if let Some(file) = &options.request_file {
        let parsed: RequestFile = toml::from_str(&read_text(file)?)
            .map_err(|e| format!("{}: {}", file.display(), figures::errors::plain_message(&e.to_string())))?;
        if let Some(request) =
            parsed.request.iter().find(|r| !r.extract.is_empty() || !r.think.is_empty() || r.parallel)
        {
            let (file, path) = (file.display(), &request.path);
            return Err(format!("{file}: extract, think and parallel of {path} belong to the steps of a --session"));
        }
        if let Some(request) = parsed.request.iter().find(|r| r.server != 0) {
            let (file, path) = (file.display(), &request.path);
            return Err(format!("{file}: `server` of {path} is no key: write the whole URL as path"));
        }
        if let Some(number) = parsed.request.iter().position(|r| !is_weight(r.weight)) {
            let weight = parsed.request[number].weight;
            return Err(format!("{}: request {}: the weight {weight} is not above 0", file.display(), number + 1));
        }
        if let Some(number) = parsed.request.iter().position(|r| r.path.is_empty()) {
            return Err(format!("{}: request {} has no path", file.display(), number + 1));
        }
        if parsed.request.iter().any(|r| !r.grpc.is_empty() || !r.data.is_null()) {
            let hint = "grpc and data belong to the steps of a --session; a --request-file of calls has a URL of gRPC, path and body";
            return Err(format!("{}: {hint}", file.display()));
        }
        if parsed.request.is_empty() {
            return Err(format!("{}: the file has no request", file.display()));
        }
        return Ok(parsed.request);
    }
    if let Some(file) = &options.paths {
        let text = read_text(file)?;
        let lines = text.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#'));
        let request = |(number, line): (usize, &str)| match line.split_once(char::is_whitespace) {
            Some((weight, path)) => match weight.parse::<f64>() {
                Ok(value) if is_weight(value) => Ok(plain(path.trim(), value)),
                Ok(_) => Err(format!("{}:{}: the weight {weight} is not above 0", file.display(), number + 1)),
                Err(_) => Ok(plain(line, 1.0)),
            },
            None => Ok(plain(line, 1.0)),
        };
        let list: Vec<RequestSpec> = lines.map(request).collect::<Result<_, String>>()?;
        if list.is_empty() {
            return Err(format!("{}: the file has no path", file.display()));
        }
        return Ok(list);
    }
    Ok(urls
        .iter()
        .zip(&options.urls)
        .map(|(url, text)| plain(if urls.len() > 1 { text } else { &url.path }, 1.0))
        .collect())
}

/// Tells whether a request of this weight is ever sent, and leaves others their share.
fn is_weight(weight: f64) -> bool {
    weight > 0.0 && weight.is_finite()
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
        let steps = parse_session(include_str!("../../../../../examples/bench/login.toml")).unwrap();
        assert_eq!((steps.len(), steps[0].extract.len()), (3, 2));
    }

    #[test]
    fn sessions_use_what_was_extracted_before() {
        let steps = |text: &str| parse_session(text);
        let login = "[[step]]\nmethod='POST'\npath='/login'\nextract={token='json:/t'}\nthink='1s'\n";
        let next = "[[step]]\npath='/a?t={{var:token}}'\n";
        assert_eq!(steps(&format!("{login}{next}")).unwrap().len(), 2);
        assert!(steps(&format!("{next}{login}")).unwrap_err().contains("step 1 uses {{var:token}}"));
        let (page, picture) = ("[[step]]\npath='/'\n", "[[step]]\npath='/a'\nparallel=true\n");
        assert!(steps(&format!("{page}{picture}")).unwrap()[1].parallel);
        assert!(steps(&format!("{picture}{page}")).unwrap_err().contains("step 1 is parallel"));
        let together = steps(&format!("{login}{next}parallel=true\n")).unwrap_err();
        assert!(together.contains("step 2 uses {{var:token}}") && together.contains("at the same time"), "{together}");
        for bad in ["[[step]]\npath='/'\nextract={x='y'}\n", "[[step]]\npath='/'\nthink='x'\n", ""] {
            assert!(steps(bad).is_err(), "{bad}");
        }
    }
}
