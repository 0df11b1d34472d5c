//! Container, as `GET /containers/ID/json` and `docker inspect` describe it. Members that are missing or `null` are empty: engines
//! and their versions differ.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// State of a container, as far as requests are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Runs and, if it has a health check, is healthy.
    Live,
    /// Its health check has not succeeded yet.
    Starting,
    Unhealthy,
    Paused,
    /// Has got its stop signal.
    Stopping,
    #[default]
    Stopped,
}

impl ContainerState {
    pub fn takes_requests(self) -> bool {
        self == ContainerState::Live
    }
}

/// Addresses of a container in a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkAddresses {
    pub ipv4: Option<IpAddr>,
    pub ipv6: Option<IpAddr>,
    pub gateway: Option<IpAddr>,
}

/// Port of the host that leads to a port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPort {
    /// `None` for all addresses of the host.
    pub address: Option<IpAddr>,
    pub port: u16,
}

/// Container with the facts that its routes depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub id: String,
    /// Without the slash that engines put in front.
    pub name: String,
    pub state: ContainerState,
    pub hostname: String,
    /// Number of the signal that `stop` sends.
    pub stop_signal: u8,
    /// Seconds from the stop signal to the end by force.
    pub stop_seconds: u64,
    pub labels: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// TCP ports.
    pub exposed: BTreeSet<u16>,
    /// By TCP port of the container.
    pub published: BTreeMap<u16, PublishedPort>,
    pub networks: BTreeMap<String, NetworkAddresses>,
    /// `host`, `none`, `container:ID`, or the name of a network.
    pub network_mode: String,
}

impl Container {
    /// Reads the description of a container.
    ///
    /// # Errors
    /// If it has no identifier or a member has another type.
    pub fn from_inspect(value: &Value) -> Result<Container, String> {
        let inspect = Inspect::deserialize(value).map_err(|error| format!("no description of a container: {error}"))?;
        if inspect.id.is_empty() {
            return Err("no description of a container: Id is missing".into());
        }
        Ok(inspect.into_container())
    }

    pub(crate) fn label_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the name in comments, logs and complaints: that of the service of Compose or Swarm, which its containers share, or
    /// that of the container. The configuration stays the same while containers of a service come and go.
    pub(crate) fn owner_name(&self) -> String {
        let label = |name: &str| self.labels.get(name).filter(|value| !value.is_empty());
        match (label("com.docker.compose.project"), label("com.docker.compose.service")) {
            (Some(project), Some(service)) => plain_name(&format!("{project}-{service}"), ""),
            _ => match label("com.docker.swarm.service.name") {
                Some(service) => plain_name(service, ""),
                None => self.name.clone(),
            },
        }
    }

    /// Returns the value of an environment variable that is not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the only TCP port that the container exposes.
    pub(crate) fn default_port(&self) -> Option<u16> {
        let mut ports = self.exposed.iter();
        ports.next().copied().filter(|_| ports.next().is_none())
    }

    pub(crate) fn is_on_host_network(&self) -> bool {
        self.network_mode == "host" || self.networks.contains_key("host")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspect {
    #[serde(default, deserialize_with = "or_default")]
    id: String,
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    state: State,
    #[serde(default, deserialize_with = "or_default")]
    config: Config,
    #[serde(default, deserialize_with = "or_default")]
    host_config: HostConfig,
    #[serde(default, deserialize_with = "or_default")]
    network_settings: NetworkSettings,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct State {
    #[serde(deserialize_with = "or_default")]
    status: String,
    #[serde(deserialize_with = "or_default")]
    running: bool,
    #[serde(deserialize_with = "or_default")]
    paused: bool,
    #[serde(deserialize_with = "or_default")]
    health: Health,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Health {
    #[serde(deserialize_with = "or_default")]
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    #[serde(deserialize_with = "or_default")]
    hostname: String,
    #[serde(deserialize_with = "or_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    exposed_ports: BTreeMap<String, Value>,
    /// A name, or a number as a text or a number.
    stop_signal: Value,
    #[serde(deserialize_with = "or_default")]
    stop_timeout: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    #[serde(deserialize_with = "or_default")]
    network_mode: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NetworkSettings {
    #[serde(deserialize_with = "or_default")]
    networks: BTreeMap<String, Option<Network>>,
    #[serde(deserialize_with = "or_default")]
    ports: BTreeMap<String, Option<Vec<Binding>>>,
    // Podman without a named network.
    #[serde(rename = "IPAddress", deserialize_with = "or_default")]
    ip_address: String,
    #[serde(deserialize_with = "or_default")]
    gateway: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Network {
    #[serde(rename = "IPAddress", deserialize_with = "or_default")]
    ip_address: String,
    #[serde(rename = "GlobalIPv6Address", deserialize_with = "or_default")]
    ipv6_address: String,
    #[serde(deserialize_with = "or_default")]
    gateway: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Binding {
    #[serde(deserialize_with = "or_default")]
    host_ip: String,
    #[serde(deserialize_with = "or_default")]
    host_port: String,
}

/// Reads a member, for which `null` is its default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Inspect {
    fn into_container(self) -> Container {
        let state = self.state.reduced();
        let ports = self.config.exposed_ports.keys().chain(self.network_settings.ports.keys());
        let exposed = ports.filter_map(|port| tcp_port(port)).collect();
        let mut networks: BTreeMap<String, NetworkAddresses> = BTreeMap::new();
        for (name, network) in self.network_settings.networks {
            let network = network.unwrap_or_default();
            let addresses = NetworkAddresses {
                ipv4: address(&network.ip_address),
                ipv6: address(&network.ipv6_address),
                gateway: address(&network.gateway),
            };
            networks.insert(name, addresses);
        }
        let (own, gateway) = (address(&self.network_settings.ip_address), address(&self.network_settings.gateway));
        if networks.is_empty() && own.is_some() {
            networks.insert("default".into(), NetworkAddresses { ipv4: own, ipv6: None, gateway });
        }
        let published = self.network_settings.ports.into_iter().filter_map(|(port, bindings)| {
            let binding = bindings?.into_iter().next()?;
            let address = address(&binding.host_ip).filter(|address| !address.is_unspecified());
            Some((tcp_port(&port)?, PublishedPort { address, port: binding.host_port.parse().ok()? }))
        });
        Container {
            name: plain_name(&self.name, &self.id),
            state,
            hostname: self.config.hostname,
            stop_signal: signal_number(&self.config.stop_signal),
            stop_seconds: self.config.stop_timeout.unwrap_or(10).min(3_600),
            labels: self.config.labels,
            environment: self.config.env.iter().filter_map(|pair| pair.split_once('=')).map(owned).collect(),
            exposed,
            published: published.collect(),
            networks,
            network_mode: self.host_config.network_mode,
            id: self.id,
        }
    }
}

impl State {
    fn reduced(&self) -> ContainerState {
        match (self.status.as_str(), self.health.status.as_str()) {
            // Podman.
            ("stopping", _) => ContainerState::Stopping,
            ("paused", _) => ContainerState::Paused,
            _ if self.paused => ContainerState::Paused,
            _ if !self.running => ContainerState::Stopped,
            (_, "starting") => ContainerState::Starting,
            (_, "unhealthy") => ContainerState::Unhealthy,
            _ => ContainerState::Live,
        }
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Returns the port of `80/tcp` or `80`.
fn tcp_port(text: &str) -> Option<u16> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    port.parse().ok().filter(|port| *port > 0 && protocol == "tcp")
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Returns a name for comments and logs: of other characters than those of Docker's names, none remains.
fn plain_name(name: &str, id: &str) -> String {
    let name = name.trim_start_matches('/');
    let name = if name.is_empty() { id } else { name };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' }).take(256).collect()
}

/// Returns the number of a signal: `SIGQUIT`, `QUIT`, `3`; 15 for an unknown or absent one.
fn signal_number(value: &Value) -> u8 {
    const NAMES: &[(&str, u8)] =
        &[("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("USR2", 12), ("TERM", 15), ("WINCH", 28)];
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok()).filter(|number| *number > 0).unwrap_or(15)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_and_missing_members_are_empty() {
        let container = Container::from_inspect(&json!({
            "Id": "abc", "State": {"Running": true, "Status": "running", "Health": null},
            "Config": {"Env": null, "Labels": null, "ExposedPorts": null, "StopSignal": null},
            "NetworkSettings": {"Networks": null, "Ports": {"80/tcp": null, "53/udp": null}},
        }));
        let container = container.unwrap();
        assert_eq!((container.name.as_str(), container.state), ("abc", ContainerState::Live));
        assert_eq!(container.default_port(), Some(80));
        assert!(Container::from_inspect(&json!({"Config": {}})).is_err());
        assert!(Container::from_inspect(&json!([])).is_err());
    }

    #[test]
    fn states_are_those_of_both_engines() {
        let of = |state: Value| Container::from_inspect(&json!({"Id": "a", "State": state})).unwrap().state;
        let running = |health: &str| json!({"Running": true, "Status": "running", "Health": {"Status": health}});
        assert_eq!(of(running("")), ContainerState::Live);
        assert_eq!(of(running("none")), ContainerState::Live);
        assert_eq!(of(running("healthy")), ContainerState::Live);
        assert_eq!(of(running("starting")), ContainerState::Starting);
        assert_eq!(of(running("unhealthy")), ContainerState::Unhealthy);
        assert_eq!(of(json!({"Running": true, "Paused": true, "Status": "paused"})), ContainerState::Paused);
        assert_eq!(of(json!({"Running": true, "Status": "stopping"})), ContainerState::Stopping);
        assert_eq!(of(json!({"Running": false, "Status": "exited"})), ContainerState::Stopped);
        assert_eq!(of(Value::Null), ContainerState::Stopped);
    }

    #[test]
    fn stop_signals_have_names_and_numbers() {
        for (value, number) in [
            (json!("SIGQUIT"), 3),
            (json!("15"), 15),
            (json!(2), 2),
            (json!("QUIT"), 3),
            (json!("SIGRTMIN+3"), 15),
            (Value::Null, 15),
        ] {
            assert_eq!(signal_number(&value), number, "{value}");
        }
    }

    #[test]
    fn names_keep_no_character_that_comments_have() {
        assert_eq!(plain_name("/web\n}", ""), "web__");
    }
}
