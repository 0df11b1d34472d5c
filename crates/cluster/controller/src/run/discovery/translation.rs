//! From the catalog of one moment to the configuration that serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cluster_discovery::{Catalog, CertificateFolder, OwnerName};
use cluster_objects::Complaint;
use tokio::sync::watch as channel;

use super::super::logs;
use super::super::metrics::Metrics;
use super::inventory::Inventory;
use super::translate::{self, DesiredState};

/// Catalog that a configuration comes from: it is translated again without the owners that the server refuses.
#[derive(Clone, Debug, Default)]
pub struct CatalogSource {
    catalog: Arc<Catalog>,
    certificates: Arc<CertificateFolder>,
    /// Containers and services with routes.
    pub owners: BTreeSet<OwnerName>,
}

/// Translates with fixed settings.
pub struct Translator {
    settings: cluster_discovery::Settings,
    render: cluster_render::Settings,
}

impl Translator {
    pub fn new(settings: cluster_discovery::Settings, render: cluster_render::Settings) -> Translator {
        Translator { settings, render }
    }

    /// Translates a catalog.
    pub fn translate(&self, catalog: Arc<Catalog>, certificates: Arc<CertificateFolder>) -> DesiredState {
        let source = CatalogSource { catalog, certificates, owners: BTreeSet::new() };
        self.translate_without(&source, &BTreeMap::new())
    }

    /// Translates a catalog again, without owners that the server refuses with the given words.
    pub fn translate_without(&self, source: &CatalogSource, refused: &BTreeMap<OwnerName, String>) -> DesiredState {
        let settings =
            cluster_discovery::Settings { certificates: source.certificates.clone(), ..self.settings.clone() };
        let without = refused.keys().cloned().collect();
        let mut translation = cluster_discovery::translate_catalog(&source.catalog, &settings, &without);
        let config = cluster_render::render_model(&translation.model, &self.render);
        for (origin, reason) in &config.complaints {
            translation.complaints.push(crate::render::complain_about(origin, reason));
        }
        for (owner, words) in refused {
            let subject = format!("{}/{} {}", settings.provider.name(), owner.kind, owner.name);
            let reason = format!("left out, since the server refuses it: {words}");
            translation.complaints.push(Complaint { subject, reason });
        }
        let source = CatalogSource { owners: translation.owners, ..source.clone() };
        translate::desired_of_catalog(config, translation.complaints, source, &self.render)
    }
}

/// Translates after each change, once there is a complete list.
pub async fn translate_changes(
    inventory: Arc<Inventory>,
    translator: Arc<Translator>,
    metrics: Arc<Metrics>,
    desired: channel::Sender<Option<Arc<DesiredState>>>,
) {
    inventory.complete().await;
    loop {
        inventory.queue.due().await;
        let began = Instant::now();
        let (catalog, certificates) = inventory.snapshot();
        let task = tokio::task::spawn_blocking({
            let translator = translator.clone();
            move || translator.translate(catalog, certificates)
        });
        let Ok(next) = task.await else {
            logs::error("a translation failed; the server keeps its configuration", &[]);
            continue;
        };
        metrics.translated(began.elapsed(), false);
        metrics.complaints.store(next.complaints.len() as u64, Ordering::Relaxed);
        super::super::log_complaints(&next, desired.borrow().as_deref());
        if desired.send(Some(Arc::new(next))).is_err() {
            return;
        }
    }
}
