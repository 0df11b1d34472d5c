//! References across namespaces, which need a `ReferenceGrant` in the namespace of their target.

use crate::kinds::ObjectSet;
use crate::types::ReferenceGrant;

/// Object that refers to another one.
#[derive(Clone, Copy, Debug)]
pub struct Referrer<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

/// Target of a reference.
#[derive(Clone, Copy, Debug)]
pub struct Referent<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl ObjectSet {
    /// Tells whether a reference is permitted: it stays in its namespace, or a `ReferenceGrant` in the namespace of the
    /// target lists both sides.
    pub fn permits(&self, from: Referrer<'_>, to: Referent<'_>) -> bool {
        if from.namespace == to.namespace {
            return true;
        }
        self.all::<ReferenceGrant>().filter(|(name, _)| name.namespace == to.namespace).any(|(_, grant)| {
            let spec = &grant.spec;
            let listed_from = spec.from.iter().any(|listed| {
                listed.group == from.group && listed.kind == from.kind && listed.namespace == from.namespace
            });
            let listed_to = spec.to.iter().any(|listed| {
                let name = listed.name.as_deref().filter(|name| !name.is_empty());
                listed.group == to.group && listed.kind == to.kind && name.is_none_or(|name| name == to.name)
            });
            listed_from && listed_to
        })
    }
}
