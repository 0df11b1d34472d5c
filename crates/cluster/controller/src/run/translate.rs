//! From the objects of one moment to the configuration that serves them, and the statuses of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::digest;
use cluster_gateway::{ConditionStatus, Statuses};
use cluster_model::Model;
use cluster_objects::{Complaint, Kind, ObjectName};
use cluster_render::RenderedConfig;

use super::addresses;
use super::events;
use super::metrics::Metrics;
use super::provisioning::{GatewayPorts, Template, gateway_ports, separate_gateways, wanted_address};
use super::store::{Key, Snapshot, Store};

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
    /// Gateways have pods of their own, made of this template: this server has Ingresses only.
    pub template: Option<Arc<Template>>,
}

/// Result of a translation.
pub struct Desired {
    pub config: RenderedConfig,
    /// Text of nginx.conf, with a digest of the files.
    pub main: String,
    /// The text without the servers of groups.
    pub skeleton: String,
    pub statuses: Statuses,
    pub complaints: Vec<Complaint>,
    /// Ports of Gateways that have pods of their own.
    pub gateway_ports: GatewayPorts,
    /// Ingresses of this controller's classes.
    pub ingresses: BTreeSet<ObjectName>,
    /// Ingresses that are left out as a whole, because of a directive of a snippet.
    pub refused_ingresses: BTreeSet<ObjectName>,
    /// Objects that are left out because the server refuses them, with its words: [`leave_out`].
    pub excluded: BTreeMap<Key, String>,
    /// The objects that were translated.
    pub snapshot: Snapshot,
}

/// Translates objects. A pure function of its arguments.
pub fn translate(snapshot: Snapshot, settings: &Settings) -> Desired {
    let (translation, gateway_ports) = translate_gateways(&snapshot, settings);
    // The pods of one Gateway serve nothing else.
    let ingress = match &settings.gateway.only {
        None => cluster_ingress::translate(&snapshot.set, &settings.ingress),
        Some(_) => cluster_ingress::Translation::default(),
    };
    let mut model = translation.model;
    let conflicts = model.merge(ingress.model);
    let config = cluster_render::render(&model, &settings.render);
    let mut complaints: Vec<Complaint> = snapshot.complaints.values().cloned().collect();
    complaints.extend(translation.complaints);
    // Others serve those of other classes: an event about each of them would be noise.
    let is_foreign = |complaint: &Complaint| {
        events::subject(complaint).is_some_and(|(kind, name)| kind == Kind::Ingress && ingress.foreign.contains(&name))
    };
    complaints.extend(ingress.complaints.into_iter().filter(|complaint| !is_foreign(complaint)));
    complaints.extend(conflicts.iter().map(|conflict| crate::render::about(&conflict.origin, &conflict.to_string())));
    complaints.extend(config.complaints.iter().map(|(origin, reason)| {
        let subject = match origin.namespace.as_str() {
            "" => format!("{} {}", origin.kind, origin.name),
            namespace => format!("{namespace}/{} {}", origin.kind, origin.name),
        };
        Complaint { subject, reason: format!("{}: {reason}", origin.part) }
    }));
    complaints.sort();
    complaints.dedup();
    let main = with_digest(&config);
    let skeleton = without_servers(&main);
    Desired {
        main,
        skeleton,
        config,
        statuses: translation.statuses,
        complaints,
        gateway_ports,
        ingresses: ingress.selected,
        refused_ingresses: ingress.refused,
        excluded: BTreeMap::new(),
        snapshot,
    }
}

/// Translates Gateways and routes. Those that have pods of their own leave nothing for this server but their statuses.
fn translate_gateways(snapshot: &Snapshot, settings: &Settings) -> (cluster_gateway::Translation, GatewayPorts) {
    let mut gateway = settings.gateway.clone();
    if settings.template.is_none() && gateway.only.is_none() {
        gateway.addresses.extend(addresses::assign(snapshot, &gateway, &settings.pool));
        return (cluster_gateway::translate(&snapshot.set, &gateway), GatewayPorts::new());
    }
    let mut set = snapshot.set.clone();
    let private = separate_gateways(&mut set, &gateway);
    if settings.template.is_none() {
        // A pod of the Gateway: it listens on all addresses.
        return (cluster_gateway::translate(&set, &gateway), GatewayPorts::new());
    }
    gateway.addresses.clone_from(&private);
    let mut translation = cluster_gateway::translate(&set, &gateway);
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
/// which become complaints and, for routes, the reason of `Accepted: False`.
pub fn leave_out(full: &Desired, excluded: &BTreeMap<Key, String>, settings: &Settings) -> Desired {
    let mut snapshot = full.snapshot.clone();
    for (kind, name) in excluded.keys() {
        snapshot.set.remove(*kind, &name.namespace, &name.name);
    }
    let mut desired = translate(snapshot, settings);
    for ((kind, name), words) in excluded {
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
            desired.statuses.routes.insert(route, parents);
        }
        let words = format!("Refused: left out, since the server refuses it: {words}");
        desired.complaints.push(Complaint::about(*kind, &name.namespace, &name.name, words));
    }
    desired.complaints.sort();
    desired.ingresses.clone_from(&full.ingresses);
    desired.excluded.clone_from(excluded);
    desired.snapshot = full.snapshot.clone();
    desired
}

/// Translates the objects of the store on a thread of its own.
pub async fn translate_store(store: &Store, settings: &Arc<Settings>, metrics: &Metrics) -> Option<Arc<Desired>> {
    let (snapshot, settings) = (store.snapshot(), settings.clone());
    let began = Instant::now();
    let desired = tokio::task::spawn_blocking(move || translate(snapshot, &settings)).await.ok()?;
    metrics.translated(began.elapsed());
    Some(Arc::new(desired))
}

fn with_digest(config: &RenderedConfig) -> String {
    if config.files.is_empty() {
        return config.main.clone();
    }
    let mut context = digest::Context::new(&digest::SHA256);
    for (name, contents) in &config.files {
        for part in [name.as_bytes(), contents] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
    }
    let digest: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}{DIGEST_LINE}{digest}\n", config.main)
}

/// Removes the servers of all groups from a text that [`translate`] has made, here or in a process before this one.
pub fn without_servers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_group = false;
    for line in text.split_inclusive('\n') {
        let words = line.trim_start();
        let depth = line.len() - words.len();
        // Areas are the first level, groups the second one.
        if depth == 4 {
            is_group = words.starts_with("upstream ");
        }
        if !(is_group && depth == 8 && words.starts_with("server ")) {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use cluster_objects::{ObjectSet, read_manifests};

    use super::*;

    /// Returns the translations of all manifests of the renderer's tests.
    fn all() -> Vec<(String, Desired)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../render/tests/manifests");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let input = entry.unwrap().path().join("input.yaml");
            let mut set = ObjectSet::default();
            read_manifests("input", &fs::read_to_string(&input).unwrap(), &mut set, &mut Vec::new());
            let snapshot = Snapshot { set, ..Snapshot::default() };
            found.push((input.display().to_string(), translate(snapshot, &Settings::default())));
        }
        assert!(found.len() > 50, "the manifests are found");
        found
    }

    #[test]
    fn texts_without_servers_are_equal_if_the_configurations_differ_in_servers_only() {
        let all = all();
        for (left_name, left) in &all {
            for (right_name, right) in &all {
                let expected = left.config.differs_in_servers_only(&right.config);
                assert_eq!(left.skeleton == right.skeleton, expected, "{left_name} {right_name}");
            }
        }
    }

    #[test]
    fn another_certificate_is_another_text() {
        let (_, desired) = all().into_iter().find(|(name, _)| name.contains("https-terminate")).unwrap();
        let mut config = desired.config.clone();
        for contents in config.files.values_mut() {
            contents.push(b'\n');
        }
        assert_ne!(with_digest(&config), with_digest(&desired.config));
        assert!(with_digest(&config).contains("\n# Files: "));
    }
}
