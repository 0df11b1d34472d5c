//! Watches of the API server: one task for each kind. A failed one is repeated and stops no other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster_objects::Kind;
use futures::StreamExt as _;
use http::StatusCode;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Error};
use tokio::time::sleep;

use super::backoff::Backoff;
use super::logs;
use super::metrics::{self, Metrics};
use super::store::{ObjectStore, WatchChange};

/// Pause between two looks for a kind that the API server does not have.
pub const ABSENT_PAUSE: Duration = Duration::from_secs(5);
/// Looks without the kind before its objects are taken as removed: an API server that starts does not have all kinds.
const ABSENT_LOOKS: u32 = 12;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Watches all kinds of the store until it is dropped.
pub async fn watch_all(client: Client, store: Arc<ObjectStore>, metrics: Arc<Metrics>) {
    let watches = store.kinds().iter().map(|kind| watch_kind(&client, *kind, &store, &metrics));
    futures::future::join_all(watches).await;
}

async fn watch_kind(client: &Client, kind: Kind, store: &ObjectStore, metrics: &Metrics) {
    let mut backoff = Backoff::new(PAUSE_MAX);
    let mut absent = 0;
    loop {
        match find(client, kind).await {
            Ok(Some(resource)) => {
                absent = 0;
                watch_resource(client, kind, &resource, store, metrics, &mut backoff).await;
            }
            Ok(None) => {
                absent += 1;
                if absent == 1 {
                    logs::info("the API server does not have this kind", &[("kind", kind.name())]);
                    store.set_absent(kind);
                }
                if absent == ABSENT_LOOKS {
                    store.clear(kind);
                }
                sleep(ABSENT_PAUSE).await;
            }
            Err(error) => {
                metrics::count_one(&metrics.watch_errors);
                logs::warn("the API server does not answer", &[("kind", kind.name()), ("error", &error.to_string())]);
                sleep(backoff.next_pause()).await;
            }
        }
    }
}

/// Watches a kind until the API server does not have it.
async fn watch_resource(
    client: &Client,
    kind: Kind,
    resource: &ApiResource,
    store: &ObjectStore,
    metrics: &Metrics,
    backoff: &mut Backoff,
) {
    let mut config = watcher::Config::default();
    if kind == Kind::Secret {
        // Releases of Helm are the largest Secrets of most clusters.
        config = config.fields("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token");
    }
    let mut events = pin!(watcher::watcher(Api::<DynamicObject>::all_with(client.clone(), resource), config));
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => WatchChange::ListBegins,
            Ok(Event::InitApply(object)) => WatchChange::Listed(value(object, resource)),
            Ok(Event::InitDone) => WatchChange::ListEnds,
            Ok(Event::Apply(object)) => WatchChange::Applied(value(object, resource)),
            Ok(Event::Delete(object)) => WatchChange::Deleted(value(object, resource)),
            Err(error) => {
                match code(&error) {
                    // The place in the history is too old: a new list follows.
                    Some(StatusCode::GONE) => continue,
                    Some(StatusCode::NOT_FOUND) => return,
                    _ => {}
                }
                metrics::count_one(&metrics.watch_errors);
                let members = [("kind", kind.name()), ("error", &error.to_string()), ("hint", hint(&error))];
                logs::warn("a watch failed and is repeated", &members);
                sleep(backoff.next_pause()).await;
                continue;
            }
        };
        backoff.reset();
        store.apply(kind, &resource.plural, change);
    }
}

fn code(error: &watcher::Error) -> Option<StatusCode> {
    let status = match error {
        watcher::Error::WatchError(status) => status,
        watcher::Error::InitialListFailed(Error::Api(status))
        | watcher::Error::WatchStartFailed(Error::Api(status)) => status,
        _ => return None,
    };
    StatusCode::from_u16(status.code).ok()
}

fn hint(error: &watcher::Error) -> &'static str {
    match code(error) {
        Some(StatusCode::FORBIDDEN) => "the ClusterRole needs list and watch for this kind",
        Some(StatusCode::UNAUTHORIZED) => "the token is not valid",
        _ => "",
    }
}

/// Items of a list have no kind of their own.
fn value(mut object: DynamicObject, resource: &ApiResource) -> serde_json::Value {
    object.types.get_or_insert_with(|| kube::core::TypeMeta {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
    });
    serde_json::to_value(object).unwrap_or_default()
}

/// Returns the versions in which a kind is read, the best first.
fn versions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::BackendTlsPolicy => &["v1", "v1alpha3"],
        Kind::GrpcRoute => &["v1"],
        Kind::Gateway | Kind::GatewayClass | Kind::HttpRoute | Kind::ReferenceGrant => &["v1", "v1beta1"],
        Kind::TlsRoute => &["v1", "v1alpha3", "v1alpha2"],
        Kind::TcpRoute | Kind::UdpRoute => &["v1", "v1alpha2"],
        _ => &["v1"],
    }
}

/// Returns the resource of a kind as the API server has it; `None` if its definition is absent.
async fn find(client: &Client, kind: Kind) -> Result<Option<ApiResource>, Error> {
    let resource =
        |group: &str, version: &str, name: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, name));
    if kind.group() != GATEWAY_GROUP {
        return Ok(Some(resource(kind.group(), "v1", kind.name())));
    }
    let mut candidates: Vec<ApiResource> =
        versions(kind).iter().map(|version| resource(GATEWAY_GROUP, version, kind.name())).collect();
    if kind == Kind::ListenerSet {
        candidates.push(resource("gateway.networking.x-k8s.io", "v1alpha1", "XListenerSet"));
    }
    for candidate in candidates {
        match client.list_api_group_resources(&candidate.api_version).await {
            Ok(list) if list.resources.iter().any(|one| one.name == candidate.plural) => return Ok(Some(candidate)),
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plural_names_are_those_of_the_definitions() {
        let plural = |kind: Kind| ApiResource::from_gvk(&GroupVersionKind::gvk("g", "v1", kind.name())).plural;
        let names: Vec<String> = super::super::store::KINDS.iter().map(|kind| plural(*kind)).collect();
        let expected = "backendtlspolicies configmaps endpointslices gateways gatewayclasses grpcroutes httproutes ingresses \
                        ingressclasses listenersets namespaces referencegrants secrets services tcproutes tlsroutes udproutes";
        assert_eq!(names.join(" "), expected);
    }
}
