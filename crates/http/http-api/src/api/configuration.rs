//! Access to the configuration that serves, which the program gives to the API: only the program has its texts, and only
//! the master process may change them.

use http_engine::HttpPlan;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::oneshot;
use upstream_directives::inventory::Inventory;

/// A request about configurations that the master answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRequest {
    /// A new main file; other files that were sent before stay.
    Main(Vec<u8>, Terms),
    /// All files: texts by names, relative to the folder of the main file. Without attachments, those of the active configuration stay.
    Files(BTreeMap<String, Vec<u8>>, Option<BTreeMap<String, Attachment>>, Terms),
    Rollback(u64, Terms),
    List,
    /// The files of a kept configuration.
    Show(u64),
    /// Level of all error logs, as a number; `None`: as configured.
    Level(Option<u8>),
}

/// File that directives of a new configuration read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    Sent(Vec<u8>),
    /// SHA-256 of a file that an earlier change with this name has brought, in hexadecimal.
    Stored(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub dry_run: bool,
    /// One of these generations must be active.
    pub if_match: Option<Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConfigRefusal {
    pub status: u16,
    pub code: &'static str,
    pub text: String,
    /// Complaints about the configuration, as `-t` has them.
    pub complaints: Option<Value>,
}

/// Codes of refusals, which travel between processes as texts.
const CODES: &[&str] = &[
    "AddressUnavailable",
    "AttachmentNotFound",
    "ConfigBusy",
    "ConfigFormatError",
    "ConfigInvalid",
    "ConfigNotFound",
    "ConfigReadOnly",
    "ConfigRefused",
    "ConfigTooLarge",
    "ConfigUncertain",
    "ConfigUnavailable",
    "PreconditionFailed",
];

impl ConfigRefusal {
    pub fn new(status: u16, code: &'static str, text: impl Into<String>) -> ConfigRefusal {
        ConfigRefusal { status, code, text: text.into(), complaints: None }
    }
    pub fn internal(text: impl Into<String>) -> ConfigRefusal {
        ConfigRefusal::new(500, "InternalError", text)
    }
    pub fn code(text: &str) -> &'static str {
        CODES.iter().copied().find(|code| *code == text).unwrap_or("InternalError")
    }
}

pub struct ConfigReply {
    pub result: Result<Value, ConfigRefusal>,
    /// Compares a rehearsed configuration with the active one. Slow for large ones.
    pub diff: Option<Box<dyn FnOnce() -> Value + Send>>,
}

pub trait Configuration: Send + Sync {
    /// Generation, origin and files. Times are in milliseconds since 1970.
    fn facts(&self) -> Value;
    /// Every directive with its place. Blocks, as the others do: texts are parsed.
    fn tree(&self) -> Value;
    /// The effective configuration, each value with the place that it comes from.
    fn plan(&self) -> Value;
    /// Texts of the files, by name.
    ///
    /// # Errors
    /// A text has no form in JSON.
    fn files(&self) -> Result<Value, ConfigRefusal>;
    fn logs(&self) -> Value;
    /// Asks the master.
    ///
    /// # Errors
    /// There is none, or too many requests are under way.
    fn submit(&self, what: ConfigRequest) -> Result<oneshot::Receiver<ConfigReply>, ConfigRefusal>;
}

static CURRENT: RwLock<Option<Arc<dyn Configuration>>> = RwLock::new(None);

/// Sets the configuration that serves.
pub fn serve_configuration(configuration: Option<Arc<dyn Configuration>>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = configuration;
}

pub(super) fn current() -> Option<Arc<dyn Configuration>> {
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// In the extensions of a plan with an API.
pub(super) struct Present {
    pub writes: bool,
    /// Configurations that are kept, if the API changes them.
    pub keep: Option<usize>,
    /// For the fuzz target.
    pub inventory: Arc<Inventory>,
}

pub fn has_api(plan: &HttpPlan) -> bool {
    plan.ext::<Present>().is_some()
}

/// Tells whether an API of a plan changes something.
pub fn has_writes(plan: &HttpPlan) -> bool {
    plan.exts::<Present>().any(|present| present.writes)
}

/// Returns how many configurations are kept, if an API of a plan changes them.
pub fn configurations_kept(plan: &HttpPlan) -> Option<usize> {
    plan.exts::<Present>().filter_map(|present| present.keep).max()
}
