//! Routes of all kinds: parents, rules, and their conditions.

use std::collections::BTreeMap;

use cluster_model::HostName;
use cluster_objects::types::{GrpcRoute, HttpRoute, ObjectMeta, TcpRoute, TlsRoute, UdpRoute};
use cluster_objects::{ObjectName, ObjectSet, StoredObject};

use crate::attach::attach;
use crate::backends::{BackendReferrer, Backends};
use crate::compiled::{CompiledRoute, CompiledRules};
use crate::conditions::{ConditionFault, ObjectCondition};
use crate::listeners::ListenersState;
use crate::status::{ParentReference, ParentStatus, Statuses};
use crate::{Settings, grpc, http, layer4};

/// Collects the routes of all kinds, the oldest first.
pub(crate) fn collect(set: &ObjectSet, state: &mut ListenersState, backends: &mut Backends<'_>) -> Vec<CompiledRoute> {
    let mut collector = Collector { set, state, backends, routes: Vec::new() };
    collector.of::<HttpRoute>(
        |route| route.spec.parent_refs.iter().flatten().map(ParentReference::from).collect(),
        |route| route.spec.hostnames.clone().unwrap_or_default(),
        http::compile,
    );
    collector.of::<GrpcRoute>(
        |route| route.spec.parent_refs.iter().flatten().map(ParentReference::from).collect(),
        |route| route.spec.hostnames.clone().unwrap_or_default(),
        grpc::compile,
    );
    collector.of::<TlsRoute>(
        |route| route.spec.parent_refs.iter().flatten().map(ParentReference::from).collect(),
        |route| route.spec.hostnames.clone(),
        layer4::compile_tls,
    );
    collector.of::<TcpRoute>(
        |route| route.spec.parent_refs.iter().flatten().map(ParentReference::from).collect(),
        |_| Vec::new(),
        layer4::compile_tcp,
    );
    collector.of::<UdpRoute>(
        |route| route.spec.parent_refs.iter().flatten().map(ParentReference::from).collect(),
        |_| Vec::new(),
        layer4::compile_udp,
    );
    let mut routes = collector.routes;
    // Routes of several kinds share listeners.
    routes.sort_by(|a, b| (&a.0, &a.1.name, a.1.kind).cmp(&(&b.0, &b.1.name, b.1.kind)));
    let mut routes: Vec<CompiledRoute> = routes.into_iter().map(|(_, route)| route).collect();
    layer4::note_second(&mut routes);
    count(&routes, state);
    routes
}

type Age = Option<k8s_openapi::jiff::Timestamp>;

struct Collector<'a, 'b, 'c> {
    set: &'a ObjectSet,
    state: &'b mut ListenersState,
    backends: &'b mut Backends<'c>,
    routes: Vec<(Age, CompiledRoute)>,
}

impl Collector<'_, '_, '_> {
    fn of<T: StoredObject>(
        &mut self,
        parents: fn(&T) -> Vec<ParentReference>,
        hosts: fn(&T) -> Vec<String>,
        compile: fn(&T, &ObjectName, BackendReferrer<'_>, &mut Backends<'_>) -> CompiledRules,
    ) {
        for (name, object) in self.set.by_age::<T>() {
            let names = hosts(object);
            let parsed: Vec<HostName> = names.iter().filter_map(|host| HostName::parse(host).ok()).collect();
            // A route all of whose names are invalid must not become one for all hosts.
            let has_hosts = names.is_empty() || parsed.iter().any(|host| *host != HostName::Any);
            let attachments = attach(self.set, self.state, T::KIND, name, &parents(object), &parsed);
            if attachments.is_empty() {
                continue;
            }
            let mut gateways: Vec<ObjectName> = attachments
                .iter()
                .filter(|attachment| attachment.fault.is_none())
                .map(|attachment| self.state.gateways[attachment.gateway].name.clone())
                .collect();
            gateways.sort();
            gateways.dedup();
            let referring = BackendReferrer { kind: T::KIND, namespace: &name.namespace, gateways: &gateways };
            let mut compiled = compile(object, name, referring, self.backends);
            if !has_hosts {
                compiled.accepted = Some(ConditionFault::new("UnsupportedValue", "no valid name of a host"));
            }
            for host in names.iter().filter(|host| HostName::parse(host).is_err()) {
                compiled.leftovers.push(format!("\"{}\" is no name of a host", host.escape_debug()));
            }
            let metadata: &ObjectMeta = object.metadata();
            let age = metadata.creation_timestamp.as_ref().map(|time| time.0);
            let generation = metadata.generation.unwrap_or(0);
            self.routes
                .push((age, CompiledRoute { kind: T::KIND, name: name.clone(), generation, attachments, compiled }));
        }
    }
}

/// Counts the accepted routes of each listener.
fn count(routes: &[CompiledRoute], state: &mut ListenersState) {
    for route in routes.iter().filter(|route| route.compiled.accepted.is_none()) {
        let mut listeners: Vec<usize> = route
            .attachments
            .iter()
            .flat_map(|attachment| attachment.listeners.iter().map(|(index, _)| *index))
            .collect();
        listeners.sort_unstable();
        listeners.dedup();
        for index in listeners {
            state.listeners[index].attached += 1;
        }
    }
}

/// Writes the conditions of routes at each of their parents.
pub(crate) fn statuses(routes: &[CompiledRoute], settings: &Settings, statuses: &mut Statuses) {
    let mut found: BTreeMap<String, Vec<ParentStatus>> = BTreeMap::new();
    for route in routes {
        let CompiledRules { accepted, partially, resolved, .. } = &route.compiled;
        let parents = found.entry(format!("{} {}", route.kind.name(), route.name)).or_default();
        for attachment in &route.attachments {
            let fault = attachment.fault.as_ref().or(accepted.as_ref());
            let mut conditions = vec![
                ObjectCondition::of("Accepted", "Accepted", fault, route.generation),
                ObjectCondition::of("ResolvedRefs", "ResolvedRefs", resolved.as_ref(), route.generation),
            ];
            if let (None, Some(partially)) = (fault, partially) {
                conditions.push(ObjectCondition::raised("PartiallyInvalid", partially, route.generation));
            }
            parents.push(ParentStatus {
                parent_ref: attachment.parent.clone(),
                controller_name: settings.controller_name.clone(),
                conditions,
            });
        }
    }
    statuses.routes = found;
}
