//! `TLSRoute`, `TCPRoute` and `UDPRoute`: connections, or sessions of datagrams, go to the backends of the first rule.

use std::collections::BTreeMap;

use cluster_objects::types::{TcpRoute, TlsRoute, UdpRoute};
use cluster_objects::{Kind, ObjectName};

use crate::api::BackendRef;
use crate::backends::{BackendReferrer, Backends};
use crate::compiled::{CompiledRoute, CompiledRules};

macro_rules! compile {
    ($($function:ident, $type:ident;)*) => {$(
        pub(crate) fn $function(
            route: &$type,
            _: &ObjectName,
            referring: BackendReferrer<'_>,
            backends: &mut Backends<'_>,
        ) -> CompiledRules {
            let mut compiled = CompiledRules::default();
            let rules = &route.spec.rules;
            for reference in rules.first().into_iter().flat_map(|rule| &rule.backend_refs) {
                let (backend, fault) = backends.resolve(referring, &BackendRef::from(reference));
                compiled.resolved = compiled.resolved.take().or(fault);
                compiled.backends.push(backend);
            }
            if rules.len() > 1 {
                compiled.leftovers.push("rules behind the first one are left out: they have no matches".into());
            }
            compiled
        }
    )*};
}

compile!(
    compile_tls, TlsRoute;
    compile_tcp, TcpRoute;
    compile_udp, UdpRoute;
);

/// Notes routes that are attached to listeners without names, and get none of their traffic: the oldest route has all of it.
pub(crate) fn note_second(routes: &mut [CompiledRoute]) {
    let mut taken: BTreeMap<usize, ObjectName> = BTreeMap::new();
    for route in routes.iter_mut().filter(|route| matches!(route.kind, Kind::TcpRoute | Kind::UdpRoute)) {
        for (index, _) in route.attachments.iter().flat_map(|attachment| &attachment.listeners) {
            let older = taken.entry(*index).or_insert_with(|| route.name.clone());
            if *older != route.name {
                route.compiled.leftovers.push(format!("the older route {older} has the traffic of a listener"));
            }
        }
    }
}
