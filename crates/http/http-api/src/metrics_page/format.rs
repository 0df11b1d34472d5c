//! Formats of the page, and the sets of names that it has.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Tidegate's names, as Prometheus text or OpenMetrics according to the client's preference.
    Tidegate,
    Prometheus,
    OpenMetrics,
    Json,
    /// Names of nginx's exporter for `stub_status`.
    Nginx,
    /// Names of nginx's exporter for the commercial edition's API.
    NginxPlus,
    /// All names, as Prometheus text.
    All,
}

pub const NAMES: &str = "tidegate | prometheus | openmetrics | json | nginx | nginxplus | all";

impl MetricsFormat {
    pub fn named(name: &[u8]) -> Option<MetricsFormat> {
        Some(match name {
            b"tidegate" => MetricsFormat::Tidegate,
            b"prometheus" => MetricsFormat::Prometheus,
            b"openmetrics" => MetricsFormat::OpenMetrics,
            b"json" => MetricsFormat::Json,
            b"nginx" => MetricsFormat::Nginx,
            b"nginxplus" => MetricsFormat::NginxPlus,
            b"all" => MetricsFormat::All,
            _ => return None,
        })
    }
    pub fn negotiated(self, prefers_openmetrics: impl FnOnce() -> bool) -> MetricsFormat {
        match self {
            MetricsFormat::Tidegate if prefers_openmetrics() => MetricsFormat::OpenMetrics,
            MetricsFormat::Tidegate => MetricsFormat::Prometheus,
            format => format,
        }
    }
    pub fn media_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => metrics::OPENMETRICS_TYPE,
            MetricsFormat::Json => "application/json",
            _ => metrics::PROMETHEUS_TYPE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_syntax() {
        for name in NAMES.split(" | ") {
            assert!(MetricsFormat::named(name.as_bytes()).is_some(), "{name}");
        }
        assert_eq!(MetricsFormat::named(b"xml"), None);
        assert_eq!(MetricsFormat::Tidegate.negotiated(|| true), MetricsFormat::OpenMetrics);
        assert_eq!(MetricsFormat::Tidegate.negotiated(|| false), MetricsFormat::Prometheus);
        assert_eq!(MetricsFormat::Nginx.negotiated(|| true), MetricsFormat::Nginx);
    }
}
