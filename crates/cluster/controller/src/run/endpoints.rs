//! Changes of endpoints alone: only the servers of their groups are translated again, by the functions that a translation of
//! all objects uses. The result is the one that it would have.

use std::collections::BTreeSet;

use cluster_model::Endpoint;
use cluster_objects::{ObjectName, endpoint_slices_of, ready_endpoints};
use cluster_render::{GroupArea, GroupId, group_servers};

use super::store::Snapshot;
use super::translate::{DesiredState, GroupSource, has_slices, without_slices};

/// Translates a change of the slices of some Services since the previous translation. `None` if more than the servers of
/// groups may change, so that all objects are to be translated:
///
/// - A group becomes empty, or was empty: Ingresses without endpoints have other locations.
/// - An address cannot be used, or could not before: there is a complaint for each of them.
/// - The first slice comes, or the last one goes: without any, groups may contain names.
pub fn translate_endpoints(
    previous: &DesiredState,
    services: &BTreeSet<ObjectName>,
    snapshot: &Snapshot,
) -> Option<DesiredState> {
    if previous.has_slices != has_slices(snapshot) {
        return None;
    }
    // Services that no route uses have no groups.
    let used: BTreeSet<ObjectName> =
        services.iter().filter(|service| previous.sources.contains_key(service)).cloned().collect();
    let slices = endpoint_slices_of(&snapshot.set, &used);
    let mut changed = Vec::new();
    for service in &used {
        let slices = slices.get(service).map_or(&[][..], Vec::as_slice);
        for GroupSource { group, source, has_unusable } in previous.sources.get(service).into_iter().flatten() {
            let ready = ready_endpoints(slices, &source.port, &source.protocol);
            if *has_unusable || !ready.invalid.is_empty() {
                return None;
            }
            let ids = [GroupArea::Http, GroupArea::Stream].map(|area| GroupId { area, name: group.clone() });
            if !ids.iter().any(|id| previous.groups.contains_key(id)) {
                // A location may do without the group as long as it is empty.
                return None;
            }
            let endpoints: Vec<Endpoint> = ready.addresses.into_iter().map(Endpoint::from).collect();
            for id in ids {
                let area = id.area;
                let Some(old) = previous.groups.get(&id) else { continue };
                let was_empty = **old == *group_servers(area, &[], &previous.settings.render);
                if was_empty != endpoints.is_empty() {
                    return None;
                }
                let servers = group_servers(area, &endpoints, &previous.settings.render);
                if **old != *servers {
                    changed.push((id, servers));
                }
            }
        }
    }
    let mut desired = DesiredState { snapshot: without_slices(snapshot.clone()), ..previous.clone() };
    desired.groups.extend(changed.into_iter().map(|(id, servers)| (id, servers.into())));
    Some(desired)
}
