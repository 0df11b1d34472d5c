//! Translates Ingress objects with the annotations of ingress-nginx to a [`Model`].
//!
//! The meaning of fields and annotations is that of ingress-nginx 1.15: its documents, its annotation parsers and its
//! template. [`translate`] is a pure function of a set of objects and [`Settings`].

#![forbid(unsafe_code)]

mod access;
mod annotations;
mod classes;
mod config;
mod config_types;
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

use cluster_model::Model;
use cluster_objects::{Complaint, ObjectSet};

pub use annotations::{ANNOTATIONS, Annotation, OLD_PREFIX, PREFIX, REFUSED_VALUES, Treatment};
pub use output::config_keys;
pub use report::{Finding, report};
pub use settings::{CONTROLLER_NAME, Settings};
pub use snippets::REFUSED as REFUSED_DIRECTIVES;

/// Result of a translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    pub model: Model,
    /// Objects and parts that are left out, and values that are ignored.
    pub complaints: Vec<Complaint>,
}

/// Translates the Ingresses of a class.
pub fn translate(set: &ObjectSet, settings: &Settings) -> Translation {
    let mut complaints = Vec::new();
    let mut model = Model::default();
    let selected = classes::select(set, settings, &mut complaints);
    if selected.is_empty() {
        return Translation { model, complaints };
    }
    let defaults = settings::read(set, settings, &mut complaints);
    let secrets = secrets::Secrets::new(set);
    let mut services = services::Services::new(set);
    let sources = sources::read(&selected, settings, &defaults, &secrets, &mut model, &mut complaints);
    let assembly = servers::Assembly::new(&sources, settings, &secrets, &mut services, &mut model, &mut complaints);
    let servers = assembly.run();
    output::Output::new(&sources, &defaults, settings, &mut services, &mut model, &mut complaints).run(&servers);
    Translation { model, complaints }
}
