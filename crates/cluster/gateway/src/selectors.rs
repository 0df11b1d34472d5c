//! Namespaces that a Gateway or listener admits.

use std::collections::BTreeMap;

use cluster_objects::ObjectSet;
use cluster_objects::types::Namespace;

/// Namespaces by `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    None,
    Same,
    All,
    Selector(Selector),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub labels: BTreeMap<String, String>,
    /// Key, operator, values.
    pub expressions: Vec<(String, String, Vec<String>)>,
}

impl Namespaces {
    /// Tells whether objects of `namespace` are admitted by an object in `own`.
    pub fn admits(&self, set: &ObjectSet, own: &str, namespace: &str) -> bool {
        match self {
            Namespaces::None => false,
            Namespaces::Same => own == namespace,
            Namespaces::All => true,
            Namespaces::Selector(selector) => selector.matches(&labels(set, namespace)),
        }
    }
}

impl Selector {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = self.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        equal
            && self.expressions.iter().all(|(key, operator, values)| {
                let value = labels.get(key);
                match operator.as_str() {
                    "In" => value.is_some_and(|value| values.contains(value)),
                    "NotIn" => value.is_none_or(|value| !values.contains(value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// Returns the labels of a namespace, with the one that the API server gives to each.
fn labels(set: &ObjectSet, namespace: &str) -> BTreeMap<String, String> {
    let object = set.get::<Namespace>("", namespace);
    let mut labels = object.and_then(|object| object.metadata.labels.clone()).unwrap_or_default();
    labels.entry("kubernetes.io/metadata.name".into()).or_insert_with(|| namespace.into());
    labels
}
