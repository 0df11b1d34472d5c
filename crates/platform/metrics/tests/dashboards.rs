//! Dashboards and alerts in packaging/ ask for metrics and labels that exist.

use metrics::{MetricKind, SETS};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging").join(name)
}

/// Names of samples with their labels and label values that the table fixes.
fn samples() -> BTreeMap<String, BTreeMap<&'static str, &'static [&'static str]>> {
    let mut all = BTreeMap::new();
    for set in SETS {
        for row in set.rows {
            let mut labels: BTreeMap<&str, &[&str]> = set.labels.iter().map(|label| (*label, &[][..])).collect();
            if !row.label.is_empty() {
                labels.insert(row.label, row.values);
            }
            let name = row.sample_name();
            if row.kind == MetricKind::Histogram {
                for suffix in ["_sum", "_count"] {
                    all.insert(format!("{name}{suffix}"), labels.clone());
                }
                labels.insert("le", &[]);
                all.insert(format!("{name}_bucket"), labels);
            } else {
                all.insert(name, labels);
            }
        }
    }
    all
}

/// Names that begin with the prefix, each with the selectors in braces behind it.
fn selectors(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("tidegate_") {
        let name = rest[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        rest = &rest[at + name.len()..];
        let inside = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')).map_or("", |(inner, _)| inner);
        found.push((name.to_string(), inside.to_string()));
    }
    found
}

/// Metrics of another program, whose own test reads the dashboards: `crates/cluster/controller/src/run/metrics.rs`.
const CONTROLLER: &str = "tidegate_controller_";

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

fn check(place: &str, expression: &str) -> usize {
    let known = samples();
    let all = selectors(expression);
    let of_controller = all.iter().filter(|(name, _)| name.starts_with(CONTROLLER)).count();
    if of_controller > 0 && of_controller == all.len() {
        return all.len();
    }
    for (name, selector) in all.iter().filter(|(name, _)| !name.starts_with(CONTROLLER)) {
        let labels = known.get(name).unwrap_or_else(|| panic!("{place}: there is no {name} in {expression}"));
        for part in selector.split(',').filter(|part| !part.is_empty()) {
            let end = part.find(['=', '!']).unwrap_or_else(|| panic!("{place}: {part} in {expression}"));
            let (label, value) = (&part[..end], part[end..].trim_matches(['=', '!', '~', '"']));
            let values = labels.get(label);
            assert!(values.is_some() || ADDED.contains(&label), "{place}: {name} has no label {label}");
            let fixed = values.is_some_and(|values| !values.is_empty());
            assert!(!fixed || values.is_some_and(|v| v.contains(&value)), "{place}: {name} has no {label}={value}");
        }
    }
    // Labels that sums keep.
    let asked: BTreeSet<&str> =
        all.iter().filter_map(|(name, _)| known.get(name)).flat_map(|l| l.keys().copied()).collect();
    for group in expression.split(" by (").skip(1) {
        for label in group.split(')').next().unwrap_or_default().split(',').map(str::trim) {
            assert!(asked.contains(label) || ADDED.contains(&label), "{place}: no label {label} in {expression}");
        }
    }
    all.len()
}

/// Calls `see` with every text below a key.
fn texts(value: &Value, keys: &[&str], see: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                if let (true, Value::String(text)) = (keys.contains(&key.as_str()), value) {
                    see(text);
                }
                texts(value, keys, see);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| texts(value, keys, see)),
        _ => {}
    }
}

#[test]
fn dashboards_ask_for_metrics_that_exist() {
    let mut uids = BTreeSet::new();
    let mut boards = 0;
    for file in std::fs::read_dir(packaging("grafana")).expect("the folder").flatten() {
        let place = file.file_name().to_string_lossy().into_owned();
        let board: Value = serde_json::from_str(&std::fs::read_to_string(file.path()).expect("a file")).expect(&place);
        boards += 1;
        assert!(uids.insert(board["uid"].as_str().expect("a uid").to_string()), "{place}");
        let panels = board["panels"].as_array().expect("panels");
        let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "{place}");
        for panel in panels {
            let mut found = 0;
            texts(panel, &["expr"], &mut |text| {
                assert!(
                    !text.contains("{ ") && text.matches('(').count() == text.matches(')').count(),
                    "{place}: {text}"
                );
                found += check(&place, text);
            });
            assert!(found > 0, "{place}: {panel}");
        }
        texts(&board["annotations"], &["expr"], &mut |text| _ = check(&place, text));
        texts(&board["templating"], &["query"], &mut |text| {
            if let Some(asked) = text.strip_prefix("label_values(") {
                let (name, label) = asked.trim_end_matches(')').split_once(", ").expect("a metric and a label");
                check(&place, &format!("{name}{{{label}=~\".*\"}}"));
            }
        });
    }
    assert_eq!(boards, 4);
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let text = std::fs::read_to_string(packaging("prometheus/alerts.yml")).expect("the file");
    assert!(check("alerts.yml", &text) > 12);
    match Command::new("promtool").args(["check", "rules"]).arg(packaging("prometheus/alerts.yml")).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
        }
        Err(_) => testkit::missing_peer("promtool is not installed"),
    }
}

#[test]
fn names_that_do_not_exist_are_found() {
    assert_eq!(
        selectors("a(tidegate_x{b=\"c\"}) / tidegate_y"),
        [("tidegate_x".into(), "b=\"c\"".into()), ("tidegate_y".into(), String::new())]
    );
    let fails = |text: &'static str| std::panic::catch_unwind(move || check("test", text)).is_err();
    assert!(fails("tidegate_http_requests") && fails("tidegate_http_requests_total{host=\"a\"}"));
    assert!(fails("tidegate_http_responses_total{class=\"6xx\"}"));
    assert!(fails("sum by (host) (tidegate_http_responses_total)"));
    assert!(!fails("sum by (class, instance) (tidegate_http_responses_total{class=\"5xx\"})"));
}
