//! Traces a request through a configuration (`tidegate explain URL`, the dashboard), each step with the file and line that decided it.
//!
//! The engine itself (`worker::rehearsal`) runs the request until it would be passed to a server. Inherited directives
//! come from the configuration's tree.

pub mod show;

use crate::conf::source::Replay;
use crate::conf::{self, Config, Invocation};
use crate::explanation::show::{InForce, Report, RequestTrace};
use advisor::scope::{BlockScope, ScopeId, Scopes};
use conf_schema::{At, Contexts};
use conf_syntax::{Directive, TextSource};
use http_api::{EXPLAIN_PATIENCE, Explainer};
use http_engine::trace::StepKind;
use http_engine::{HandlerOrder, HttpPlan, Request};
use net::Address;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use worker::rehearsal::{self, RehearsalClient};

pub fn is_request(text: &str) -> bool {
    let begins = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    text.starts_with('/') || begins("http://") || begins("https://")
}

pub struct RequestArguments {
    url: ExplainUrl,
    method: String,
    fields: Vec<(String, String)>,
    from: IpAddr,
    to: Option<IpAddr>,
    pub json: bool,
    /// Over QUIC.
    http3: bool,
    pub rest: Vec<OsString>,
}

impl Default for RequestArguments {
    fn default() -> RequestArguments {
        RequestArguments {
            url: ExplainUrl { secure: false, host: None, port: None, target: String::new() },
            method: "GET".into(),
            fields: Vec::new(),
            from: IpAddr::from([127, 0, 0, 1]),
            to: None,
            json: false,
            http3: false,
            rest: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ExplainUrl {
    secure: bool,
    /// `None` for a path without a host.
    host: Option<String>,
    port: Option<u16>,
    target: String,
}

impl ExplainUrl {
    fn parse(text: &str) -> Result<ExplainUrl, String> {
        if text.starts_with('/') {
            return Ok(ExplainUrl { secure: false, host: None, port: None, target: text.to_string() });
        }
        let (scheme, rest) = text.split_once("://").ok_or("a URL begins with http:// or https://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(format!("\"{text}\" has a user name, which clients send as a field: -H 'Authorization: ...'"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse().map_err(|_| format!("invalid port \"{port}\""))?;
                (host, Some(port))
            }
            _ => (authority, None),
        };
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.to_string() } else { format!("/{target}") };
        if host.is_empty() {
            return Err(format!("no host in \"{text}\""));
        }
        if host.contains('[') || host.contains(']') {
            let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            if address.and_then(|address| address.parse::<Ipv6Addr>().ok()).is_none() {
                return Err(format!("invalid IPv6 address \"{host}\""));
            }
        }
        Ok(ExplainUrl { secure: scheme.eq_ignore_ascii_case("https"), host: Some(host.to_string()), port, target })
    }
}

pub fn parse_request(arguments: &[OsString]) -> Result<RequestArguments, String> {
    let (mut asked, mut has_url) = (RequestArguments::default(), false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        let mut value = || {
            let next = arguments.next().map(|a| a.to_string_lossy().into_owned());
            next.ok_or_else(|| format!("option \"{text}\" requires a value"))
        };
        match text.as_str() {
            "-X" | "--method" => asked.method = value()?,
            "-H" | "--header" => {
                let field = value()?;
                let (name, content) =
                    field.split_once(':').ok_or(format!("\"{field}\" is not of the form \"Name: value\""))?;
                if field.contains(['\r', '\n']) {
                    return Err("a header field must not contain line breaks".into());
                }
                asked.fields.push((name.trim().to_string(), content.trim().to_string()));
            }
            "--from" => asked.from = address(&value()?)?,
            "--to" => asked.to = Some(address(&value()?)?),
            "--json" => asked.json = true,
            "--http3" => asked.http3 = true,
            "-c" | "-p" | "-g" => {
                let given = value()?;
                asked.rest.extend([argument.clone(), given.into()]);
            }
            url if is_request(url) && has_url => return Err(format!("a second URL: \"{url}\"")),
            url if is_request(url) => (asked.url, has_url) = (ExplainUrl::parse(url)?, true),
            _ => asked.rest.push(argument.clone()),
        }
    }
    if !has_url {
        return Err("no URL is given; it begins with http://, https:// or /".into());
    }
    if asked.method.is_empty() || !asked.method.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Err(format!("invalid method \"{}\"", asked.method));
    }
    Ok(asked)
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| match text.parse::<SocketAddr>() {
        Ok(address) => format!("\"{text}\" has a port; write the address alone: {}", address.ip()),
        Err(_) => format!("\"{text}\" is not an IP address"),
    })
}

/// Prefers the exact address to all addresses.
fn listener(plan: &HttpPlan, asked: &RequestArguments) -> Result<usize, String> {
    let ip = |index: usize| match plan.listeners.get(index).map(|listener| &listener.spec.address) {
        Some(Address::Ip(address)) => Some(*address),
        _ => None,
    };
    let reached = |index: &usize| plan.listeners.get(*index).is_some_and(|listener| listener.quic == asked.http3);
    let all: Vec<usize> = (0..plan.listeners.len()).filter(reached).collect();
    if let (None, Some(to)) = (&asked.url.host, asked.to) {
        let reaches = |ip: IpAddr| ip == to || ip.is_unspecified() && ip.is_ipv4() == to.is_ipv4();
        let found = all.iter().find(|index| ip(**index).is_some_and(|address| reaches(address.ip())));
        return found.copied().ok_or_else(|| format!("nothing listens on {to}"));
    }
    if asked.url.host.is_none() {
        let found = all.iter().find(|index| !plan.listeners.get(**index).is_some_and(|listener| listener.ssl));
        let words = if asked.http3 { "no server listens for QUIC" } else { "no http server listens anywhere" };
        return found.or(all.first()).copied().ok_or_else(|| words.into());
    }
    let port = asked.url.port.unwrap_or(if asked.url.secure { 443 } else { 80 });
    let literal = asked.url.host.as_deref().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    let wanted = asked.to.or(literal);
    let on_port: Vec<usize> =
        all.iter().copied().filter(|index| ip(*index).is_some_and(|a| a.port() == port)).collect();
    let exact = on_port.iter().find(|index| ip(**index).map(|a| a.ip()) == wanted && wanted.is_some());
    let family = |index: &&usize| ip(**index).is_some_and(|a| wanted.is_none_or(|w| w.is_ipv4() == a.is_ipv4()));
    let any = on_port.iter().find(|index| ip(**index).is_some_and(|a| a.ip().is_unspecified()) && family(index));
    let found = exact.or(any).or(on_port.first().filter(|_| wanted.is_none()));
    found.copied().ok_or_else(|| {
        let listed = plan.listeners.iter().filter(|listener| listener.quic == asked.http3);
        let listed: Vec<String> = listed.map(|listener| listener.spec.address.to_string()).collect();
        let words = if asked.http3 { "nothing listens for QUIC" } else { "nothing listens" };
        format!("{words} on port {port}; there are: {}", listed.join(", "))
    })
}

/// Returns the explainer for the dashboard of the active configuration.
pub fn active_explainer(invocation: &Invocation, config: &Config) -> Option<Explainer> {
    let plan = config.http.as_ref().filter(|plan| http_api::has_dashboard(plan))?;
    // The explainer of a replaced configuration must not keep its plan.
    let plan = Arc::downgrade(plan);
    let (invocation, texts) = (invocation.clone(), config.texts.clone());
    Some(Arc::new(move |url| {
        let plan = plan.upgrade().ok_or("the configuration was replaced")?;
        if !is_request(url) {
            return Err("write a path that begins with /, or a URL that begins with http:// or https://".into());
        }
        if url.bytes().any(|c| c.is_ascii_control()) {
            return Err("a URL must not contain line breaks".into());
        }
        let asked = RequestArguments { url: ExplainUrl::parse(url)?, ..RequestArguments::default() };
        let replay = Replay { files: &texts.files, matches: &texts.matches };
        let told = explain_to(&asked, &invocation, &plan, &replay, Some(EXPLAIN_PATIENCE))?;
        Ok(show::trace_json(&told))
    }))
}

pub fn explain_to(
    asked: &RequestArguments,
    invocation: &Invocation,
    plan: &Arc<HttpPlan>,
    source: &dyn TextSource,
    patience: Option<Duration>,
) -> Result<RequestTrace, String> {
    let index = listener(plan, asked)?;
    let chosen = plan.listeners.get(index).ok_or("no listener")?;
    let address = chosen.spec.address.to_string();
    let secure = if asked.url.host.is_some() { asked.url.secure } else { chosen.ssl };
    if secure && !chosen.ssl && !chosen.quic {
        return Err(format!("{address} is not a TLS address (listen ... ssl); a client could not connect by https"));
    }
    let host = asked.url.host.clone().unwrap_or_else(|| "localhost".into());
    let local = match &chosen.spec.address {
        Address::Ip(at) if at.ip().is_unspecified() => {
            let here: IpAddr = if at.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
            Some(SocketAddr::new(asked.to.unwrap_or(here), at.port()))
        }
        Address::Ip(at) => Some(*at),
        Address::Unix(_) => None,
    };
    let client = RehearsalClient {
        listener: index,
        local,
        peer: Some(SocketAddr::new(asked.from, 50_000)),
        tls: secure.then(|| host.clone()),
    };
    let head = head(asked, &host);
    let (request, body) = rehearsal::rehearse_request(plan, &client, &head, patience)
        .ok_or("the URL, method and fields do not form a valid request")?;
    let (files, items) = conf::load_config(source, invocation).map_err(|e| e.to_string())?;
    let schema = conf::full_schema();
    let scopes = Scopes::new(&schema, &files, &items);
    Ok(Explanation { scopes: &scopes, plan }.told(asked, &host, &address, request, body.is_some()))
}

fn head(asked: &RequestArguments, host: &str) -> Vec<u8> {
    let target: String =
        asked.url.target.chars().map(|c| if c == ' ' { "%20".into() } else { c.to_string() }).collect();
    let has = |name: &str| asked.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let mut out = format!("{} {target} HTTP/1.1\r\n", asked.method);
    if !has("host") {
        let port = asked.url.port.map_or(String::new(), |port| format!(":{port}"));
        out += &format!("Host: {host}{port}\r\n");
    }
    for (name, value) in &asked.fields {
        out += &format!("{name}: {value}\r\n");
    }
    out += "\r\n";
    out.into_bytes()
}

struct Explanation<'a> {
    scopes: &'a Scopes<'a>,
    plan: &'a HttpPlan,
}

impl Explanation<'_> {
    fn told(
        &self,
        asked: &RequestArguments,
        host: &str,
        address: &str,
        mut r: Box<Request>,
        answered: bool,
    ) -> RequestTrace {
        let mut told = RequestTrace {
            request: format!("{} {}{}", asked.method, if asked.url.secure { "https://" } else { "http://" }, host)
                + &asked.url.port.map_or(String::new(), |port| format!(":{port}"))
                + &asked.url.target,
            ..RequestTrace::default()
        };
        told.steps.push(self.server(&r, address));
        let trace = r.take_trace().unwrap_or_default();
        for step in trace.steps() {
            let word = match step.kind {
                StepKind::Check(order) => names(order).first().copied().unwrap_or("check").to_string(),
                kind => kind.word().to_string(),
            };
            let scope = self.scope_of(step.location);
            let (text, at) = match (step.kind, self.condition(step.at)) {
                (StepKind::Rewrite, Some(condition)) => {
                    (format!("{condition}: {}", step.text.replacen("if: ", "", 1)), step.at)
                }
                _ => (step.text.clone(), step.at),
            };
            let mut report = Report { kind: word, text, place: self.place(at), lines: Vec::new() };
            if let (StepKind::Check(order), Some(scope)) = (step.kind, scope) {
                report.place = None;
                for name in names(order) {
                    report.lines.extend(self.lines(scope, name));
                }
            }
            told.steps.push(report);
        }
        let scope = self.scope_of(r.location_index());
        if let Some((name, at)) = trace.ends_at.get() {
            told.passes =
                self.directive(at).map(|d| InForce { text: advisor::scope::render_line(d), place: self.place(at) });
            told.passes.get_or_insert(InForce { text: name.to_string(), place: self.place(at) });
            if let (Some(scope), Some(prefix)) = (scope, name.strip_suffix("_pass")) {
                for suffix in ["set_header", "param", "hide_header", "pass_header", "cache", "redirect"] {
                    told.in_force.extend(self.lines(scope, &format!("{prefix}_{suffix}")));
                }
            }
        } else if answered {
            told.status = Some(r.out.status());
            let mut fields = Vec::new();
            http_engine::head_out::pass_fields(&mut r, false, &mut |name: &[u8], value: &[u8]| {
                let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                fields.push((shown(name), shown(value)));
            });
            told.headers = fields.into_iter().filter(|(name, _)| name != "Date").collect();
        }
        if let Some(scope) = scope {
            for name in [
                "root",
                "alias",
                "add_header",
                "add_trailer",
                "expires",
                "more_set_headers",
                "more_clear_headers",
                "error_page",
            ] {
                told.in_force.extend(self.lines(scope, name));
            }
        }
        if let Some(report) = self.http3(&told, &r) {
            told.steps.insert(1, report);
        }
        told
    }

    /// Reports the server's HTTP/3 port, and whether an Alt-Svc field announces it.
    fn http3(&self, told: &RequestTrace, r: &Request) -> Option<Report> {
        let listener = self.plan.listener_of(r.connection()).filter(|listener| listener.ssl)?;
        let (Address::Ip(own), true) = (&listener.spec.address, r.srv().http3.on) else { return None };
        let quic =
            self.plan.listeners.iter().find(|other| {
                other.quic && matches!(&other.spec.address, Address::Ip(at) if at.port() == own.port())
            })?;
        let is_told = told.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("alt-svc"))
            || told.in_force.iter().any(|line| line.text.to_ascii_lowercase().contains("alt-svc"));
        let learn = if is_told { "announced by Alt-Svc" } else { "not announced here: the response has no Alt-Svc" };
        let text = format!("on {} (UDP), {learn}", quic.spec.address);
        Some(Report { kind: "http3".into(), text, place: None, lines: Vec::new() })
    }

    /// Reports the selected server with the reason.
    fn server(&self, r: &Request, address: &str) -> Report {
        let at = r.srv().location;
        let scope = self.scope_of(at);
        let host = String::from_utf8_lossy(r.target.host()).into_owned();
        let words: Vec<(String, At)> = scope
            .map(|scope| self.scopes.own(scope, "server_name"))
            .unwrap_or_default()
            .iter()
            .flat_map(|d| d.args.iter().map(|word| (word.text().into_owned(), At { span: d.span, line: d.line })))
            .collect();
        let found = why(&host, &words);
        let server_at = self.plan.locations.get(at).map_or(At::default(), |location| location.at);
        let (text, place) = match found {
            Some((reason, place)) => (format!("\"{host}\" {reason}, on {address}"), place),
            None => {
                let listener = self.plan.listener_of(r.connection());
                let default = listener.is_some_and(|listener| listener.default_server == r.server_index());
                let why = if default { "no server_name matches, default server of" } else { "server selected on" };
                (format!("\"{host}\": {why} {address}"), server_at)
            }
        };
        let mut lines = Vec::new();
        if let Some(place) = self.place(server_at) {
            let name = words.first().map_or("(no name)", |(name, _)| name.as_str());
            lines.push(InForce { text: format!("server {name} {{"), place: Some(place) });
        }
        Report { kind: "server".into(), text, place: self.place(place), lines }
    }

    /// Finds the block of a location of the plan; both have the same order.
    fn scope_of(&self, location: usize) -> Option<ScopeId> {
        let at = self.plan.locations.get(location)?.at;
        let blocks: Vec<ScopeId> = (0..self.scopes.all.len()).filter(|id| is_location(self.scopes.get(*id))).collect();
        let same = |id: &ScopeId| self.scopes.get(*id).directive.is_some_and(|d| d.span == at.span);
        blocks.get(location).copied().filter(same).or_else(|| blocks.iter().copied().find(same))
    }

    fn lines(&self, scope: ScopeId, name: &str) -> Vec<InForce> {
        let own = if matches!(name, "alias" | "root") && self.scopes.has(scope, "alias") && name == "root" {
            Vec::new()
        } else {
            self.scopes.effective(scope, name)
        };
        own.iter()
            .map(|d| InForce {
                text: advisor::scope::render_line(d),
                place: self.place(At { span: d.span, line: d.line }),
            })
            .collect()
    }

    fn directive(&self, at: At) -> Option<&Directive> {
        self.scopes.all.iter().flat_map(|scope| &scope.own).copied().find(|d| d.span == at.span)
    }

    /// As written.
    fn condition(&self, at: At) -> Option<String> {
        let d = self.directive(at).filter(|d| d.name.bytes == b"if")?;
        Some(advisor::scope::render_line(d).trim_end_matches(" {").to_string())
    }

    fn place(&self, at: At) -> Option<(String, u32)> {
        (at.line > 0).then(|| {
            let (line, _) = self.scopes.files.line_column(at.span.file, at.span.start);
            (self.scopes.files.path(at.span.file).display().to_string(), line)
        })
    }
}

fn is_location(scope: &BlockScope<'_>) -> bool {
    let kinds = [
        Contexts::server,
        Contexts::location,
        Contexts::if_in_server,
        Contexts::if_in_location,
        Contexts::limit_except,
    ];
    kinds.contains(&scope.context)
}

/// Reports how the host selected the server: by an exact name, a wildcard or an expression, in this order.
fn why(host: &str, words: &[(String, At)]) -> Option<(String, At)> {
    let find = |test: &dyn Fn(&str) -> bool| {
        let best = words.iter().filter(|(word, _)| test(&word.to_ascii_lowercase()));
        best.max_by_key(|(word, _)| word.len()).cloned()
    };
    if let Some((word, at)) = find(&|word| word == host || word.strip_prefix('.') == Some(host)) {
        return Some((format!("matches exact name \"{word}\""), at));
    }
    if host.is_empty() {
        return None;
    }
    let behind =
        |word: &str| word.strip_prefix('*').or(Some(word)).filter(|word| word.starts_with('.')).map(str::to_string);
    if let Some((word, at)) = find(&|word| behind(word).is_some_and(|tail| host.ends_with(&tail))) {
        return Some((format!("matches wildcard name \"{word}\""), at));
    }
    if let Some((word, at)) =
        find(&|word| word.strip_suffix('*').is_some_and(|head| head.ends_with('.') && host.starts_with(head)))
    {
        return Some((format!("matches wildcard name \"{word}\""), at));
    }
    words
        .iter()
        .find(|(word, _)| word.starts_with('~') && expression(word, host))
        .map(|(word, at)| (format!("matches regular expression name \"{word}\""), *at))
}

fn expression(word: &str, host: &str) -> bool {
    let compiled = pcre2::bytes::RegexBuilder::new().caseless(true).build(word.trim_start_matches('~'));
    compiled.is_ok_and(|expression| expression.is_match(host.as_bytes()).unwrap_or(false))
}

fn names(order: HandlerOrder) -> &'static [&'static str] {
    match order {
        HandlerOrder::ServerRealip | HandlerOrder::Realip => {
            &["set_real_ip_from", "real_ip_header", "real_ip_recursive"]
        }
        HandlerOrder::FirewallHead | HandlerOrder::FirewallBody => {
            &["modsecurity", "modsecurity_rules", "modsecurity_rules_file"]
        }
        HandlerOrder::RewritePrefix => &["rewrite_prefix"],
        HandlerOrder::RequestFields => &[
            "request_header_set",
            "request_header_add",
            "request_header_remove",
            "more_set_input_headers",
            "more_clear_input_headers",
        ],
        HandlerOrder::Cors => &["cors"],
        HandlerOrder::LimitReq => &["limit_req"],
        HandlerOrder::LimitConn => &["limit_conn"],
        HandlerOrder::Access => &["allow", "deny", "satisfy"],
        HandlerOrder::AuthBasic => &["auth_basic", "auth_basic_user_file", "satisfy"],
        HandlerOrder::AuthFailureLimit | HandlerOrder::AuthFailureCount => &["auth_failure_limit"],
        HandlerOrder::AuthJwt => {
            &["auth_jwt", "auth_jwt_key_file", "auth_jwt_key_request", "auth_jwt_require", "satisfy"]
        }
        HandlerOrder::OidcAnswer => &["oidc_provider"],
        HandlerOrder::AuthOidc | HandlerOrder::OidcLogin => &["auth_oidc", "oidc_provider", "satisfy"],
        HandlerOrder::AuthRequest => &["auth_request"],
        HandlerOrder::AuthRequire => &["auth_require", "satisfy"],
        HandlerOrder::InternalRedirect => &["internal_redirect"],
        HandlerOrder::TrackUploads => &["track_uploads"],
        HandlerOrder::TryFiles => &["try_files"],
        HandlerOrder::Htaccess | HandlerOrder::HtaccessListing => &["htaccess"],
        HandlerOrder::Mirror => &["mirror"],
        HandlerOrder::Index => &["index"],
        HandlerOrder::RandomIndex => &["random_index"],
        HandlerOrder::Autoindex => &["autoindex"],
        HandlerOrder::Dav | HandlerOrder::DavGuard => &["dav_methods"],
        HandlerOrder::CompressedFiles => &["gzip_static"],
        HandlerOrder::Degradation => &["degrade"],
        HandlerOrder::ServerChallenge => &["acme_issuer"],
        HandlerOrder::ServerOcsp => &["ssl_ocsp"],
        HandlerOrder::ServerEarlyBody => &["client_body_early_read"],
        HandlerOrder::Video => &["mp4", "flv"],
        HandlerOrder::Otel => &["otel_trace", "otel_trace_context"],
        HandlerOrder::ServerExplain => &["tidegate_explain"],
        HandlerOrder::Files => &["root", "alias"],
        HandlerOrder::Script | HandlerOrder::ServerScript => &["rewrite"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url =
            |text: &str| ExplainUrl::parse(text).map(|u| (u.secure, u.host.unwrap_or_default(), u.port, u.target));
        assert_eq!(url("/a?b"), Ok((false, String::new(), None, "/a?b".into())));
        assert_eq!(url("https://a.example:8443?x#y"), Ok((true, "a.example".into(), Some(8443), "/?x".into())));
        assert_eq!(url("http://[::1]/"), Ok((false, "[::1]".into(), None, "/".into())));
        assert_eq!(url("http://[::1]:81/"), Ok((false, "[::1]".into(), Some(81), "/".into())));
        assert!(url("http:///x").is_err() && url("http://a:b/").is_err());
        assert!(url("http://[::1/").is_err() && url("http://[a]/").is_err() && url("http://::1]/").is_err());
        assert_eq!(url("HTTPS://A/"), Ok((true, "A".into(), None, "/".into())));
        assert!(is_request("HTTP://a/") && is_request("https://") && !is_request("http:a") && !is_request("\u{e9}tp"));
    }

    #[test]
    fn the_name_that_counts() {
        let words: Vec<(String, At)> = ["a.example", "*.b.example", ".c.example", "www.*", "~^x\\d+$"]
            .map(|w| (w.to_string(), At::default()))
            .into();
        let reason = |host: &str| why(host, &words).map(|(reason, _)| reason);
        assert_eq!(reason("a.example").as_deref(), Some("matches exact name \"a.example\""));
        assert_eq!(reason("x.b.example").as_deref(), Some("matches wildcard name \"*.b.example\""));
        assert_eq!(reason("c.example").as_deref(), Some("matches exact name \".c.example\""));
        assert_eq!(reason("www.org").as_deref(), Some("matches wildcard name \"www.*\""));
        assert_eq!(reason("x12").as_deref(), Some("matches regular expression name \"~^x\\d+$\""));
        assert_eq!(reason("b.example"), None);
    }
}
