//! The metrics as text: Prometheus 0.0.4, OpenMetrics 1.0, JSON.

use crate::gather::{FamilySample, MetricFamily, SampleValue, seconds, told};
use crate::table::{BOUNDS_MICROS, MetricKind};
use std::fmt::Write as _;

pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writes labels in braces, nothing without labels.
pub fn write_labels<'a>(out: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut is_first = true;
    for (label, value) in labels {
        out.push(if std::mem::take(&mut is_first) { '{' } else { ',' });
        out.push_str(label);
        out.push('=');
        quoted(out, value);
    }
    if !is_first {
        out.push('}');
    }
}

fn labelled(out: &mut String, name: &str, suffix: &str, sample: &FamilySample, bound: Option<&str>) {
    out.push_str(name);
    out.push_str(suffix);
    let own = sample.labels.iter().map(|(label, value)| (*label, value.as_str()));
    write_labels(out, own.chain(bound.map(|bound| ("le", bound))));
    out.push(' ');
}

/// Writes a family's samples; `details`: with creation times and exemplars, which OpenMetrics has.
fn samples(out: &mut String, family: &MetricFamily, details: bool) {
    let row = family.row;
    let name = row.sample_name();
    for sample in &family.samples {
        match &sample.value {
            SampleValue::Number(number) => {
                labelled(out, &name, "", sample, None);
                out.push_str(&told(row.unit, *number));
                out.push('\n');
            }
            SampleValue::Times { buckets, sum, exemplars } => {
                let mut count = 0_u64;
                let bounds = BOUNDS_MICROS.iter().map(|bound| seconds(*bound)).chain(["+Inf".to_string()]);
                for (index, (bound, number)) in bounds.zip(buckets).enumerate() {
                    count += number;
                    labelled(out, &name, "_bucket", sample, Some(&bound));
                    let _ = write!(out, "{count}");
                    if let Some(Some(exemplar)) = exemplars.get(index).filter(|_| details) {
                        let (time, at) = (seconds(exemplar.micros), instant(exemplar.at_ms));
                        let _ = write!(out, " # {{trace_id=\"{}\"}} {time} {at}", exemplar.trace());
                    }
                    out.push('\n');
                }
                labelled(out, &name, "_sum", sample, None);
                let _ = writeln!(out, "{}", seconds(*sum));
                labelled(out, &name, "_count", sample, None);
                let _ = writeln!(out, "{count}");
            }
        }
        if details && row.kind != MetricKind::Gauge {
            labelled(out, row.name, "_created", sample, None);
            let _ = writeln!(out, "{}", instant(sample.created_ms));
        }
    }
}

/// Formats milliseconds since 1970 as seconds.
fn instant(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

pub fn prometheus_text(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        let row = family.row;
        let name = row.sample_name();
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {}", row.doc.trim(), row.kind.word());
        samples(&mut out, family, false);
    }
    out
}

/// OpenMetrics 1.0.0: families without `_total`, with units, creation times, exemplars and an end mark.
pub fn openmetrics_text(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        let row = family.row;
        let _ = writeln!(out, "# TYPE {} {}", row.name, row.kind.word());
        if !row.unit.word().is_empty() {
            let _ = writeln!(out, "# UNIT {} {}", row.name, row.unit.word());
        }
        let _ = writeln!(out, "# HELP {} {}", row.name, row.doc.trim().replace('"', "\\\""));
        samples(&mut out, family, true);
    }
    out.push_str("# EOF\n");
    out
}

fn json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c if c < ' ' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// JSON: an object by metric name, with type, unit, help and samples. Buckets are not cumulative; their names are
/// bounds in seconds.
pub fn metrics_json(families: &[MetricFamily]) -> String {
    let mut out = String::from("{");
    for (index, family) in families.iter().enumerate() {
        let row = family.row;
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        json_text(&mut out, &row.sample_name());
        let _ = write!(out, ":{{\"type\":\"{}\",\"unit\":\"{}\",\"help\":", row.kind.word(), row.unit.word());
        json_text(&mut out, row.doc.trim());
        out.push_str(",\"samples\":[");
        for (index, sample) in family.samples.iter().enumerate() {
            out.push_str(if index == 0 { "{\"labels\":{" } else { ",{\"labels\":{" });
            for (index, (label, value)) in sample.labels.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                json_text(&mut out, label);
                out.push(':');
                json_text(&mut out, value);
            }
            out.push_str("},");
            match &sample.value {
                SampleValue::Number(number) => _ = write!(out, "\"value\":{}", told(row.unit, *number)),
                SampleValue::Times { buckets, sum, .. } => {
                    let count: u64 = buckets.iter().sum();
                    let _ = write!(out, "\"count\":{count},\"sum\":{},\"buckets\":{{", seconds(*sum));
                    let bounds = BOUNDS_MICROS.iter().map(|bound| seconds(*bound)).chain(["+Inf".to_string()]);
                    for (index, (bound, number)) in bounds.zip(buckets).enumerate() {
                        let _ = write!(out, "{}\"{bound}\":{number}", if index == 0 { "" } else { "," });
                    }
                    out.push('}');
                }
            }
            out.push('}');
        }
        out.push_str("]}");
    }
    out.push_str("\n}\n");
    out
}
