//! Checks of header fields: lost, doubled, broken, or filled by clients.

use super::{LintCheck, LintLevel, LintRun, name};
use crate::location::LocationName;
use crate::pattern::RegexPattern;
use crate::scope::ScopeId;
use crate::values::variable_names;
use conf_schema::Contexts;
use conf_syntax::Directive;
use std::collections::HashSet;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "header-lost",
        level: LintLevel::Warning,
        title: "add_header, proxy_set_header or a parameter that drops those of the outer block",
        why: "A block inherits these directives only if it has none of its own: a single one drops all of the outer block, \
              including security headers.",
        fix: "repeat the outer directives (or include them), or use \"add_header_inherit merge\"",
        bad: "server { listen 80; root /d; add_header X-Frame-Options DENY; location /a { add_header X-A 1; } }",
        good: "server { listen 80; root /d; add_header X-Frame-Options DENY; \
               location /a { add_header X-Frame-Options DENY; add_header X-A 1; } }",
        run: header_lost,
    },
    LintCheck {
        id: "header-content-type",
        level: LintLevel::Warning,
        title: "Content-Type set with add_header",
        why: "add_header adds a second Content-Type to the response; clients use either.",
        fix: "use default_type or types; for upstream responses, add proxy_hide_header Content-Type",
        bad: "server { listen 80; location / { add_header Content-Type text/plain; return 200 ok; } }",
        good: "server { listen 80; location / { default_type text/plain; return 200 ok; } }",
        run: header_content_type,
    },
    LintCheck {
        id: "header-multiline",
        level: LintLevel::Warning,
        title: "a header value that spans several lines",
        why: "Folded header lines are obsolete (RFC 9112, 5.2): HTTP/2 and HTTP/3 do not have them, and clients reject them.",
        fix: "write the value on one line",
        bad: "server { listen 80; root /d; add_header X-A \"a;\n  b\"; }",
        good: "server { listen 80; root /d; add_header X-A \"a; b\"; }",
        run: header_multiline,
    },
    LintCheck {
        id: "line-breaks",
        level: LintLevel::Error,
        title: "a decoded path in a redirect, a header field or the URL of proxy_pass",
        why: "$uri is decoded: with %0d%0a in the path, nginx sends a line break, so the author of a link can inject header \
              fields and bodies into the response, or into the upstream request. (Tidegate escapes or drops such values; \
              other servers with this configuration do not.)",
        fix: "use $request_uri, or a capture that cannot match line breaks",
        bad: "server { listen 80; location / { return 302 https://example.com$uri; } }",
        good: "server { listen 80; location / { return 302 https://example.com$request_uri; } }",
        run: line_breaks,
    },
    LintCheck {
        id: "host-spoofing",
        level: LintLevel::Warning,
        title: "$http_host as the Host of an upstream request, or in a redirect",
        why: "$http_host is unchecked client input; the server block is selected by $host, which can come from the request \
              target. The upstream server then sees a different host than the one whose rules were applied.",
        fix: "use $host (with a port: $host:$server_port)",
        bad: "server { listen 80; location / { proxy_set_header Host $http_host; proxy_pass http://127.0.0.1:8080; } }",
        good: "server { listen 80; location / { proxy_set_header Host $host; proxy_pass http://127.0.0.1:8080; } }",
        run: host_spoofing,
    },
    LintCheck {
        id: "return-injection",
        level: LintLevel::Error,
        title: "a text/html response that contains client input",
        why: "return with a text uses the content type of the location: with text/html, a link can inject a script (XSS).",
        fix: "set default_type text/plain, or remove the variable",
        bad: "server { listen 80; location / { default_type text/html; return 200 \"hello $arg_name\"; } }",
        good: "server { listen 80; location / { default_type text/plain; return 200 \"hello $arg_name\"; } }",
        run: return_injection,
    },
];

/// Directives replaced by a block's own lines, with the argument that identifies them.
const REPLACED: &[&str] =
    &["add_header", "add_trailer", "proxy_set_header", "grpc_set_header", "fastcgi_param", "uwsgi_param", "scgi_param"];

fn field(d: &Directive) -> String {
    d.args.first().map(|word| word.text().to_ascii_lowercase()).unwrap_or_default()
}

fn header_lost(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for id in 0..scopes.all.len() {
        for directive in REPLACED {
            let own = scopes.own(id, directive);
            let Some(first) = own.first() else { continue };
            let Some(parent) = scopes.get(id).parent else { continue };
            let Some((_, outer)) = scopes.effective_at(parent, directive) else { continue };
            let merges = |name: &str| scopes.value(id, name).is_some_and(|value| value == "merge");
            if (*directive == "add_header" && merges("add_header_inherit"))
                || (*directive == "add_trailer" && merges("add_trailer_inherit"))
            {
                continue;
            }
            let names: HashSet<String> = own.iter().map(|d| field(d)).collect();
            let lost: Vec<&&Directive> = outer.iter().filter(|d| !names.contains(&field(d))).collect();
            if lost.is_empty() {
                continue;
            }
            let shown: Vec<String> =
                lost.iter().take(4).filter_map(|d| Some(d.args.first()?.text().into_owned())).collect();
            let more = if lost.len() > 4 { format!(" and {} more", lost.len() - 4) } else { String::new() };
            let place = lost.first().map(|d| (d.name.span, "the outer line is here".to_string()));
            let message = format!("this {directive} drops {}{more} of the outer block", shown.join(", "));
            run.add(first.name.span, message, place.into_iter().collect());
        }
    }
}

fn header_content_type(run: &LintRun<'_>) {
    for (id, d) in run.named("add_header") {
        let hidden = ["proxy_hide_header", "fastcgi_hide_header", "uwsgi_hide_header", "scgi_hide_header"]
            .iter()
            .any(|name| run.scopes.effective(id, name).iter().any(|d| field(d) == "content-type"));
        if field(d) == "content-type" && !hidden {
            run.at(d, "the response gets a second Content-Type".into());
        }
    }
}

fn header_multiline(run: &LintRun<'_>) {
    for (_, d) in run.directives() {
        let name = d.name.text();
        let value = match &*name {
            "add_header" | "add_trailer" | "proxy_set_header" | "grpc_set_header" => d.args.get(1),
            "more_set_headers" => d.args.last(),
            _ => None,
        };
        if let Some(word) = value.filter(|word| word.bytes.contains(&b'\n') || word.bytes.contains(&b'\r')) {
            run.word(word, format!("the value of {} spans several lines", field(d)));
        }
    }
}

/// Pattern whose groups a line sees: of the rewrite itself, the location, or the enclosing `if`.
fn pattern_around(run: &LintRun<'_>, id: ScopeId, d: &Directive, group: &str) -> Option<RegexPattern> {
    if d.name.bytes == b"rewrite" {
        return RegexPattern::parse(&d.args.first()?.text(), false);
    }
    run.scopes.around(id).find_map(|outer| {
        let scope = run.scopes.get(outer);
        let pattern = match scope.context {
            Contexts::location => match name(run.scopes, outer)? {
                LocationName::Regex { text, ignore_case } => RegexPattern::parse(&text, ignore_case),
                _ => None,
            },
            Contexts::if_in_location | Contexts::if_in_server => {
                let condition = scope.directive?;
                let path = condition.args.first()?.text();
                let decoded = matches!(path.trim_start_matches('('), "$uri" | "$document_uri");
                let word = condition.args.get(2)?.text();
                let text = word.strip_suffix(')').unwrap_or(&word);
                decoded.then(|| RegexPattern::parse(text, false)).flatten()
            }
            _ => None,
        };
        pattern.filter(|pattern| pattern.has_group(group))
    })
}

/// Explains how a variable can contain a line break from the client.
fn breaks(run: &LintRun<'_>, id: ScopeId, d: &Directive, variable: &str) -> Option<&'static str> {
    let decoded = |name: &str| matches!(name, "uri" | "document_uri");
    if run.sources.any(variable, &mut HashSet::new(), &decoded) {
        return Some("is the decoded path");
    }
    let pattern = pattern_around(run, id, d, variable)?;
    pattern.group_can_hold(variable, b'\n').then_some("is a part of the decoded path that can contain a line break")
}

fn line_breaks(run: &LintRun<'_>) {
    for (id, d) in run.directives() {
        let name = d.name.text();
        let word = match &*name {
            "return" => {
                let code = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
                let redirect = matches!(&*code, "301" | "302" | "303" | "307" | "308");
                if d.args.len() == 1 { d.args.first() } else { d.args.get(1).filter(|_| redirect) }
            }
            "rewrite" => {
                let flag = d.args.get(2).map(|word| word.text().into_owned()).unwrap_or_default();
                let target = d.args.get(1).map(|word| word.text().into_owned()).unwrap_or_default();
                let redirect = matches!(&*flag, "redirect" | "permanent") || target.starts_with("http");
                d.args.get(1).filter(|_| redirect)
            }
            "add_header" | "proxy_set_header" | "grpc_set_header" => d.args.get(1),
            "proxy_pass" => d.args.first(),
            _ => None,
        };
        let Some(word) = word else { continue };
        for variable in variable_names(&word.text()) {
            let group = variable.bytes().all(|c| c.is_ascii_digit());
            if name == "rewrite" && group {
                continue;
            }
            if let Some(how) = breaks(run, id, d, &variable) {
                run.word(word, format!("${variable} {how}"));
                break;
            }
        }
    }
}

fn host_spoofing(run: &LintRun<'_>) {
    for (_, d) in run.directives() {
        let name = d.name.text();
        let word = match &*name {
            "proxy_set_header" | "grpc_set_header" if field(d) == "host" => d.args.get(1),
            "return" => d.args.last(),
            "rewrite" => {
                d.args.get(1).filter(|word| word.bytes.starts_with(b"http") || word.bytes.starts_with(b"$scheme"))
            }
            _ => None,
        };
        let Some(word) = word else { continue };
        let url = name != "return" || word.bytes.starts_with(b"http") || word.bytes.starts_with(b"$scheme");
        let is_sent = |variable: &String| {
            run.sources.any(variable, &mut HashSet::new(), &|name| name == "http_host" || name.starts_with("arg_"))
        };
        if url && variable_names(&word.text()).iter().any(is_sent) {
            run.word(word, "the client decides on this host, and it is not checked".into());
        }
    }
}

fn return_injection(run: &LintRun<'_>) {
    for (id, d) in run.named("return") {
        let (Some(code), Some(text)) = (d.args.first(), d.args.get(1)) else { continue };
        let code = code.text();
        let redirect = matches!(&*code, "301" | "302" | "303" | "307" | "308");
        let html =
            run.scopes.value(id, "default_type").is_some_and(|kind| kind.contains("html") || kind.contains("svg"));
        if redirect || !html {
            continue;
        }
        if let Some(variable) = variable_names(&text.text()).iter().find(|name| run.sources.sent_by_clients(name)) {
            run.word(text, format!("${variable} comes from the client, and the page is text/html"));
        }
    }
}
