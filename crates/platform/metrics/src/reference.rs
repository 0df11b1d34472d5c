//! Writes docs/metrics.md from the table.

use crate::SETS;
use crate::table::BOUNDS_MICROS;
use std::fmt::Write as _;

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask docs` from the table in crates/platform/metrics/src/tables.rs. -->

The directive [`metrics`](reference.md) makes a location return all metrics, by default as Prometheus text. `status_zone` adds metrics per server,
location and resolver; `zone` adds them per upstream server; caches and limits have metrics per zone. All label values come from the
configuration or from this page, never from clients.

Counters start with the process. Counters of a zone survive a reload that keeps the zone's name, and requests that are active during the
reload are counted until their end. A binary upgrade resets all counters to 0.

| `?format=` | Output |
|---|---|
| `prometheus` | Prometheus text format 0.0.4 |
| `openmetrics` | OpenMetrics 1.0; also selected by the `Accept` field |
| `json` | JSON |
| `nginx` | the `stub_status` values under the names of nginx-prometheus-exporter |
";

pub fn reference() -> String {
    let mut out = String::from(HEAD);
    for set in SETS {
        let _ = writeln!(out, "\n## {}\n", set.doc.trim());
        if !set.labels.is_empty() {
            let labels: Vec<String> = set.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(out, "Labels of every metric in this section: {}.\n", labels.join(", "));
        }
        out.push_str("| Name | Type | Label: values | Description |\n|---|---|---|---|\n");
        for row in set.rows {
            let values = row.values.join("`, `");
            let label = if row.label.is_empty() { String::new() } else { format!("`{}`: `{values}`", row.label) };
            let _ = writeln!(out, "| `{}` | {} | {label} | {} |", row.sample_name(), row.kind.word(), row.doc.trim());
        }
    }
    let bounds: Vec<String> = BOUNDS_MICROS.iter().map(|bound| crate::gather::seconds(*bound)).collect();
    let _ = writeln!(out, "\nHistogram buckets, in seconds: {}.", bounds.join(", "));
    out
}
