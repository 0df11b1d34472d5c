//! From the objects of one moment to the configuration that serves them, and the statuses of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use cluster_gateway::{ConditionStatus, Statuses};
use cluster_model::{EndpointSource, GroupName, Model};
use cluster_objects::types::EndpointSlice;
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet};
use cluster_render::{ConfigText, GroupId, GroupServer, RenderedConfig};

use super::addresses::{self, AddressBook};
use super::change_queue::Changes;
use super::discovery::CatalogSource;
use super::endpoints::translate_endpoints;
use super::events;
use super::provisioning::{GatewayPorts, PodTemplate, gateway_ports, separate_gateways, wanted_address};
use super::store::{ObjectKey, Snapshot};

/// Line in front of the digest of the files: a configuration with another certificate has another text.
const DIGEST_LINE: &str = "# Files: ";

/// Settings of the translators.
#[derive(Clone, Default)]
pub struct Settings {
    pub gateway: cluster_gateway::Settings,
    pub ingress: cluster_ingress::Settings,
    pub render: cluster_render::Settings,
    /// Addresses for Gateways that ask for none.
    pub pool: Vec<IpAddr>,
    pub book: Arc<AddressBook>,
    /// Gateways have pods of their own, made of this template: this server has Ingresses only.
    pub template: Option<Arc<PodTemplate>>,
}

impl Settings {
    /// Returns the settings of one moment: with the addresses of Gateways from the pool, and those that the machine has.
    /// The addresses of Gateways with pods of their own are no matter of this machine.
    pub fn with_addresses(
        self: &Arc<Settings>,
        assigned: BTreeMap<ObjectName, Vec<IpAddr>>,
        snapshot: &Snapshot,
    ) -> Arc<Settings> {
        if self.template.is_some() || self.gateway.only.is_some() {
            return self.clone();
        }
        let mut settings = Settings::clone(self);
        settings.gateway.addresses.extend(assigned);
        settings.gateway.usable_addresses = Some(addresses::usable_addresses(snapshot, &settings.gateway));
        Arc::new(settings)
    }
}

/// Groups and their servers.
pub type GroupServers = BTreeMap<GroupId, Arc<[GroupServer]>>;
/// Contents by path, relative to the folder of nginx.conf.
pub type FileContents = BTreeMap<String, Vec<u8>>;

/// Result of a translation. Translations of endpoints share all but groups and objects with the one before.
#[derive(Clone)]
pub struct DesiredState {
    /// nginx.conf, with a digest of the files as its last line.
    pub text: Arc<ConfigText>,
    pub files: Arc<FileContents>,
    pub groups: GroupServers,
    pub statuses: Arc<Statuses>,
    pub complaints: Arc<Vec<Complaint>>,
    /// Ports of Gateways that have pods of their own.
    pub gateway_ports: Arc<GatewayPorts>,
    /// Ingresses of this controller's classes.
    pub ingresses: Arc<BTreeSet<ObjectName>>,
    /// Ingresses that are left out as a whole, because of a directive of a snippet.
    pub refused_ingresses: Arc<BTreeSet<ObjectName>>,
    /// Objects that are left out because the server refuses them, with its words: [`leave_out`].
    pub excluded: Arc<BTreeMap<ObjectKey, String>>,
    /// The objects that were translated, without slices: nothing reads them behind a translation, and the store changes its map of them in
    /// place if it has the only one. Those that are left out are in it.
    pub snapshot: Snapshot,
    pub has_slices: bool,
    /// Groups of each Service whose endpoints are slices.
    pub sources: Arc<BTreeMap<ObjectName, Vec<GroupSource>>>,
    pub settings: Arc<Settings>,
    /// Containers or services that the configuration comes from, without a cluster.
    pub source: Arc<CatalogSource>,
}

/// Group whose endpoints are slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSource {
    pub group: GroupName,
    pub source: EndpointSource,
    /// Some of its addresses cannot be used, which a complaint says.
    pub has_unusable: bool,
}

impl DesiredState {
    /// Returns the text of nginx.conf.
    pub fn main_text(&self) -> String {
        self.text.with_servers(&self.groups, &self.settings.render)
    }
}

/// Translates objects. A pure function of its arguments.
pub fn translate_snapshot(snapshot: Snapshot, settings: &Arc<Settings>) -> DesiredState {
    let (translation, gateway_ports) = translate_gateways(&snapshot, settings);
    // The pods of one Gateway serve nothing else.
    let ingress = match &settings.gateway.only {
        None => cluster_ingress::translate_ingresses(&snapshot.set, &settings.ingress),
        Some(_) => cluster_ingress::IngressTranslation::default(),
    };
    let mut model = translation.model;
    let conflicts = model.merge(ingress.model);
    let config = cluster_render::render_model(&model, &settings.render);
    let mut complaints: Vec<Complaint> = snapshot.complaints.values().cloned().collect();
    complaints.extend(translation.complaints);
    // Others serve those of other classes: an event about each of them would be noise.
    let is_foreign = |complaint: &Complaint| {
        events::complaint_subject(complaint)
            .is_some_and(|(kind, name)| kind == Kind::Ingress && ingress.foreign.contains(&name))
    };
    complaints.extend(ingress.complaints.into_iter().filter(|complaint| !is_foreign(complaint)));
    complaints.extend(
        conflicts.iter().map(|conflict| crate::render::complain_about(&conflict.origin, &conflict.to_string())),
    );
    complaints.extend(config.complaints.iter().map(|(origin, reason)| {
        let subject = match origin.namespace.as_str() {
            "" => format!("{} {}", origin.kind, origin.name),
            namespace => format!("{namespace}/{} {}", origin.kind, origin.name),
        };
        Complaint { subject, reason: format!("{}: {reason}", origin.part) }
    }));
    complaints.sort();
    complaints.dedup();
    let mut text = ConfigText::new(&config);
    if let Some(line) = digest_line(&config.files) {
        text.push_line(&line);
    }
    let mut sources: BTreeMap<ObjectName, Vec<GroupSource>> = BTreeMap::new();
    for (name, group) in model.groups {
        let Some(source) = group.source else { continue };
        let service = ObjectName::new(&source.namespace, &source.service);
        let has_unusable = group.has_unusable;
        sources.entry(service).or_default().push(GroupSource { group: name, source, has_unusable });
    }
    let has_slices = has_slices(&snapshot);
    DesiredState {
        text: Arc::new(text),
        files: Arc::new(config.files),
        groups: config.groups.into_iter().map(|(id, servers)| (id, servers.into())).collect(),
        statuses: Arc::new(translation.statuses),
        complaints: Arc::new(complaints),
        gateway_ports: Arc::new(gateway_ports),
        ingresses: Arc::new(ingress.selected),
        refused_ingresses: Arc::new(ingress.refused),
        excluded: Arc::default(),
        snapshot: without_slices(snapshot),
        has_slices,
        sources: Arc::new(sources),
        settings: settings.clone(),
        source: Arc::default(),
    }
}

/// Returns the configuration of containers or services.
pub fn desired_of_catalog(
    config: RenderedConfig,
    mut complaints: Vec<Complaint>,
    source: CatalogSource,
    render: &cluster_render::Settings,
) -> DesiredState {
    complaints.sort();
    complaints.dedup();
    let mut text = ConfigText::new(&config);
    if let Some(line) = digest_line(&config.files) {
        text.push_line(&line);
    }
    // All endpoints are discovered: the validity of a configuration does not depend on them.
    let discovered = config.groups.keys().map(|id| GroupSource {
        group: id.name.clone(),
        source: EndpointSource::default(),
        has_unusable: false,
    });
    let sources = BTreeMap::from([(ObjectName::default(), discovered.collect())]);
    DesiredState {
        text: Arc::new(text),
        files: Arc::new(config.files),
        groups: config.groups.into_iter().map(|(id, servers)| (id, servers.into())).collect(),
        statuses: Arc::default(),
        complaints: Arc::new(complaints),
        gateway_ports: Arc::default(),
        ingresses: Arc::default(),
        refused_ingresses: Arc::default(),
        excluded: Arc::default(),
        snapshot: Snapshot::default(),
        has_slices: false,
        sources: Arc::new(sources),
        settings: Arc::new(Settings { render: render.clone(), ..Settings::default() }),
        source: Arc::new(source),
    }
}

/// Translates Gateways and routes. Those that have pods of their own leave nothing for this server but their statuses.
fn translate_gateways(snapshot: &Snapshot, settings: &Settings) -> (cluster_gateway::GatewayTranslation, GatewayPorts) {
    if settings.template.is_none() && settings.gateway.only.is_none() {
        return (cluster_gateway::translate_gateways(&snapshot.set, &settings.gateway), GatewayPorts::new());
    }
    let mut gateway = settings.gateway.clone();
    let mut set = snapshot.set.clone();
    let private = separate_gateways(&mut set, &gateway);
    if settings.template.is_none() {
        // A pod of the Gateway: it listens on all addresses.
        return (cluster_gateway::translate_gateways(&set, &gateway), GatewayPorts::new());
    }
    gateway.addresses.clone_from(&private);
    let mut translation = cluster_gateway::translate_gateways(&set, &gateway);
    translation.model = Model::default();
    let ports = gateway_ports(&set, &translation.statuses, private.keys());
    for status in translation.statuses.gateways.values_mut() {
        status.addresses.clear();
    }
    for name in private.keys() {
        translation.complaints.extend(wanted_address(&snapshot.set, name).1);
    }
    (translation, ports)
}

/// Translates the objects of a translation again, without some of them: the server refuses these with the given words,
/// which become complaints and, for routes, the reason of `Accepted: False`. The endpoints are those of `slices`: a
/// translation has none.
pub fn leave_out(full: &DesiredState, slices: &ObjectSet, excluded: &Arc<BTreeMap<ObjectKey, String>>) -> DesiredState {
    let mut snapshot = with_slices(&full.snapshot, slices);
    for (kind, name) in excluded.keys() {
        snapshot.set.remove(*kind, &name.namespace, &name.name);
    }
    let mut desired = translate_snapshot(snapshot, &full.settings);
    let (statuses, complaints) = (Arc::make_mut(&mut desired.statuses), Arc::make_mut(&mut desired.complaints));
    for ((kind, name), words) in excluded.iter() {
        let route = format!("{} {name}", kind.name());
        if let Some(parents) = full.statuses.routes.get(&route) {
            let mut parents = parents.clone();
            for condition in parents.iter_mut().flat_map(|parent| &mut parent.conditions) {
                if condition.r#type == "Accepted" && condition.is_true() {
                    condition.status = ConditionStatus::False;
                    condition.reason = "UnsupportedValue";
                    condition.message = format!("the server refuses it: {words}");
                }
            }
            statuses.routes.insert(route, parents);
        }
        let words = format!("Refused: left out, since the server refuses it: {words}");
        complaints.push(Complaint::about(*kind, &name.namespace, &name.name, words));
    }
    complaints.sort();
    desired.ingresses = full.ingresses.clone();
    desired.excluded = excluded.clone();
    desired.snapshot = full.snapshot.clone();
    desired
}

/// Tells whether there are slices at all.
pub fn has_slices(snapshot: &Snapshot) -> bool {
    snapshot.set.all::<EndpointSlice>().next().is_some()
}

/// Removes the slices of a snapshot.
pub fn without_slices(mut snapshot: Snapshot) -> Snapshot {
    snapshot.set.remove_all(Kind::EndpointSlice);
    snapshot
}

/// Adds the slices of a set to a snapshot without any.
pub fn with_slices(snapshot: &Snapshot, slices: &ObjectSet) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.set.share_all(Kind::EndpointSlice, slices);
    snapshot
}

/// Translates changes of the store on a thread of its own: endpoints alone, if that is all that they change, which the result tells.
/// Returns `None` if the translation failed.
pub async fn translate_changes(
    previous: Option<Arc<DesiredState>>,
    changes: Changes,
    snapshot: Snapshot,
    settings: &Arc<Settings>,
) -> Option<(Arc<DesiredState>, bool)> {
    let settings = settings.clone();
    let translated = tokio::task::spawn_blocking(move || {
        if let (Changes::Endpoints(services), Some(previous)) = (&changes, &previous)
            && let Some(desired) = translate_endpoints(previous, services, &snapshot)
        {
            return (desired, true);
        }
        let assigned = settings.book.assign(&snapshot, &settings.gateway, &settings.pool);
        let settings = settings.with_addresses(assigned, &snapshot);
        (translate_snapshot(snapshot, &settings), false)
    });
    let (desired, is_partial) = translated.await.ok()?;
    Some((Arc::new(desired), is_partial))
}

fn digest_line(files: &FileContents) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let mut context = digest::Context::new(&digest::SHA256);
    for (name, contents) in files {
        for part in [name.as_bytes(), contents] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
    }
    let digest: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{DIGEST_LINE}{digest}"))
}

#[cfg(test)]
mod tests {
    use cluster_objects::{ObjectSet, read_manifests};

    use super::*;

    #[test]
    fn another_certificate_is_another_text() {
        let text = include_str!("../../../render/tests/manifests/https-terminate/input.yaml");
        let mut set = ObjectSet::default();
        read_manifests("input", text, &mut set, &mut Vec::new());
        let desired = translate_snapshot(Snapshot { set, ..Snapshot::default() }, &Arc::default());
        let mut files = (*desired.files).clone();
        let line = digest_line(&files).unwrap();
        assert!(desired.main_text().ends_with(&format!("}}\n{line}\n")), "{}", desired.main_text());
        for contents in files.values_mut() {
            contents.push(b'\n');
        }
        assert_ne!(digest_line(&files).unwrap(), line);
    }
}
