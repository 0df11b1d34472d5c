//! Services and their endpoints as groups, and the way in which routes reach them.

use std::collections::BTreeMap;

use cluster_model::{
    Backend, BackendProtocol, BackendTls, Endpoint, EndpointGroup, EndpointSource, GroupName, Model, ObjectOrigin,
};
use cluster_objects::types::{EndpointSlice, Service, ServicePort};
use cluster_objects::{
    Complaint, Kind, ObjectName, ObjectSet, Referent, Referrer, endpoint_slices_by_service, ready_endpoints,
};

use crate::Settings;
use crate::api::{BackendRef, GROUP};
use crate::conditions::ConditionFault;
use crate::policies::Policies;
use crate::status::PolicyAncestor;

/// Services that routes use.
pub(crate) struct Backends<'a> {
    set: &'a ObjectSet,
    slices: BTreeMap<ObjectName, Vec<&'a EndpointSlice>>,
    /// Without any slice in the set, groups have the services' names in the cluster.
    has_slices: bool,
    groups: BTreeMap<GroupName, EndpointGroup>,
    policies: Policies<'a>,
    pub complaints: Vec<Complaint>,
}

/// Route that uses a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendReferrer<'a> {
    pub kind: Kind,
    pub namespace: &'a str,
    /// Gateways that the route is attached to.
    pub gateways: &'a [ObjectName],
}

impl<'a> Backends<'a> {
    pub fn new(set: &'a ObjectSet, settings: &Settings) -> Backends<'a> {
        Backends {
            set,
            slices: endpoint_slices_by_service(set),
            has_slices: !settings.names_services_without_slices || set.all::<EndpointSlice>().next().is_some(),
            groups: BTreeMap::new(),
            policies: Policies::new(set),
            complaints: Vec::new(),
        }
    }

    pub fn take_groups(&mut self) -> BTreeMap<GroupName, EndpointGroup> {
        std::mem::take(&mut self.groups)
    }

    /// Adds the authorities that backends are verified with.
    pub fn add_authorities(&self, model: &mut Model) {
        self.policies.add_authorities(model);
    }

    pub fn policy_statuses(&self, settings: &Settings) -> BTreeMap<String, Vec<PolicyAncestor>> {
        self.policies.statuses(settings)
    }

    /// Returns the backend of a reference. With a fault, the backend has no group: its share is answered with an error.
    pub fn resolve(&mut self, route: BackendReferrer<'_>, reference: &BackendRef) -> (Backend, Option<ConditionFault>) {
        let mut backend = Backend::new(None);
        backend.weight = u32::try_from(reference.weight).unwrap_or(0);
        match self.find(route, reference, &mut backend) {
            Ok(()) => (backend, None),
            Err(fault) => (Backend { group: None, tls: None, ..backend }, Some(fault)),
        }
    }

    fn find(
        &mut self,
        route: BackendReferrer<'_>,
        reference: &BackendRef,
        backend: &mut Backend,
    ) -> Result<(), ConditionFault> {
        let BackendRef { group, kind, name, .. } = reference;
        if !group.is_empty() || kind != "Service" {
            return Err(ConditionFault::new(
                "InvalidKind",
                format!("backends of the kind {} are not supported", kind.escape_debug()),
            ));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(route.namespace);
        let from = Referrer { group: GROUP, kind: route.kind.name(), namespace: route.namespace };
        if !self.set.permits(from, Referent { group, kind, namespace, name }) {
            let words = format!("no ReferenceGrant in {namespace} permits Service {name}");
            return Err(ConditionFault::new("RefNotPermitted", words));
        }
        let missing =
            |words: &str| ConditionFault::new("BackendNotFound", format!("Service {namespace}/{name}: {words}"));
        let service = self.set.get::<Service>(namespace, name).ok_or_else(|| missing("does not exist"))?;
        let spec = service.spec.as_ref();
        if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
            return Err(ConditionFault::new(
                "InvalidKind",
                format!("Service {namespace}/{name}: ExternalName is not supported"),
            ));
        }
        let number = reference.port.ok_or_else(|| ConditionFault::new("UnsupportedValue", "a Service needs a port"))?;
        let is_udp = route.kind == Kind::UdpRoute;
        let has_protocol = |port: &&ServicePort| (port.protocol.as_deref() == Some("UDP")) == is_udp;
        let ports = spec.and_then(|spec| spec.ports.as_ref());
        let port = ports.into_iter().flatten().filter(has_protocol).find(|port| port.port == number);
        let port = port.ok_or_else(|| missing(&format!("has no port {number}")))?;
        backend.protocol = match (route.kind, port.app_protocol.as_deref()) {
            (Kind::GrpcRoute, _) => BackendProtocol::Grpc,
            (_, Some("kubernetes.io/h2c" | "h2c" | "http2")) => BackendProtocol::Http2,
            (_, Some("grpc")) if route.kind == Kind::HttpRoute => BackendProtocol::Http2,
            _ => BackendProtocol::Http1,
        };
        let is_http = matches!(route.kind, Kind::HttpRoute | Kind::GrpcRoute);
        let mut tls: Option<BackendTls> = None;
        if is_http {
            let target = ObjectName::new(namespace, name);
            match self.policies.find(self.set, &target, port.name.as_deref(), route.gateways) {
                None => {}
                Some(Ok(found)) => tls = Some(found),
                // Cleartext would not be what the policy asks for.
                Some(Err(())) => return Ok(()),
            }
            if tls.is_none() && matches!(port.app_protocol.as_deref(), Some("kubernetes.io/wss" | "https")) {
                let words = format!("Service {namespace}/{name}: TLS needs a BackendTLSPolicy");
                return Err(ConditionFault::new("UnsupportedProtocol", words));
            }
        }
        backend.tls = tls;
        backend.group = Some(self.group(&ObjectName::new(namespace, name), port, is_udp));
        Ok(())
    }

    fn group(&mut self, service: &ObjectName, port: &ServicePort, is_udp: bool) -> GroupName {
        let number = port.port.to_string();
        let mut parts = vec![service.namespace.as_str(), service.name.as_str(), number.as_str()];
        if is_udp {
            parts.push("udp");
        }
        let name = GroupName::new(&parts);
        if !self.groups.contains_key(&name) {
            let origin = ObjectOrigin::new("Service", &service.namespace, &service.name).part(format!("port {number}"));
            let source = EndpointSource {
                namespace: service.namespace.clone(),
                service: service.name.clone(),
                port: port.name.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            };
            let (endpoints, has_unusable) = self.endpoints(service, port, &source);
            let source = Some(source);
            self.groups
                .insert(name.clone(), EndpointGroup { origin, endpoints, settings: Vec::new(), source, has_unusable });
        }
        name
    }

    /// Adds a group with the endpoints of a known one and other settings.
    pub fn add_variant(
        &mut self,
        known: &GroupName,
        name: &GroupName,
        change: impl FnOnce(&EndpointGroup) -> EndpointGroup,
    ) {
        if let (Some(group), false) = (self.groups.get(known), self.groups.contains_key(name)) {
            let variant = change(group);
            self.groups.insert(name.clone(), variant);
        }
    }

    /// Returns the endpoints of a port; `true` if some of them cannot be used.
    fn endpoints(
        &mut self,
        service: &ObjectName,
        port: &ServicePort,
        source: &EndpointSource,
    ) -> (Vec<Endpoint>, bool) {
        if !self.has_slices {
            let host = format!("{}.{}.svc", service.name, service.namespace);
            return (u16::try_from(port.port).map(|port| Endpoint::new(host, port)).into_iter().collect(), false);
        }
        let slices = self.slices.get(service).map_or(&[][..], Vec::as_slice);
        let found = ready_endpoints(slices, &source.port, &source.protocol);
        let has_unusable = !found.invalid.is_empty();
        for address in found.invalid {
            let words = format!("the endpoint {} is no IP address", address.escape_debug());
            self.complaints.push(Complaint::about(Kind::Service, &service.namespace, &service.name, words));
        }
        (found.addresses.into_iter().map(Endpoint::from).collect(), has_unusable)
    }
}
