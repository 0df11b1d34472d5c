//! Checks of protection without effect, and of resources without protection.

use super::access::access_guard;
use super::{LintCheck, LintLevel, LintRun, name};
use crate::location::{LocationName, listen_address};
use crate::scope::ScopeId;
use crate::values::variable_names;
use conf_schema::Contexts;
use conf_syntax::Directive;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "auth-without-file",
        level: LintLevel::Error,
        title: "auth_basic without auth_basic_user_file",
        why: "Without a file of users, auth_basic asks for no password: every client is admitted.",
        fix: "set auth_basic_user_file in the same block, or in an enclosing one",
        bad: "server { listen 80; root /d; location / { auth_basic a; } }",
        good: "server { listen 80; root /d; auth_basic_user_file /p; location / { auth_basic a; } }",
        run: auth_without_file,
    },
    LintCheck {
        id: "access-after-return",
        level: LintLevel::Error,
        title: "access rules or limits beside an unconditional return",
        why: "return and redirecting rewrites run before allow, deny, authentication and limits: the rules of the same block \
              have no effect.",
        fix: "serve the response from a file or another location instead of return, or remove the rules",
        bad: "server { listen 80; location / { allow 10.0.0.0/8; deny all; return 200 secret; } }",
        good: "server { listen 80; root /d; location / { allow 10.0.0.0/8; deny all; try_files /secret =404; } }",
        run: access_after_return,
    },
    LintCheck {
        id: "real-ip-any",
        level: LintLevel::Error,
        title: "set_real_ip_from with a network of all addresses",
        why: "Every client is then trusted to name its own address: access rules, limits and logs use what the client sends.",
        fix: "list the addresses of the load balancers or of the CDN",
        bad: "server { listen 80; root /d; set_real_ip_from 0.0.0.0/0; real_ip_header X-Forwarded-For; }",
        good: "server { listen 80; root /d; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; }",
        run: real_ip_any,
    },
    LintCheck {
        id: "php-unchecked",
        level: LintLevel::Warning,
        title: "PHP scripts that are passed on without a check that they exist",
        why: "With cgi.fix_pathinfo, PHP looks for a script in the parents of a missing path: /upload/a.jpg/x.php runs the \
              uploaded file a.jpg.",
        fix: "add \"try_files $uri =404;\" (behind fastcgi_split_path_info: $fastcgi_script_name)",
        bad: "server { listen 80; root /d; location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; \
              fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; } }",
        good: "server { listen 80; root /d; location ~ \\.php$ { try_files $uri =404; fastcgi_pass 127.0.0.1:9000; \
               fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; } }",
        run: php_unchecked,
    },
    LintCheck {
        id: "status-open",
        level: LintLevel::Warning,
        title: "status, metrics, API or dashboard without access rules",
        why: "Every client that reaches the address sees names, addresses and load of the servers; a writable API lets it \
              change them.",
        fix: "listen on 127.0.0.1, or add allow and \"deny all\", or authentication",
        bad: "server { listen 80; location = /status { stub_status; } }",
        good: "server { listen 127.0.0.1:80; location = /status { stub_status; } }",
        run: status_open,
    },
    LintCheck {
        id: "cors-reflected",
        level: LintLevel::Error,
        title: "every origin is allowed to send credentials",
        why: "Access-Control-Allow-Origin with $http_origin admits any page, and Access-Control-Allow-Credentials lets it read \
              responses with the visitor's cookies.",
        fix: "allow a list of origins: a map from $http_origin with an empty default",
        bad: "server { listen 80; root /d; add_header Access-Control-Allow-Origin $http_origin; \
              add_header Access-Control-Allow-Credentials true; }",
        good: "map $http_origin $allowed { https://a.example $http_origin; } server { listen 80; root /d; \
               add_header Access-Control-Allow-Origin $allowed; add_header Access-Control-Allow-Credentials true; }",
        run: cors_reflected,
    },
];

/// Directives that run after `return` and protect a block.
const PROTECTING: &[&str] =
    &["allow", "deny", "auth_basic", "auth_request", "auth_jwt", "auth_oidc", "limit_req", "limit_conn"];
/// Directives that disclose the state of the server.
const DISCLOSING: &[&str] = &["stub_status", "metrics", "api", "dashboard", "status"];

fn first(d: &Directive) -> String {
    d.args.first().map(|word| word.text().into_owned()).unwrap_or_default()
}

/// Tells whether clients of other machines cannot connect: every address is on loopback or a UNIX-domain socket.
fn is_local(run: &LintRun<'_>, server: ScopeId) -> bool {
    let lines = run.scopes.own(server, "listen");
    let local = |d: &&Directive| {
        listen_address(d)
            .is_some_and(|text| ["unix:", "127.", "localhost:", "[::1]"].iter().any(|head| text.starts_with(head)))
    };
    !lines.is_empty() && lines.iter().all(local)
}

fn auth_without_file(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for id in 0..scopes.all.len() {
        let scope = scopes.get(id);
        if ![Contexts::server, Contexts::location, Contexts::limit_except].contains(&scope.context) {
            continue;
        }
        // A server with locations rarely answers itself; return runs before authentication.
        let holds = scope.children.iter().any(|child| scopes.get(*child).context == Contexts::location);
        if holds && scope.context == Contexts::server && scopes.has(id, "auth_basic_user_file")
            || scopes.has(id, "return")
        {
            continue;
        }
        let covered = holds
            && scope
                .children
                .iter()
                .any(|child| matches!(name(scopes, *child), Some(LocationName::Prefix(text)) if text == "/"));
        if covered || !scopes.effective(id, "auth_basic_user_file").is_empty() {
            continue;
        }
        if let Some(d) = scopes.effective(id, "auth_basic").first().filter(|d| first(d) != "off") {
            run.at(d, "no password is asked for: auth_basic_user_file is missing".into());
        }
    }
}

/// Returns the line that answers every request of a block before its access rules.
fn answer<'t>(run: &LintRun<'t>, id: ScopeId) -> Option<&'t Directive> {
    let own = &run.scopes.get(id).own;
    own.iter().copied().find(|d| {
        let word = |at: usize| d.args.get(at).map(|word| word.text().into_owned()).unwrap_or_default();
        match &*d.name.text() {
            "return" => true,
            "rewrite" => {
                let target = word(1);
                let redirects = matches!(&*word(2), "redirect" | "permanent")
                    || ["http://", "https://", "$scheme"].iter().any(|head| target.starts_with(head));
                redirects
                    && matches!(
                        &*word(0),
                        "^" | "^/" | "^(.*)$" | "^(.*)" | "(.*)" | ".*" | "^.*$" | "^/(.*)$" | "^/(.*)" | "^.*"
                    )
            }
            _ => false,
        }
    })
}

fn access_after_return(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for id in 0..scopes.all.len() {
        if ![Contexts::server, Contexts::location].contains(&scopes.get(id).context) {
            continue;
        }
        let Some(line) = answer(run, id) else { continue };
        // A refusal needs no rules.
        if line.name.bytes == b"return" && first(line).starts_with(['4', '5']) {
            continue;
        }
        let rule = scopes.get(id).own.iter().find(|d| PROTECTING.contains(&&*d.name.text()) && first(d) != "off");
        if let Some(rule) = rule {
            let message = format!("{} has no effect: {} runs first", rule.name.text(), line.name.text());
            run.add(rule.name.span, message, vec![(line.name.span, "which answers here".into())]);
        }
    }
}

fn real_ip_any(run: &LintRun<'_>) {
    for (id, d) in run.named("set_real_ip_from") {
        let servers: Vec<ScopeId> = match run.scopes.enclosing(id, Contexts::server) {
            Some(server) => vec![server],
            None => {
                run.scopes.within(id).into_iter().filter(|id| run.scopes.get(*id).context == Contexts::server).collect()
            }
        };
        if !servers.is_empty() && servers.iter().all(|server| is_local(run, *server)) {
            continue;
        }
        let Some(word) = d.args.first() else { continue };
        let text = word.text();
        // Half of all addresses is as open: two such lines are a common way around this check.
        if text.rsplit_once('/').and_then(|(_, bits)| bits.parse::<u8>().ok()).is_some_and(|bits| bits <= 1) {
            run.word(word, format!("\"{text}\" trusts every client to name its address"));
        }
    }
}

/// Tells whether a pattern names whole paths of scripts, which a client cannot extend.
fn is_fixed(pattern: &str) -> bool {
    let head = pattern.find("\\.php").and_then(|at| pattern.get(..at)).unwrap_or(pattern);
    head.starts_with('^') && !head.contains(['*', '+', '[', '{']) && !head.replace("\\.", "").contains(['.', '\\'])
}

fn php_unchecked(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for (id, pass) in run.named("fastcgi_pass") {
        let Some(location) = scopes.enclosing(id, Contexts::location) else { continue };
        let Some(LocationName::Regex { text, .. }) = name(scopes, location) else { continue };
        if !text.contains("php") || is_fixed(&text) {
            continue;
        }
        let params = scopes.effective(id, "fastcgi_param");
        let from_uri = params.iter().filter(|d| first(d) == "SCRIPT_FILENAME").any(|d| {
            let words = d.args.get(1).map(|word| variable_names(&word.text())).unwrap_or_default();
            let names = ["fastcgi_script_name", "uri", "document_uri", "request_filename"];
            words.iter().any(|word| names.contains(&word.as_str()) || word.bytes().all(|c| c.is_ascii_digit()))
        });
        // A condition on the file, here or in an enclosing block.
        let is_checked = scopes.around(id).any(|outer| {
            let conditions = scopes.own(outer, "if");
            conditions.iter().any(|d| {
                let test = first(d);
                ["!-f", "-f", "!-e", "-e"].contains(&test.trim_start_matches('('))
            })
        });
        if from_uri && !is_checked && !scopes.has(location, "try_files") {
            run.at(pass, "scripts are passed on although they may not exist".into());
        }
    }
}

fn status_open(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for (id, d) in run.directives().filter(|(_, d)| DISCLOSING.contains(&&*d.name.text()) && first(d) != "off") {
        if scopes.get(id).context != Contexts::location {
            continue;
        }
        let Some(server) = scopes.enclosing(id, Contexts::server) else { continue };
        let on = |name: &str| scopes.value(id, name).is_some_and(|value| value != "off");
        let others = ["auth_jwt", "auth_oidc"].iter().any(|name| on(name));
        let certificate = scopes.value(server, "ssl_verify_client").is_some_and(|value| value == "on");
        // A condition may refuse clients.
        let condition = scopes.around(id).any(|outer| scopes.has(outer, "if"));
        if access_guard(run, id).is_none() && !others && !certificate && !condition && !is_local(run, server) {
            run.at(d, format!("{} is open to every client", d.name.text()));
        }
    }
}

fn cors_reflected(run: &LintRun<'_>) {
    let scopes = run.scopes;
    let field = |d: &Directive, wanted: &str| -> bool {
        let text: Vec<String> = d.args.iter().map(|word| word.text().to_ascii_lowercase()).collect();
        text.iter().any(|word| word.split(':').next().is_some_and(|head| head.trim() == wanted))
    };
    for directive in ["add_header", "more_set_headers"] {
        for id in 0..scopes.all.len() {
            let lines = scopes.effective(id, directive);
            let credentials = lines.iter().any(|d| {
                let is_true = d.args.iter().any(|word| word.text().to_ascii_lowercase().contains("true"));
                field(d, "access-control-allow-credentials") && is_true
            });
            // A condition on the origin is a list, which another check reads.
            let condition = scopes.around(id).any(|outer| {
                let d = scopes.get(outer).directive.filter(|d| d.name.bytes == b"if");
                d.is_some_and(|d| d.args.iter().any(|word| word.text().contains("origin")))
            });
            if !credentials || condition {
                continue;
            }
            for d in lines.iter().filter(|d| field(d, "access-control-allow-origin")) {
                let reflects = |word: &&conf_syntax::Word| {
                    variable_names(&word.text()).iter().any(|variable| variable == "http_origin")
                };
                if let Some(word) = d.args.iter().find(reflects) {
                    run.word(word, "any origin may send requests with credentials and read the responses".into());
                }
            }
        }
    }
}
