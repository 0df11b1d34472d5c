//! docs/metrics.md: the table, as the manual has it.

use crate::SETS;
use crate::table::BOUNDS_MICROS;
use std::fmt::Write as _;

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask docs` from the table in crates/metrics/src/tables.rs. -->

The directive [`metrics`](reference.md) makes a location answer with all of this as text for Prometheus, `status_zone` names servers,
locations and resolvers that are counted by themselves. Groups of servers are counted with a `zone`, caches and limits with the zone
that they have anyway. The values of all labels come from the configuration or stand here; nothing that a client sends becomes one.

Counters count from the start of the process. Those of a zone live as long as a configuration has it: a reload that keeps its name
keeps them, and requests that are under way meanwhile are counted to their end. The process of a binary upgrade begins at 0.

`?format=` chooses between `prometheus` (text 0.0.4), `openmetrics` (1.0; also by the `Accept` field), `json`, and `nginx` (the names of
nginx's exporter for what `stub_status` tells).
";

/// The page.
pub fn reference() -> String {
    let mut out = String::from(HEAD);
    for set in SETS {
        let _ = writeln!(out, "\n## {}\n", set.doc.trim());
        if !set.labels.is_empty() {
            let labels: Vec<String> = set.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(out, "Labels of all: {}.\n", labels.join(", "));
        }
        out.push_str("| Name | Kind | Label | What it is |\n|---|---|---|---|\n");
        for row in set.rows {
            let values = row.values.join("`, `");
            let label = if row.label.is_empty() { String::new() } else { format!("`{}`: `{values}`", row.label) };
            let _ = writeln!(out, "| `{}` | {} | {label} | {} |", row.sample_name(), row.kind.word(), row.doc.trim());
        }
    }
    let bounds: Vec<String> = BOUNDS_MICROS.iter().map(|bound| crate::gather::seconds(*bound)).collect();
    let _ = writeln!(out, "\nBuckets of histograms, in seconds: {}.", bounds.join(", "));
    out
}
