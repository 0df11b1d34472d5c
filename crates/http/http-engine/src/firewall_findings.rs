//! Findings of the firewall: requests by rule, and the last ones. The firewall adds them, the API and the dashboard show
//! them. A process has them over reloads.

use metrics::MetricZone;
use metrics::firewall_rule::{self, Of};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Rules that are counted by themselves; further ones are counted together, as [`OTHER_RULES`].
pub const COUNTED_RULES_MAX: usize = 4096;
/// Findings that are kept.
pub const RECENT_FINDINGS_MAX: usize = 50;
/// Bytes of a message and of a path that are kept.
pub const FINDING_TEXT_MAX: usize = 200;
/// The label of rules beyond [`COUNTED_RULES_MAX`].
pub const OTHER_RULES: &str = "other";
/// The label of budgets that ended (`modsecurity_budget`).
pub const BUDGET_RULE: &str = "budget";

/// Requests that a rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRequests {
    /// The rule's id, [`OTHER_RULES`] or [`BUDGET_RULE`].
    pub rule: String,
    /// The message of the rule's first match.
    pub message: String,
    /// Requests that passed.
    pub passed: u64,
    /// Requests that were refused, by this rule or another one.
    pub denied: u64,
}

/// A request that rules have matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallFinding {
    /// The time of the request's end, in milliseconds since 1970.
    pub at_ms: u64,
    /// The method and the path, without arguments: they may be secrets.
    pub method: String,
    /// See `method`.
    pub path: String,
    /// The status of the response.
    pub status: u16,
    /// The firewall has refused the request.
    pub is_denied: bool,
    /// Ids of the rules, 0 for the end of a budget; without repetitions.
    pub rules: Vec<u64>,
}

struct RuleCount {
    zone: MetricZone<Of>,
    message: String,
}

#[derive(Default)]
struct FindingLog {
    rules: BTreeMap<u64, RuleCount>,
    other: Option<RuleCount>,
    recent: VecDeque<FirewallFinding>,
}

/// Locked by requests with a match, and by readers.
static LOG: LazyLock<Mutex<FindingLog>> = LazyLock::new(Mutex::default);

/// The beginning of a text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(FINDING_TEXT_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}

impl FindingLog {
    fn count(&mut self, rule: u64, message: &str, is_denied: bool) {
        let is_full = self.rules.len() >= COUNTED_RULES_MAX && !self.rules.contains_key(&rule);
        let count =
            |label: &str, message: &str| RuleCount { zone: MetricZone::named(&[label]), message: shortened(message) };
        let found = match is_full {
            true => self.other.get_or_insert_with(|| count(OTHER_RULES, "")),
            false => self.rules.entry(rule).or_insert_with(|| match rule {
                0 => count(BUDGET_RULE, "The budget of the transaction ended"),
                rule => count(&rule.to_string(), message),
            }),
        };
        found.zone.up_at(firewall_rule::REQUESTS, usize::from(is_denied));
    }
}

/// Adds a request. `rules`: ids with messages, as matched; an id that is repeated counts once. Called once for a request, at its end.
pub fn add_finding(mut finding: FirewallFinding, rules: &[(u64, &str)]) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    for (rule, message) in rules {
        if !finding.rules.contains(rule) {
            finding.rules.push(*rule);
            log.count(*rule, message, finding.is_denied);
        }
    }
    finding.path = shortened(&finding.path);
    finding.method = shortened(&finding.method);
    if log.recent.len() >= RECENT_FINDINGS_MAX {
        log.recent.pop_front();
    }
    log.recent.push_back(finding);
}

/// Returns the requests of all rules that have matched one, by id.
pub fn list_rules() -> Vec<RuleRequests> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = log.rules.values().chain(&log.other);
    let one = |count: &RuleCount| {
        let reading = count.zone.reading();
        RuleRequests {
            rule: count.zone.labels().first().cloned().unwrap_or_default(),
            message: count.message.clone(),
            passed: reading.count_at(firewall_rule::REQUESTS, 0),
            denied: reading.count_at(firewall_rule::REQUESTS, 1),
        }
    };
    counts.map(one).collect()
}

/// Returns the last findings, the newest one first.
pub fn list_findings() -> Vec<FirewallFinding> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).recent.iter().rev().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str, is_denied: bool) -> FirewallFinding {
        let (method, path) = ("GET".into(), path.into());
        FirewallFinding { at_ms: 1, method, path, status: 200, is_denied, rules: Vec::new() }
    }

    #[test]
    fn a_rule_counts_a_request_once_and_the_numbers_are_bounded() {
        add_finding(finding("/a", true), &[(7, "seven"), (8, "eight"), (7, "again")]);
        add_finding(finding("/b", false), &[(7, "seven"), (0, "")]);
        let found = |rule: &str| list_rules().into_iter().find(|found| found.rule == rule).expect("a rule");
        assert_eq!((found("7").passed, found("7").denied, found("7").message.as_str()), (1, 1, "seven"));
        assert_eq!((found("8").passed, found("8").denied, found(BUDGET_RULE).passed), (0, 1, 1));
        assert_eq!(
            list_findings().first().map(|found| (found.path.clone(), found.rules.clone())),
            Some(("/b".into(), vec![7, 0]))
        );
        let long = "ä".repeat(FINDING_TEXT_MAX + 1);
        for id in 0..COUNTED_RULES_MAX as u64 + 10 {
            add_finding(finding(&long, false), &[(id + 1_000_000, "")]);
        }
        assert_eq!(list_rules().len(), COUNTED_RULES_MAX + 1);
        assert!(found(OTHER_RULES).passed >= 10);
        assert_eq!(list_findings().len(), RECENT_FINDINGS_MAX);
        assert_eq!(list_findings().first().map(|found| found.path.chars().count()), Some(FINDING_TEXT_MAX + 1));
    }
}
