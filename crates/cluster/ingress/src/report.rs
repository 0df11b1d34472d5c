//! Findings about annotations: the table of `convert-ingress`.

use cluster_objects::types::Ingress;
use cluster_objects::{Complaint, Kind, ObjectSet};
use serde::Serialize;

use crate::annotations::{self, OLD_PREFIX, PREFIX, Treatment};
use crate::settings::Settings;

/// Annotation of an Ingress, with its treatment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `NAMESPACE/NAME`.
    pub ingress: String,
    pub annotation: String,
    pub value: String,
    /// `None` for names that ingress-nginx does not know.
    pub treatment: Option<Treatment>,
    pub becomes: String,
    /// Complaints of the translation about it.
    pub complaints: Vec<String>,
}

/// Lists the annotations of all Ingresses.
pub fn report_annotations(set: &ObjectSet, settings: &Settings, complaints: &[Complaint]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, ingress) in set.all::<Ingress>() {
        let subject = Complaint::about(Kind::Ingress, &name.namespace, &name.name, "").subject;
        for (key, value) in ingress.metadata.annotations.iter().flatten() {
            let (own, is_old) = match (key.strip_prefix(PREFIX), key.strip_prefix(OLD_PREFIX)) {
                (Some(own), _) => (own, false),
                (None, Some(own)) => (own, true),
                (None, None) => continue,
            };
            let known = annotations::find_annotation(own).filter(|_| !is_old);
            let becomes = match known {
                Some(known) if known.treatment == Treatment::Snippet && !settings.allows_snippets => {
                    "nothing without `--allow-snippets`".to_owned()
                }
                Some(known) => known.becomes.to_owned(),
                None if is_old => format!("nothing: write {PREFIX}{own}"),
                None => annotations::annotation_advice(own),
            };
            let about = |reason: &str| {
                let reason = reason.strip_prefix("left out: ").unwrap_or(reason);
                reason.strip_prefix(own).is_some_and(|rest| rest.starts_with([':', ' ']))
            };
            let own_complaints =
                complaints.iter().filter(|it| it.subject == subject && known.is_some() && about(&it.reason));
            findings.push(Finding {
                ingress: name.to_string(),
                annotation: key.clone(),
                value: value.clone(),
                treatment: known.map(|known| known.treatment),
                becomes,
                complaints: own_complaints.map(|it| it.reason.clone()).collect(),
            });
        }
    }
    findings
}
