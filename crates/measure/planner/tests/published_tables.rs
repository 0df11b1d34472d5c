//! Golden test: a published price table, recomputed from the capacities that were printed beside it.
//!
//! The data are in `examples/lab/plan/`, where users can run the same comparison (`tidegate plan cost --check`).

use planner::capacity::{PricedMachine, read_capacity};
use planner::cluster::{Extras, SizingRule, cheapest_of};
use planner::compare::{Disagreement, list_disagreements, read_foreign};
use planner::cost_report::{Question, answer_question, cost_csv, cost_html, cost_text, to_json};
use planner::warnings::{Warning, WarningKind};

const RULE: SizingRule =
    SizingRule { nodes_min: 3, nodes_max: 3, utilisation: 0.66, losses: 0, utilisation_after: 1.0 };

fn reverse_proxy() -> Vec<PricedMachine> {
    read_capacity(include_str!("../../../../examples/lab/plan/reverse-proxy-capacity.csv")).unwrap()
}

fn api_gateway() -> Vec<PricedMachine> {
    read_capacity(include_str!("../../../../examples/lab/plan/api-gateway-capacity.csv")).unwrap()
}

fn check(table: &str, machines: &[PricedMachine]) -> Vec<(f64, String, f64, f64)> {
    list_disagreements(&read_foreign(table).unwrap(), machines, &RULE)
        .into_iter()
        .map(|Disagreement { load, family, printed, computed }| {
            (load, family, printed.unwrap(), (computed.unwrap().0 * 1000.0).round() / 1000.0)
        })
        .collect()
}

#[test]
fn table_1_follows_from_table_5_but_for_two_cells() {
    let found = check(include_str!("../../../../examples/lab/plan/table-1.csv"), &reverse_proxy());
    assert_eq!(found, [(25_000.0, "c5".into(), 0.288, 0.255), (25_000.0, "m5a".into(), 0.2505, 0.258)]);
}

#[test]
fn table_4_follows_from_table_5_but_for_three_cells() {
    let found = check(include_str!("../../../../examples/lab/plan/table-4.csv"), &reverse_proxy());
    assert_eq!(
        found,
        [
            (25_000.0, "a1".into(), 0.255, 0.153),
            (25_000.0, "c5".into(), 0.288, 0.255),
            (25_000.0, "m5a".into(), 0.2505, 0.258)
        ]
    );
}

#[test]
fn table_6_follows_from_table_7_in_every_cell() {
    assert_eq!(check(include_str!("../../../../examples/lab/plan/table-6.csv"), &api_gateway()), []);
}

fn question(machines: Vec<PricedMachine>, loads: &[f64]) -> Question {
    Question {
        machines,
        loads: loads.to_vec(),
        rule: RULE,
        extras: Extras::default(),
        remarks: Vec::new(),
        usable: Some(RULE.utilisation),
    }
}

#[test]
fn usable_rates_are_checked_only_against_a_given_utilisation() {
    let free = Question { usable: None, rule: SizingRule::survive(1, 0.8), ..question(api_gateway(), &[50_000.0]) };
    assert_eq!(of_kind(&answer_question(&free).warnings, WarningKind::Input), Vec::<&str>::new());
    let given = Question { usable: Some(0.8), ..free };
    assert!(!of_kind(&answer_question(&given).warnings, WarningKind::Input).is_empty());
}

fn of_kind(warnings: &[Warning], kind: WarningKind) -> Vec<&str> {
    warnings.iter().filter(|w| w.kind == kind).map(|w| w.text.as_str()).collect()
}

#[test]
fn the_one_usable_rate_that_is_not_66_percent_is_found() {
    let a = answer_question(&question(reverse_proxy(), &[1000.0]));
    let input = of_kind(&a.warnings, WarningKind::Input);
    assert_eq!(input.len(), 1, "{input:?}");
    assert!(input[0].starts_with("m5.2xlarge:"));
    assert!(of_kind(&answer_question(&question(api_gateway(), &[1000.0])).warnings, WarningKind::Input).is_empty());
}

#[test]
fn scaling_above_linear_is_called_out() {
    let a = answer_question(&question(reverse_proxy(), &[1000.0]));
    let scaling = of_kind(&a.warnings, WarningKind::Scaling);
    assert!(
        scaling.iter().any(|w| w.contains("c5 (") && w.contains("1.00 / 1.22 / 1.52 / 1.81") && w.contains("-0.08"))
    );
    assert!(scaling.iter().any(|w| w.contains("m5 (") && w.contains("1.62") && w.contains("-0.06")));
    assert!(scaling.iter().any(|w| w.contains("a1 (") && w.contains("1.31")));
}

#[test]
fn flip_risks_are_the_cells_near_a_boundary() {
    let loads = [1000.0, 10_000.0, 25_000.0, 35_000.0, 50_000.0, 75_000.0, 100_000.0, 125_000.0, 175_000.0, 200_000.0];
    let a = answer_question(&question(reverse_proxy(), &loads));
    let flips = of_kind(&a.warnings, WarningKind::Flip);
    let has = |load: &str, family: &str, words: &str| {
        flips.iter().any(|w| w.starts_with(&format!("{load} requests/s on {family}:")) && w.contains(words))
    };
    assert!(has("50,000", "m5a", "m5a.large lacks 1.0 % of"), "{flips:#?}");
    assert!(has("75,000", "a1", "a1.xlarge lacks 4.8 % of"));
    assert!(has("200,000", "m5a", "m5a.2xlarge lacks 4.1 % of"));
    assert_eq!(flips.len(), 3, "{flips:#?}");
    let b = answer_question(&question(api_gateway(), &[50_000.0, 125_000.0]));
    let flips = of_kind(&b.warnings, WarningKind::Flip);
    assert!(
        flips.iter().any(|w| w.starts_with("50,000 requests/s on c5:") && w.contains("fits by only 1.9 %")),
        "{flips:#?}"
    );
    assert!(flips.iter().any(|w| w.starts_with("125,000 requests/s on a1:") && w.contains("fits by only 1.0 %")));
}

#[test]
fn a_free_number_of_machines_is_cheaper() {
    let a = answer_question(&question(reverse_proxy(), &[35_000.0, 75_000.0, 100_000.0, 175_000.0, 200_000.0]));
    let dear = of_kind(&a.warnings, WarningKind::Dear);
    let has = |words: &[&str]| dear.iter().any(|w| words.iter().all(|x| w.contains(x)));
    assert!(has(&["35,000", "4 × a1.large", "$0.204", "20 % less"]), "{dear:#?}");
    assert!(has(&["75,000", "4 × c5.large", "$0.340", "33 % less"]));
    assert!(has(&["100,000", "5 × c5.large", "$0.425", "17 % less"]));
    assert!(has(&["175,000", "4 × c5.xlarge", "$0.680", "33 % less", "7 × c5.large for $0.595"]));
    assert!(has(&["200,000", "4 × c5.xlarge", "$0.680"]));
}

#[test]
fn three_nodes_at_66_percent_leave_one_per_cent() {
    let a = answer_question(&question(reverse_proxy(), &[1000.0]));
    assert!(of_kind(&a.warnings, WarningKind::Failure)[0].contains("leave 1 % of the maximum unused after one loss"));
}

#[test]
fn every_form_of_the_report_says_the_same() {
    let q = question(reverse_proxy(), &[25_000.0, 1_000_000.0, 10_000_000.0]);
    let mut a = answer_question(&q);
    a.disagreements = Some(list_disagreements(
        &read_foreign(include_str!("../../../../examples/lab/plan/table-1.csv")).unwrap(),
        &q.machines,
        &RULE,
    ));
    let text = cost_text(&q, &a);
    assert!(
        text.contains("3 × a1.large") && text.contains("0.153 *") && text.contains("no machine type has the capacity"),
        "{text}"
    );
    assert!(cost_csv(&a).contains("25000,a1,a1.large,3,0.153000"));
    assert_eq!(to_json(&q, &a)["rows"][0]["best"][0]["machine"], "a1.large");
    assert_eq!(to_json(&q, &a)["disagreements"].as_array().unwrap().len(), 2);
    let html = cost_html(&q, &a);
    assert!(html.contains("printed 0.288") && html.contains("class=\"good\"") && !html.contains("http://localhost"));
    assert!(cheapest_of(q.machines.iter(), 25_000.0, &RULE, &Extras::default()).unwrap().machine == "a1.large");
}
