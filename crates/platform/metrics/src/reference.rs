//! Writes docs/metrics.md from the table.

use crate::SETS;
use crate::table::BOUNDS_MICROS;
use std::fmt::Write as _;

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask docs` from the table in crates/platform/metrics/src/tables.rs. -->

The directive [`metrics`](reference.md) makes a location return all metrics, by default as Prometheus text. `status_zone` adds metrics per server,
location and resolver; `zone` adds them per upstream server; caches and limits have metrics per zone. All label values come from the
configuration or from this page, never from clients. [Grafana](grafana.md) describes dashboards and alerts.

Counters start with the process. Counters of a zone survive a reload that keeps the zone's name, and requests that are active during the
reload are counted until their end. A binary upgrade resets all counters to 0.

`metrics format=NAME;` sets the format of a location. A request chooses another one with `?format=NAME` or, below a location with a
prefix, with the path: `/metrics/nginxplus`.

| Format | Output |
|---|---|
| `tidegate` (default) | the metrics of this page: OpenMetrics if the client's `Accept` fields prefer `application/openmetrics-text`, else Prometheus text |
| `prometheus` | Prometheus text format 0.0.4 |
| `openmetrics` | OpenMetrics 1.0, with units, creation times and exemplars |
| `json` | JSON |
| `nginx` | the `stub_status` values under the names of nginx-prometheus-exporter (`nginx_connections_active`) |
| `nginxplus` | the values of the API under the names of nginx-prometheus-exporter's Plus mode (`nginxplus_server_zone_requests`) |
| `all` | Prometheus text with the names of `tidegate`, `nginx` and `nginxplus` |

With `nginx` and `nginxplus` no exporter is needed: names, types, labels and values are those of version 0.11 of its program, and
`nginxplus_cache_*` and `nginxplus_worker_*` those of later versions. Only Tidegate's own names follow Prometheus's conventions. Resets by the
API set values of `nginxplus` to 0; counters of this page never decrease.

**Exemplars.** In OpenMetrics, buckets of request and response times of zones have an exemplar with the label `trace_id`: the trace of a
valid `traceparent` field if its trace is sampled, or `$request_id` for requests without such a field. Exemplars of upstream servers have
`$request_id` only if it was passed on or otherwise used before the response. An exemplar stays for at least a second.

**Templates.** `prometheus` and `prometheus_template` of Angie define metrics with other names: see the [reference](reference.md).
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
