//! keyval (nginx: `ngx_http_keyval_module`): variables with values that change at run time; see `area::keyval`.

use area::keyval::{self, StateKeeper};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::build::HttpBuild;
use http_engine::{BlockPlan, Feature, HttpArea};
use std::any::Any;
use std::sync::Arc;
use upstream_directives::inventory::Inventory;

type HttpKeyvalLookups = keyval::KeyvalLookups<HttpArea>;
type HttpKeyvalZones = keyval::KeyvalZones<HttpArea>;

directives! {
    pub struct KeyvalConf from KeyvalInput {
        /// Defines a variable by looking up a key in a zone of key-value pairs. Each use of the variable looks the key
        /// up anew.
        keyval: HttpKeyvalLookups,
        /// Defines a zone of key-value pairs: its name and size, the file that stores the pairs across restarts
        /// (`state`), the lifetime of pairs (`timeout`), and the type of the keys (`type`). With `sync` all servers
        /// of a `shared_store` have the same pairs; a change is on the others after milliseconds.
        keyval_zone: HttpKeyvalZones,
    }
}

pub struct KeyvalFeature;

impl Feature for KeyvalFeature {
    fn table(&self) -> FeatureTable {
        KeyvalConf::table("keyval", ContextArea::Http)
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let zones = keyval::connect_variables::<HttpArea>(http.cx)?;
        if !zones.is_empty() {
            Inventory::of(http.cx).http.add_keyvals(&zones);
            let keeping = Arc::new(StateKeeper(zones));
            http.extensions.push(keeping.clone());
            http.background.push(keeping);
        }
        Ok(())
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
