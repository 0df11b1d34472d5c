//! Writes docs/metrics.md from the table.

use crate::SETS;
use crate::table::BOUNDS_MICROS;
use std::fmt::Write as _;

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask docs` from the table in crates/platform/metrics/src/tables.rs. -->

The directive [`metrics`](reference.md) makes a location return all metrics, by default as Prometheus text:

```nginx
location /metrics { metrics; allow 127.0.0.1; deny all; }
```

| Metrics per | Enabled by |
|---|---|
| server, location, resolver | `status_zone` |
| upstream server | `zone` in the upstream group |
| cache, limit | always, per zone |

All label values come from the configuration or from this page, never from clients. [Grafana](grafana.md) describes dashboards and alerts.

**Resets.** Counters start at 0 with the process. Counters of a zone survive a reload that keeps the zone's name; requests that are active during the
reload are counted until their end. A binary upgrade resets all counters to 0.

**Formats.** `metrics format=NAME;` sets the default format of a location. A request selects another format with `?format=NAME` or, if the location is a
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

`nginx` and `nginxplus` replace nginx-prometheus-exporter: names, types, labels and values are those of its version 0.11, and
those of later versions for `nginxplus_cache_*` and `nginxplus_worker_*`. Only Tidegate's own names follow Prometheus's naming conventions. A reset through the
API sets values of `nginxplus` to 0; counters of this page never decrease.

**Exemplars.** In OpenMetrics, the buckets of request and response times of zones have an exemplar with the label `trace_id`. Its value is the trace id of a
valid, sampled `traceparent` header, or `$request_id` for requests without the header. Exemplars of upstream servers use
`$request_id` only if it was sent upstream or otherwise used before the response. An exemplar is kept for at least a second.

**Custom names.** Angie's directives `prometheus` and `prometheus_template` define metrics with other names: see the [reference](reference.md).
";

pub fn metrics_reference() -> String {
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
