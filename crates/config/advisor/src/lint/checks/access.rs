//! Checks of access rules: lost by inheritance, or in the wrong order.

use super::{LintCheck, LintLevel, LintRun, name, refuses, regexes};
use crate::location::LocationName;
use crate::scope::ScopeId;
use conf_schema::Contexts;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "internal-lost",
        level: LintLevel::Error,
        title: "a non-internal location inside an internal one",
        why: "Locations do not inherit internal: clients can request the inner location.",
        fix: "add internal to the inner location",
        bad: "server { listen 80; root /d; location /private/ { internal; location ~ \\.pdf$ { expires 1d; } } }",
        good: "server { listen 80; root /d; location /private/ { internal; location ~ \\.pdf$ { internal; expires 1d; } } }",
        run: internal_lost,
    },
    LintCheck {
        id: "access-lost",
        level: LintLevel::Error,
        title: "allow or deny in an inner block that removes the rules of the outer block",
        why: "A block with its own rules inherits none: without its own \"deny all\" it admits every client.",
        fix: "repeat all rules in the inner block, ending with \"deny all\"",
        bad: "server { listen 80; root /d; allow 10.0.0.0/8; deny all; location /x/ { allow 192.0.2.1; deny 192.0.2.2; } }",
        good: "server { listen 80; root /d; allow 10.0.0.0/8; deny all; location /x/ { allow 192.0.2.1; deny all; } }",
        run: access_lost,
    },
    LintCheck {
        id: "regex-bypasses-access",
        level: LintLevel::Error,
        title: "a regular expression location that bypasses the rules of a prefix location",
        why: "A regular expression takes precedence over a plain prefix: \"location ~ \\.php$\" handles /admin/x.php, \
              without the rules of \"location /admin/\".",
        fix: "give the prefix ^~, nest the regular expression in it, or repeat the rules",
        bad: "server { listen 80; root /d; location /admin/ { auth_basic a; auth_basic_user_file /p; } \
              location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } }",
        good: "server { listen 80; root /d; location ^~ /admin/ { auth_basic a; auth_basic_user_file /p; } \
               location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } }",
        run: regex_bypasses_access,
    },
    LintCheck {
        id: "allow-without-deny",
        level: LintLevel::Warning,
        title: "allow without any deny",
        why: "Clients that match no rule are admitted: allow alone rejects no client.",
        fix: "end the rules with \"deny all\"",
        bad: "server { listen 80; root /d; location / { allow 10.0.0.0/8; } }",
        good: "server { listen 80; root /d; location / { allow 10.0.0.0/8; deny all; } }",
        run: allow_without_deny,
    },
    LintCheck {
        id: "access-order",
        level: LintLevel::Warning,
        title: "allow or deny after a rule for all",
        why: "The first matching rule decides: rules after \"deny all\" or \"allow all\" have no effect.",
        fix: "put the rule for all last",
        bad: "server { listen 80; root /d; location / { deny all; allow 10.0.0.0/8; } }",
        good: "server { listen 80; root /d; location / { allow 10.0.0.0/8; deny all; } }",
        run: access_order,
    },
    LintCheck {
        id: "valid-referers-none",
        level: LintLevel::Note,
        title: "valid_referers none as protection",
        why: "Any page can make browsers omit the Referer (Referrer-Policy: no-referrer): \"none\" admits every link.",
        fix: "remove \"none\" where the check protects a resource; it is fine against hotlinking",
        bad: "server { listen 80; root /d; location / { valid_referers none server_names; if ($invalid_referer) { return 403; } } }",
        good: "server { listen 80; root /d; location / { valid_referers server_names; if ($invalid_referer) { return 403; } } }",
        run: valid_referers_none,
    },
];

fn internal_lost(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for id in scopes.of(Contexts::location) {
        let Some(d) = scopes.get(id).directive else { continue };
        let mut outer = scopes.around(id).skip(1);
        let inside =
            outer.any(|outer| scopes.get(outer).context == Contexts::location && scopes.has(outer, "internal"));
        // The location of a variable is chosen after the check of internal.
        if inside && d.args.len() == 1 && d.args.first().is_some_and(|word| word.bytes.starts_with(b"$")) {
            continue;
        }
        if inside && !scopes.has(id, "internal") && !refuses(scopes, id) {
            run.at(d, "clients can request this location, although it is inside an internal one".into());
        }
    }
}

fn rules(run: &LintRun<'_>, id: ScopeId) -> Vec<(bool, String, ScopeId)> {
    let own = run.scopes.get(id).own.iter();
    let rules = own.filter(|d| d.name.bytes == b"allow" || d.name.bytes == b"deny");
    rules.filter_map(|d| Some((d.name.bytes == b"allow", d.args.first()?.text().into_owned(), id))).collect()
}

fn closed(rules: &[(bool, String, ScopeId)]) -> bool {
    rules.iter().find(|(_, whom, _)| whom == "all").is_some_and(|(allow, ..)| !allow)
}

fn access_lost(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for id in 0..scopes.all.len() {
        let own = rules(run, id);
        if own.is_empty() || closed(&own) || own.iter().any(|(_, whom, _)| whom == "all") {
            continue;
        }
        let outer = scopes.around(id).skip(1).map(|outer| rules(run, outer)).find(|rules| !rules.is_empty());
        let first = scopes.get(id).own.iter().find(|d| d.name.bytes == b"allow" || d.name.bytes == b"deny");
        if let (true, Some(d)) = (outer.is_some_and(|outer| closed(&outer)), first) {
            run.at(d, "these rules replace those of the outer block, with its \"deny all\"".into());
        }
    }
}

/// Returns the directive that keeps other clients out of a block.
pub fn access_guard(run: &LintRun<'_>, id: ScopeId) -> Option<&'static str> {
    let scopes = run.scopes;
    let access = scopes.around(id).map(|outer| rules(run, outer)).find(|rules| !rules.is_empty());
    let on = |name| scopes.value(id, name).is_some_and(|value| value != "off");
    match () {
        () if access.is_some_and(|rules| closed(&rules)) => Some("deny"),
        () if on("auth_basic") => Some("auth_basic"),
        () if on("auth_request") => Some("auth_request"),
        () if scopes.has(id, "internal") => Some("internal"),
        () => None,
    }
}

fn regex_bypasses_access(run: &LintRun<'_>) {
    let scopes = run.scopes;
    for server in scopes.of(Contexts::server) {
        let patterns = regexes::locations_of(run, server);
        for id in &scopes.get(server).children {
            let Some(LocationName::Prefix(prefix)) = name(scopes, *id) else { continue };
            // "/" matches everything, and other locations are meant as its exceptions.
            if prefix == "/" {
                continue;
            }
            let Some(guard) = access_guard(run, *id) else { continue };
            for (other, pattern) in &patterns {
                if self::access_guard(run, *other).is_some() || refuses(scopes, *other) {
                    continue;
                }
                let Some(sample) = pattern.sample() else { continue };
                let sample = String::from_utf8_lossy(&sample).into_owned();
                let path = match pattern.anchored_start() {
                    true if sample.starts_with(&prefix) => sample,
                    true => continue,
                    false => format!("{}/{}", prefix.trim_end_matches('/'), format!("x{sample}").replace("x/", "x")),
                };
                let (Some(d), Some(by)) = (scopes.get(*id).directive, scopes.get(*other).directive) else { continue };
                let message = format!("\"{guard}\" of this location does not apply to \"{path}\"");
                run.add(d.name.span, message, vec![(by.name.span, "such requests are answered here".into())]);
                break;
            }
        }
    }
}

fn allow_without_deny(run: &LintRun<'_>) {
    for id in 0..run.scopes.all.len() {
        let own = rules(run, id);
        let only = !own.is_empty() && own.iter().all(|(allow, whom, _)| *allow && whom != "all");
        // With "satisfy any", one rule can admit a client that another one rejects.
        if only
            && run.scopes.value(id, "satisfy").is_none_or(|value| value != "any")
            && let Some(d) = run.scopes.own(id, "allow").first()
        {
            run.at(d, "these rules reject no client: deny is missing".into());
        }
    }
}

fn access_order(run: &LintRun<'_>) {
    for id in 0..run.scopes.all.len() {
        let own: Vec<_> =
            run.scopes.get(id).own.iter().filter(|d| d.name.bytes == b"allow" || d.name.bytes == b"deny").collect();
        let is_all = |d: &&conf_syntax::Directive| d.args.first().is_some_and(|word| word.bytes == b"all");
        if let Some(all) = own.iter().position(|d| is_all(d))
            && let (Some(first), Some(late)) = (own.get(all), own.get(all + 1))
        {
            let message = format!("this rule has no effect: \"{} all\" precedes it", first.name.text());
            run.add(late.name.span, message, vec![(first.name.span, "which stands here".into())]);
        }
    }
}

fn valid_referers_none(run: &LintRun<'_>) {
    for (_, d) in run.named("valid_referers") {
        if let Some(word) = d.args.iter().find(|word| word.bytes == b"none") {
            run.word(word, "a request without Referer counts as valid".into());
        }
    }
}
