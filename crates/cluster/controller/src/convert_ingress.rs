//! `convert-ingress`: annotations and their treatment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use cluster_ingress::{Finding, Treatment};
use cluster_objects::{Complaint, ObjectSet};
use serde_json::json;

use crate::arguments::ConvertIngress;
use crate::{input, render};

/// Runs the command: 0 if everything was translated, 1 if something was not, 2 if a file cannot be read.
pub fn convert_ingresses(options: &ConvertIngress) -> ExitCode {
    let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
    if let Err(error) = input::read_inputs(&options.files, &mut set, &mut complaints) {
        eprintln!("tidegate-controller: {error}");
        return ExitCode::from(2);
    }
    let settings = render::ingress_settings(&options.ingress, true);
    let translation = cluster_ingress::translate_ingresses(&set, &settings);
    complaints.extend(translation.complaints);
    let findings = cluster_ingress::report_annotations(&set, &settings, &complaints);
    let is_complete = complaints.is_empty() && !findings.iter().any(has_no_effect);
    let text = if options.json { json_text(&findings, &complaints) } else { table(&findings, &complaints) };
    if let Err(error) = io::stdout().lock().write_all(text.as_bytes()) {
        eprintln!("tidegate-controller: standard output: {error}");
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(!is_complete))
}

fn has_no_effect(finding: &Finding) -> bool {
    matches!(finding.treatment, None | Some(Treatment::NoEqual | Treatment::Refused)) || !finding.complaints.is_empty()
}

fn json_text(findings: &[Finding], complaints: &[Complaint]) -> String {
    let complaints: Vec<_> =
        complaints.iter().map(|it| json!({ "subject": it.subject, "reason": it.reason })).collect();
    let all = json!({ "annotations": findings, "complaints": complaints });
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

/// Returns the annotations by Ingress, the complaints, and a sum.
fn table(findings: &[Finding], complaints: &[Complaint]) -> String {
    let mut by_ingress: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        by_ingress.entry(&finding.ingress).or_default().push(finding);
    }
    let mut text = String::new();
    for (ingress, findings) in &by_ingress {
        let _ = writeln!(text, "Ingress {}", one_line(ingress));
        let name = |finding: &Finding| one_line(finding.annotation.rsplit('/').next().unwrap_or(""));
        let width = findings.iter().map(|finding| name(finding).len()).max().unwrap_or(0);
        for finding in findings {
            let mark = if has_no_effect(finding) { "!" } else { " " };
            let becomes = one_line(&finding.becomes.replace('`', ""));
            let _ = writeln!(text, "{mark} {:width$}  {becomes}", name(finding));
        }
        text.push('\n');
    }
    for complaint in complaints {
        let _ = writeln!(text, "{complaint}");
    }
    let without = findings.iter().filter(|finding| has_no_effect(finding)).count();
    let _ = writeln!(
        text,
        "{} annotations: {} translated, {without} with a complaint or without an equal (!)",
        findings.len(),
        findings.len() - without,
    );
    text
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
