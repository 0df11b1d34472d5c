//! Evaluation of a directory's rules for a request (Apache: `apply_rewrite_list`, `apply_rewrite_rule`).

use super::expand::Questions;
use super::{
    ENV_BYTES_MAX, EXPANDED_BYTES_MAX, PATH_BYTES_MAX, ROUNDS_MAX, RewriteCondition, RewriteOutcome, RewriteRule,
    RuleEnvironment, Run, STEPS_MAX, escape_uri,
};
use crate::pattern::MatchGroups;

enum RuleOutcome {
    No,
    Only,
    Changed,
    Status(u16),
}

/// Effects of the rules that matched, besides those on the path, the arguments and the variables.
struct Changes {
    is_changed: bool,
    /// Characters of an external location are escaped: no `[NE]` at the last rule that changed the path.
    escape: bool,
    /// Stopped by `[END]`.
    is_end: bool,
    /// Status of an external redirect.
    status: Option<u16>,
}

/// Work of a run, which is limited.
#[derive(Default)]
struct StepBudget {
    rounds: u32,
    steps: u32,
    env_bytes: usize,
}

impl StepBudget {
    fn step(&mut self, rule: &RewriteRule) -> Result<(), String> {
        self.steps += 1 + rule.conditions.len() as u32;
        if self.steps > STEPS_MAX {
            return Err(format!("rules ran for more than {STEPS_MAX} steps"));
        }
        Ok(())
    }
    fn round(&mut self) -> Result<(), String> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(format!("[N] went round more than {ROUNDS_MAX} times"));
        }
        Ok(())
    }
    /// Checks the sizes after a rule, which found `known` variables.
    fn check(&mut self, run: &Run, known: usize) -> Result<(), String> {
        if run.filename.len() > PATH_BYTES_MAX {
            return Err("rules make the path longer and longer".into());
        }
        if run.args.len() > EXPANDED_BYTES_MAX {
            return Err("rules make the arguments longer and longer".into());
        }
        let set = run.env.iter().skip(known);
        self.env_bytes += set.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
        if self.env_bytes > ENV_BYTES_MAX {
            return Err(format!("rules set variables of more than {ENV_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Applies rules (the directory's and inherited ones). Fails with 500 when a pattern exceeds its limits or rules do
    /// not end.
    pub fn apply(
        &mut self,
        rules: &[&RewriteRule],
        base: Option<&str>,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<RewriteOutcome, String> {
        let (before, args_before) = (self.filename.clone(), self.args.clone());
        let mut changes = Changes { is_changed: false, escape: true, is_end: false, status: None };
        if let Some(status) = self.all(rules, asks, &mut changes)? {
            return Ok(RewriteOutcome::Status(status));
        }
        if !changes.is_changed {
            return Ok(if changes.is_end {
                RewriteOutcome::Internal { path: Vec::new(), args: Vec::new(), end: true }
            } else {
                RewriteOutcome::Pass
            });
        }
        // A space or control character lost its escape, which [B] keeps.
        if self.args != args_before && self.args.iter().any(|byte| !matches!(byte, 0x21..=0x7e | 0x80..)) {
            return Ok(RewriteOutcome::Status(403));
        }
        if is_absolute(&self.filename) {
            return Ok(RewriteOutcome::External {
                status: changes.status.unwrap_or(302),
                location: self.location(base, changes.escape, &args_before),
            });
        }
        if !self.filename.starts_with(b"/") {
            return Ok(RewriteOutcome::Status(400));
        }
        // An unchanged file name does not restart the rules.
        if self.filename == before {
            return Ok(RewriteOutcome::Pass);
        }
        let path = self.to_uri(base, &self.filename);
        Ok(RewriteOutcome::Internal { path, args: std::mem::take(&mut self.args), end: changes.is_end })
    }

    /// Applies the rules one after the other. Returns the status of a rule that refuses the request.
    fn all(
        &mut self,
        rules: &[&RewriteRule],
        asks: &mut dyn RuleEnvironment,
        changes: &mut Changes,
    ) -> Result<Option<u16>, String> {
        let (mut index, mut spent) = (0, StepBudget::default());
        while let Some(rule) = rules.get(index) {
            index += 1;
            spent.step(rule)?;
            // A subrequest cannot answer with a redirect.
            if self.is_subrequest && (rule.flags.no_subrequests || rule.flags.redirects) {
                continue;
            }
            let known = self.env.len();
            let applied = self.rule(rule, asks, &mut changes.status)?;
            spent.check(self, known)?;
            match applied {
                RuleOutcome::No => {
                    index += skipped_by_chain(rule, rules.get(index..).unwrap_or_default());
                    continue;
                }
                RuleOutcome::Status(status) => return Ok(Some(status)),
                RuleOutcome::Only => {}
                RuleOutcome::Changed => {
                    changes.is_changed = true;
                    changes.escape = !rule.flags.no_escape;
                }
            }
            changes.is_end = rule.flags.end;
            if rule.flags.end || rule.flags.last {
                break;
            }
            if rule.flags.next {
                spent.round()?;
                index = 0;
                continue;
            }
            index += rule.flags.skip;
        }
        Ok(None)
    }

    fn to_uri(&self, base: Option<&str>, filename: &[u8]) -> Vec<u8> {
        if let Some(base) = base
            && let Some(rest) = filename.strip_prefix(self.directory)
        {
            let slash: &[u8] = if base.ends_with('/') { b"" } else { b"/" };
            return [base.as_bytes(), slash, rest].concat();
        }
        match filename.strip_prefix(self.root) {
            Some(rest) if rest.starts_with(b"/") && !self.root.is_empty() => [self.root_uri, rest].concat(),
            _ => filename.to_vec(),
        }
    }

    fn location(&self, base: Option<&str>, escape: bool, args_before: &[u8]) -> Vec<u8> {
        let scheme = self.filename.windows(3).position(|w| w == b"://").map_or(0, |at| at + 3);
        let host =
            self.filename.iter().skip(scheme).position(|c| *c == b'/').map_or(self.filename.len(), |at| at + scheme);
        let (head, path) = self.filename.split_at_checked(host).unwrap_or((&self.filename, b""));
        let path =
            if base.is_some() && path.starts_with(self.directory) { self.to_uri(base, path) } else { path.to_vec() };
        let mut out = head.to_vec();
        if escape {
            escape_uri(&path, &mut out);
        } else {
            out.extend_from_slice(&path);
        }
        if !self.args.is_empty() {
            out.push(b'?');
            if escape && self.args != args_before {
                escape_uri(&self.args, &mut out);
            } else {
                out.extend_from_slice(&self.args);
            }
        }
        out
    }

    fn rule(
        &mut self,
        rule: &RewriteRule,
        asks: &mut dyn RuleEnvironment,
        external: &mut Option<u16>,
    ) -> Result<RuleOutcome, String> {
        let whole = [self.filename.as_slice(), &self.path_info].concat();
        let subject = whole.strip_prefix(self.directory).unwrap_or(&whole).to_vec();
        let matched = rule.pattern.groups(&subject)?;
        if matched.is_some() == rule.pattern.negated {
            return Ok(RuleOutcome::No);
        }
        let groups = if rule.pattern.negated { Vec::new() } else { matched.unwrap_or_default() };
        let Some(last) = self.conditions(&rule.conditions, &groups, asks)? else { return Ok(RuleOutcome::No) };
        for (name, value) in &rule.flags.env {
            match name.strip_prefix('!') {
                Some(name) => self.env.push((name.to_string(), None)),
                None => {
                    let value = self.expand(value, &groups, &last, None, asks)?;
                    self.env.push((name.clone(), Some(value)));
                }
            }
        }
        if let Some(media) = &rule.flags.media_type {
            self.media_type =
                Some(String::from_utf8_lossy(&self.expand(media, &groups, &last, None, asks)?).into_owned());
        }
        let refused = rule.flags.status.filter(|status| !(300..400).contains(status));
        let Some(target) = &rule.substitution else {
            asks.note(rule.line, &|| "matches".into());
            return Ok(refused.map_or(RuleOutcome::Only, RuleOutcome::Status));
        };
        let mut questions = Questions::new(rule.flags.last_question);
        let escape = rule.flags.escape.as_ref().map(|only| (only.as_str(), rule.flags.escape_space_as_20));
        let mut made = self.expand_target(target, &groups, &last, escape, &mut questions, asks)?;
        if questions.is_unsafe && !rule.flags.allow_question {
            return Ok(RuleOutcome::Status(403));
        }
        if let Some(status) = refused {
            return Ok(RuleOutcome::Status(status));
        }
        self.split_args(&mut made, rule);
        if rule.flags.drop_path_info {
            self.path_info.clear();
        }
        let made = self.complete(made, rule.flags.status.is_some());
        if is_absolute(&made) {
            *external = rule.flags.status.or(*external);
        }
        let shown = String::from_utf8_lossy(&made).into_owned();
        asks.note(rule.line, &|| format!("\"{}\" to \"{shown}\"", String::from_utf8_lossy(&subject)));
        // Later rules match the path after the first missing name; [DPI] discards it.
        self.filename = made;
        Ok(RuleOutcome::Changed)
    }

    /// Tells whether the conditions hold, by the groups of the last pattern that matched. Conditions joined by OR count as
    /// one: the first true one decides.
    fn conditions(
        &mut self,
        conditions: &[RewriteCondition],
        groups: &MatchGroups,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<Option<MatchGroups>, String> {
        let (mut last, mut joined, mut fields) = (Vec::new(), false, Vec::new());
        for condition in conditions {
            if joined {
                joined = condition.or;
                continue;
            }
            let holds = self.condition(condition, groups, &mut last, asks)?;
            if !condition.or && !holds {
                return Ok(None);
            }
            joined = condition.or && holds;
            if holds && !condition.no_vary {
                let field = super::expand::request_field(&condition.subject);
                fields.extend(field.filter(|name| !asks.variable(&format!("HTTP:{name}")).is_empty()));
            }
        }
        // As in Apache, a failing last condition with [OR] does not stop the rule.
        self.vary.extend(fields);
        Ok(Some(last))
    }

    /// Makes a relative path absolute, a URL of this host a path, and the path of a redirect a URL.
    fn complete(&self, mut made: Vec<u8>, is_redirect: bool) -> Vec<u8> {
        if !made.starts_with(b"/") && !is_absolute(&made) {
            made = [self.directory, &made].concat();
        }
        if !is_redirect
            && let Some(rest) = made.strip_prefix(self.origin.as_bytes())
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            made = if rest.is_empty() { b"/".to_vec() } else { rest.to_vec() };
        }
        if is_redirect && !is_absolute(&made) {
            made = [self.origin.as_bytes(), &made].concat();
        }
        made
    }

    fn split_args(&mut self, made: &mut Vec<u8>, rule: &RewriteRule) {
        if rule.flags.drop_args {
            self.args.clear();
        }
        let at = if rule.flags.last_question {
            made.iter().rposition(|c| *c == b'?')
        } else {
            made.iter().position(|c| *c == b'?')
        };
        let Some(at) = at else { return };
        let mut args = made.split_off(at).split_off(1);
        if rule.flags.append_args && !self.args.is_empty() {
            if !args.is_empty() {
                args.push(b'&');
            }
            args.extend_from_slice(&self.args);
        }
        while args.ends_with(b"&") {
            args.pop();
        }
        self.args = args;
    }
}

/// Counts the rules that are chained to a rule which does not match.
fn skipped_by_chain(rule: &RewriteRule, behind: &[&RewriteRule]) -> usize {
    if !rule.flags.chain {
        return 0;
    }
    let chained = behind.iter().take_while(|next| next.flags.chain).count();
    // The first rule without [C] ends the chain and belongs to it.
    (chained + 1).min(behind.len())
}

fn is_absolute(text: &[u8]) -> bool {
    const SCHEMES: &[&str] =
        &["http://", "https://", "ftp://", "ws://", "wss://", "ldap://", "mailto:", "news:", "gopher://"];
    SCHEMES
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes())))
}
