//! `if` within locations.

use super::{LintCheck, LintLevel, LintRun};
use conf_schema::Contexts;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "if-in-location",
        level: LintLevel::Warning,
        title: "if with directives other than rewriting in a location",
        why: "A true condition replaces the location's configuration by that of the if block: if several conditions are \
              true, only the last block applies, and directives of the others are silently dropped.",
        fix: "set a variable with map and use it in the location, or keep only return and rewrite in the if",
        bad: "server { listen 80; root /d; location / { if ($arg_a) { add_header X-A 1; } if ($arg_b) { add_header X-B 1; } } }",
        good: "server { listen 80; root /d; location / { if ($arg_a) { return 403; } } }",
        run: if_in_location,
    },
    LintCheck {
        id: "if-drops-try-files",
        level: LintLevel::Warning,
        title: "if beside try_files that does not end the request",
        why: "The block of an if does not inherit try_files: if the condition is true, nginx skips try_files and serves the \
              file or proxies the request directly.",
        fix: "end the if with return or a rewrite with a flag, or use map and the variable in try_files",
        bad: "server { listen 80; root /d; location / { try_files $uri /index.html; if ($arg_a) { set $x 1; } } }",
        good: "server { listen 80; root /d; location / { try_files $uri /index.html; if ($arg_a) { return 403; } } }",
        run: if_drops_try_files,
    },
];

/// Directives that behave in `if` as elsewhere.
const SAFE: &[&str] =
    &["return", "rewrite", "set", "break", "rewrite_log", "limit_rate", "limit_rate_after", "access_log", "include"];

fn if_in_location(run: &LintRun<'_>) {
    for id in run.scopes.of(Contexts::if_in_location) {
        let scope = run.scopes.get(id);
        let siblings = scope.parent.map_or(0, |parent| {
            let children = &run.scopes.get(parent).children;
            children.iter().filter(|child| run.scopes.get(**child).context == Contexts::if_in_location).count()
        });
        let unsafe_ones: Vec<_> = scope.own.iter().filter(|d| !SAFE.contains(&&*d.name.text())).collect();
        let Some(first) = unsafe_ones.first() else { continue };
        // A single `if` is safe when it only sets headers or passes requests on.
        let alone = siblings == 1
            && unsafe_ones.iter().all(|d| {
                let name = d.name.text();
                name.ends_with("_pass") || name == "add_header" || name == "expires" || name.starts_with("more_")
            });
        if !alone {
            let name = first.name.text();
            run.at(first, format!("\"{name}\" in an if applies only if no later if of this location is true"));
        }
    }
}

fn if_drops_try_files(run: &LintRun<'_>) {
    for id in run.scopes.of(Contexts::if_in_location) {
        let scope = run.scopes.get(id);
        let Some(parent) = scope.parent else { continue };
        let ends = scope.own.iter().any(|d| {
            let name = d.name.text();
            let flags = ["last", "redirect", "permanent"];
            let flagged = d.args.get(2).is_some_and(|word| flags.contains(&&*word.text()));
            name == "return" || name.ends_with("_pass") || (name == "rewrite" && (flagged || d.args.len() == 2))
        });
        if run.scopes.has(parent, "try_files")
            && !run.scopes.has(id, "try_files")
            && !ends
            && let Some(d) = scope.directive
        {
            run.at(d, "when this holds, try_files of the location is not done".into());
        }
    }
}
