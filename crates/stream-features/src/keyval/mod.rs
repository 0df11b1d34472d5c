//! keyval (nginx: `ngx_stream_keyval_module`): variables with values that change at run time; see
//! `area::keyval`.

use crate::StreamArea;
use crate::build::{Feature, StreamBuild};
use area::keyval::{self, StateKeeper};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;
use upstream_directives::inventory::Inventory;

type StreamKeyvalLookups = keyval::KeyvalLookups<StreamArea>;
type StreamKeyvalZones = keyval::KeyvalZones<StreamArea>;

directives! {
    pub struct KeyvalConf from KeyvalInput {
        /// Defines a variable by looking up a key in a zone of key-value pairs. Each use of the variable looks the key
        /// up anew.
        keyval: StreamKeyvalLookups,
        /// Defines a zone of key-value pairs: its name and size, the file that stores the pairs across restarts
        /// (`state`), the lifetime of pairs (`timeout`), and the type of the keys (`type`). With `sync` all servers
        /// of a `shared_store` have the same pairs; a change is on the others after milliseconds.
        keyval_zone: StreamKeyvalZones,
    }
}

pub struct KeyvalFeature;

impl Feature for KeyvalFeature {
    fn table(&self) -> FeatureTable {
        KeyvalConf::table("keyval", ContextArea::Stream)
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        let zones = keyval::connect_variables::<StreamArea>(stream.cx)?;
        if !zones.is_empty() {
            Inventory::of(stream.cx).stream.add_keyvals(&zones);
            let keeping = Arc::new(StateKeeper(zones));
            stream.extensions.push(keeping.clone());
            stream.background.push(keeping);
        }
        Ok(())
    }
}
