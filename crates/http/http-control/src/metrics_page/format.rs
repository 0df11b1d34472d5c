//! Formats of the page, and the sets of names that it has.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
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

impl Format {
    pub fn named(name: &[u8]) -> Option<Format> {
        Some(match name {
            b"tidegate" => Format::Tidegate,
            b"prometheus" => Format::Prometheus,
            b"openmetrics" => Format::OpenMetrics,
            b"json" => Format::Json,
            b"nginx" => Format::Nginx,
            b"nginxplus" => Format::NginxPlus,
            b"all" => Format::All,
            _ => return None,
        })
    }
    pub fn negotiated(self, prefers_openmetrics: impl FnOnce() -> bool) -> Format {
        match self {
            Format::Tidegate if prefers_openmetrics() => Format::OpenMetrics,
            Format::Tidegate => Format::Prometheus,
            format => format,
        }
    }
    pub fn media_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => metrics::OPENMETRICS_TYPE,
            Format::Json => "application/json",
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
            assert!(Format::named(name.as_bytes()).is_some(), "{name}");
        }
        assert_eq!(Format::named(b"xml"), None);
        assert_eq!(Format::Tidegate.negotiated(|| true), Format::OpenMetrics);
        assert_eq!(Format::Tidegate.negotiated(|| false), Format::Prometheus);
        assert_eq!(Format::Nginx.negotiated(|| true), Format::Nginx);
    }
}
