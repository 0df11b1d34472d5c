//! `tidegate waf report`: rules, paths and parameters of audit logs, and exclusions for them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};

/// Rules that only add up: an exclusion belongs to the rules before them.
const SUMS: &[std::ops::RangeInclusive<u64>] = &[949_000..=949_999, 959_000..=959_999, 980_000..=980_999];
/// Paths and parameters that are shown of a rule.
const SHOWN_MAX: usize = 5;
/// Different keys that a report keeps; later ones are counted as "other".
const KEYS_MAX: usize = 100_000;
/// First id of proposed rules.
const FIRST_ID: u64 = 10_001;

/// A match of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogMatch {
    rule: u64,
    message: String,
    path: String,
    /// As `ARGS:name`; empty if the entry does not say.
    target: String,
}

/// The text between `start` and `end`.
fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let rest = &text[text.find(start)? + start.len()..];
    rest.find(end).map(|at| &rest[..at])
}

/// The variable that a match names: that of its cause, or of its data.
fn target_of(cause: &str, data: &str) -> String {
    let named = between(cause, "against variable `", "' (Value:").or_else(|| between(data, "found within ", ": "));
    let named = named.unwrap_or_default();
    // A rule's own variables are no place for an exclusion.
    if named.starts_with("TX:") || named.starts_with("MATCHED_VAR") { String::new() } else { named.into() }
}

/// Reads a line of a native log.
fn native_match(line: &str) -> Option<LogMatch> {
    let line = line.strip_prefix("ModSecurity: ")?;
    Some(LogMatch {
        rule: between(line, "[id \"", "\"]")?.parse().ok()?,
        message: between(line, "[msg \"", "\"]").unwrap_or_default().into(),
        path: between(line, "[uri \"", "\"]").unwrap_or_default().into(),
        target: target_of(line, between(line, "[data \"", "\"]").unwrap_or_default()),
    })
}

/// Reads an entry of a JSON log.
fn json_matches(entry: &Value) -> Vec<LogMatch> {
    let transaction = &entry["transaction"];
    let uri = transaction["request"]["uri"].as_str().unwrap_or_default();
    let path = uri.split('?').next().unwrap_or_default();
    let messages = transaction["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let matches = messages.iter().filter_map(|message| {
        let details = &message["details"];
        let text = |name: &str| details[name].as_str().unwrap_or_default();
        Some(LogMatch {
            rule: text("ruleId").parse().ok()?,
            message: message["message"].as_str().unwrap_or_default().into(),
            path: path.into(),
            target: target_of(text("match"), text("data")),
        })
    });
    matches.collect()
}

/// Counts by rule, and by rule, path and parameter.
#[derive(Default)]
struct Summary {
    transactions: u64,
    rules: BTreeMap<u64, (String, u64)>,
    places: BTreeMap<(u64, String, String), u64>,
}

impl Summary {
    fn add(&mut self, found: LogMatch) {
        let rule = self.rules.entry(found.rule).or_default();
        if rule.0.is_empty() {
            rule.0 = found.message;
        }
        rule.1 += 1;
        let mut key = (found.rule, found.path, found.target);
        if self.places.len() >= KEYS_MAX && !self.places.contains_key(&key) {
            key = (found.rule, "(other)".into(), String::new());
        }
        *self.places.entry(key).or_default() += 1;
    }

    fn read_line(&mut self, line: &str) {
        if line.starts_with('{') {
            if let Ok(entry) = serde_json::from_str::<Value>(line) {
                self.transactions += 1;
                json_matches(&entry).into_iter().for_each(|found| self.add(found));
            }
            return;
        }
        if line.starts_with("--") && line.ends_with("-A--") {
            self.transactions += 1;
        } else if let Some(found) = native_match(line) {
            self.add(found);
        }
    }

    fn print(&self) {
        base::out!("{} transactions, {} rules\n", self.transactions, self.rules.len());
        let mut rules: Vec<_> = self.rules.iter().collect();
        rules.sort_by_key(|(id, (_, count))| (std::cmp::Reverse(*count), **id));
        for (id, (message, count)) in rules {
            base::out!("\n{count:>6}  {id}  {message}\n");
            let mut places: Vec<_> = self.places.iter().filter(|((rule, ..), _)| rule == id).collect();
            places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for ((_, path, target), count) in places.iter().take(SHOWN_MAX) {
                base::out!("{count:>14}  {path}  {target}\n");
            }
            if places.len() > SHOWN_MAX {
                base::out!("{:>14}  more places\n", places.len() - SHOWN_MAX);
            }
        }
    }

    /// Rules of SecLang for places with at least so many matches.
    fn proposals(&self, least: u64) -> String {
        let mut text = String::new();
        let mut id = FIRST_ID;
        for ((rule, path, target), count) in &self.places {
            let is_sum = SUMS.iter().any(|sums| sums.contains(rule));
            if is_sum
                || *rule == 0
                || *count < least
                || target.is_empty()
                || !is_plain(path)
                || !is_plain_target(target)
            {
                continue;
            }
            let message = self.rules.get(rule).map(|(message, _)| message.as_str()).unwrap_or_default();
            text.push_str(&format!(
                "# {count} matches: {message}\nSecRule REQUEST_FILENAME \"@streq {path}\" \\\n    \
                 \"id:{id},phase:1,pass,nolog,ctl:ruleRemoveTargetById={rule};{target}\"\n"
            ));
            id += 1;
        }
        text
    }
}

/// A client chooses paths and names: only those that mean themselves in SecLang are proposed.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-~+@".contains(&byte))
}

fn is_plain_target(target: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-[]:".contains(&byte);
    target.bytes().all(is_name) && target.starts_with(|letter: char| letter.is_ascii_uppercase())
}

/// Reads the logs and prints the report; returns the exit code.
pub fn print_report(words: &[String]) -> Result<i32, String> {
    let mut least = 2;
    let mut logs = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--least" => {
                let number = words.next().ok_or("--least needs a number")?;
                least = number.parse().map_err(|_| format!("invalid number \"{number}\" of --least"))?;
            }
            option if option.starts_with("--") => return Err(format!("unknown option \"{option}\"")),
            log => logs.push(log),
        }
    }
    if logs.is_empty() {
        return Err("report needs an audit log".into());
    }
    let mut summary = Summary::default();
    for log in logs {
        let failed = |error: std::io::Error| format!("\"{log}\": {error}");
        for line in BufReader::new(File::open(log).map_err(failed)?).split(b'\n') {
            summary.read_line(&String::from_utf8_lossy(&line.map_err(failed)?));
        }
    }
    summary.print();
    let proposals = summary.proposals(least);
    match proposals.is_empty() {
        true => base::out!("\nNo exclusion is proposed.\n"),
        false => base::out!("\nProposed exclusions, if these requests were harmless:\n\n{proposals}"),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: &str = "ModSecurity: Warning. Matched \"Operator `Rx' with parameter `x' against variable `ARGS:text' \
        (Value: `<b>' ) [file \"/r.conf\"] [line \"1\"] [id \"941100\"] [rev \"\"] [msg \"XSS\"] [data \"\"] [severity \"2\"] \
        [ver \"\"] [maturity \"0\"] [accuracy \"0\"] [hostname \"h\"] [uri \"/edit\"] [unique_id \"u\"] [ref \"\"]";

    #[test]
    fn native_and_json_entries_give_the_same_matches() {
        let native = native_match(NATIVE).expect("a match");
        let entry = serde_json::json!({"transaction": {"request": {"uri": "/edit?x=1"}, "messages": [{"message": "XSS",
            "details": {"ruleId": "941100", "data": "", "match": "Matched \"Operator `Rx' with parameter `x' against variable `ARGS:text' (Value: `<b>' )"}}]}});
        assert_eq!(json_matches(&entry), std::slice::from_ref(&native));
        assert_eq!((native.rule, native.target.as_str(), native.path.as_str()), (941_100, "ARGS:text", "/edit"));
        assert_eq!(target_of("detected XSS using libinjection.", "Matched Data: x found within ARGS:q: <x>"), "ARGS:q");
    }

    #[test]
    fn exclusions_are_proposed_for_repeated_plain_places() {
        let mut summary = Summary::default();
        summary.read_line("--12345678-A--");
        summary.read_line(NATIVE);
        assert_eq!(summary.proposals(2), "");
        summary.read_line(NATIVE);
        let text = summary.proposals(2);
        assert!(text.contains("SecRule REQUEST_FILENAME \"@streq /edit\""), "{text}");
        assert!(text.contains("ctl:ruleRemoveTargetById=941100;ARGS:text"), "{text}");
        let texts = [waf::RuleText { name: "p".into(), text }];
        waf::RuleSet::compile(&texts, &waf::NoFiles).expect("proposals are rules");
    }

    #[test]
    fn hostile_names_and_sums_are_not_proposed() {
        let mut summary = Summary::default();
        for line in [
            NATIVE.replace("/edit", "/a\\x22 id:1"),
            NATIVE.replace("ARGS:text", "ARGS:a,deny"),
            NATIVE.replace("941100", "949110"),
        ] {
            summary.read_line(&line);
            summary.read_line(&line);
        }
        assert_eq!(summary.proposals(1), "");
    }
}
