//! State of certificates that are ordered by ACME, for pages that show it.

use http_engine::HttpPlan;
use std::sync::Arc;
use tls::x509::Certificate;

/// Times in seconds since 1970.
#[derive(Clone, Debug)]
pub struct AcmeState {
    pub names: Vec<String>,
    pub issuer: String,
    pub challenge: &'static str,
    /// `FILE:LINE` of the directives.
    pub places: Vec<String>,
    /// `None`: not issued yet.
    pub leaf: Option<Arc<Certificate>>,
    pub state: String,
    pub last_error: Option<String>,
    pub last_error_at: Option<i64>,
    /// Failed orders since the last certificate.
    pub failures: i64,
    /// The issuer of the present certificate.
    pub served_by: Option<String>,
    /// Directory of the issuer's server.
    pub uri: String,
    pub next_order: Option<i64>,
}

/// Extension of a plan with issuers: lists the states, read from `state_path`; blocks for reading files.
pub struct AcmeStates(pub fn(&HttpPlan) -> Vec<AcmeState>);

/// Extension of a plan with issuers: asks for orders of the certificates with a name, and returns their names with the
/// results; blocks for writing files.
pub struct AcmeRenewals(pub fn(&HttpPlan, &str) -> Vec<(Vec<String>, std::io::Result<()>)>);
