//! `TLSRoute`, `TCPRoute` and `UDPRoute`: connections, or sessions of datagrams, go to the backends of the first rule.

use std::collections::BTreeSet;

use cluster_objects::types::{TcpRoute, TlsRoute, UdpRoute};
use cluster_objects::{Kind, ObjectName};

use crate::api::BackendRef;
use crate::backends::{Backends, Referring};
use crate::compiled::{Compiled, Route};
use crate::conditions::Fault;

macro_rules! compile {
    ($($function:ident, $type:ident;)*) => {$(
        pub(crate) fn $function(
            route: &$type,
            _: &ObjectName,
            referring: Referring<'_>,
            backends: &mut Backends<'_>,
        ) -> Compiled {
            let mut compiled = Compiled::default();
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

/// Leaves one route to each listener without names: the oldest.
pub(crate) fn keep_first(routes: &mut [Route]) {
    let mut taken = BTreeSet::new();
    for route in routes.iter_mut().filter(|route| matches!(route.kind, Kind::TcpRoute | Kind::UdpRoute)) {
        let mut own = BTreeSet::new();
        for attachment in &mut route.attachments {
            if attachment.fault.is_some() {
                continue;
            }
            attachment.listeners.retain(|(index, _)| !taken.contains(index));
            own.extend(attachment.listeners.iter().map(|(index, _)| *index));
            if attachment.listeners.is_empty() {
                let words = "an older route has each listener";
                attachment.fault = Some(Fault::new("NotAllowedByListeners", words));
            }
        }
        taken.extend(own);
    }
}
