//! Checks of encryption to clients and upstream servers, and of keys of caches.

use super::{LintCheck, LintLevel, LintRun};
use crate::location::listen_address;
use crate::scope::ScopeId;
use crate::values::variable_names;
use conf_schema::Contexts;
use conf_syntax::Directive;
use std::collections::HashSet;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "listen-plain",
        level: LintLevel::Warning,
        title: "port 443 without TLS",
        why: "Clients begin a TLS handshake on port 443; without ssl the server answers it with 400 in clear text.",
        fix: "add ssl: \"listen 443 ssl\"",
        bad: "server { listen 443; server_name a.example; }",
        good: "server { listen 443 ssl; server_name a.example; ssl_certificate /c; ssl_certificate_key /k; }",
        run: listen_plain,
    },
    LintCheck {
        id: "upstream-unverified",
        level: LintLevel::Warning,
        title: "TLS to an upstream server whose certificate is not verified",
        why: "Verification is off by default: an attacker in the network or the DNS between the servers can read and change \
              requests and responses.",
        fix: "set proxy_ssl_verify on, proxy_ssl_trusted_certificate and proxy_ssl_server_name on (grpc_ssl_, uwsgi_ssl_)",
        bad: "server { listen 80; location / { proxy_pass https://192.0.2.1; } }",
        good: "server { listen 80; location / { proxy_pass https://192.0.2.1; proxy_ssl_verify on; \
               proxy_ssl_trusted_certificate /ca; } }",
        run: upstream_unverified,
    },
    LintCheck {
        id: "cache-key",
        level: LintLevel::Warning,
        title: "a cache key without the arguments of the request",
        why: "A key from $uri alone gives every query string, and every host of the zone, one stored response: clients get \
              responses of other requests.",
        fix: "use \"$scheme$proxy_host$request_uri\", the default, or \"$scheme$host$uri$is_args$args\"",
        bad: "server { listen 80; location / { proxy_pass http://127.0.0.1:1; proxy_cache_key $uri; } }",
        good: "server { listen 80; location / { proxy_pass http://127.0.0.1:1; proxy_cache_key $host$uri$is_args$args; } }",
        run: cache_key,
    },
];

fn listen_plain(run: &LintRun<'_>) {
    let encrypts = |d: &Directive| d.args.iter().any(|word| matches!(&*word.bytes, b"ssl" | b"quic"));
    let lines: Vec<(ScopeId, &Directive)> =
        run.named("listen").filter(|(id, _)| run.scopes.get(*id).context == Contexts::server).collect();
    let encrypted: HashSet<String> =
        lines.iter().filter(|(_, d)| encrypts(d)).filter_map(|(_, d)| listen_address(d)).collect();
    for (id, d) in lines {
        let Some(address) = listen_address(d) else { continue };
        // One server's ssl applies to all servers of the address.
        if address.ends_with(":443")
            && !address.starts_with("127.")
            && !encrypted.contains(&address)
            && !run.scopes.is_on(id, "ssl")
        {
            run.at(d, format!("{address} answers in clear text"));
        }
    }
}

/// Tells whether a host is this machine, or a group of addresses of this machine.
fn is_local(run: &LintRun<'_>, host: &str) -> bool {
    let here = |text: &str| ["127.", "localhost", "[::1]", "unix:"].iter().any(|head| text.starts_with(head));
    let group = run.scopes.of(Contexts::upstream).find(|id| {
        let d = run.scopes.get(*id).directive;
        d.and_then(|d| d.args.first()).is_some_and(|word| word.text().eq_ignore_ascii_case(host))
    });
    let Some(group) = group else { return here(host) };
    let servers = run.scopes.own(group, "server");
    !servers.is_empty() && servers.iter().all(|d| d.args.first().is_some_and(|word| here(&word.text())))
}

fn upstream_unverified(run: &LintRun<'_>) {
    const SCHEMES: &[(&str, &str, &str)] = &[
        ("proxy_pass", "https://", "proxy_ssl_verify"),
        ("grpc_pass", "grpcs://", "grpc_ssl_verify"),
        ("uwsgi_pass", "suwsgi://", "uwsgi_ssl_verify"),
    ];
    for (directive, scheme, verify) in SCHEMES {
        for (id, d) in run.named(directive) {
            let Some(word) = d.args.first() else { continue };
            let text = word.text();
            let Some(rest) = text.strip_prefix(scheme) else { continue };
            let host = if rest.starts_with("unix:") { rest } else { rest.split(['/', '?']).next().unwrap_or(rest) };
            if !run.scopes.is_on(id, verify) && !is_local(run, host) {
                run.word(word, format!("the certificate of \"{host}\" is not verified ({verify} is off)"));
            }
        }
    }
}

fn cache_key(run: &LintRun<'_>) {
    for (_, d) in run.directives() {
        if !["proxy_cache_key", "fastcgi_cache_key", "scgi_cache_key", "uwsgi_cache_key"].contains(&&*d.name.text()) {
            continue;
        }
        let Some(word) = d.args.first() else { continue };
        let names = variable_names(&word.text());
        let holds =
            |test: &dyn Fn(&str) -> bool| names.iter().any(|name| run.sources.any(name, &mut HashSet::new(), test));
        let path = holds(&|name| matches!(name, "uri" | "document_uri"));
        let arguments = holds(&|name| {
            matches!(name, "args" | "query_string" | "request_uri" | "request") || name.starts_with("arg_")
        });
        let host = holds(&|name| name.contains("host") || name == "server_name");
        if path && !arguments {
            let host = if host { "" } else { " and the host" };
            run.word(word, format!("the key lacks the arguments{host}"));
        }
    }
}
