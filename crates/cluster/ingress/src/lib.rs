//! Translates Ingress objects with the annotations of ingress-nginx to a [`Model`].
//!
//! The meaning of fields and annotations is that of ingress-nginx 1.15: its documents, its annotation parsers and its
//! template. [`translate_ingresses`] is a pure function of a set of objects and [`Settings`].

#![forbid(unsafe_code)]

mod access;
mod annotations;
mod classes;
mod config;
mod config_types;
mod firewall;
mod firewall_lines;
mod headers;
mod hosts;
mod keys;
mod lines;
mod location;
mod nodes;
mod output;
mod report;
mod secrets;
mod servers;
mod services;
mod settings;
mod snippets;
mod sources;
mod template;
mod urls;
mod values;

use std::collections::BTreeSet;

use cluster_model::Model;
use cluster_objects::{Complaint, ObjectName, ObjectSet};

pub use annotations::{ANNOTATIONS, Annotation, OLD_PREFIX, PREFIX, REFUSED_VALUES, Treatment};
pub use output::config_keys;
pub use report::{Finding, report_annotations};
pub use settings::{CONTROLLER_NAME, Settings};
pub use snippets::{REFUSED as REFUSED_DIRECTIVES, parse_location_snippet};

/// Result of a translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IngressTranslation {
    pub model: Model,
    /// Objects and parts that are left out, and values that are ignored.
    pub complaints: Vec<Complaint>,
    /// Ingresses of this controller's classes, also those that are left out.
    pub selected: BTreeSet<ObjectName>,
    /// Ingresses of the classes of other controllers: complaints about them are for reviews of manifests.
    pub foreign: BTreeSet<ObjectName>,
    /// Selected Ingresses that are left out as a whole: a snippet has a refused directive.
    pub refused: BTreeSet<ObjectName>,
}

/// Translates the Ingresses of a class.
pub fn translate_ingresses(set: &ObjectSet, settings: &Settings) -> IngressTranslation {
    let mut complaints = Vec::new();
    let mut model = Model::default();
    let classes::Selection { selected, foreign } = classes::select(set, settings, &mut complaints);
    let foreign = foreign.into_iter().cloned().collect();
    if selected.is_empty() {
        return IngressTranslation { model, complaints, foreign, ..IngressTranslation::default() };
    }
    let names = selected.iter().map(|(name, _)| (*name).clone()).collect::<BTreeSet<ObjectName>>();
    let defaults = settings::read(set, settings, &mut complaints);
    let secrets = secrets::Secrets::new(set);
    let mut services = services::Services::new(set, settings);
    let sources = sources::read(&selected, settings, &defaults, &secrets, &mut model, &mut complaints);
    let assembly = servers::Assembly::new(&sources, settings, &secrets, &mut services, &mut model, &mut complaints);
    let servers = assembly.run();
    output::OutputState::new(&sources, &defaults, settings, &mut services, &mut model, &mut complaints).run(&servers);
    let mut refused = names.clone();
    for source in &sources {
        refused.remove(source.name);
    }
    IngressTranslation { model, complaints, selected: names, foreign, refused }
}
