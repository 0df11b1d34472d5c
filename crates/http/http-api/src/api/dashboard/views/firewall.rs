//! The dashboard's section `Firewall`: requests by rule, and the last ones that rules have matched.

use super::super::data::Data;
use super::super::format;
use super::super::html::{
    Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, small_text, state_badge, words_column,
};
use super::{Section, place, rate};
use http_engine::firewall_findings::{FirewallFinding, RuleRequests, list_findings, list_rules};
use metrics::process;

const ID: &str = "firewall";
const RULES: &[Column] = &[
    words_column("Rule"),
    words_column("Message"),
    number_column("Requests"),
    number_column("Refused"),
    number_column("Only detected"),
    number_column("Requests/s"),
];
const FINDINGS: &[Column] = &[
    words_column("Time"),
    words_column("Verdict"),
    number_column("Status"),
    words_column("Request"),
    words_column("Rules"),
];

/// Shows the rules, the most frequent first; `None` if no request was inspected.
pub fn firewall_section(data: &mut Data<'_>) -> Option<Section> {
    let inspected = process::FIREWALL_TRANSACTIONS.since_reset();
    if inspected == 0 {
        return None;
    }
    let denied = process::FIREWALL_DENIED.since_reset();
    let mut rules = list_rules();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.passed + rule.denied));
    let caption = Markup::new().raw("Firewall ").add(small_text(format_args!(
        "{}, {} refused",
        format::format_counted(inspected, "request inspected", "requests inspected"),
        format::format_count(denied),
    )));
    let rows = rules.into_iter().map(|rule| rule_row(data, rule)).collect();
    let body = HtmlTable { id: ID.into(), caption, columns: RULES, rows }.show();
    let findings: Vec<TableRow> = list_findings().into_iter().enumerate().map(finding_row).collect();
    let body = match findings.is_empty() {
        true => body,
        false => {
            let caption = Markup::new().raw("Last findings");
            body.add(HtmlTable { id: "findings".into(), caption, columns: FINDINGS, rows: findings }.show())
        }
    };
    Some(Section { id: ID, title: "Firewall", body })
}

fn rule_row(data: &mut Data<'_>, rule: RuleRequests) -> TableRow {
    let all = rule.passed + rule.denied;
    let per_second = data.rates.rate(format!("firewall {}", rule.rule), all);
    let cells = vec![
        Cell::text(&rule.rule),
        Cell::text(&rule.message),
        Cell::count(all),
        Cell::count(rule.denied).alarming(Tone::Warn),
        Cell::count(rule.passed),
        rate(per_second),
    ];
    TableRow { key: rule.rule, tone: Tone::Plain, cells }
}

fn finding_row((index, finding): (usize, FirewallFinding)) -> TableRow {
    let (tone, word) = if finding.is_denied { (Tone::Warn, "refused") } else { (Tone::Plain, "detected") };
    let rules: Vec<String> = finding.rules.iter().map(ToString::to_string).collect();
    let cells = vec![
        Cell::text(format::format_time(finding.at_ms)),
        Cell::of(state_badge(tone, word)),
        Cell::number(f64::from(finding.status), finding.status),
        place(&format!("{} {}", finding.method, finding.path)),
        Cell::text(rules.join(", ")),
    ];
    TableRow { key: format!("{} {index}", finding.at_ms), tone: Tone::Plain, cells }
}
