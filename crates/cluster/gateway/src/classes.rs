//! `GatewayClass`: which Gateways are ours, and the features that are announced.

use std::collections::BTreeMap;

use cluster_objects::types::{Gateway, GatewayClass};
use cluster_objects::{ObjectName, ObjectSet};

use crate::Settings;
use crate::conditions::{ConditionFault, ObjectCondition};
use crate::status::ClassStatus;

/// Features of Gateway API (`pkg/features`) that are translated, in alphabetical order.
pub const SUPPORTED_FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Tells whether a Gateway is served by the controller with these settings.
pub fn is_ours(set: &ObjectSet, settings: &Settings, gateway: &Gateway) -> bool {
    let metadata = &gateway.metadata;
    let is_other = |only: &ObjectName| {
        metadata.name.as_deref() != Some(&only.name) || metadata.namespace.as_deref() != Some(&only.namespace)
    };
    if settings.only.as_ref().is_some_and(is_other) {
        return false;
    }
    let class = &gateway.spec.gateway_class_name;
    if let Some(only) = &settings.class {
        return class == only;
    }
    match set.get::<GatewayClass>("", class) {
        Some(class) => class.spec.controller_name == settings.controller_name,
        None => settings.serves_all_without_classes && set.all::<GatewayClass>().next().is_none(),
    }
}

/// Returns the statuses of the classes that name this controller.
pub(crate) fn statuses(set: &ObjectSet, settings: &Settings) -> BTreeMap<String, ClassStatus> {
    let mut statuses = BTreeMap::new();
    for (name, class) in set.all::<GatewayClass>() {
        if class.spec.controller_name != settings.controller_name {
            continue;
        }
        let generation = class.metadata.generation.unwrap_or(0);
        let fault = class.spec.parameters_ref.as_ref().map(|reference| {
            ConditionFault::new("InvalidParameters", format!("parametersRef: {} is not supported", reference.kind))
        });
        let conditions = vec![
            ObjectCondition::of("Accepted", "Accepted", fault.as_ref(), generation),
            ObjectCondition::good("SupportedVersion", "SupportedVersion", generation),
        ];
        let status = ClassStatus { conditions, supported_features: SUPPORTED_FEATURES.to_vec() };
        statuses.insert(name.to_string(), status);
    }
    statuses
}
