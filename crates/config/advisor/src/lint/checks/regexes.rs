//! Checks of regular expressions: dots, anchors, ambiguous repetition.

use super::{LintCheck, LintLevel, LintRun, name, refuses};
use crate::location::LocationName;
use crate::pattern::{PatternItem, PatternNode, RegexPattern};
use conf_schema::Contexts;
use conf_syntax::Word;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "regex-dot",
        level: LintLevel::Warning,
        title: "an unescaped dot in a regular expression",
        why: "\".php$\" also matches /my-php, and \"www.example.com\" also matches wwwXexample.com.",
        fix: "write \"\\.\"",
        bad: "server { listen 80; root /d; location ~ .php$ { return 403; } }",
        good: "server { listen 80; root /d; location ~ \\.php$ { return 403; } location ~ ^/a.+b$ { return 403; } }",
        run: regex_dot,
    },
    LintCheck {
        id: "regex-unanchored",
        level: LintLevel::Warning,
        title: "a file extension without $ in a regular expression",
        why: "\"\\.php\" also matches /photo.php.jpg and /x.phpfoo: an uploaded image can reach the interpreter.",
        fix: "end it with \"$\", or with \"(/|$)\" if path information may follow",
        bad: "server { listen 80; location ~ \\.php { fastcgi_pass 127.0.0.1:9000; } }",
        good: "server { listen 80; location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } location ~ /\\.ht { deny all; } }",
        run: regex_unanchored,
    },
    LintCheck {
        id: "regex-origin",
        level: LintLevel::Error,
        title: "an origin, referrer or host checked by a pattern without both anchors",
        why: "\"example\\.com\" also matches example.com.attacker.net and notexample.com: foreign origins pass the check.",
        fix: "start with ^ (and the scheme) and end with $ or (/|$)",
        bad: "server { listen 80; if ($http_origin ~ example\\.com) { set $cors 1; } }",
        good: "server { listen 80; if ($http_origin ~ ^https://example\\.com$) { set $cors 1; } }",
        run: regex_origin,
    },
    LintCheck {
        id: "regex-catastrophic",
        level: LintLevel::Warning,
        title: "nested quantifiers that cause catastrophic backtracking",
        why: "Near matches take exponential time: every request of a client can cost as many steps as the limit allows \
              (1,000,000 in Tidegate, then 500; PCRE's own limit in nginx).",
        fix: "separate the repetitions with fixed text, or make the inner quantifier possessive (\"a++\")",
        bad: "server { listen 80; location ~ ^/(\\w+\\s?)*$ { return 403; } }",
        good: "server { listen 80; location ~ ^/(?:\\w+/)*$ { return 403; } }",
        run: regex_catastrophic,
    },
];

/// A word that is a pattern, with its use.
struct FoundPattern<'t> {
    word: &'t Word,
    text: String,
    pattern: RegexPattern,
    kind: PatternUse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternUse {
    Location,
    ServerName,
    Rewrite,
    /// `if ($x ~ ...)`, or a line of a map.
    Value,
}

fn patterns<'t>(
    run: &LintRun<'t>,
) -> Vec<(crate::scope::ScopeId, &'t conf_syntax::Directive, FoundPattern<'t>, String)> {
    let mut out = Vec::new();
    for (id, d) in run.directives() {
        let mut push = |word: &'t Word, text: &str, ignore_case, kind, subject: &str| {
            if let Some(pattern) = RegexPattern::parse(text, ignore_case) {
                out.push((id, d, FoundPattern { word, text: text.to_string(), pattern, kind }, subject.to_string()));
            }
        };
        match &*d.name.text() {
            "location" => {
                if let (Some(LocationName::Regex { text, ignore_case }), Some(word)) =
                    (LocationName::of(d), d.args.last())
                {
                    push(word, &text, ignore_case, PatternUse::Location, "$uri");
                }
            }
            "server_name" => {
                for word in &d.args {
                    if let Some(text) = word.text().strip_prefix('~') {
                        push(word, text, true, PatternUse::ServerName, "$host");
                    }
                }
            }
            "rewrite" => {
                if let Some(word) = d.args.first() {
                    push(word, &word.text(), false, PatternUse::Rewrite, "$uri");
                }
            }
            "if" => {
                if let [subject, sign, word, ..] = d.args.as_slice() {
                    let sign = sign.text();
                    if matches!(&*sign, "~" | "~*" | "!~" | "!~*") {
                        let text = word.text();
                        let text = if d.args.len() == 3 { text.strip_suffix(')').unwrap_or(&text) } else { &text };
                        let subject = subject.text();
                        push(word, text, sign.ends_with('*'), PatternUse::Value, subject.trim_start_matches('('));
                    }
                }
            }
            "map" => {
                let subject = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
                for line in d.block.as_deref().map(conf_syntax::list_directives).unwrap_or_default() {
                    let text = line.name.text();
                    if let Some(text) = text.strip_prefix('~') {
                        let (text, fold) = text.strip_prefix('*').map_or((text, false), |text| (text, true));
                        push(&line.name, text, fold, PatternUse::Value, &subject);
                    }
                }
            }
            _ => {}
        }
    }
    out
}

fn is_word(item: &PatternItem) -> bool {
    item.literal().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Letters, digits and groups of them up to the end: an extension, or a host's last label.
fn is_ending(items: &[PatternItem]) -> bool {
    let body = match items.split_last() {
        Some((end, body)) if end.node == PatternNode::End => body,
        _ => return false,
    };
    let words = |alternatives: &[Vec<PatternItem>]| {
        alternatives.iter().all(|inner| {
            !inner.is_empty()
                && inner
                    .iter()
                    .all(|item| matches!(item.node, PatternNode::Byte { dot: false, .. }) && item.max == Some(1))
        })
    };
    !body.is_empty()
        && body.iter().all(|item| match &item.node {
            PatternNode::Byte { dot: false, set } => {
                item.max == Some(1) && set.single().is_none_or(|byte| byte.is_ascii_alphanumeric())
            }
            PatternNode::Group { alternatives, .. } => item.max == Some(1) && words(alternatives),
            _ => false,
        })
}

fn regex_dot(run: &LintRun<'_>) {
    for (_, _, found, subject) in patterns(run) {
        let host = found.kind == PatternUse::ServerName
            || matches!(&*subject, "$host" | "$http_host" | "$http_origin" | "$http_referer" | "$server_name");
        for items in found.pattern.sequences() {
            for (index, item) in items.iter().enumerate() {
                let any =
                    matches!(item.node, PatternNode::Byte { dot: true, .. }) && item.min == 1 && item.max == Some(1);
                if !any {
                    continue;
                }
                let rest = items.get(index + 1..).unwrap_or_default();
                let extension = is_ending(rest) && matches!(found.kind, PatternUse::Location | PatternUse::Rewrite);
                let between = host
                    && index.checked_sub(1).and_then(|before| items.get(before)).is_some_and(is_word)
                    && rest.first().is_some_and(is_word);
                if extension || between {
                    run.word(found.word, format!("\".\" in \"{}\" matches any character", found.text));
                }
            }
        }
    }
}

fn regex_unanchored(run: &LintRun<'_>) {
    for (id, d, found, _) in patterns(run) {
        let inner = run.scopes.all.iter().position(|scope| scope.directive.is_some_and(|own| std::ptr::eq(own, d)));
        // A refusing block may match too much without harm.
        let block = inner.unwrap_or(id);
        if found.kind != PatternUse::Location || refuses(run.scopes, block) {
            continue;
        }
        let [items] = found.pattern.alternatives.as_slice() else { continue };
        let Some(dot) = items.iter().rposition(|item| item.literal() == Some(b'.')) else { continue };
        // A name that begins with a dot has no extension.
        let hidden =
            dot.checked_sub(1).and_then(|before| items.get(before)).is_some_and(|item| item.literal() == Some(b'/'));
        let rest = items.get(dot + 1..).unwrap_or_default();
        let letters = rest.iter().all(|item| match &item.node {
            PatternNode::Byte { dot: false, set } => {
                item.max == Some(1) && set.single().is_none_or(|byte| byte.is_ascii_alphanumeric())
            }
            PatternNode::Group { alternatives, .. } => {
                item.once_or_not()
                    && alternatives.iter().all(|inner| {
                        !inner.is_empty()
                            && inner.iter().all(|item| {
                                matches!(item.node, PatternNode::Byte { dot: false, .. })
                                    && item.max == Some(1)
                                    && item.literal() != Some(b'/')
                            })
                    })
            }
            _ => false,
        });
        if !rest.is_empty() && letters && !hidden && dot + 1 < items.len() {
            run.word(found.word, format!("\"{}\" also matches longer extensions", found.text));
        }
    }
}

fn regex_origin(run: &LintRun<'_>) {
    const CHECKED: &[&str] = &["$http_origin", "$http_referer"];
    for (_, d, found, subject) in patterns(run) {
        if found.kind != PatternUse::Value || !CHECKED.contains(&&*subject) {
            continue;
        }
        // Only patterns like a host name: "example\.com".
        let hostlike = found.pattern.sequences().iter().any(|items| {
            items.iter().enumerate().any(|(index, item)| {
                item.literal() == Some(b'.')
                    && items
                        .get(index + 1)
                        .is_some_and(|item| is_word(item) || matches!(item.node, PatternNode::Group { .. }))
                    && index.checked_sub(1).and_then(|before| items.get(before)).is_some_and(is_word)
            })
        });
        // Refusals (spam) may match widely.
        let refused = d.name.bytes == b"if"
            && d.block
                .as_deref()
                .map(conf_syntax::list_directives)
                .unwrap_or_default()
                .iter()
                .any(|line| line.name.bytes == b"return");
        let negated = d.args.get(1).is_some_and(|sign| sign.bytes.starts_with(b"!"));
        if !hostlike || (refused && !negated) {
            continue;
        }
        let start = found.pattern.anchored_start();
        let end = found.pattern.alternatives.iter().all(|items| closes(items));
        if !(start && end) {
            let what = match (start, end) {
                (false, false) => "neither its beginning nor its end is fixed",
                (false, true) => "its beginning is not fixed",
                _ => "its end is not fixed",
            };
            run.word(found.word, format!("\"{}\" admits other values: {what}", found.text));
        }
    }
}

/// Ends with `$`, or with a delimiter of hosts.
fn closes(items: &[PatternItem]) -> bool {
    items.last().is_some_and(|last| match &last.node {
        PatternNode::End => true,
        PatternNode::Group { alternatives, .. } => last.min > 0 && alternatives.iter().all(|inner| closes(inner)),
        _ => last.literal() == Some(b'/') || last.literal() == Some(b':'),
    }) || items.iter().any(|item| item.literal() == Some(b'/')) && {
        // A slash behind the host ends it: "^https?://[^/]+\.example\.com/".
        let slashes = items.iter().filter(|item| item.literal() == Some(b'/')).count();
        slashes > 2
    }
}

fn regex_catastrophic(run: &LintRun<'_>) {
    for (_, _, found, _) in patterns(run) {
        if let Some(at) = found.pattern.catastrophic() {
            let part: String = found.text.get(at..).unwrap_or_default().chars().take(30).collect();
            run.word(found.word, format!("\"{}\" backtracks exponentially from \"{part}\" on", found.text));
        }
    }
}

pub fn locations_of(run: &LintRun<'_>, server: crate::scope::ScopeId) -> Vec<(crate::scope::ScopeId, RegexPattern)> {
    let scopes = run.scopes;
    let children = scopes.get(server).children.iter();
    children
        .filter(|id| scopes.get(**id).context == Contexts::location)
        .filter_map(|id| match name(scopes, *id)? {
            LocationName::Regex { text, ignore_case } => Some((*id, RegexPattern::parse(&text, ignore_case)?)),
            _ => None,
        })
        .collect()
}
