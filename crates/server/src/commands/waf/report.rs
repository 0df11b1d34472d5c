//! `tidegate waf report`: rules, paths and parameters of audit logs, and exclusions for them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};

/// Rules of the Core Rule Set that only evaluate the score of others.
const SUMS: &[std::ops::RangeInclusive<u64>] = &[949_000..=949_999, 959_000..=959_999, 980_000..=980_999];
/// Their tags: of refusals, and of the report about a request.
const SUM_TAGS: &[&str] = &["anomaly-evaluation", "reporting"];
/// Rules of ModSecurity's recommended settings that refuse bodies which the engine could not read in full.
const BODY_CHECKS: std::ops::RangeInclusive<u64> = 200_002..=200_007;
/// The variables that they compare, for rules with ids of one's own.
const BODY_FLAGS: &[&str] =
    &["REQBODY_ERROR", "REQBODY_PROCESSOR_ERROR", "MULTIPART_STRICT_ERROR", "MULTIPART_UNMATCHED_BOUNDARY"];
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
    /// The rule evaluates the score of others: it is no cause, and an exclusion belongs to the others.
    is_sum: bool,
}

/// Tells whether a rule only evaluates a score: by its id in the Core Rule Set, its tags, or the variable that it compares.
fn is_sum<'t>(rule: u64, tags: impl IntoIterator<Item = &'t str>, cause: &str) -> bool {
    let variable = between(cause, "against variable `TX:", "'").unwrap_or_default().to_ascii_lowercase();
    SUMS.iter().any(|sums| sums.contains(&rule))
        || tags.into_iter().any(|tag| SUM_TAGS.contains(&tag))
        || variable.contains("anomaly_score")
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
    let rule = between(line, "[id \"", "\"]")?.parse().ok()?;
    let tags = line.split("[tag \"").skip(1).filter_map(|rest| rest.split("\"]").next());
    Some(LogMatch {
        rule,
        is_sum: is_sum(rule, tags, line),
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
        let rule = text("ruleId").parse().ok()?;
        let tags = details["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(LogMatch {
            rule,
            is_sum: is_sum(rule, tags, text("match")),
            message: message["message"].as_str().unwrap_or_default().into(),
            path: path.into(),
            target: target_of(text("match"), text("data")),
        })
    });
    matches.collect()
}

/// Tells whether a rule refuses bodies that could not be read in full: an exclusion would let them pass without inspection.
fn is_body_check(rule: u64, target: &str) -> bool {
    BODY_CHECKS.contains(&rule) || BODY_FLAGS.contains(&target)
}

/// Counts by rule, and by rule, path and parameter.
#[derive(Default)]
struct Summary {
    transactions: u64,
    rules: BTreeMap<u64, (String, u64)>,
    places: BTreeMap<(u64, String, String), u64>,
    /// Matches by rules that evaluate the score of others.
    sums: BTreeMap<u64, u64>,
    /// In an entry of a native log: its lines are those of requests as well, and any of them may come.
    is_in_entry: bool,
}

impl Summary {
    fn add(&mut self, found: LogMatch) {
        if found.is_sum {
            *self.sums.entry(found.rule).or_default() += 1;
            return;
        }
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

    /// Reads a line; returns false for one that is in no audit log.
    fn read_line(&mut self, line: &str) -> bool {
        let is_boundary = |end: &str| line.starts_with("--") && line.ends_with(end);
        if is_boundary("-A--") {
            self.transactions += 1;
            // An entry that begins in another cuts it.
            return !std::mem::replace(&mut self.is_in_entry, true);
        }
        if let Some(found) = native_match(line) {
            self.add(found);
            return true;
        }
        if self.is_in_entry {
            self.is_in_entry = !is_boundary("-Z--");
            return true;
        }
        let entry = serde_json::from_str::<Value>(line).ok().filter(|entry| entry["transaction"].is_object());
        if let Some(entry) = entry {
            self.transactions += 1;
            json_matches(&entry).into_iter().for_each(|found| self.add(found));
            return true;
        }
        line.trim().is_empty()
    }

    /// Reads a log, and says how many lines are no part of one. Fails if the file cannot be read.
    fn read_log(&mut self, log: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("\"{log}\": {error}");
        let mut unread = 0_u64;
        let mut first = 0;
        for (number, line) in (1_u64..).zip(BufReader::new(File::open(log).map_err(failed)?).split(b'\n')) {
            if !self.read_line(&String::from_utf8_lossy(&line.map_err(failed)?)) {
                first = if unread == 0 { number } else { first };
                unread += 1;
            }
        }
        if unread > 0 {
            let cut = "cut, or no part of a serial audit log";
            base::out!("\"{log}\": {unread} lines could not be read, the first is line {first}: {cut}\n");
        }
        if std::mem::take(&mut self.is_in_entry) {
            base::out!("\"{log}\": the last entry has no end\n");
        }
        Ok(())
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
        for words in [self.sums_line(), self.checks_line()].into_iter().flatten() {
            base::out!("\n{words}\n");
        }
    }

    /// The line about rules that are left out.
    fn sums_line(&self) -> Option<String> {
        let ids: Vec<String> = self.sums.keys().map(ToString::to_string).collect();
        let matches: u64 = self.sums.values().sum();
        let rules = ids.join(", ");
        (matches > 0)
            .then(|| format!("Left out: {matches} matches of rules that only evaluate the score of others ({rules})."))
    }

    /// The line about rules for which no exclusion is proposed.
    fn checks_line(&self) -> Option<String> {
        let found: Vec<_> = self.places.iter().filter(|((rule, _, target), _)| is_body_check(*rule, target)).collect();
        let mut ids: Vec<u64> = found.iter().map(|((rule, ..), _)| *rule).collect();
        ids.dedup();
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let (matches, rules) = (found.iter().map(|(_, count)| **count).sum::<u64>(), ids.join(", "));
        (matches > 0).then(|| {
            format!(
                "Not proposed: exclusions for {matches} matches of rules that refuse bodies which cannot be read in full \
                 ({rules}). With one, such bodies would pass without inspection: correct the client, or raise the limit \
                 that the match names."
            )
        })
    }

    /// Rules of SecLang for places with at least so many matches.
    fn proposals(&self, least: u64) -> String {
        let mut text = String::new();
        let mut id = FIRST_ID;
        for ((rule, path, target), count) in &self.places {
            if *rule == 0
                || is_body_check(*rule, target)
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
    logs.iter().try_for_each(|log| summary.read_log(log))?;
    if summary.transactions == 0 && summary.rules.is_empty() && summary.sums.is_empty() {
        eprintln!(
            "tidegate: no entry of an audit log was read: report needs the file of SecAuditLog, serial, native or JSON \
             (of SecAuditLogType Parallel, the files below SecAuditLogStorageDir)"
        );
        return Ok(1);
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
    fn rules_that_evaluate_the_score_are_left_out_and_counted() {
        let mut summary = Summary::default();
        let of_score = NATIVE.replace("ARGS:text", "TX:BLOCKING_INBOUND_ANOMALY_SCORE").replace("941100", "77");
        let tagged = NATIVE.replace("941100", "78").replace("[hostname", "[tag \"anomaly-evaluation\"] [hostname");
        for line in [NATIVE, &NATIVE.replace("941100", "949110"), &of_score, &tagged, NATIVE] {
            summary.read_line(line);
        }
        let entry = serde_json::json!({"transaction": {"request": {"uri": "/"}, "messages": [{"message": "Sum",
            "details": {"ruleId": "980170", "tags": ["reporting"], "match": "Unconditional match in SecAction."}}]}});
        summary.read_line(&entry.to_string());
        assert_eq!(summary.rules.keys().copied().collect::<Vec<u64>>(), [941_100]);
        let words = "Left out: 4 matches of rules that only evaluate the score of others (77, 78, 949110, 980170).";
        assert_eq!(summary.sums_line().as_deref(), Some(words));
    }

    #[test]
    fn no_exclusion_is_proposed_for_checks_of_bodies() {
        let mut summary = Summary::default();
        for id in 200_002..=200_007_u64 {
            let line = NATIVE.replace("941100", &id.to_string()).replace("ARGS:text", "MULTIPART_STRICT_ERROR");
            summary.read_line(&line);
            summary.read_line(&line);
        }
        let own = NATIVE.replace("941100", "7").replace("ARGS:text", "REQBODY_ERROR");
        summary.read_line(&own);
        assert_eq!(summary.proposals(1), "");
        let words = summary.checks_line().expect("a reason");
        assert!(words.contains("13 matches") && words.contains("(7, 200002, 200003,"), "{words}");
        assert!(words.contains("would pass without inspection"), "{words}");
        let mut summary = Summary::default();
        summary.read_line(NATIVE);
        assert_eq!(summary.checks_line(), None);
    }

    #[test]
    fn lines_that_are_no_part_of_an_audit_log_are_told_apart() {
        let entry = "{\"transaction\": {\"messages\": []}}";
        let mut summary = Summary::default();
        for (line, is_read) in [
            (entry, true),
            ("", true),
            (&entry[..20], false),
            ("{\"other\": 1}", false),
            ("127.0.0.1 - - [29/Nov/2026] \"GET / HTTP/1.1\" 200 5", false),
            ("--1234-A--", true),
            // The body of a request is anything.
            ("{\"transaction\": {}}", true),
            ("anything", true),
            ("--1234-Z--", true),
            ("anything", false),
            ("--1234-A--", true),
            ("--5678-A--", false),
        ] {
            assert_eq!(summary.read_line(line), is_read, "{line}");
        }
        assert_eq!(summary.transactions, 4);
    }

    /// Tells whether a request passes a rule behind proposed exclusions.
    fn passes(exclusions: &str, path: &str, argument: &str) -> bool {
        let rule = "SecRule ARGS|REQUEST_COOKIES \"@contains bad\" \"id:941100,phase:2,deny,log,msg:'XSS'\"";
        let text = format!("SecRuleEngine On\n{exclusions}\n{rule}\n");
        let (rules, _) =
            waf::RuleSet::compile(&[waf::RuleText { name: "p".into(), text }], &waf::NoFiles).expect("rules");
        let connection = waf::Connection {
            client_address: "127.0.0.1".into(),
            client_port: 1,
            server_address: "127.0.0.1".into(),
            server_port: 80,
            unique_id: "u".into(),
            hostname: "h".into(),
        };
        let services = std::sync::Arc::new(waf::Services::default());
        let mut transaction = waf::Transaction::new(&rules, &services, connection);
        transaction.uri(b"GET", format!("{path}?{argument}=bad").as_bytes(), "1.1");
        let verdict = transaction.request_headers();
        verdict == waf::Verdict::Pass && transaction.request_body(b"") == waf::Verdict::Pass
    }

    #[test]
    fn a_request_passes_with_its_proposed_exclusion_and_no_other_does() {
        for name in ["text", "fields[0]", "a.b", "a-b", "a_b", "a:b", "Name"] {
            assert!(!passes("", "/edit", name), "{name}");
            let line = NATIVE.replace("ARGS:text", &format!("ARGS:{name}"));
            let mut summary = Summary::default();
            summary.read_line(&line);
            summary.read_line(&line);
            let exclusions = summary.proposals(2);
            assert!(passes(&exclusions, "/edit", name), "{name}: {exclusions}");
            assert!(!passes(&exclusions, "/other", name) && !passes(&exclusions, "/edit", "another"), "{exclusions}");
        }
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
