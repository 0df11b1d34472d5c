//! Translates objects of Gateway API to a [`Model`], and writes the outcome for each of them in conditions.
//!
//! [`translate_gateways`] is a pure function of a set of objects and [`Settings`]: it depends neither on the order in which the
//! objects came nor on the time.

#![forbid(unsafe_code)]

mod api;
mod attach;
mod backends;
mod classes;
mod compiled;
mod complaints;
mod conditions;
mod filters;
mod grpc;
mod hosts;
mod http;
mod layer4;
mod listener_status;
mod listeners;
mod policies;
mod routes;
mod selectors;
mod sessions;
mod status;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cluster_model::Model;
use cluster_objects::{Complaint, ObjectName, ObjectSet};

pub use classes::{SUPPORTED_FEATURES, is_ours};
pub use conditions::{ConditionStatus, ObjectCondition};
pub use status::{
    ClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus, ParentReference, ParentStatus, PolicyAncestor,
    RouteKindStatus, Statuses,
};

/// Name that a `GatewayClass` of Tidegate has in `controllerName`.
pub const CONTROLLER_NAME: &str = "tidegate.invalid/gateway-controller";

/// Settings of the controller, which no object has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub controller_name: String,
    /// Serves Gateways of this class only, whatever its `GatewayClass` says.
    pub class: Option<String>,
    /// Serves this Gateway only, if it is of a class of ours.
    pub only: Option<ObjectName>,
    /// Serves all Gateways if the set has no `GatewayClass` at all.
    pub serves_all_without_classes: bool,
    /// Without any slice in the set, groups contain the names of Services: manifests have none. In a cluster, a set without slices is
    /// one in which nothing is ready.
    pub names_services_without_slices: bool,
    /// Addresses of Gateways that ask for none themselves. A Gateway without addresses listens on all.
    pub addresses: BTreeMap<ObjectName, Vec<IpAddr>>,
    /// Addresses that a Gateway may ask for; `None` for all.
    pub usable_addresses: Option<BTreeSet<IpAddr>>,
    /// Ports that the process uses itself, for probes: no listener can have them.
    pub reserved_ports: BTreeSet<u16>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            controller_name: CONTROLLER_NAME.into(),
            class: None,
            only: None,
            serves_all_without_classes: true,
            names_services_without_slices: true,
            addresses: BTreeMap::new(),
            usable_addresses: None,
            reserved_ports: BTreeSet::new(),
        }
    }
}

/// Result of a translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayTranslation {
    pub model: Model,
    pub statuses: Statuses,
    /// Objects and parts that are left out.
    pub complaints: Vec<Complaint>,
}

/// Translates the objects of Gateway API.
pub fn translate_gateways(set: &ObjectSet, settings: &Settings) -> GatewayTranslation {
    let mut statuses = Statuses { classes: classes::statuses(set, settings), ..Statuses::default() };
    let mut state = listeners::collect(set, settings);
    let mut backends = backends::Backends::new(set, settings);
    let routes = routes::collect(set, &mut state, &mut backends);
    let mut model = hosts::model(&mut state, &routes);
    model.groups = backends.take_groups();
    backends.add_authorities(&mut model);
    listener_status::write(&state, &mut statuses);
    routes::statuses(&routes, settings, &mut statuses);
    statuses.policies = backends.policy_statuses(settings);
    let complaints = complaints::collect(&statuses, state.complaints, &routes, backends.complaints);
    GatewayTranslation { model, statuses, complaints }
}
