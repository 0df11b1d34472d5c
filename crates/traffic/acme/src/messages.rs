//! Messages of servers (RFC 8555, section 7.1).

use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    pub new_nonce: String,
    pub new_account: String,
    pub new_order: String,
    pub renewal_info: Option<String>,
    #[serde(default)]
    pub meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    pub terms_of_service: Option<String>,
    #[serde(default)]
    pub external_account_required: bool,
    #[serde(default)]
    pub profiles: HashMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AccountState {
    pub status: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OrderState {
    pub status: String,
    #[serde(default)]
    pub authorizations: Vec<String>,
    #[serde(default)]
    pub finalize: String,
    pub certificate: Option<String>,
    pub error: Option<Problem>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Authorization {
    pub status: String,
    pub identifier: IdentifierValue,
    #[serde(default)]
    pub challenges: Vec<Challenge>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct IdentifierValue {
    pub value: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Challenge {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub token: String,
    pub error: Option<Problem>,
}

/// A problem document (RFC 7807; RFC 8555, section 6.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Problem {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub subproblems: Vec<Problem>,
}

/// Octets of a problem's text that are logged.
const TEXT_MAX: usize = 512;

/// Returns a server's text for a line of a log: without control characters, and bounded.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_MAX).collect()
}

impl Problem {
    /// Compares the last part of the type.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.kind.strip_prefix("urn:ietf:params:acme:error:") == Some(name)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(&self.kind);
        write!(f, "{} ({})", shown(&self.detail), shown(kind))?;
        self.subproblems.iter().take(4).try_for_each(|one| write!(f, "; {}", shown(&one.detail)))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenewalInfo {
    pub suggested_window: Window,
    #[serde(rename = "explanationURL")]
    pub explanation: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Window {
    /// RFC 3339.
    pub start: String,
    pub end: String,
}
