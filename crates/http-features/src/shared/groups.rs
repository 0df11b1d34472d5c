//! The groups of a configuration by name; kept in `Cx` while it is read.

use conf_schema::Problem;
use http_engine::Template;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use upstream::Group;

/// A group and the key that `hash` computes.
#[derive(Clone, Debug)]
pub struct Named {
    pub group: Arc<Group>,
    pub key: Option<Template>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    blocks: HashMap<String, Named>,
    /// Hosts of literal URLs, of the whole configuration: a URL with variables that names one means its addresses.
    implied: Arc<Mutex<HashMap<String, Named>>>,
}

impl Groups {
    /// # Errors
    /// A duplicate.
    pub fn add(&mut self, name: &str, group: Arc<Group>, key: Option<Template>) -> Result<(), Problem> {
        if self.blocks.insert(name.to_ascii_lowercase(), Named { group, key }).is_some() {
            return Err(Problem::says(format!("duplicate upstream \"{name}\"")));
        }
        Ok(())
    }
    pub fn get(&self, name: &str) -> Option<&Named> {
        self.blocks.get(&name.to_ascii_lowercase())
    }
    /// A host that a literal URL names.
    pub fn imply(&mut self, host: &str, named: &Named) {
        let mut implied = self.implied.lock().unwrap_or_else(PoisonError::into_inner);
        implied.entry(host.to_ascii_lowercase()).or_insert_with(|| named.clone());
    }
    pub fn implied(&self, host: &str) -> Option<Named> {
        let implied = self.implied.lock().unwrap_or_else(PoisonError::into_inner);
        implied.get(&host.to_ascii_lowercase()).cloned()
    }
}
