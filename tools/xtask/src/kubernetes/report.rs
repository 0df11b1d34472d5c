//! Runs the suite, and shows its results.

use std::process::Command;

use super::cluster::{Cluster, UNUSABLE, USABLE};

/// Time of all tests at most.
const TIMEOUT: &str = "90m";

/// Runs the suite with profiles, or one of its tests. Fails if a test fails.
pub fn run_suite(cluster: &mut Cluster, profiles: &str, test: Option<&str>) -> Result<(), String> {
    let report = cluster.path("report.yaml");
    let mut command = Command::new(&cluster.programs.suite);
    command.args(["-test.v", "-test.timeout", TIMEOUT, "-gateway-class", "tidegate"]);
    command.args(["-conformance-profiles", profiles, "-allow-crds-mismatch"]);
    command.args(["-usable-address", USABLE, "-unusable-address", UNUSABLE]);
    // The namespace ends with its objects.
    command.arg("-cleanup-base-resources=false");
    command.args(["-organization", "tidegate", "-project", "tidegate", "-url", env!("CARGO_PKG_REPOSITORY")]);
    command.args(["-version", env!("CARGO_PKG_VERSION"), "-contact", "SECURITY.md", "-report-output", &report]);
    if let Some(test) = test {
        command.args(["-run-test", test]);
    }
    let mut suite = cluster.spawn("suite", &mut command)?;
    let status = suite.wait().map_err(|error| error.to_string())?;
    let log = cluster.log("suite");
    let results = Results::of(&log);
    println!("{} passed, {} failed, {} skipped", results.passed, results.failed.len(), results.skipped);
    println!("report: {report}");
    let refused: Vec<String> = cluster
        .log("tidegate-controller")
        .lines()
        .filter(|line| line.contains("forbidden"))
        .map(str::to_owned)
        .collect();
    if !refused.is_empty() {
        return Err(format!("rights are missing:\n{}", refused.join("\n")));
    }
    match (status.success(), results.failed.is_empty()) {
        (true, true) if results.passed > 0 => Ok(()),
        (_, false) => Err(format!("failed tests:\n{}", results.failed.join("\n"))),
        _ => Err(format!("the suite ran no test to its end:\n{}", last_lines(&log))),
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Tests of the suite, without their parts.
#[derive(Debug, Default, PartialEq)]
struct Results {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
}

impl Results {
    fn of(log: &str) -> Results {
        let mut results = Results::default();
        for line in log.lines() {
            let Some((verdict, rest)) = line.trim_start().strip_prefix("--- ").and_then(|line| line.split_once(": "))
            else {
                continue;
            };
            let name = rest.split(' ').next().unwrap_or_default();
            let Some(name) = name.strip_prefix("TestConformance/").filter(|name| !name.contains('/')) else { continue };
            match verdict {
                "PASS" => results.passed += 1,
                "SKIP" => results.skipped += 1,
                _ => results.failed.push(name.to_owned()),
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_whole_tests() {
        let log = "\
=== RUN   TestConformance
--- FAIL: TestConformance (1.00s)
    --- PASS: TestConformance/A (0.10s)
        --- PASS: TestConformance/A/part (0.10s)
    --- FAIL: TestConformance/B (0.10s)
        --- FAIL: TestConformance/B/part (0.10s)
    --- SKIP: TestConformance/C (0.00s)
FAIL
";
        assert_eq!(Results::of(log), Results { passed: 1, skipped: 1, failed: vec!["B".into()] });
    }
}
