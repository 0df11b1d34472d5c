//! Services of paths as groups of servers.

use std::collections::BTreeMap;

use cluster_model::{Endpoint, EndpointGroup, EndpointSource, GroupName, ObjectOrigin};
use cluster_objects::types::{EndpointSlice, Service, ServicePort};
use cluster_objects::{ObjectName, ObjectSet, endpoint_slices_by_service, ready_endpoints};
use conf_syntax::writer::WriteNode;

use crate::Settings;

/// Port of a backend, by number or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortRef {
    Number(i32),
    Name(String),
}

/// Group of a path, before its settings are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathTarget {
    pub group: GroupName,
    pub service: ObjectName,
    pub port: String,
    /// No endpoint is ready.
    pub is_empty: bool,
}

/// Services that paths use.
pub(crate) struct Services<'a> {
    set: &'a ObjectSet,
    slices: BTreeMap<ObjectName, Vec<&'a EndpointSlice>>,
    has_slices: bool,
    pub groups: BTreeMap<GroupName, EndpointGroup>,
}

impl<'a> Services<'a> {
    pub fn new(set: &'a ObjectSet, settings: &Settings) -> Services<'a> {
        Services {
            set,
            slices: endpoint_slices_by_service(set),
            has_slices: !settings.names_services_without_slices || set.all::<EndpointSlice>().next().is_some(),
            groups: BTreeMap::new(),
        }
    }

    /// Adds the group of a port of a Service.
    ///
    /// # Errors
    /// If Service or port do not exist.
    pub fn resolve(&mut self, service: &ObjectName, port: &PortRef, is_service: bool) -> Result<PathTarget, String> {
        let words = |words: &str| format!("Service {service} {words}");
        let object = self.set.get::<Service>(&service.namespace, &service.name);
        let object = object.ok_or_else(|| words("does not exist"))?;
        let spec = object.spec.as_ref().ok_or_else(|| words("has no spec"))?;
        if spec.type_.as_deref() == Some("ExternalName") {
            let host = spec.external_name.as_deref().unwrap_or("").trim_end_matches('.');
            cluster_model::HostName::parse(host)
                .ok()
                .filter(|_| !host.is_empty() && !host.starts_with('*'))
                .ok_or_else(|| words("has no valid externalName"))?;
            let number = match port {
                PortRef::Number(number) => Some(*number),
                PortRef::Name(name) => find_name(spec.ports.as_deref(), name).map(|port| port.port),
            };
            let number =
                number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| words("has no such port"))?;
            let endpoints = vec![Endpoint::new(host, number)];
            return Ok(self.add(service, &number.to_string(), &[], endpoints, None));
        }
        let ports = spec.ports.as_deref();
        let found = match port {
            PortRef::Number(number) => ports.into_iter().flatten().find(|port| port.port == *number),
            PortRef::Name(name) => find_name(ports, name),
        };
        let found = found.ok_or_else(|| match port {
            PortRef::Number(number) => words(&format!("has no port {number}")),
            PortRef::Name(name) => words(&format!("has no port \"{}\"", name.escape_debug())),
        })?;
        let number = found.port.to_string();
        let address = spec.cluster_ip.as_deref().filter(|ip| is_service && ip.parse::<std::net::IpAddr>().is_ok());
        if let (Some(address), Ok(port)) = (address, u16::try_from(found.port)) {
            let endpoints = vec![Endpoint::new(address, port)];
            return Ok(self.add(service, &number, &["service"], endpoints, None));
        }
        let source = EndpointSource {
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            port: found.name.clone().unwrap_or_default(),
            protocol: found.protocol.clone().unwrap_or_else(|| "TCP".into()),
        };
        let (endpoints, has_unusable) = self.endpoints(service, found, &source);
        Ok(self.add(service, &number, &[], endpoints, Some((source, has_unusable))))
    }

    /// Adds the group of the first port of a Service.
    ///
    /// # Errors
    /// As [`Services::resolve`].
    pub fn first_port(&mut self, service: &ObjectName) -> Result<PathTarget, String> {
        let object = self.set.get::<Service>(&service.namespace, &service.name);
        let object = object.ok_or_else(|| format!("Service {service} does not exist"))?;
        let ports = object.spec.as_ref().and_then(|spec| spec.ports.as_ref());
        let port = ports.and_then(|ports| ports.first()).ok_or_else(|| format!("Service {service} has no port"))?;
        self.resolve(service, &PortRef::Number(port.port), false)
    }

    /// Returns the group of a host in the cluster: `NAME.NAMESPACE.svc`, with or without `cluster.local`.
    pub fn of_host(&mut self, host: &str, port: u16) -> Option<PathTarget> {
        let mut labels = host.trim_end_matches('.').split('.');
        let (name, namespace) = (labels.next()?, labels.next()?);
        let rest: Vec<&str> = labels.collect();
        if !matches!(rest.as_slice(), [] | ["svc"] | ["svc", "cluster", "local"]) {
            return None;
        }
        self.resolve(&ObjectName::new(namespace, name), &PortRef::Number(i32::from(port)), false).ok()
    }

    /// Gives a group directives of its own. Other translators use the group without them, so it gets another name.
    pub fn with_settings(&mut self, name: &GroupName, settings: Vec<WriteNode>) -> GroupName {
        let Some(group) = self.groups.get(name) else { return name.clone() };
        if settings.is_empty() {
            return name.clone();
        }
        let own = GroupName::joined(name, "ingress");
        let group = EndpointGroup { settings, ..group.clone() };
        self.groups.insert(own.clone(), group);
        own
    }

    fn add(
        &mut self,
        service: &ObjectName,
        port: &str,
        end: &[&str],
        endpoints: Vec<Endpoint>,
        source: Option<(EndpointSource, bool)>,
    ) -> PathTarget {
        let parts = [&[service.namespace.as_str(), service.name.as_str(), port], end].concat();
        let group = GroupName::new(&parts);
        let origin = ObjectOrigin::new("Service", &service.namespace, &service.name).part(format!("port {port}"));
        let is_empty = endpoints.is_empty();
        let (source, has_unusable) = source.unzip();
        let has_unusable = has_unusable.unwrap_or(false);
        let added = EndpointGroup { origin, endpoints, settings: Vec::new(), source, has_unusable };
        self.groups.entry(group.clone()).or_insert(added);
        PathTarget { group, service: service.clone(), port: port.to_owned(), is_empty }
    }

    /// Returns the endpoints of a port; `true` if some of them cannot be used.
    fn endpoints(&self, service: &ObjectName, port: &ServicePort, source: &EndpointSource) -> (Vec<Endpoint>, bool) {
        if !self.has_slices {
            let host = format!("{}.{}.svc", service.name, service.namespace);
            return (u16::try_from(port.port).map(|port| Endpoint::new(host, port)).into_iter().collect(), false);
        }
        let slices = self.slices.get(service).map_or(&[][..], Vec::as_slice);
        let found = ready_endpoints(slices, &source.port, &source.protocol);
        (found.addresses.into_iter().map(Endpoint::from).collect(), !found.invalid.is_empty())
    }
}

fn find_name<'p>(ports: Option<&'p [ServicePort]>, name: &str) -> Option<&'p ServicePort> {
    ports.into_iter().flatten().find(|port| port.name.as_deref() == Some(name))
}
