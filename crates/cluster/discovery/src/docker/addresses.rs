//! Addresses of containers: those in the networks that the server is in, as nginx-proxy has it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cluster_objects::Complaint;

use super::ContainerTarget;
use super::container::{Container, NetworkAddresses};
use crate::settings::Settings;

/// Network of Swarm's published ports: containers cannot be reached by it.
const INGRESS_NETWORK: &str = "ingress";
/// Containers that lend their network in a row at most.
const LENDERS_MAX: usize = 4;

/// Networks that the server is in.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerPlace {
    /// The host itself, or a container with its network: it reaches the addresses of all networks of the engine.
    Host,
    Networks(BTreeMap<String, NetworkAddresses>),
}

impl ServerPlace {
    /// Finds the server's container.
    pub fn find(
        containers: &BTreeMap<String, Arc<Container>>,
        settings: &Settings,
        complaints: &mut Vec<Complaint>,
    ) -> ServerPlace {
        let container = match &settings.server_container {
            Some(name) => {
                let found = find(containers, name);
                if found.is_none() {
                    let reason = "does not exist: the server is taken to be on the host".to_owned();
                    complaints.push(Complaint { subject: format!("--server-container {name}"), reason });
                }
                found
            }
            None => settings.server_hostname.as_deref().and_then(|name| {
                let is_own = |container: &&Arc<Container>| {
                    container.state.takes_requests()
                        && (container.hostname == name || (name.len() >= 12 && container.id.starts_with(name)))
                };
                containers.values().find(is_own)
            }),
        };
        match container {
            None => ServerPlace::Host,
            Some(own) if own.is_on_host_network() => ServerPlace::Host,
            Some(own) => ServerPlace::Networks(networks_of(own, containers).clone()),
        }
    }

    fn gateway(&self) -> Option<IpAddr> {
        match self {
            ServerPlace::Host => Some(Ipv4Addr::LOCALHOST.into()),
            ServerPlace::Networks(networks) => networks.values().find_map(|network| network.gateway),
        }
    }
}

/// Returns the container with a name or an identifier, which may be cut off behind 12 digits.
fn find<'a>(containers: &'a BTreeMap<String, Arc<Container>>, name: &str) -> Option<&'a Arc<Container>> {
    let by_name = containers.values().find(|container| container.name == name || container.id == name);
    by_name.or_else(|| {
        let begins = |container: &&Arc<Container>| name.len() >= 12 && container.id.starts_with(name);
        containers.values().find(begins)
    })
}

/// Returns the networks of a container, or of the one whose network it uses (`network_mode: service:NAME`, pods).
fn networks_of<'a>(
    container: &'a Container,
    containers: &'a BTreeMap<String, Arc<Container>>,
) -> &'a BTreeMap<String, NetworkAddresses> {
    &lender(container, containers).networks
}

fn lender<'a>(container: &'a Container, containers: &'a BTreeMap<String, Arc<Container>>) -> &'a Container {
    let mut current = container;
    for _ in 0..LENDERS_MAX {
        let Some(name) = current.network_mode.strip_prefix("container:") else { return current };
        let Some(next) = find(containers, name) else { return current };
        current = next;
    }
    current
}

impl ContainerTarget<'_> {
    /// Returns the address and port by which the server reaches a port of the container.
    ///
    /// # Errors
    /// If there is none: names the missing part.
    pub fn address(&self, port: u16) -> Result<(IpAddr, u16), String> {
        let owner = lender(self.container, self.containers);
        if owner.is_on_host_network() {
            let gateway = self.place.gateway();
            let no_gateway = "it has the host's network, and the server has no network with a gateway";
            return gateway.map(|address| (address, port)).ok_or_else(|| no_gateway.to_owned());
        }
        if !self.settings.uses_published_ports
            && let Some(address) = self.network_address(owner)?
        {
            return Ok((address, port));
        }
        let published = owner.published.get(&port).and_then(|published| {
            let address = match (self.place, published.address) {
                (ServerPlace::Host, address) => Some(address.unwrap_or(Ipv4Addr::LOCALHOST.into())),
                // A port of one address of the host is closed to containers.
                (ServerPlace::Networks(_), Some(_)) => None,
                (ServerPlace::Networks(_), None) => self.place.gateway(),
            };
            Some((address?, published.port))
        });
        published.ok_or_else(|| match self.place {
            _ if self.settings.uses_published_ports => format!("its port {port} is not published (--published-ports)"),
            ServerPlace::Host => format!("it has no address, and its port {port} is not published"),
            ServerPlace::Networks(networks) => {
                let names: Vec<&str> = networks.keys().map(String::as_str).collect();
                let own: Vec<&str> = owner.networks.keys().map(String::as_str).collect();
                format!(
                    "it shares no network with the server (its own: {}; the server's: {})",
                    list(&own),
                    list(&names)
                )
            }
        })
    }

    fn network_address(&self, owner: &Container) -> Result<Option<IpAddr>, String> {
        let reaches = |name: &str| match self.place {
            ServerPlace::Host => true,
            ServerPlace::Networks(networks) => networks.contains_key(name),
        };
        if let Some(name) = self.network {
            let Some(network) = owner.networks.get(name) else {
                let known: Vec<&str> = owner.networks.keys().map(String::as_str).collect();
                return Err(format!(
                    "tidegate.network: it is not in the network \"{}\" ({})",
                    shown(name),
                    list(&known)
                ));
            };
            if !reaches(name) {
                return Err(format!("tidegate.network: the server is not in the network \"{}\"", shown(name)));
            }
            return Ok(self.preferred(network));
        }
        let usable = |(name, _): &(&String, &NetworkAddresses)| name.as_str() != INGRESS_NETWORK && reaches(name);
        let mut networks: Vec<(&String, &NetworkAddresses)> = owner.networks.iter().filter(usable).collect();
        networks.sort_by_key(|(name, _)| self.settings.network.as_ref() != Some(*name));
        Ok(networks.into_iter().find_map(|(_, network)| self.preferred(network)))
    }

    fn preferred(&self, network: &NetworkAddresses) -> Option<IpAddr> {
        match self.settings.prefers_ipv6 {
            true => network.ipv6.or(network.ipv4),
            false => network.ipv4.or(network.ipv6),
        }
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn shown(name: &str) -> String {
    name.chars().take(128).collect::<String>().escape_debug().to_string()
}
