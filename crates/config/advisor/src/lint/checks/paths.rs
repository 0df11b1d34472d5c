//! Checks of matched and opened paths.

use super::{LintCheck, LintLevel, LintRun, answers, name, refuses};
use crate::location::LocationName;
use crate::pattern::RegexPattern;
use crate::scope::ScopeId;
use crate::values::variable_names;
use conf_schema::Contexts;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "alias-traversal",
        level: LintLevel::Error,
        title: "an alias with a trailing slash in a location without one",
        why: "The location also matches /i../secret, and the alias appends the rest of the path, \"../secret\": clients can \
              read files outside of the directory.",
        fix: "end both the location's name and the alias with a slash",
        bad: "server { listen 80; location /i { alias /data/images/; } }",
        good: "server { listen 80; location /i/ { alias /data/images/; } }",
        run: alias_traversal,
    },
    LintCheck {
        id: "alias-sibling",
        level: LintLevel::Note,
        title: "a location and an alias both without a trailing slash",
        why: "The location also matches /images-old/x, which the alias maps to /data/images-old/x: clients can read \
              directories with the same name prefix.",
        fix: "end both the location's name and the alias with a slash",
        bad: "server { listen 80; location /images { alias /data/images; } }",
        good: "server { listen 80; location = /logo { alias /data/logo.png; } }",
        run: alias_sibling,
    },
    LintCheck {
        id: "alias-slash",
        level: LintLevel::Error,
        title: "a location with a trailing slash and an alias without one",
        why: "The alias replaces the location prefix including its slash: /i/x becomes /data/imagesx, which does not exist.",
        fix: "end the alias with a slash",
        bad: "server { listen 80; location /i/ { alias /data/images; } }",
        good: "server { listen 80; location /i/ { alias /data/images/; } }",
        run: alias_slash,
    },
    LintCheck {
        id: "proxy-pass-slash",
        level: LintLevel::Warning,
        title: "proxy_pass path and location of which only one ends with a slash",
        why: "proxy_pass with a path replaces the location prefix. If only one of them ends with a slash, /api/x becomes \
              /v1x or //x, and /api../x becomes /../x, which leaves the upstream directory.",
        fix: "end both with a slash, or remove the path from proxy_pass",
        bad: "server { listen 80; location /api { proxy_pass http://127.0.0.1:8080/; } }",
        good: "server { listen 80; location /api/ { proxy_pass http://127.0.0.1:8080/; } location /b { proxy_pass http://127.0.0.1:8080; } }",
        run: proxy_pass_slash,
    },
    LintCheck {
        id: "root-missing",
        level: LintLevel::Warning,
        title: "a location that serves files from the built-in root while others set root",
        why: "A root in one location does not apply to its siblings: they serve files from the default \"html\" below the \
              prefix.",
        fix: "set root once in the server block",
        bad: "server { listen 80; location / { root /srv/www; } location /img/ { expires 1d; } }",
        good: "server { listen 80; root /srv/www; location / { } location /img/ { expires 1d; } }",
        run: root_missing,
    },
    LintCheck {
        id: "location-never-matches",
        level: LintLevel::Warning,
        title: "a location with a query string, an escape or a double slash",
        why: "nginx matches locations against the decoded path without the query and (unless merge_slashes is off) with \
              merged slashes: no request matches this location.",
        fix: "write the decoded path; use $args or $arg_NAME for the query",
        bad: "server { listen 80; location /search?q= { return 404; } }",
        good: "server { listen 80; location /search { return 404; } }",
        run: location_never_matches,
    },
    LintCheck {
        id: "unreachable-location",
        level: LintLevel::Warning,
        title: "a location that is shadowed by an earlier one",
        why: "nginx tries regular expressions in the order of the file, before plain prefixes: a location after one that \
              matches everything, or a superset, is never used.",
        fix: "reorder the locations, make the earlier one more specific, or give the prefix ^~",
        bad: "server { listen 80; root /d; location ~* \\.(jpg|css)$ { expires 1d; } location ~ \\.css$ { gzip_static on; } }",
        good: "server { listen 80; root /d; location ~ \\.css$ { gzip_static on; } location ~* \\.(jpg|css)$ { expires 1d; } }",
        run: unreachable_location,
    },
    LintCheck {
        id: "server-return",
        level: LintLevel::Warning,
        title: "locations in a server block with an unconditional return",
        why: "return in the server block runs before location matching: the locations are never used (often an \
              acme-challenge location beside a redirect to https).",
        fix: "move the return into \"location / { }\"",
        bad: "server { listen 80; return 301 https://example.com/; location /.well-known/acme-challenge/ { root /srv/acme; } }",
        good: "server { listen 80; location / { return 301 https://example.com/; } \
               location /.well-known/acme-challenge/ { root /srv/acme; } }",
        run: server_return,
    },
    LintCheck {
        id: "try-files-loop",
        level: LintLevel::Warning,
        title: "try_files with the path itself as the last parameter",
        why: "The last parameter is an internal redirect, not a file test: with $uri the request enters the same location \
              again until it ends with 500.",
        fix: "end with =404, a fixed URI or a named location",
        bad: "server { listen 80; root /d; location / { try_files $uri $uri/; } }",
        good: "server { listen 80; root /d; location / { try_files $uri $uri/ =404; } }",
        run: try_files_loop,
    },
    LintCheck {
        id: "merge-slashes-off",
        level: LintLevel::Warning,
        title: "merge_slashes off with access rules in locations",
        why: "For locations //admin/ then differs from /admin/, but not for the file system and most applications: clients \
              bypass the rules of the location.",
        fix: "keep merge_slashes on, or set the rules in the server block",
        bad: "server { listen 80; merge_slashes off; root /d; location /admin/ { deny all; } }",
        good: "server { listen 80; root /d; location /admin/ { deny all; } }",
        run: merge_slashes_off,
    },
];

fn aliases<'a>(run: &'a LintRun<'_>) -> impl Iterator<Item = (String, &'a conf_syntax::Directive, String)> + 'a {
    run.named("alias").filter_map(|(id, d)| {
        let name = name(run.scopes, id)?;
        let alias = d.args.first()?.text().into_owned();
        Some((name.prefix()?.to_string(), d, alias))
    })
}

fn alias_traversal(run: &LintRun<'_>) {
    for (prefix, d, alias) in aliases(run) {
        if !prefix.ends_with('/') && alias.ends_with('/') {
            run.at(d, format!("\"{prefix}../\" leads out of \"{alias}\""));
        }
    }
}

fn alias_sibling(run: &LintRun<'_>) {
    for (prefix, d, alias) in aliases(run) {
        let is_file = prefix.rsplit('/').next().is_some_and(|last| last.contains('.'));
        if !prefix.ends_with('/') && !alias.ends_with('/') && !is_file && variable_names(&alias).is_empty() {
            run.at(d, format!("\"{prefix}-other/x\" maps to \"{alias}-other/x\""));
        }
    }
}

fn alias_slash(run: &LintRun<'_>) {
    for (prefix, d, alias) in aliases(run) {
        if prefix.ends_with('/') && !alias.ends_with('/') && variable_names(&alias).is_empty() {
            run.at(d, format!("\"{prefix}x\" maps to \"{alias}x\""));
        }
    }
}

fn proxy_pass_slash(run: &LintRun<'_>) {
    for (id, d) in run.named("proxy_pass") {
        let Some(name) = name(run.scopes, id) else { continue };
        let (Some(prefix), Some(word)) = (name.prefix(), d.args.first()) else { continue };
        let url = word.text();
        if !variable_names(&url).is_empty() {
            continue;
        }
        let Some(rest) = url.split_once("://").map(|(_, rest)| rest) else { continue };
        // The path of a UNIX-domain socket ends with a colon.
        let path = if rest.starts_with("unix:") {
            rest.get(5..).and_then(|rest| rest.split_once(':')).map(|(_, path)| path)
        } else {
            rest.find('/').and_then(|at| rest.get(at..))
        };
        let Some(path) = path.filter(|path| !path.is_empty()) else { continue };
        if path.contains('?') || prefix.ends_with('/') == path.ends_with('/') {
            continue;
        }
        let shown = if prefix.ends_with('/') { format!("{prefix}x") } else { format!("{prefix}/x") };
        let becomes = format!("{path}{}", &shown[prefix.len()..]);
        run.word(word, format!("\"{shown}\" is proxied as \"{becomes}\""));
    }
}

fn root_missing(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for server in scopes.of(Contexts::server) {
        let locations: Vec<ScopeId> =
            scopes.within(server).into_iter().filter(|id| scopes.get(*id).context == Contexts::location).collect();
        let has_root = |id: &ScopeId| scopes.has(*id, "root") || scopes.has(*id, "alias");
        if !locations.iter().any(|id| scopes.has(*id, "root")) {
            continue;
        }
        for id in locations {
            let named = matches!(name(scopes, id), Some(LocationName::Named(_)));
            let rooted = scopes.around(id).any(|outer| has_root(&outer));
            let moves = scopes.has(id, "try_files") || scopes.has(id, "rewrite") || named;
            // A location that only holds others answers nothing itself.
            let holds = scopes.within(id).len() > 1;
            let passed = scopes.around(id).any(|outer| answers(scopes, outer));
            let empty = scopes.get(id).own.is_empty();
            if !rooted
                && !moves
                && !holds
                && !passed
                && !empty
                && !refuses(scopes, id)
                && let Some(d) = scopes.get(id).directive
            {
                run.at(d, format!("{} has no root: files come from the default \"html\"", shown(run, id)));
            }
        }
    }
}

fn shown(run: &LintRun<'_>, id: ScopeId) -> String {
    name(run.scopes, id).map_or_else(|| "this block".into(), |name| format!("location \"{}\"", name.shown()))
}

fn location_never_matches(run: &LintRun<'_>) {
    for (id, d) in run.named("location") {
        let Some(name @ (LocationName::Exact(_) | LocationName::Prefix(_) | LocationName::Final(_))) =
            LocationName::of(d)
        else {
            continue;
        };
        let (text, word) = (name.text(), d.args.last());
        let Some(word) = word else { continue };
        let escape = text
            .as_bytes()
            .windows(3)
            .any(|w| matches!(w, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()));
        let merges = run.scopes.value(id, "merge_slashes").is_none_or(|value| value != "off");
        let why = match () {
            () if text.contains('?') => "the path that locations are matched with has no query string",
            () if escape => "the path that locations are matched with is decoded",
            () if merges && text.contains("//") => "doubled slashes are merged before locations are matched",
            () => continue,
        };
        run.word(word, format!("\"{text}\" never matches: {why}"));
    }
}

fn unreachable_location(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for parent in 0..scopes.all.len() {
        let locations: Vec<(ScopeId, LocationName)> =
            scopes.get(parent).children.iter().filter_map(|id| Some((*id, name(scopes, *id)?))).collect();
        let mut earlier: Vec<(ScopeId, String, bool, RegexPattern)> = Vec::new();
        for (id, name) in &locations {
            let LocationName::Regex { text, ignore_case } = name else { continue };
            let Some(pattern) = RegexPattern::parse(text, *ignore_case) else { continue };
            let hides = |(_, other, other_case, one): &&(ScopeId, String, bool, RegexPattern)| {
                (other == text && (*other_case || !ignore_case)) || one.matches_all() || covers(one, &pattern)
            };
            if let Some((other, ..)) = earlier.iter().find(hides) {
                hidden(run, *id, *other);
            }
            earlier.push((*id, text.clone(), *ignore_case, pattern));
        }
        // In a server, prefixes come after all regular expressions; within a location, the prefix selects them.
        let Some((all, ..)) = earlier.iter().find(|(.., pattern)| pattern.matches_all()) else { continue };
        if scopes.get(parent).context != Contexts::server {
            continue;
        }
        for (id, name) in &locations {
            let inner = scopes.within(*id);
            let nested = inner.iter().any(|inner| {
                *inner != *id
                    && matches!(
                        super::name(scopes, *inner),
                        Some(LocationName::Regex { .. } | LocationName::Exact(_) | LocationName::Final(_))
                    )
            });
            if matches!(name, LocationName::Prefix(_)) && !nested {
                hidden(run, *id, *all);
            }
        }
    }
}

/// Tells whether `one` matches every extension of `other`.
fn covers(one: &RegexPattern, other: &RegexPattern) -> bool {
    let (Some(mine), Some(its)) = (one.extensions(), other.extensions()) else { return false };
    if other.ignore_case && !one.ignore_case {
        return false;
    }
    its.iter().all(|word| {
        let word = if one.ignore_case { word.to_ascii_lowercase() } else { word.clone() };
        mine.contains(&word)
    })
}

fn hidden(run: &LintRun<'_>, id: ScopeId, by: ScopeId) {
    if let (Some(d), Some(other)) = (run.scopes.get(id).directive, run.scopes.get(by).directive) {
        let message = format!("{} is never reached: {} matches its requests", shown(run, id), shown(run, by));
        run.add(d.name.span, message, vec![(other.name.span, "the one that does".into())]);
    }
}

fn server_return(run: &LintRun<'_>) {
    for server in run.scopes.of(Contexts::server) {
        let scope = run.scopes.get(server);
        let Some(d) = run.scopes.own(server, "return").first().copied() else { continue };
        // A location may answer error pages of the returned status.
        if run.scopes.has(server, "error_page") || !run.scopes.effective(server, "error_page").is_empty() {
            continue;
        }
        let locations = scope.children.iter().filter(|id| run.scopes.get(**id).context == Contexts::location).count();
        if locations > 0 {
            let number = if locations == 1 { "the location".into() } else { format!("the {locations} locations") };
            run.at(
                d,
                format!("{number} of this server are never used: this return runs first")
                    .replace("location of this server are", "location of this server is"),
            );
        }
    }
}

fn try_files_loop(run: &LintRun<'_>) {
    for (_, d) in run.named("try_files") {
        let Some(last) = d.args.last().filter(|_| d.args.len() > 1) else { continue };
        let text = last.text();
        if matches!(&*text, "$uri" | "$uri/" | "$document_uri" | "$request_uri") {
            run.word(last, format!("\"{text}\" is an internal redirect to the same location"));
        }
    }
}

fn merge_slashes_off(run: &LintRun<'_>) {
    for (id, d) in run.named("merge_slashes") {
        if d.args.first().is_none_or(|word| word.bytes != b"off") {
            continue;
        }
        let protects = |id: &ScopeId| {
            name(run.scopes, *id)
                .is_some_and(|name| !matches!(name, LocationName::Regex { .. } | LocationName::Named(_)))
                && ["deny", "auth_basic", "auth_request", "internal"].iter().any(|name| run.scopes.has(*id, name))
        };
        if let Some(inner) = run.scopes.within(id).iter().find(|id| protects(id)) {
            run.at(d, format!("a double slash bypasses {}", shown(run, *inner)));
        }
    }
}
