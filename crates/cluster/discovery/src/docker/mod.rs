//! Containers of Docker and Podman: from `inspect` to routes.

mod addresses;
mod container;
mod multiports;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_model::{Endpoint, ObjectOrigin};
use cluster_objects::Complaint;

pub use container::{Container, ContainerState};
pub(crate) use variables::ROOT;
pub use variables::{VARIABLES, VariableUse};

use crate::labels::{self, Router};
use crate::routes::{HostRoute, router_origin};
use crate::settings::Settings;
use addresses::ServerPlace;

/// Port of containers that expose none, or several, and name none.
const DEFAULT_PORT: u16 = 80;

/// Returns the routes of all containers: those that run first, then by name.
pub fn container_routes(
    containers: &BTreeMap<String, Arc<Container>>,
    settings: &Settings,
    complaints: &mut Vec<Complaint>,
) -> Vec<HostRoute> {
    let place = ServerPlace::find(containers, settings, complaints);
    let mut sorted: Vec<&Arc<Container>> = containers.values().collect();
    sorted.sort_by_key(|container| (!container.state.takes_requests(), &container.name, &container.id));
    let mut found = Vec::new();
    for container in sorted {
        let origin = ObjectOrigin::new("Container", settings.provider.name(), &container.owner_name());
        let read = labels::read_labels(container.label_pairs(), settings.allows_snippets);
        for (router, reason) in &read.problems {
            complaints.push(crate::complaint(&router_origin(&origin, router), reason));
        }
        if read.enable == Some(false) {
            continue;
        }
        let mut routers = read.routers;
        let of_variables = variables::read_container(container);
        complaints.extend(of_variables.problems.iter().map(|reason| crate::complaint(&origin, reason)));
        routers.extend(of_variables.routers);
        if routers.is_empty() {
            if read.enable == Some(true) && read.problems.is_empty() {
                complaints.push(crate::complaint(&origin, "tidegate.enable: there is no label \"tidegate.host\""));
            }
            continue;
        }
        for router in routers {
            let origin = router_origin(&origin, &router.name);
            let target =
                ContainerTarget { container, containers, place: &place, network: read.network.as_deref(), settings };
            let endpoint = target.endpoint(&router).unwrap_or_else(|reason| {
                complaints.push(crate::complaint(&origin, reason));
                None
            });
            found.extend(HostRoute::all_of(&origin, router, endpoint.as_ref()));
        }
    }
    found
}

/// A container, and all that its address depends on.
struct ContainerTarget<'a> {
    container: &'a Container,
    containers: &'a BTreeMap<String, Arc<Container>>,
    place: &'a ServerPlace,
    network: Option<&'a str>,
    settings: &'a Settings,
}

impl ContainerTarget<'_> {
    /// Returns the endpoint of a router; `None` while the container takes no requests.
    ///
    /// # Errors
    /// If the container has no address that the server reaches.
    fn endpoint(&self, router: &Router) -> Result<Option<Endpoint>, String> {
        if !self.container.state.takes_requests() {
            return Ok(None);
        }
        let port = router.port.unwrap_or_else(|| self.container.default_port().unwrap_or(DEFAULT_PORT));
        let (host, port) = self.address(port)?;
        Ok(Some(Endpoint { host: host.to_string(), port, weight: router.weight.unwrap_or(1) }))
    }
}
