//! Which Ingresses are served.

use std::sync::Arc;

use cluster_objects::types::{Ingress, IngressClass};
use cluster_objects::{Complaint, Kind, ObjectName, ObjectSet};

use crate::settings::Settings;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
/// Classes that are served if neither an argument nor an IngressClass says which ones are.
const USUAL_CLASSES: &[&str] = &["nginx", "tidegate"];

/// Ingresses by their class.
pub(crate) struct Selection<'a> {
    /// Those of this controller, the oldest first.
    pub selected: Vec<(&'a ObjectName, &'a Arc<Ingress>)>,
    /// Those of classes of other controllers.
    pub foreign: Vec<&'a ObjectName>,
}

/// Sorts all Ingresses by their class, with complaints about those that are left out.
pub(crate) fn select<'a>(set: &'a ObjectSet, settings: &Settings, complaints: &mut Vec<Complaint>) -> Selection<'a> {
    let classes: Vec<(&str, &IngressClass)> =
        set.all::<IngressClass>().map(|(name, class)| (name.name.as_str(), class.as_ref())).collect();
    let is_ours = |class: &IngressClass| {
        class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(settings.controller_name.as_str())
    };
    let is_default = |class: &IngressClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(DEFAULT_ANNOTATION)).map(String::as_str) == Some("true")
    };
    let serves = |name: &str| match &settings.class {
        Some(class) => class == name,
        None if classes.is_empty() => USUAL_CLASSES.contains(&name),
        None => classes.iter().any(|(known, class)| *known == name && is_ours(class)),
    };
    let default = classes.iter().find(|(_, class)| is_default(class)).map(|(name, _)| *name);
    let (mut selected, mut foreign) = (Vec::new(), Vec::new());
    for (name, ingress) in set.by_age::<Ingress>() {
        let mut complain =
            |words: String| complaints.push(Complaint::about(Kind::Ingress, &name.namespace, &name.name, words));
        let field = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
        let annotations = ingress.metadata.annotations.as_ref();
        let annotation = annotations.and_then(|all| all.get(CLASS_ANNOTATION)).map(String::as_str);
        let annotation = annotation.filter(|class| !class.is_empty());
        if let (Some(field), Some(annotation)) = (field, annotation)
            && field != annotation
        {
            complain(format!(
                "ingressClassName \"{}\" counts, not the annotation {CLASS_ANNOTATION}: \"{}\"",
                field.escape_debug(),
                annotation.escape_debug()
            ));
        }
        match field.or(annotation).or(default) {
            Some(class) if serves(class) => selected.push((name, ingress)),
            Some(class) => {
                foreign.push(name);
                complain(format!("left out: its class is \"{}\"", class.escape_debug()));
            }
            None if settings.serves_without_class => selected.push((name, ingress)),
            None => complain("left out: it has no class (--ingress-without-class serves it)".into()),
        }
    }
    Selection { selected, foreign }
}
