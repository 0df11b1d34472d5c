//! Kubernetes objects by kind, namespace and name, for the translators of Gateway API and Ingress.
//!
//! An [`ObjectSet`] is filled from manifests ([`read_manifests`]) or by a watcher ([`ObjectSet::upsert`],
//! [`ObjectSet::remove`]). Its order depends on names and times of creation only, never on the order of arrival. The
//! crate does no I/O.

#![forbid(unsafe_code)]

mod complaint;
mod endpoints;
mod grants;
mod ingress_versions;
mod kinds;
mod manifests;
mod names;
mod set;

pub use complaint::Complaint;
pub use endpoints::{
    ReadyEndpoints, endpoint_slices_by_service, endpoint_slices_of, ready_endpoints, service_of_slice,
};
pub use grants::{Referent, Referrer};
pub use kinds::{Kind, Object, ObjectSet, StoredObject};
pub use manifests::{DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX, DOCUMENT_NODES_MAX, parse_object, read_manifests};
pub use names::{is_label, is_subdomain};
pub use set::ObjectName;

/// Types of the objects, from `gateway-api` (experimental channel, which contains the standard one) and `k8s-openapi`.
pub mod types {
    pub use gateway_api::apis::experimental::{
        gatewayclasses, gateways, grpcroutes, httproutes, listenersets, referencegrants, tcproutes, tlsroutes,
        udproutes,
    };
    pub use gateway_api::apis::standard::backendtlspolicies;
    pub use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServicePort};
    pub use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
    pub use k8s_openapi::api::networking::v1::{Ingress, IngressBackend, IngressClass};
    pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    pub use backendtlspolicies::BackendTlsPolicy;
    pub use gatewayclasses::GatewayClass;
    pub use gateways::Gateway;
    pub use grpcroutes::GrpcRoute;
    pub use httproutes::HttpRoute;
    pub use listenersets::ListenerSet;
    pub use referencegrants::ReferenceGrant;
    pub use tcproutes::TcpRoute;
    pub use tlsroutes::TlsRoute;
    pub use udproutes::UdpRoute;
}

#[cfg(test)]
mod tests;
