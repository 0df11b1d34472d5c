//! Lookups in an [`ObjectSet`], and its order.

use std::fmt;
use std::sync::Arc;

use crate::kinds::{ObjectSet, StoredObject};

/// Namespace and name. The namespace is empty for kinds without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl ObjectName {
    pub fn new(namespace: &str, name: &str) -> ObjectName {
        ObjectName { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

impl ObjectSet {
    /// Returns the object of type `T` with this name.
    pub fn get<T: StoredObject>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        T::map(self).get(&ObjectName::new(namespace, name))
    }

    /// Returns the objects of type `T`, in order of namespace and name.
    pub fn all<T: StoredObject>(&self) -> impl Iterator<Item = (&ObjectName, &Arc<T>)> {
        T::map(self).iter()
    }

    /// Returns the objects of type `T`, the oldest first; equally old ones in order of namespace and name. Gateway API
    /// resolves conflicts in this order. Objects without a time of creation (manifests) come first.
    pub fn by_age<T: StoredObject>(&self) -> Vec<(&ObjectName, &Arc<T>)> {
        let mut all: Vec<_> = T::map(self).iter().collect();
        // The sort is stable: the map is in order of names.
        all.sort_by_key(|(_, object)| object.metadata().creation_timestamp.as_ref().map(|time| time.0));
        all
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
