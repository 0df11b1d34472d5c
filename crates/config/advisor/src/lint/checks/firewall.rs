//! Checks of the web application firewall: rules that are missing, off, or only log.

use super::{LintCheck, LintLevel, LintRun};
use crate::scope::ScopeId;
use conf_syntax::{Directive, FileId};
use std::path::Path;

pub const CHECKS: &[LintCheck] = &[
    LintCheck {
        id: "firewall-no-rules",
        level: LintLevel::Error,
        title: "modsecurity on without rules",
        why: "Without modsecurity_rules or modsecurity_rules_file nothing is inspected.",
        fix: "name the file of \"tidegate waf setup\" with modsecurity_rules_file",
        bad: "server { listen 80; root /d; modsecurity on; }",
        good: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        run: no_rules,
    },
    LintCheck {
        id: "firewall-not-on",
        level: LintLevel::Error,
        title: "rules without modsecurity on",
        why: "Rules alone inspect nothing: modsecurity is off unless a block says \"on\".",
        fix: "write \"modsecurity on;\" where the rules are to apply, or remove them",
        bad: "server { listen 80; root /d; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        good: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        run: not_on,
    },
    LintCheck {
        id: "firewall-engine-off",
        level: LintLevel::Error,
        title: "modsecurity on with rules that leave the engine off",
        why: "Without SecRuleEngine the engine is off: no request is inspected.",
        fix: "add \"SecRuleEngine On\", or DetectionOnly for a trial",
        bad: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRequestBodyAccess On'; }",
        good: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        run: engine_off,
    },
    LintCheck {
        id: "firewall-detection-only",
        level: LintLevel::Note,
        title: "rules that only log",
        why: "SecRuleEngine DetectionOnly refuses no request: fine for a trial, and often left on.",
        fix: "read the audit log with \"tidegate waf report\", then write \"SecRuleEngine On\"",
        bad: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine DetectionOnly
            SecRequestBodyAccess On'; }",
        good: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        run: detection_only,
    },
    LintCheck {
        id: "firewall-no-body",
        level: LintLevel::Warning,
        title: "rules that do not see the bodies of requests",
        why: "Without SecRequestBodyAccess, forms, uploads and JSON are not inspected.",
        fix: "add \"SecRequestBodyAccess On\"",
        bad: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On'; }",
        good: "server { listen 80; root /d; modsecurity on; modsecurity_rules 'SecRuleEngine On
            SecRequestBodyAccess On'; }",
        run: no_body,
    },
];

/// Names of the directives with rules.
const RULES: [&str; 2] = ["modsecurity_rules", "modsecurity_rules_file"];

/// The rules of a block with those of its parents, as far as they can be read.
#[derive(Default)]
struct ChainText {
    text: String,
    /// A file could not be read, or includes others.
    is_partial: bool,
}

impl ChainText {
    fn of(run: &LintRun<'_>, id: ScopeId) -> Option<ChainText> {
        let mut scopes: Vec<ScopeId> = run.scopes.around(id).collect();
        scopes.reverse();
        let mut chain = ChainText::default();
        let mut has_rules = false;
        for d in scopes.iter().flat_map(|scope| &run.scopes.get(*scope).own) {
            let Some(word) = d.args.first().filter(|_| RULES.iter().any(|name| d.name.bytes == name.as_bytes())) else {
                continue;
            };
            has_rules = true;
            match d.name.bytes == b"modsecurity_rules" {
                true => chain.add(&word.text()),
                false => {
                    let main = run.scopes.files.path(FileId(0));
                    let path = main.parent().unwrap_or(Path::new("/")).join(&*word.text());
                    match std::fs::read(path) {
                        Ok(text) => chain.add(&String::from_utf8_lossy(&text)),
                        Err(_) => chain.is_partial = true,
                    }
                }
            }
        }
        has_rules.then_some(chain)
    }

    fn add(&mut self, text: &str) {
        self.is_partial |= text.lines().any(|line| setting_value(line, "include").is_some());
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// The last value of a setting; `None` if another file may have it.
    fn setting(&self, name: &str, default: &str) -> Option<String> {
        let mut values = self.text.lines().filter_map(|line| setting_value(line, name));
        match values.next_back() {
            Some(value) => Some(value.to_ascii_lowercase()),
            None if self.is_partial => None,
            None => Some(default.into()),
        }
    }
}

/// The value of a line `NAME VALUE`, whatever the case of the name.
fn setting_value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let mut words = line.split_whitespace();
    words.next().filter(|word| word.eq_ignore_ascii_case(name))?;
    words.next().map(|value| value.trim_matches(['"', '\'']))
}

/// Lines `modsecurity on`, and lines with rules in blocks where it is on, each with the rules of its block.
fn inspected<'t>(run: &LintRun<'t>) -> Vec<(&'t Directive, ChainText)> {
    let mut found = Vec::new();
    for (id, d) in run.named("modsecurity") {
        if d.args.first().is_some_and(|word| word.text().eq_ignore_ascii_case("on"))
            && let Some(chain) = ChainText::of(run, id)
        {
            found.push((d, chain));
        }
    }
    for name in RULES {
        for (id, d) in run.named(name) {
            if run.scopes.is_on(id, "modsecurity")
                && !run.scopes.has(id, "modsecurity")
                && let Some(chain) = ChainText::of(run, id)
            {
                found.push((d, chain));
            }
        }
    }
    found
}

fn no_rules(run: &LintRun<'_>) {
    for (id, d) in run.named("modsecurity") {
        let is_on = d.args.first().is_some_and(|word| word.text().eq_ignore_ascii_case("on"));
        let has_rules = |scope: ScopeId| RULES.iter().any(|name| run.scopes.has(scope, name));
        if is_on && !run.scopes.around(id).any(has_rules) && !run.scopes.within(id).into_iter().any(has_rules) {
            run.at(d, "modsecurity is on, and there are no rules".into());
        }
    }
}

fn not_on(run: &LintRun<'_>) {
    let is_on =
        |scope: ScopeId| run.scopes.value(scope, "modsecurity").is_some_and(|text| text.eq_ignore_ascii_case("on"));
    for name in RULES {
        for (id, d) in run.named(name) {
            // The block itself, which may inherit it, and those within.
            if !run.scopes.within(id).into_iter().any(is_on) {
                run.at(d, format!("{name} has no effect: modsecurity is not on here, nor in a block within"));
            }
        }
    }
}

fn engine_off(run: &LintRun<'_>) {
    for (d, chain) in inspected(run) {
        if chain.setting("SecRuleEngine", "off").as_deref() == Some("off") {
            run.at(d, "modsecurity is on, and the rules leave the engine off".into());
        }
    }
}

fn detection_only(run: &LintRun<'_>) {
    for (d, chain) in inspected(run) {
        if chain.setting("SecRuleEngine", "off").as_deref() == Some("detectiononly") {
            run.at(d, "the rules only log: SecRuleEngine is DetectionOnly".into());
        }
    }
}

fn no_body(run: &LintRun<'_>) {
    for (d, chain) in inspected(run) {
        let is_off = chain.setting("SecRuleEngine", "off").as_deref() == Some("off");
        if !is_off && chain.setting("SecRequestBodyAccess", "off").as_deref() == Some("off") {
            run.at(d, "the rules do not see the bodies of requests: SecRequestBodyAccess is off".into());
        }
    }
}
