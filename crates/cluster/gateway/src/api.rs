//! One form for the types that `gateway-api` generates several times, once for each field that has them.

use cluster_objects::types::{gateways, grpcroutes, httproutes, listenersets, tcproutes, tlsroutes, udproutes};

use crate::selectors::{Namespaces, Selector};
use crate::status::ParentReference;

/// Group of Gateway API.
pub(crate) const GROUP: &str = "gateway.networking.k8s.io";

/// Reference to an object that requests go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendRef {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub port: Option<i32>,
    pub weight: i32,
}

/// Filter of a rule or of a backend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    RequestHeaders(HeaderEdits),
    ResponseHeaders(HeaderEdits),
    Mirror {
        backend: BackendRef,
        percent: Option<i32>,
        fraction: Option<(i32, i32)>,
    },
    Redirect(RedirectFilter),
    Rewrite {
        host: Option<String>,
        path: Option<PathChange>,
    },
    Cors(CorsFilter),
    /// Name of a type that Tidegate does not have, or whose field is missing.
    Unsupported(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderEdits {
    pub set: Vec<(String, String)>,
    pub add: Vec<(String, String)>,
    pub remove: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedirectFilter {
    pub scheme: Option<&'static str>,
    pub host: Option<String>,
    pub port: Option<i32>,
    pub path: Option<PathChange>,
    pub status: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathChange {
    Full(String),
    Prefix(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CorsFilter {
    pub allow_origins: Vec<String>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub allow_credentials: bool,
    pub max_age: Option<i32>,
}

/// Listener of a Gateway or of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerSpec {
    pub name: String,
    pub port: i32,
    pub protocol: String,
    pub hostname: Option<String>,
    /// Group and kind.
    pub kinds: Option<Vec<(Option<String>, String)>>,
    pub namespaces: Namespaces,
    pub tls: Option<ListenerTls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerTls {
    pub is_passthrough: bool,
    pub certificates: Vec<SecretRef>,
    pub has_options: bool,
}

/// Reference to a Secret or a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRef {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

macro_rules! parent_refs {
    ($($type:ty),*) => {$(
        impl From<&$type> for ParentReference {
            fn from(reference: &$type) -> ParentReference {
                ParentReference {
                    group: reference.group.clone(),
                    kind: reference.kind.clone(),
                    namespace: reference.namespace.clone(),
                    name: reference.name.clone(),
                    section_name: reference.section_name.clone().filter(|name| !name.is_empty()),
                    port: reference.port,
                }
            }
        }
    )*};
}

parent_refs!(
    httproutes::HttpRouteParentRefs,
    grpcroutes::GrpcRouteParentRefs,
    tlsroutes::TlsRouteParentRefs,
    tcproutes::TcpRouteParentRefs,
    udproutes::UdpRouteParentRefs
);

macro_rules! backend_refs {
    ($($type:ty, $weight:expr;)*) => {$(
        impl From<&$type> for BackendRef {
            fn from(reference: &$type) -> BackendRef {
                let weight: fn(&$type) -> Option<i32> = $weight;
                BackendRef {
                    group: reference.group.clone().unwrap_or_default(),
                    kind: reference.kind.clone().unwrap_or_else(|| "Service".into()),
                    namespace: reference.namespace.clone(),
                    name: reference.name.clone(),
                    port: reference.port,
                    weight: weight(reference).unwrap_or(1),
                }
            }
        }
    )*};
}

backend_refs!(
    httproutes::HttpRouteRulesBackendRefs, |reference| reference.weight;
    httproutes::HttpRouteRulesFiltersRequestMirrorBackendRef, |_| None;
    httproutes::HttpRouteRulesBackendRefsFiltersRequestMirrorBackendRef, |_| None;
    grpcroutes::GrpcRouteRulesBackendRefs, |reference| reference.weight;
    grpcroutes::GrpcRouteRulesFiltersRequestMirrorBackendRef, |_| None;
    grpcroutes::GrpcRouteRulesBackendRefsFiltersRequestMirrorBackendRef, |_| None;
    tlsroutes::TlsRouteRulesBackendRefs, |reference| reference.weight;
    tcproutes::TcpRouteRulesBackendRefs, |reference| reference.weight;
    udproutes::UdpRouteRulesBackendRefs, |reference| reference.weight;
);

macro_rules! header_edits {
    ($modifier:expr) => {{
        let pair = |name: &String, value: &String| (name.clone(), value.clone());
        HeaderEdits {
            set: $modifier.set.iter().flatten().map(|field| pair(&field.name, &field.value)).collect(),
            add: $modifier.add.iter().flatten().map(|field| pair(&field.name, &field.value)).collect(),
            remove: $modifier.remove.clone().unwrap_or_default(),
        }
    }};
}

macro_rules! mirror {
    ($mirror:expr) => {
        Filter::Mirror {
            backend: BackendRef::from(&$mirror.backend_ref),
            percent: $mirror.percent,
            fraction: $mirror.fraction.as_ref().map(|part| (part.numerator, part.denominator.unwrap_or(100))),
        }
    };
}

macro_rules! path_change {
    ($path:expr, $type:ident) => {
        $path.as_ref().map(|path| match path.r#type {
            httproutes::$type::ReplaceFullPath => PathChange::Full(path.replace_full_path.clone().unwrap_or_default()),
            httproutes::$type::ReplacePrefixMatch => {
                PathChange::Prefix(path.replace_prefix_match.clone().unwrap_or_default())
            }
        })
    };
}

macro_rules! http_filters {
    ($($filter:ident, $kind:ident, $redirect_path:ident, $scheme:ident, $rewrite_path:ident;)*) => {$(
        impl From<&httproutes::$filter> for Filter {
            fn from(filter: &httproutes::$filter) -> Filter {
                use httproutes::$kind as Type;
                let found = match filter.r#type {
                    Type::RequestHeaderModifier => {
                        filter.request_header_modifier.as_ref().map(|edits| Filter::RequestHeaders(header_edits!(edits)))
                    }
                    Type::ResponseHeaderModifier => filter
                        .response_header_modifier
                        .as_ref()
                        .map(|edits| Filter::ResponseHeaders(header_edits!(edits))),
                    Type::RequestMirror => filter.request_mirror.as_ref().map(|mirror| mirror!(mirror)),
                    Type::RequestRedirect => filter.request_redirect.as_ref().map(|redirect| {
                        Filter::Redirect(RedirectFilter {
                            scheme: redirect.scheme.as_ref().map(|scheme| match scheme {
                                httproutes::$scheme::Http => "http",
                                httproutes::$scheme::Https => "https",
                            }),
                            host: redirect.hostname.clone(),
                            port: redirect.port,
                            path: path_change!(redirect.path, $redirect_path),
                            status: redirect.status_code,
                        })
                    }),
                    Type::UrlRewrite => filter.url_rewrite.as_ref().map(|rewrite| Filter::Rewrite {
                        host: rewrite.hostname.clone(),
                        path: path_change!(rewrite.path, $rewrite_path),
                    }),
                    Type::Cors => filter.cors.as_ref().map(|cors| {
                        Filter::Cors(CorsFilter {
                            allow_origins: cors.allow_origins.clone().unwrap_or_default(),
                            allow_methods: cors.allow_methods.clone().unwrap_or_default(),
                            allow_headers: cors.allow_headers.clone().unwrap_or_default(),
                            expose_headers: cors.expose_headers.clone().unwrap_or_default(),
                            allow_credentials: cors.allow_credentials.unwrap_or(false),
                            max_age: cors.max_age,
                        })
                    }),
                    Type::ExtensionRef => return Filter::Unsupported("ExtensionRef"),
                    Type::ExternalAuth => return Filter::Unsupported("ExternalAuth"),
                };
                found.unwrap_or(Filter::Unsupported("without the field of its type"))
            }
        }
    )*};
}

http_filters!(
    HttpRouteRulesFilters, HttpRouteRulesFiltersType, HttpRouteRulesFiltersRequestRedirectPathType,
    HttpRouteRulesFiltersRequestRedirectScheme, HttpRouteRulesFiltersUrlRewritePathType;
    HttpRouteRulesBackendRefsFilters, HttpRouteRulesBackendRefsFiltersType,
    HttpRouteRulesBackendRefsFiltersRequestRedirectPathType, HttpRouteRulesBackendRefsFiltersRequestRedirectScheme,
    HttpRouteRulesBackendRefsFiltersUrlRewritePathType;
);

macro_rules! grpc_filters {
    ($($filter:ident, $kind:ident;)*) => {$(
        impl From<&grpcroutes::$filter> for Filter {
            fn from(filter: &grpcroutes::$filter) -> Filter {
                use grpcroutes::$kind as Type;
                let found = match filter.r#type {
                    Type::RequestHeaderModifier => {
                        filter.request_header_modifier.as_ref().map(|edits| Filter::RequestHeaders(header_edits!(edits)))
                    }
                    Type::ResponseHeaderModifier => filter
                        .response_header_modifier
                        .as_ref()
                        .map(|edits| Filter::ResponseHeaders(header_edits!(edits))),
                    Type::RequestMirror => filter.request_mirror.as_ref().map(|mirror| mirror!(mirror)),
                    Type::ExtensionRef => return Filter::Unsupported("ExtensionRef"),
                };
                found.unwrap_or(Filter::Unsupported("without the field of its type"))
            }
        }
    )*};
}

grpc_filters!(
    GrpcRouteRulesFilters, GrpcRouteRulesFiltersType;
    GrpcRouteRulesBackendRefsFilters, GrpcRouteRulesBackendRefsFiltersType;
);

/// Builds a [`Selector`] of the generated types.
macro_rules! selector {
    ($selector:expr) => {
        $selector.as_ref().map_or_else(Selector::default, |selector| Selector {
            labels: selector.match_labels.clone().unwrap_or_default(),
            expressions: selector
                .match_expressions
                .iter()
                .flatten()
                .map(|one| (one.key.clone(), one.operator.clone(), one.values.clone().unwrap_or_default()))
                .collect(),
        })
    };
}

macro_rules! listeners {
    ($($module:ident, $type:ident, $from:ident, $mode:ident;)*) => {$(
        impl From<&$module::$type> for ListenerSpec {
            fn from(listener: &$module::$type) -> ListenerSpec {
                let routes = listener.allowed_routes.as_ref();
                let namespaces = routes.and_then(|routes| routes.namespaces.as_ref());
                ListenerSpec {
                    name: listener.name.clone(),
                    port: listener.port,
                    protocol: listener.protocol.clone(),
                    hostname: listener.hostname.clone(),
                    kinds: routes.and_then(|routes| routes.kinds.as_ref()).map(|kinds| {
                        kinds.iter().map(|kind| (kind.group.clone(), kind.kind.clone())).collect()
                    }),
                    namespaces: namespaces.map_or(Namespaces::Same, |namespaces| match namespaces.from {
                        None | Some($module::$from::Same) => Namespaces::Same,
                        Some($module::$from::All) => Namespaces::All,
                        Some($module::$from::Selector) => Namespaces::Selector(selector!(namespaces.selector)),
                    }),
                    tls: listener.tls.as_ref().map(|tls| ListenerTls {
                        is_passthrough: matches!(tls.mode, Some($module::$mode::Passthrough)),
                        certificates: tls
                            .certificate_refs
                            .iter()
                            .flatten()
                            .map(|reference| SecretRef {
                                group: reference.group.clone().unwrap_or_default(),
                                kind: reference.kind.clone().unwrap_or_else(|| "Secret".into()),
                                namespace: reference.namespace.clone(),
                                name: reference.name.clone(),
                            })
                            .collect(),
                        has_options: tls.options.as_ref().is_some_and(|options| !options.is_empty()),
                    }),
                }
            }
        }
    )*};
}

listeners!(
    gateways, GatewayListeners, GatewayListenersAllowedRoutesNamespacesFrom, GatewayListenersTlsMode;
    listenersets, ListenerSetListeners, ListenerSetListenersAllowedRoutesNamespacesFrom, ListenerSetListenersTlsMode;
);

/// Returns the namespaces whose ListenerSets a Gateway admits: none by default.
pub(crate) fn allowed_listeners(gateway: &gateways::Gateway) -> Namespaces {
    use gateways::GatewayAllowedListenersNamespacesFrom as From;
    let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    allowed.map_or(Namespaces::None, |namespaces| match namespaces.from {
        None | Some(From::None) => Namespaces::None,
        Some(From::Same) => Namespaces::Same,
        Some(From::All) => Namespaces::All,
        Some(From::Selector) => Namespaces::Selector(selector!(namespaces.selector)),
    })
}

/// Verification of clients, for one port or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientValidation {
    pub authorities: Vec<SecretRef>,
    pub is_insecure: bool,
}

/// Returns the verification of clients on a port.
pub(crate) fn client_validation(gateway: &gateways::Gateway, port: i32) -> Option<ClientValidation> {
    macro_rules! validation {
        ($validation:expr, $mode:ident) => {
            $validation.as_ref().map(|validation| ClientValidation {
                authorities: validation
                    .ca_certificate_refs
                    .iter()
                    .map(|reference| SecretRef {
                        group: reference.group.clone(),
                        kind: reference.kind.clone(),
                        namespace: reference.namespace.clone(),
                        name: reference.name.clone(),
                    })
                    .collect(),
                is_insecure: matches!(validation.mode, Some(gateways::$mode::AllowInsecureFallback)),
            })
        };
    }
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    match frontend.per_port.iter().flatten().find(|one| one.port == port) {
        Some(one) => validation!(one.tls.validation, GatewayTlsFrontendPerPortTlsValidationMode),
        None => validation!(frontend.default.validation, GatewayTlsFrontendDefaultValidationMode),
    }
}
