//! Settings of a location, for the context, its variables and the spans.

use conf_schema::words;
use http_engine::HttpTemplate;
use std::sync::Arc;

words! {
    /// `otel_trace_context`
    pub enum Propagation {
        Ignore = "ignore",
        Extract = "extract",
        Inject = "inject",
        Propagate = "propagate",
    }
}

words! {
    /// Names of the automatic attributes.
    pub enum Semconv {
        /// As of version 1.16.0, as in nginx.
        Old = "old",
        /// The stable names of HTTP, since version 1.23.0.
        Stable = "stable",
        Both = "both",
    }
}

pub struct Settings {
    pub extracts: bool,
    pub injects: bool,
    pub name: Option<HttpTemplate>,
    pub attributes: Vec<Arc<(String, HttpTemplate)>>,
    /// Of the attributes.
    pub names: Vec<String>,
    pub semconv: Semconv,
    pub tries: bool,
}

impl Settings {
    pub fn is_old(&self) -> bool {
        self.semconv != Semconv::Stable
    }
    pub fn is_stable(&self) -> bool {
        self.semconv != Semconv::Old
    }
}
