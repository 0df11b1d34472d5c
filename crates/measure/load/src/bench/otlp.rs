//! Metrics of a run over OTLP 1.x, HTTP with protobuf (`ExportMetricsServiceRequest`).

use super::remote_write::{SeriesSample, push_field};

/// AGGREGATION_TEMPORALITY_CUMULATIVE.
const CUMULATIVE: u8 = 2;

/// Encodes samples of a time; `start` is the begin of the counters, both in milliseconds since 1970. Names that end
/// with `_total` are monotonic sums, others gauges. Field numbers are those of `opentelemetry/proto/metrics/v1`.
pub fn metrics_request(samples: &[SeriesSample], start: i64, at: i64) -> Vec<u8> {
    let mut scope = Vec::new();
    let mut part = Vec::new();
    push_field(1, b"tidegate-bench", &mut part);
    push_field(2, env!("CARGO_PKG_VERSION").as_bytes(), &mut part);
    push_field(1, &part, &mut scope);
    let name = |sample: &SeriesSample| {
        let found = sample.labels.iter().find(|(name, _)| name == "__name__");
        found.map_or("", |(_, name)| name).to_string()
    };
    // Samples of a metric follow each other.
    for group in samples.chunk_by(|a, b| name(a) == name(b)) {
        let name = group.first().map(name).unwrap_or_default();
        let mut points = Vec::new();
        for sample in group.iter().filter(|sample| sample.value.is_finite()) {
            push_field(1, &data_point(sample, start, at), &mut points);
        }
        let is_sum = name.ends_with("_total");
        if is_sum {
            points.extend([2 << 3, CUMULATIVE, 3 << 3, 1]);
        }
        let mut metric = Vec::new();
        push_field(1, name.as_bytes(), &mut metric);
        if name.ends_with("_seconds") {
            push_field(3, b"s", &mut metric);
        }
        push_field(if is_sum { 7 } else { 5 }, &points, &mut metric);
        push_field(2, &metric, &mut scope);
    }
    let (mut resource, mut all, mut out) = (Vec::new(), Vec::new(), Vec::new());
    push_field(1, &attribute("service.name", "tidegate-bench"), &mut resource);
    push_field(1, &resource, &mut all);
    push_field(2, &scope, &mut all);
    push_field(1, &all, &mut out);
    out
}

/// `NumberDataPoint`: times as fixed64, the value as double, labels as attributes.
fn data_point(sample: &SeriesSample, start: i64, at: i64) -> Vec<u8> {
    let mut point = Vec::new();
    for (number, milliseconds) in [(2u8, start), (3, at)] {
        point.push(number << 3 | 1);
        point.extend_from_slice(&(milliseconds.max(0) as u64).saturating_mul(1_000_000).to_le_bytes());
    }
    point.push(4 << 3 | 1);
    point.extend_from_slice(&sample.value.to_le_bytes());
    for (name, value) in sample.labels.iter().filter(|(name, _)| name != "__name__" && name != "job") {
        push_field(7, &attribute(name, value), &mut point);
    }
    point
}

/// `KeyValue` with a text.
fn attribute(name: &str, value: &str) -> Vec<u8> {
    let (mut text, mut out) = (Vec::new(), Vec::new());
    push_field(1, value.as_bytes(), &mut text);
    push_field(1, name.as_bytes(), &mut out);
    push_field(2, &text, &mut out);
    out
}

/// Target of a URL: the standard path unless another one is given.
pub fn export_target(path: &str) -> String {
    if path == "/" { "/v1/metrics".into() } else { path.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a protobuf message: numbers with their octets (length-delimited, fixed64 or varint).
    fn fields(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut out = Vec::new();
        while let [tag, rest @ ..] = bytes {
            let (kind, number) = (tag & 7, tag >> 3);
            let (content, rest) = match kind {
                1 => rest.split_at(8),
                0 => rest.split_at(1),
                _ => {
                    let (mut length, mut used) = (0, 0);
                    for byte in rest {
                        length |= usize::from(byte & 0x7f) << (7 * used);
                        used += 1;
                        if byte & 0x80 == 0 {
                            break;
                        }
                    }
                    rest[used..].split_at(length)
                }
            };
            out.push((number, content.to_vec()));
            bytes = rest;
        }
        out
    }

    fn only(message: &[u8], number: u8) -> Vec<u8> {
        fields(message).into_iter().find(|(n, _)| *n == number).unwrap().1
    }

    #[test]
    fn sums_and_gauges_have_the_fields_of_the_schema() {
        let sample = |name: &str, label: Option<(&str, &str)>, value| SeriesSample {
            labels: [("__name__", name)]
                .into_iter()
                .chain(label)
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
            value,
        };
        let samples = [
            sample("answers_total", Some(("code", "200")), 5.0),
            sample("answers_total", Some(("code", "404")), 1.0),
            sample("latency_seconds", None, 0.25),
        ];
        let request = metrics_request(&samples, 1000, 2000);
        let resource = only(&request, 1);
        assert!(only(&only(&resource, 1), 1).ends_with(b"tidegate-bench"));
        let scope = only(&resource, 2);
        let metrics: Vec<Vec<u8>> = fields(&scope).into_iter().filter(|(n, _)| *n == 2).map(|(_, m)| m).collect();
        assert_eq!(
            (metrics.len(), only(&metrics[0], 1), only(&metrics[1], 3)),
            (2, b"answers_total".to_vec(), b"s".to_vec())
        );
        let sum = only(&metrics[0], 7);
        assert_eq!((only(&sum, 2), only(&sum, 3)), (vec![CUMULATIVE], vec![1]));
        let points: Vec<Vec<u8>> = fields(&sum).into_iter().filter(|(n, _)| *n == 1).map(|(_, p)| p).collect();
        assert_eq!((points.len(), only(&points[1], 4)), (2, 1.0f64.to_le_bytes().to_vec()));
        assert_eq!(only(&points[0], 2), 1_000_000_000u64.to_le_bytes());
        assert_eq!(only(&only(&only(&points[0], 7), 2), 1), b"200");
        let gauge = only(&metrics[1], 5);
        assert_eq!(only(&only(&gauge, 1), 4), 0.25f64.to_le_bytes());
        assert_eq!((export_target("/"), export_target("/x")), ("/v1/metrics".into(), "/x".to_string()));
    }
}
