//! State of certificates that are ordered by ACME, for pages that show it.

use crate::HttpPlan;
use std::sync::Arc;
use tls::x509::Certificate;

/// A certificate and its orders. Times in seconds since 1970.
#[derive(Clone, Debug)]
pub struct AcmeState {
    /// Names that it is for.
    pub names: Vec<String>,
    /// Name of the first issuer.
    pub issuer: String,
    /// Type of challenge, as `challenge` has it.
    pub challenge: &'static str,
    /// `FILE:LINE` of the directives.
    pub places: Vec<String>,
    /// `None`: not issued yet.
    pub leaf: Option<Arc<Certificate>>,
    /// Text for operators.
    pub state: String,
    /// Reason of the last failed order.
    pub last_error: Option<String>,
    /// Time of the last failed order.
    pub last_error_at: Option<i64>,
    /// Failed orders since the last certificate.
    pub failures: i64,
    /// The issuer of the present certificate.
    pub served_by: Option<String>,
    /// Directory of the issuer's server.
    pub uri: String,
    /// Time of the next order; `None`: none is planned.
    pub next_order: Option<i64>,
}

/// Extension of a plan with issuers: lists the states, read from `state_path`; blocks for reading files.
pub struct AcmeStates(pub fn(&HttpPlan) -> Vec<AcmeState>);

/// Extension of a plan with issuers: asks for orders of the certificates with a name, and returns their names with the
/// results; blocks for writing files.
pub struct AcmeRenewals(pub fn(&HttpPlan, &str) -> Vec<(Vec<String>, std::io::Result<()>)>);
