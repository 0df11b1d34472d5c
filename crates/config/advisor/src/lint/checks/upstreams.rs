//! Checks of upstream addresses.

use super::{LintCheck, LintLevel, LintRun, name};
use crate::location::LocationName;
use crate::pattern::RegexPattern;
use crate::scope::ScopeId;
use crate::values::{Piece, split_pieces, variable_names};
use conf_schema::Contexts;
use std::collections::HashSet;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "no-resolver",
        level: LintLevel::Error,
        title: "proxy_pass with variables and a host name, without a resolver",
        why: "If the URL contains a variable, nginx resolves the host per request and needs a resolver: without one every \
              request ends with 502 (\"no resolver defined to resolve\").",
        fix: "set resolver (the address of a local name server), or use an upstream block",
        bad: "server { listen 80; location / { proxy_pass http://backend.example.com$request_uri; } }",
        good: "resolver 127.0.0.53; server { listen 80; location / { proxy_pass http://backend.example.com$request_uri; } }",
        run: no_resolver,
    },
    LintCheck {
        id: "ssrf",
        level: LintLevel::Error,
        title: "a client-controlled upstream host",
        why: "If the host of proxy_pass contains client input, a client can make the server request any internal address \
              (SSRF): cloud metadata, admin interfaces, other machines.",
        fix: "select the host from a fixed list with map, or make the location internal",
        bad: "resolver 127.0.0.53; server { listen 80; location / { proxy_pass http://$arg_host; } }",
        good: "map $arg_host $to { default 127.0.0.1:1; a 127.0.0.1:2; } server { listen 80; location / { proxy_pass http://$to; } }",
        run: ssrf,
    },
    LintCheck {
        id: "resolver-external",
        level: LintLevel::Note,
        title: "a resolver outside of the local network",
        why: "DNS responses cross foreign networks unencrypted: an attacker who forges one controls where requests are proxied.",
        fix: "use a resolver on this machine or in the local network",
        bad: "resolver 8.8.8.8; server { listen 80; }",
        good: "resolver 127.0.0.53 [::1]; server { listen 80; }",
        run: resolver_external,
    },
];

/// Directives that pass requests on, with a URL or without a scheme.
const PASSES: &[&str] = &["proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass"];

fn host(text: &str) -> Option<Vec<Piece>> {
    let mut out = Vec::new();
    let mut rest = split_pieces(text);
    if let Some(Piece::Text(first)) = rest.first_mut() {
        if let Some((_, after)) = first.split_once("://") {
            *first = after.to_string();
        }
    } else if matches!(rest.as_slice(), [Piece::Variable(_), Piece::Text(text), ..] if text.starts_with("://")) {
        rest.remove(0);
        if let Some(Piece::Text(first)) = rest.first_mut() {
            *first = first.replacen("://", "", 1);
        }
    }
    for piece in rest {
        match piece {
            Piece::Text(text) if text.starts_with("unix:") => return None,
            Piece::Text(text) => match text.split_once(['/', '?']) {
                Some((head, _)) => {
                    if !head.is_empty() {
                        out.push(Piece::Text(head.to_string()));
                    }
                    return Some(out);
                }
                None if !text.is_empty() => out.push(Piece::Text(text)),
                None => {}
            },
            // A variable that begins with a slash is not part of the host.
            Piece::Variable(name)
                if matches!(&*name, "request_uri" | "uri" | "is_args" | "document_uri") && !out.is_empty() =>
            {
                return Some(out);
            }
            variable => out.push(variable),
        }
    }
    Some(out)
}

fn is_address(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let plain = host.rsplit_once(':').map_or(host, |(head, _)| head);
    bare.unwrap_or(plain).parse::<std::net::IpAddr>().is_ok()
}

fn is_upstream(run: &LintRun<'_>, host: &str) -> bool {
    run.scopes.of(Contexts::upstream).any(|id| {
        let d = run.scopes.get(id).directive;
        d.and_then(|d| d.args.first()).is_some_and(|word| word.text().eq_ignore_ascii_case(host))
    })
}

fn hosts(run: &LintRun<'_>, text: &str, depth: usize) -> Vec<String> {
    let Some(host) = host(text) else { return Vec::new() };
    match host.as_slice() {
        [Piece::Text(text)] => vec![text.clone()],
        [Piece::Variable(name)] if depth < 8 => {
            run.sources.words(name).iter().flat_map(|word| hosts(run, word, depth + 1)).collect()
        }
        [Piece::Variable(name), Piece::Text(port)] if port.starts_with(':') && depth < 8 => {
            run.sources.words(name).iter().flat_map(|word| hosts(run, word, depth + 1)).collect()
        }
        _ => Vec::new(),
    }
}

fn no_resolver(run: &LintRun<'_>) {
    for (id, d) in run.directives().filter(|(_, d)| PASSES.contains(&&*d.name.text())) {
        let Some(word) = d.args.first() else { continue };
        let text = word.text();
        if variable_names(&text).is_empty() || !run.scopes.effective(id, "resolver").is_empty() {
            continue;
        }
        let named = hosts(run, &text, 0).into_iter().find(|host| {
            !host.is_empty() && !is_address(host) && !is_upstream(run, host) && !host.starts_with("unix:")
        });
        if let Some(host) = named {
            run.word(word, format!("\"{host}\" cannot be resolved: no resolver is set"));
        }
    }
}

fn takes_any_host(run: &LintRun<'_>, id: ScopeId) -> bool {
    let Some(server) = run.scopes.enclosing(id, Contexts::server) else { return true };
    let names = run.scopes.own(server, "server_name");
    let mut words = names.iter().flat_map(|d| &d.args).map(|word| word.text()).peekable();
    let open = words.peek().is_none() || words.any(|word| word.starts_with('~') || &*word == "_" || word.is_empty());
    let default = run
        .scopes
        .own(server, "listen")
        .iter()
        .any(|d| d.args.iter().any(|word| word.bytes == b"default_server" || word.bytes == b"default"));
    open || default || run.scopes.of(Contexts::server).count() == 1
}

fn ssrf(run: &LintRun<'_>) {
    for (id, d) in run.directives().filter(|(_, d)| PASSES.contains(&&*d.name.text())) {
        let Some(word) = d.args.first() else { continue };
        let internal = run.scopes.around(id).any(|outer| run.scopes.has(outer, "internal"));
        let named = run.scopes.around(id).any(|outer| matches!(name(run.scopes, outer), Some(LocationName::Named(_))));
        if internal || named {
            continue;
        }
        if let Some(variable) = sent_host(run, id, &word.text(), 0) {
            run.word(word, format!("${variable} in the host of the URL comes from the client"));
        }
    }
}

/// Variable with client data in a URL's host.
fn sent_host(run: &LintRun<'_>, id: ScopeId, url: &str, depth: usize) -> Option<String> {
    let host = host(url)?;
    // A URL or host of one variable: follows its assigned values.
    if let ([Piece::Variable(name)], true) = (host.as_slice(), depth < 8)
        && !run.sources.words(name).is_empty()
    {
        return run.sources.words(name).iter().find_map(|word| sent_host(run, id, word, depth + 1));
    }
    for (index, piece) in host.iter().enumerate() {
        let Piece::Variable(variable) = piece else { continue };
        let last = !host.iter().skip(index + 1).any(|piece| matches!(piece, Piece::Text(text) if text.contains('.')));
        let sent = run.sources.any(variable, &mut HashSet::new(), &|name| {
            ["arg_", "http_", "cookie_"].iter().any(|family| name.starts_with(family))
                || matches!(name, "args" | "query_string" | "request_uri" | "uri" | "document_uri")
                || (last && (name.bytes().all(|c| c.is_ascii_digit()) || is_group(run, id, name)))
                || (name == "host" && takes_any_host(run, id))
        });
        if sent {
            return Some(variable.clone());
        }
    }
    None
}

fn is_group(run: &LintRun<'_>, id: ScopeId, group: &str) -> bool {
    run.scopes.around(id).any(|outer| match name(run.scopes, outer) {
        Some(LocationName::Regex { text, ignore_case }) => {
            RegexPattern::parse(&text, ignore_case).is_some_and(|pattern| pattern.has_group(group))
        }
        _ => false,
    })
}

fn resolver_external(run: &LintRun<'_>) {
    for (_, d) in run.named("resolver") {
        for word in &d.args {
            let text = word.text();
            let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next()).map(str::to_string);
            let plain = bare.unwrap_or_else(|| text.split(':').next().unwrap_or_default().to_string());
            let public = match plain.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(v4)) => {
                    !(v4.is_private()
                        || v4.is_loopback()
                        || v4.is_link_local()
                        || v4.octets()[0] == 100 && (64..128).contains(&v4.octets()[1]))
                }
                Ok(std::net::IpAddr::V6(v6)) => {
                    !(v6.is_loopback()
                        || (v6.segments()[0] & 0xfe00) == 0xfc00
                        || (v6.segments()[0] & 0xffc0) == 0xfe80)
                }
                Err(_) => false,
            };
            if public {
                run.word(word, format!("{plain} is outside of the local network"));
            }
        }
    }
}
