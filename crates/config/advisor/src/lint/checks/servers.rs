//! Checks of virtual servers, TLS and the process.

use super::{LintCheck, LintLevel, LintRun};
use crate::location::listen_address;
use crate::scope::ScopeId;
use conf_schema::Contexts;
use conf_syntax::{Directive, Word};
use std::collections::BTreeMap;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "missing-default-server",
        level: LintLevel::Warning,
        title: "several servers on an address without a default server",
        why: "The first server in the configuration handles requests for unknown names (or without a name); with included \
              files, the file names determine it.",
        fix: "mark one with \"listen ... default_server\", preferably one that only returns 444",
        bad: "server { listen 80; server_name a.example; } server { listen 80; server_name b.example; }",
        good: "server { listen 80 default_server; return 444; } server { listen 80; server_name b.example; }",
        run: missing_default_server,
    },
    LintCheck {
        id: "on-demand-not-default",
        level: LintLevel::Warning,
        title: "certificates on demand in a server that is not the default server",
        why: "acme_on_demand orders certificates for names that the configuration does not list. Handshakes with such names go \
              to the default server of the address: this server sees only its own server_name.",
        fix: "add default_server to its listen, or a server_name with a wildcard or a regular expression",
        bad: "server { listen 443 ssl default_server; ssl_certificate /c; ssl_certificate_key /k; } \
              server { listen 443 ssl; server_name a.example; acme_on_demand local ask=http://127.0.0.1:9000/; }",
        good: "server { listen 443 ssl default_server; acme_on_demand local ask=http://127.0.0.1:9000/; } \
               server { listen 443 ssl; server_name a.example; ssl_certificate /c; ssl_certificate_key /k; }",
        run: on_demand_not_default,
    },
    LintCheck {
        id: "server-name-never-matches",
        level: LintLevel::Warning,
        title: "a server_name with a scheme, a port, a path or a comma",
        why: "nginx compares names with the host of the request, which has none of these: the server is used only as the \
              default server.",
        fix: "write only the host, and set the port in listen",
        bad: "server { listen 80; server_name https://example.com; }",
        good: "server { listen 80; server_name example.com; }",
        run: server_name_never_matches,
    },
    LintCheck {
        id: "weak-tls",
        level: LintLevel::Warning,
        title: "obsolete TLS versions or ciphers",
        why: "SSLv2, SSLv3, TLS 1.0 and 1.1 are deprecated (RFC 8996), and ciphers with RC4, DES, MD5, without \
              authentication or without encryption are insecure. Tidegate does not support them; nginx does.",
        fix: "use \"ssl_protocols TLSv1.2 TLSv1.3\" and the default ciphers",
        bad: "server { listen 443 ssl; ssl_certificate /c; ssl_certificate_key /k; ssl_protocols TLSv1 TLSv1.2; }",
        good: "ssl_protocols TLSv1 TLSv1.2; server { listen 80; }",
        run: weak_tls,
    },
    LintCheck {
        id: "quic-not-announced",
        level: LintLevel::Warning,
        title: "listen ... quic without an Alt-Svc field",
        why: "Clients begin with TCP. They use HTTP/3 only after an Alt-Svc field (or an HTTPS record in the DNS) has announced it.",
        fix: "add_header Alt-Svc 'h3=\":443\"; ma=86400' always;",
        bad: "server { listen 443 ssl; listen 443 quic reuseport; ssl_certificate /c; ssl_certificate_key /k; }",
        good: "server { listen 443 ssl; listen 443 quic reuseport; ssl_certificate /c; ssl_certificate_key /k; \
               add_header Alt-Svc 'h3=\":443\"; ma=86400' always; }",
        run: quic_not_announced,
    },
    LintCheck {
        id: "worker-connections",
        level: LintLevel::Warning,
        title: "worker_connections above the limit of open files",
        why: "Every connection uses a descriptor, and a proxied connection two: above worker_rlimit_nofile the worker can \
              neither accept connections nor open files and upstream connections.",
        fix: "raise worker_rlimit_nofile to twice worker_connections, or lower worker_connections",
        bad: "worker_rlimit_nofile 1024; events { worker_connections 4096; } http { server { listen 80; } }",
        good: "worker_rlimit_nofile 8192; events { worker_connections 4096; } http { server { listen 80; } }",
        run: worker_connections,
    },
    LintCheck {
        id: "log-off",
        level: LintLevel::Warning,
        title: "error_log off",
        why: "error_log has no \"off\" parameter: this logs to a file named \"off\".",
        fix: "use \"error_log /dev/null crit\" to disable the log",
        bad: "error_log off; server { listen 80; }",
        good: "access_log off; server { listen 80; }",
        run: log_off,
    },
    LintCheck {
        id: "version-disclosure",
        level: LintLevel::Note,
        title: "server_tokens discloses the version",
        why: "server_tokens on (or build) adds the version to every response and error page, which tells attackers which \
              vulnerabilities to try.",
        fix: "use \"server_tokens off\"",
        bad: "server_tokens on; server { listen 80; }",
        good: "server_tokens off; server { listen 80; }",
        run: version_disclosure,
    },
    LintCheck {
        id: "unknown-check",
        level: LintLevel::Warning,
        title: "a comment that disables an unknown check",
        why: "The comment has no effect; the intended check is still active, or was renamed.",
        fix: "\"tidegate lint --list\" lists the checks",
        bad: "server { listen 80; # tidegate-lint: off alias-traversl\n}",
        good: "server { listen 80; # tidegate-lint: off alias-traversal\n}",
        run: unknown_check,
    },
];

fn missing_default_server(run: &LintRun<'_>) {
    let mut by_address: BTreeMap<String, Vec<(ScopeId, Option<&Directive>, bool)>> = BTreeMap::new();
    for server in run.scopes.of(Contexts::server) {
        let lines = run.scopes.own(server, "listen");
        if lines.is_empty() {
            by_address.entry("*:80".into()).or_default().push((server, None, false));
        }
        for d in lines {
            let default = d.args.iter().any(|word| word.bytes == b"default_server" || word.bytes == b"default");
            if let Some(address) = listen_address(d) {
                by_address.entry(address).or_default().push((server, Some(d), default));
            }
        }
    }
    for (address, servers) in by_address {
        if servers.len() < 2 || servers.iter().any(|(.., default)| *default) {
            continue;
        }
        let Some((first, line, _)) = servers.first() else { continue };
        // A server named "_" or "" is meant as the default.
        let names = run.scopes.own(*first, "server_name");
        let open =
            names.is_empty() || names.iter().flat_map(|d| &d.args).any(|word| matches!(&*word.bytes, b"_" | b""));
        if open {
            continue;
        }
        let name = names.first().and_then(|d| d.args.first()).map(|word| word.text().into_owned()).unwrap_or_default();
        let place = line.or(run.scopes.get(*first).directive);
        if let Some(d) = place {
            run.at(d, format!("\"{name}\" handles requests for unknown names on {address}"));
        }
    }
}

fn on_demand_not_default(run: &LintRun<'_>) {
    let mut defaults: BTreeMap<String, (ScopeId, bool)> = BTreeMap::new();
    let addresses = |server: ScopeId| {
        let lines = run.scopes.own(server, "listen").into_iter();
        let default =
            |d: &Directive| d.args.iter().any(|word| word.bytes == b"default_server" || word.bytes == b"default");
        lines.filter_map(move |d| Some((listen_address(d)?, d, default(d)))).collect::<Vec<_>>()
    };
    for server in run.scopes.of(Contexts::server) {
        for (address, _, default) in addresses(server) {
            let known = defaults.entry(address).or_insert((server, default));
            if default && !known.1 {
                *known = (server, true);
            }
        }
    }
    for server in run.scopes.of(Contexts::server) {
        let Some(line) = run.scopes.own(server, "acme_on_demand").into_iter().next() else { continue };
        // A wildcard or a regular expression matches names that are not listed.
        let names = run.scopes.own(server, "server_name");
        if names
            .iter()
            .flat_map(|d| &d.args)
            .any(|word| matches!(word.bytes.first(), Some(b'~' | b'*' | b'.')) || word.bytes.ends_with(b".*"))
        {
            continue;
        }
        let others = addresses(server).into_iter().filter(|(address, d, _)| {
            let is_tls = d.args.iter().any(|word| word.bytes == b"ssl" || word.bytes == b"quic");
            is_tls && defaults.get(address).is_some_and(|(default, _)| *default != server)
        });
        let others: Vec<String> = others.map(|(address, ..)| address).collect();
        if !others.is_empty() {
            run.at(line, format!("handshakes with unknown names on {} go to another server", others.join(", ")));
        }
    }
}

fn server_name_never_matches(run: &LintRun<'_>) {
    for (id, d) in run.named("server_name") {
        if run.scopes.get(id).context != Contexts::server {
            continue;
        }
        for word in &d.args {
            let text = word.text();
            if !text.starts_with('~') && text.contains(['/', ':', ',']) {
                run.word(word, format!("no request has the host \"{text}\""));
            }
        }
    }
}

fn weak_tls(run: &LintRun<'_>) {
    const VERSIONS: &[&str] = &["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"];
    const CIPHERS: &[&str] = &[
        "NULL",
        "EXP",
        "EXPORT",
        "LOW",
        "RC4",
        "DES",
        "3DES",
        "DES-CBC3-SHA",
        "MD5",
        "aNULL",
        "eNULL",
        "ADH",
        "AECDH",
        "ALL",
        "COMPLEMENTOFALL",
    ];
    for server in run.scopes.of(Contexts::server) {
        let tls = run
            .scopes
            .own(server, "listen")
            .iter()
            .any(|d| d.args.iter().any(|word| word.bytes == b"ssl" || word.bytes == b"quic"));
        if !tls {
            continue;
        }
        for d in run.scopes.effective(server, "ssl_protocols") {
            if let Some(word) = d.args.iter().find(|word| VERSIONS.contains(&&*word.text())) {
                run.word(word, format!("{} is deprecated", word.text()));
            }
        }
        for d in run.scopes.effective(server, "ssl_ciphers") {
            let Some(word) = d.args.first() else { continue };
            let text = word.text();
            let removed =
                |weak: &str| text.split(':').any(|part| part == format!("!{weak}") || part == format!("-{weak}"));
            let weak = text.split([':', ',', ' ']).find(|part| {
                CIPHERS.contains(part)
                    && !(*part == "ALL" && removed("aNULL") && (removed("eNULL") || removed("NULL") || removed("LOW")))
            });
            if let Some(weak) = weak {
                run.word(word, format!("\"{weak}\" includes insecure ciphers"));
            }
        }
    }
}

fn quic_not_announced(run: &LintRun<'_>) {
    let announces = |d: &&Directive| d.args.iter().any(|word| word.text().to_ascii_lowercase().contains("alt-svc"));
    for server in run.scopes.of(Contexts::server) {
        let listens = run.scopes.own(server, "listen");
        let Some(quic) = listens.iter().find_map(|d| d.args.iter().find(|word| word.bytes == b"quic")) else {
            continue;
        };
        if run.scopes.value(server, "http3").is_some_and(|value| value == "off") {
            continue;
        }
        let is_announced = ["add_header", "more_set_headers"].iter().any(|name| {
            let inner = run.scopes.within(server);
            run.scopes.effective(server, name).iter().any(announces)
                || inner.iter().any(|scope| run.scopes.own(*scope, name).iter().any(announces))
        });
        if !is_announced {
            run.word(quic, "no Alt-Svc field tells clients of HTTP/3".to_string());
        }
    }
}

fn number(word: Option<&Word>) -> Option<u64> {
    word?.text().parse().ok()
}

fn worker_connections(run: &LintRun<'_>) {
    let limit = run.named("worker_rlimit_nofile").next().and_then(|(_, d)| number(d.args.first()));
    let Some(limit) = limit else { return };
    for (_, d) in run.named("worker_connections") {
        if let Some(word) = d.args.first()
            && let Some(connections) = number(Some(word)).filter(|n| *n > limit)
        {
            run.word(word, format!("{connections} connections, and {limit} descriptors (worker_rlimit_nofile)"));
        }
    }
}

fn log_off(run: &LintRun<'_>) {
    for (_, d) in run.named("error_log") {
        if let Some(word) = d.args.first().filter(|word| word.bytes == b"off") {
            run.word(word, "this writes to a file with the name \"off\"".into());
        }
    }
}

fn version_disclosure(run: &LintRun<'_>) {
    for (_, d) in run.named("server_tokens") {
        if let Some(word) = d.args.first().filter(|word| matches!(&*word.bytes, b"on" | b"build")) {
            run.word(word, "responses name the version".into());
        }
    }
}

fn unknown_check(run: &LintRun<'_>) {
    for (span, id) in super::super::quiet::named_checks(run.scopes.files, run.items) {
        if !super::ALL.iter().flat_map(|group| group.iter()).any(|check| check.id == id) {
            run.add(span, format!("unknown check \"{id}\""), Vec::new());
        }
    }
}
