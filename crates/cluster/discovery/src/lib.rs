//! Translates containers of Docker and Podman, and services of Consul, to a [`Model`].
//!
//! ```text
//! containers ─▶ docker ─┐
//!                       ├─▶ routes ─▶ hosts ─▶ Model
//! services ───▶ consul ─┘
//! ```
//!
//! Labels (`tidegate.*`) and tags have one vocabulary, in [`labels`]; containers may have the variables of nginx-proxy beside
//! it. Both become [`HostRoute`]s: a host, a path, an endpoint and settings. Routes with one host and one path form a group.
//!
//! [`translate_catalog`] is a pure function of a [`Catalog`] and [`Settings`]: the order in which containers and services came to be
//! known does not matter.

#![forbid(unsafe_code)]

mod certificates;
mod consul;
mod docker;
mod hosts;
pub mod labels;
mod locations;
mod params;
mod recorded;
mod routes;
mod settings;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster_model::{Model, ObjectOrigin};
use cluster_objects::Complaint;

pub use certificates::{CertificateFolder, FolderFile};
pub use consul::{ServiceInstance, routes_services};
pub use docker::{Container, ContainerState, VARIABLES, VariableUse};
pub use recorded::read_recorded;
pub use routes::{EndpointProtocol, HostRoute, HttpsMode, RouteSettings};
pub use settings::{AcmeSettings, Provider, Settings};

/// Containers or services of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// By identifier.
    pub containers: BTreeMap<String, Arc<Container>>,
    /// Instances by name of their service.
    pub services: BTreeMap<String, Arc<Vec<ServiceInstance>>>,
}

/// Container or service that is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerName {
    /// `Container` or `Service`.
    pub kind: String,
    pub name: String,
}

impl From<&ObjectOrigin> for OwnerName {
    fn from(origin: &ObjectOrigin) -> OwnerName {
        OwnerName { kind: origin.kind.clone(), name: origin.name.clone() }
    }
}

/// Result of a translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogTranslation {
    pub model: Model,
    /// Labels and values that are left out, and why. Sorted, without duplicates.
    pub complaints: Vec<Complaint>,
    /// Containers and services with routes.
    pub owners: BTreeSet<OwnerName>,
}

/// Translates a catalog without some containers and services.
pub fn translate_catalog(catalog: &Catalog, settings: &Settings, without: &BTreeSet<OwnerName>) -> CatalogTranslation {
    let mut complaints = Vec::new();
    let mut routes = match settings.provider {
        Provider::Docker | Provider::Podman => docker::container_routes(&catalog.containers, settings, &mut complaints),
        Provider::Consul => consul::service_routes(&catalog.services, settings, &mut complaints),
    };
    let owners = routes.iter().map(|route| OwnerName::from(&route.origin)).collect();
    routes.retain(|route| !without.contains(&OwnerName::from(&route.origin)));
    let model = hosts::build_model(routes, settings, &mut complaints);
    complaints.sort();
    complaints.dedup();
    CatalogTranslation { model, complaints, owners }
}

/// Returns a complaint about the owner of a route.
pub(crate) fn complaint(origin: &ObjectOrigin, reason: impl Into<String>) -> Complaint {
    let reason = reason.into();
    let reason = if origin.part.is_empty() { reason } else { format!("{}: {reason}", origin.part) };
    Complaint { subject: format!("{}/{} {}", origin.namespace, origin.kind, origin.name), reason }
}
