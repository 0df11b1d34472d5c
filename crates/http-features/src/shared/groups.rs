//! The groups of a configuration by name; kept in `Cx` while it is read.

use conf_schema::Problem;
use http_engine::Template;
use std::collections::HashMap;
use std::sync::Arc;
use upstream::Group;

/// A group and the key that `hash` computes.
#[derive(Clone, Debug)]
pub struct Named {
    pub group: Arc<Group>,
    pub key: Option<Template>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Groups(HashMap<String, Named>);

impl Groups {
    /// # Errors
    /// A duplicate.
    pub fn add(&mut self, name: &str, group: Arc<Group>, key: Option<Template>) -> Result<(), Problem> {
        if self.0.insert(name.to_ascii_lowercase(), Named { group, key }).is_some() {
            return Err(Problem::says(format!("duplicate upstream \"{name}\"")));
        }
        Ok(())
    }
    pub fn get(&self, name: &str) -> Option<&Named> {
        self.0.get(&name.to_ascii_lowercase())
    }
}
