//! Statuses of all objects: plain data, which the controller writes to the API server.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::conditions::ObjectCondition;

/// Statuses by name; names are `NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statuses {
    pub classes: BTreeMap<String, ClassStatus>,
    pub gateways: BTreeMap<String, GatewayStatus>,
    pub listener_sets: BTreeMap<String, ListenerSetStatus>,
    /// By `KIND NAMESPACE/NAME`. Other controllers' parents are not listed.
    pub routes: BTreeMap<String, Vec<ParentStatus>>,
    pub policies: BTreeMap<String, Vec<PolicyAncestor>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassStatus {
    pub conditions: Vec<ObjectCondition>,
    pub supported_features: Vec<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// Values of addresses of the type `IPAddress`.
    pub addresses: Vec<String>,
    pub attached_listener_sets: usize,
    pub conditions: Vec<ObjectCondition>,
    pub listeners: Vec<ListenerStatus>,
    /// `spec.infrastructure`, for objects that are made for the Gateway.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub infrastructure_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub infrastructure_annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetStatus {
    pub conditions: Vec<ObjectCondition>,
    pub listeners: Vec<ListenerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    pub name: String,
    pub attached_routes: usize,
    pub supported_kinds: Vec<RouteKindStatus>,
    pub conditions: Vec<ObjectCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteKindStatus {
    pub group: &'static str,
    pub kind: &'static str,
}

/// Status of a route at one of its parents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentStatus {
    pub parent_ref: ParentReference,
    pub controller_name: String,
    pub conditions: Vec<ObjectCondition>,
}

/// `parentRef` as the route has it, so that the status is found again.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Status of a policy at a Gateway that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestor {
    pub ancestor_ref: ParentReference,
    pub controller_name: String,
    pub conditions: Vec<ObjectCondition>,
}
