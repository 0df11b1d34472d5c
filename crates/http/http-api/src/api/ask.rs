//! A request of the API, apart from its connection.

use super::answer::{ApiError, ApiResponse, select_fields};
use crate::shared::status_tree::Side;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use upstream_directives::inventory::{AreaInventory, Inventory};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

pub struct ApiRequest {
    /// Path below the location.
    pub path: String,
    pub verb: Verb,
    pub fields: Option<String>,
    pub key: Option<String>,
    /// Tags to purge.
    pub tag: Option<String>,
    pub dry_run: bool,
    pub if_match: Option<String>,
    /// A browser sends a change for a page of another site.
    pub foreign: bool,
    pub body: Bytes,
    pub writes: bool,
    /// Address that accepted the connection.
    pub local: String,
    pub inventory: Arc<Inventory>,
}

impl ApiRequest {
    /// Tells whether the method has a body that the answer depends on.
    pub fn reads_body(&self) -> bool {
        self.writes && matches!(self.verb, Verb::Post | Verb::Put | Verb::Patch)
    }
    pub fn area(&self, side: Side) -> &AreaInventory {
        side.of(&self.inventory)
    }
    /// Fails with `JsonError`.
    pub fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.body).map_err(|e| ApiError::new(415, "JsonError", format!("json error: {e}")))
    }
    pub fn object(&self, value: Value) -> Result<ApiResponse, ApiError> {
        Ok(ApiResponse::json(&select_fields(value, self.fields.as_deref())))
    }
}
