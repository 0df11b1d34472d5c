//! Paths: what is matched and what is opened.

use super::{Check, Level, Run, answers, name, refuses};
use crate::location::Name;
use crate::pattern::Pattern;
use crate::scope::ScopeId;
use crate::values::variables;
use conf_schema::Contexts;

pub const CHECKS: &[Check] = &[
    Check {
        id: "alias-traversal",
        level: Level::Error,
        title: "an alias that ends with a slash, in a location that does not",
        why: "The location matches /i../secret as well, and the alias puts the rest of the path, \"../secret\", behind its slash: files \
              beside the folder are served.",
        fix: "end both the location's name and the alias with a slash",
        bad: "server { listen 80; location /i { alias /data/images/; } }",
        good: "server { listen 80; location /i/ { alias /data/images/; } }",
        run: alias_traversal,
    },
    Check {
        id: "alias-sibling",
        level: Level::Note,
        title: "a location and its alias both end without a slash",
        why: "The location matches /images-old/x as well, and the alias makes /data/images-old/x of it: folders whose names begin alike \
              are served.",
        fix: "end both the location's name and the alias with a slash",
        bad: "server { listen 80; location /images { alias /data/images; } }",
        good: "server { listen 80; location = /logo { alias /data/logo.png; } }",
        run: alias_sibling,
    },
    Check {
        id: "alias-slash",
        level: Level::Error,
        title: "a location that ends with a slash, with an alias that does not",
        why: "The alias replaces the location's name with its slash: /i/x becomes /data/imagesx, which is not there.",
        fix: "end the alias with a slash",
        bad: "server { listen 80; location /i/ { alias /data/images; } }",
        good: "server { listen 80; location /i/ { alias /data/images/; } }",
        run: alias_slash,
    },
    Check {
        id: "proxy-pass-slash",
        level: Level::Warning,
        title: "proxy_pass whose path and the location's name do not both end with a slash",
        why: "proxy_pass with a path replaces the location's name by it. When only one of the two ends with a slash, /api/x becomes /v1x or \
              //x, and /api../x becomes /../x, which leads out of the folder behind.",
        fix: "end both with a slash, or leave the path of proxy_pass away",
        bad: "server { listen 80; location /api { proxy_pass http://127.0.0.1:8080/; } }",
        good: "server { listen 80; location /api/ { proxy_pass http://127.0.0.1:8080/; } location /b { proxy_pass http://127.0.0.1:8080; } }",
        run: proxy_pass_slash,
    },
    Check {
        id: "root-missing",
        level: Level::Warning,
        title: "a location that serves files from the built-in root while others name theirs",
        why: "root in one location does not hold in its neighbours: they serve from the default \"html\" below the prefix.",
        fix: "write root once in the server block",
        bad: "server { listen 80; location / { root /srv/www; } location /img/ { expires 1d; } }",
        good: "server { listen 80; root /srv/www; location / { } location /img/ { expires 1d; } }",
        run: root_missing,
    },
    Check {
        id: "location-never-matches",
        level: Level::Warning,
        title: "a location name with a query string, an escape or a doubled slash",
        why: "Locations are matched with the decoded path without its query, and (unless merge_slashes is off) with doubled slashes merged: \
              such a name equals no request's.",
        fix: "write the decoded path; decide on the query with $args or $arg_NAME",
        bad: "server { listen 80; location /search?q= { return 404; } }",
        good: "server { listen 80; location /search { return 404; } }",
        run: location_never_matches,
    },
    Check {
        id: "unreachable-location",
        level: Level::Warning,
        title: "a location that no request reaches, because another one always comes first",
        why: "Regular expressions are tried in the order in which they are written, and before any plain prefix: behind one that matches \
              everything, or all that a later one does, the later one is never used.",
        fix: "reorder them, make the earlier one narrower, or give the prefix ^~",
        bad: "server { listen 80; root /d; location ~* \\.(jpg|css)$ { expires 1d; } location ~ \\.css$ { gzip_static on; } }",
        good: "server { listen 80; root /d; location ~ \\.css$ { gzip_static on; } location ~* \\.(jpg|css)$ { expires 1d; } }",
        run: unreachable_location,
    },
    Check {
        id: "server-return",
        level: Level::Warning,
        title: "locations in a server that returns before any is looked for",
        why: "return in the server block is done before locations are matched: none of them is ever used (an acme-challenge beside a \
              redirect to https is the usual victim).",
        fix: "move the return into \"location / { }\"",
        bad: "server { listen 80; return 301 https://example.com/; location /.well-known/acme-challenge/ { root /srv/acme; } }",
        good: "server { listen 80; location / { return 301 https://example.com/; } \
               location /.well-known/acme-challenge/ { root /srv/acme; } }",
        run: server_return,
    },
    Check {
        id: "try-files-loop",
        level: Level::Warning,
        title: "try_files whose last parameter is the path again",
        why: "The last parameter is not tried but redirected to: with $uri in it the same location is entered again until the request ends \
              with 500.",
        fix: "end with =404, a fixed URI or a named location",
        bad: "server { listen 80; root /d; location / { try_files $uri $uri/; } }",
        good: "server { listen 80; root /d; location / { try_files $uri $uri/ =404; } }",
        run: try_files_loop,
    },
    Check {
        id: "merge-slashes-off",
        level: Level::Warning,
        title: "merge_slashes off beside locations that protect something",
        why: "//admin/ is then another path than /admin/ for locations, though not for the file system or most applications: rules of \
              the location are passed by.",
        fix: "leave merge_slashes on, or protect at the server level",
        bad: "server { listen 80; merge_slashes off; root /d; location /admin/ { deny all; } }",
        good: "server { listen 80; root /d; location /admin/ { deny all; } }",
        run: merge_slashes_off,
    },
];

/// Each `alias` in a prefix location: the location's name and the alias.
fn aliases<'a>(run: &'a Run<'_>) -> impl Iterator<Item = (String, &'a conf_syntax::Directive, String)> + 'a {
    run.named("alias").filter_map(|(id, d)| {
        let name = name(run.scopes, id)?;
        let alias = d.args.first()?.text().into_owned();
        Some((name.prefix()?.to_string(), d, alias))
    })
}

fn alias_traversal(run: &Run<'_>) {
    for (prefix, d, alias) in aliases(run) {
        if !prefix.ends_with('/') && alias.ends_with('/') {
            run.at(d, format!("\"{prefix}../\" leads out of \"{alias}\""));
        }
    }
}

fn alias_sibling(run: &Run<'_>) {
    for (prefix, d, alias) in aliases(run) {
        // A name with an extension is one file's.
        let is_file = prefix.rsplit('/').next().is_some_and(|last| last.contains('.'));
        if !prefix.ends_with('/') && !alias.ends_with('/') && !is_file && variables(&alias).is_empty() {
            run.at(d, format!("\"{prefix}-other/x\" is looked for at \"{alias}-other/x\""));
        }
    }
}

fn alias_slash(run: &Run<'_>) {
    for (prefix, d, alias) in aliases(run) {
        if prefix.ends_with('/') && !alias.ends_with('/') && variables(&alias).is_empty() {
            run.at(d, format!("\"{prefix}x\" is looked for at \"{alias}x\""));
        }
    }
}

fn proxy_pass_slash(run: &Run<'_>) {
    for (id, d) in run.named("proxy_pass") {
        let Some(name) = name(run.scopes, id) else { continue };
        let (Some(prefix), Some(word)) = (name.prefix(), d.args.first()) else { continue };
        let url = word.text();
        if !variables(&url).is_empty() {
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
        run.word(word, format!("\"{shown}\" is passed on as \"{becomes}\""));
    }
}

fn root_missing(run: &Run<'_>) {
    let scopes = run.scopes;
    for server in scopes.of(Contexts::server) {
        let locations: Vec<ScopeId> =
            scopes.within(server).into_iter().filter(|id| scopes.get(*id).context == Contexts::location).collect();
        let has_root = |id: &ScopeId| scopes.has(*id, "root") || scopes.has(*id, "alias");
        if !locations.iter().any(|id| scopes.has(*id, "root")) {
            continue;
        }
        for id in locations {
            let named = matches!(name(scopes, id), Some(Name::Named(_)));
            let rooted = scopes.around(id).any(|outer| has_root(&outer));
            let moves = scopes.has(id, "try_files") || scopes.has(id, "rewrite") || named;
            // One that only holds others says nothing itself.
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

fn shown(run: &Run<'_>, id: ScopeId) -> String {
    name(run.scopes, id).map_or_else(|| "this block".into(), |name| format!("location \"{}\"", name.shown()))
}

fn location_never_matches(run: &Run<'_>) {
    for (id, d) in run.named("location") {
        let Some(name @ (Name::Exact(_) | Name::Prefix(_) | Name::Final(_))) = Name::of(d) else { continue };
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

fn unreachable_location(run: &Run<'_>) {
    let scopes = run.scopes;
    for parent in 0..scopes.all.len() {
        let locations: Vec<(ScopeId, Name)> =
            scopes.get(parent).children.iter().filter_map(|id| Some((*id, name(scopes, *id)?))).collect();
        let mut earlier: Vec<(ScopeId, String, bool, Pattern)> = Vec::new();
        for (id, name) in &locations {
            let Name::Regex { text, ignore_case } = name else { continue };
            let Some(pattern) = Pattern::parse(text, *ignore_case) else { continue };
            let hides = |(_, other, other_case, one): &&(ScopeId, String, bool, Pattern)| {
                (other == text && (*other_case || !ignore_case)) || one.matches_all() || covers(one, &pattern)
            };
            if let Some((other, ..)) = earlier.iter().find(hides) {
                hidden(run, *id, *other);
            }
            earlier.push((*id, text.clone(), *ignore_case, pattern));
        }
        // At the server's level a prefix is looked at after all regular expressions; within a location it decides which are.
        let Some((all, ..)) = earlier.iter().find(|(.., pattern)| pattern.matches_all()) else { continue };
        if scopes.get(parent).context != Contexts::server {
            continue;
        }
        for (id, name) in &locations {
            let inner = scopes.within(*id);
            let nested = inner.iter().any(|inner| {
                *inner != *id
                    && matches!(super::name(scopes, *inner), Some(Name::Regex { .. } | Name::Exact(_) | Name::Final(_)))
            });
            if matches!(name, Name::Prefix(_)) && !nested {
                hidden(run, *id, *all);
            }
        }
    }
}

/// Whatever the other extension pattern matches, this one does.
fn covers(one: &Pattern, other: &Pattern) -> bool {
    let (Some(mine), Some(its)) = (one.extensions(), other.extensions()) else { return false };
    if other.ignore_case && !one.ignore_case {
        return false;
    }
    its.iter().all(|word| {
        let word = if one.ignore_case { word.to_ascii_lowercase() } else { word.clone() };
        mine.contains(&word)
    })
}

fn hidden(run: &Run<'_>, id: ScopeId, by: ScopeId) {
    if let (Some(d), Some(other)) = (run.scopes.get(id).directive, run.scopes.get(by).directive) {
        let message = format!("{} is never reached: {} takes its requests", shown(run, id), shown(run, by));
        run.add(d.name.span, message, vec![(other.name.span, "the one that does".into())]);
    }
}

fn server_return(run: &Run<'_>) {
    for server in run.scopes.of(Contexts::server) {
        let scope = run.scopes.get(server);
        let Some(d) = run.scopes.own(server, "return").first().copied() else { continue };
        // Error pages of the returned status may be answered by a location.
        if run.scopes.has(server, "error_page") || !run.scopes.effective(server, "error_page").is_empty() {
            continue;
        }
        let locations = scope.children.iter().filter(|id| run.scopes.get(**id).context == Contexts::location).count();
        if locations > 0 {
            let number = if locations == 1 { "the location".into() } else { format!("the {locations} locations") };
            run.at(
                d,
                format!("{number} of this server are never used: this is done first")
                    .replace("location of this server are", "location of this server is"),
            );
        }
    }
}

fn try_files_loop(run: &Run<'_>) {
    for (_, d) in run.named("try_files") {
        let Some(last) = d.args.last().filter(|_| d.args.len() > 1) else { continue };
        let text = last.text();
        if matches!(&*text, "$uri" | "$uri/" | "$document_uri" | "$request_uri") {
            run.word(last, format!("\"{text}\" is not tried but redirected to, in a circle"));
        }
    }
}

fn merge_slashes_off(run: &Run<'_>) {
    for (id, d) in run.named("merge_slashes") {
        if d.args.first().is_none_or(|word| word.bytes != b"off") {
            continue;
        }
        let protects = |id: &ScopeId| {
            name(run.scopes, *id).is_some_and(|name| !matches!(name, Name::Regex { .. } | Name::Named(_)))
                && ["deny", "auth_basic", "auth_request", "internal"].iter().any(|name| run.scopes.has(*id, name))
        };
        if let Some(inner) = run.scopes.within(id).iter().find(|id| protects(id)) {
            run.at(d, format!("a doubled slash leads around {}", shown(run, *inner)));
        }
    }
}
