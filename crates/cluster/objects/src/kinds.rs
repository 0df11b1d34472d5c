//! The kinds that are read, and the set with one map for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::names::{is_label, is_subdomain};
use crate::set::ObjectName;
use crate::types;

/// A type that an [`ObjectSet`] has a map for.
pub trait StoredObject: Clone + PartialEq + Sized + 'static {
    const KIND: Kind;
    fn metadata(&self) -> &ObjectMeta;
    /// Returns the objects of this type by name.
    fn map(set: &ObjectSet) -> &BTreeMap<ObjectName, Arc<Self>>;
    #[doc(hidden)]
    fn map_mut(set: &mut ObjectSet) -> &mut BTreeMap<ObjectName, Arc<Self>>;
}

macro_rules! kinds {
    ($($variant:ident, $field:ident, $type:ty, $name:literal, $group:literal, $namespaced:literal;)*) => {
        /// Kind of an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($variant),* }

        impl Kind {
            /// All kinds that are read.
            pub const ALL: &[Kind] = &[$(Kind::$variant),*];

            /// Returns the name that manifests have in `kind`.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$variant => $name),* }
            }

            /// Returns the API group; empty for the core group.
            pub fn group(self) -> &'static str {
                match self { $(Kind::$variant => $group),* }
            }

            pub fn is_namespaced(self) -> bool {
                match self { $(Kind::$variant => $namespaced),* }
            }
        }

        /// An object of one of the kinds.
        #[derive(Clone, Debug)]
        pub enum Object { $($variant(Arc<$type>)),* }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Object::$variant(_) => Kind::$variant),* }
            }

            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Object::$variant(object) => &object.metadata),* }
            }

            pub(crate) fn parse(kind: Kind, value: Value) -> Result<Object, serde_json::Error> {
                match kind {
                    $(Kind::$variant => serde_json::from_value::<$type>(value)
                        .map(|object| Object::$variant(Arc::new(object)))),*
                }
            }
        }

        $(
            impl From<$type> for Object {
                fn from(object: $type) -> Object {
                    Object::$variant(Arc::new(object))
                }
            }

            impl StoredObject for $type {
                const KIND: Kind = Kind::$variant;
                fn metadata(&self) -> &ObjectMeta {
                    &self.metadata
                }
                fn map(set: &ObjectSet) -> &BTreeMap<ObjectName, Arc<Self>> {
                    &set.$field
                }
                fn map_mut(set: &mut ObjectSet) -> &mut BTreeMap<ObjectName, Arc<Self>> {
                    Arc::make_mut(&mut set.$field)
                }
            }
        )*

        /// Objects by kind, namespace and name. A clone shares the maps of kinds until one of both changes.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct ObjectSet { $($field: Arc<BTreeMap<ObjectName, Arc<$type>>>),* }

        impl ObjectSet {
            /// Adds an object, or replaces the one with its kind and name. Returns whether the set changed.
            ///
            /// # Errors
            /// If the name or the namespace is none that the API server would accept; the set stays as it was.
            pub fn upsert(&mut self, object: Object) -> Result<bool, String> {
                let name = name_of(object.kind(), object.metadata())?;
                Ok(match object {
                    $(Object::$variant(object) => {
                        let old = Arc::make_mut(&mut self.$field).insert(name, object.clone());
                        old.is_none_or(|old| old != object)
                    }),*
                })
            }

            /// Removes an object. Returns whether it was there. `namespace` is empty for kinds without one.
            pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
                let name = ObjectName::new(namespace, name);
                match kind {
                    $(Kind::$variant => {
                        self.$field.contains_key(&name) && Arc::make_mut(&mut self.$field).remove(&name).is_some()
                    }),*
                }
            }

            /// Removes all objects of a kind.
            pub fn remove_all(&mut self, kind: Kind) {
                match kind { $(Kind::$variant => self.$field = Arc::default()),* }
            }

            /// Replaces all objects of a kind by those of another set, which both share until one of them changes.
            pub fn share_all(&mut self, kind: Kind, other: &ObjectSet) {
                match kind { $(Kind::$variant => self.$field = other.$field.clone()),* }
            }

            /// Tells whether the set has an object of this kind and name.
            pub fn contains(&self, kind: Kind, name: &ObjectName) -> bool {
                match kind { $(Kind::$variant => self.$field.contains_key(name)),* }
            }

            /// Returns the number of objects of all kinds.
            pub fn len(&self) -> usize {
                0 $(+ self.$field.len())*
            }
        }
    };
}

kinds! {
    BackendTlsPolicy, backend_tls_policies, types::BackendTlsPolicy, "BackendTLSPolicy", "gateway.networking.k8s.io", true;
    ConfigMap, config_maps, types::ConfigMap, "ConfigMap", "", true;
    EndpointSlice, endpoint_slices, types::EndpointSlice, "EndpointSlice", "discovery.k8s.io", true;
    Gateway, gateways, types::Gateway, "Gateway", "gateway.networking.k8s.io", true;
    GatewayClass, gateway_classes, types::GatewayClass, "GatewayClass", "gateway.networking.k8s.io", false;
    GrpcRoute, grpc_routes, types::GrpcRoute, "GRPCRoute", "gateway.networking.k8s.io", true;
    HttpRoute, http_routes, types::HttpRoute, "HTTPRoute", "gateway.networking.k8s.io", true;
    Ingress, ingresses, types::Ingress, "Ingress", "networking.k8s.io", true;
    IngressClass, ingress_classes, types::IngressClass, "IngressClass", "networking.k8s.io", false;
    ListenerSet, listener_sets, types::ListenerSet, "ListenerSet", "gateway.networking.k8s.io", true;
    Namespace, namespaces, types::Namespace, "Namespace", "", false;
    ReferenceGrant, reference_grants, types::ReferenceGrant, "ReferenceGrant", "gateway.networking.k8s.io", true;
    Secret, secrets, types::Secret, "Secret", "", true;
    Service, services, types::Service, "Service", "", true;
    TcpRoute, tcp_routes, types::TcpRoute, "TCPRoute", "gateway.networking.k8s.io", true;
    TlsRoute, tls_routes, types::TlsRoute, "TLSRoute", "gateway.networking.k8s.io", true;
    UdpRoute, udp_routes, types::UdpRoute, "UDPRoute", "gateway.networking.k8s.io", true;
}

impl Kind {
    /// Returns the kind of a manifest. `XListenerSet` of the experimental group is read as `ListenerSet`, and `Ingress`
    /// of the groups before `networking.k8s.io/v1` as `Ingress`.
    pub fn of(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        match (group, kind) {
            ("gateway.networking.x-k8s.io", "XListenerSet") => Some(Kind::ListenerSet),
            ("extensions", "Ingress") => Some(Kind::Ingress),
            _ => Kind::ALL.iter().copied().find(|known| known.group() == group && known.name() == kind),
        }
    }

    /// Returns the API version that the types of this kind are read as.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Kind::ConfigMap | Kind::Namespace | Kind::Secret | Kind::Service => "v1",
            Kind::EndpointSlice => "discovery.k8s.io/v1",
            Kind::Ingress | Kind::IngressClass => "networking.k8s.io/v1",
            Kind::TcpRoute | Kind::UdpRoute => "gateway.networking.k8s.io/v1alpha2",
            _ => "gateway.networking.k8s.io/v1",
        }
    }
}

/// Returns the key of an object. An absent namespace means `default`, as `kubectl` has it.
fn name_of(kind: Kind, metadata: &ObjectMeta) -> Result<ObjectName, String> {
    let name = metadata.name.as_deref().unwrap_or("");
    // Namespaces are labels; names of other kinds are at most subdomains.
    if !is_subdomain(name) {
        return Err("metadata.name is no DNS subdomain".into());
    }
    if !kind.is_namespaced() {
        return Ok(ObjectName::new("", name));
    }
    let namespace = metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    if !is_label(namespace) {
        return Err("metadata.namespace is no DNS label".into());
    }
    Ok(ObjectName::new(namespace, name))
}
