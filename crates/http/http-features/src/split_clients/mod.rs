//! split_clients (nginx: `ngx_http_split_clients_module`): variables by share of clients; see
//! `variables::split_clients`.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HttpArea};
use std::any::Any;
use std::sync::Arc;

type Splits = variables::split_clients::Splits<HttpArea>;

directives! {
    pub struct SplitConf from SplitInput {
        /// Defines a variable that divides requests into shares, by the hash of a string.
        split_clients: Splits,
    }
}

pub struct SplitClients;

impl Feature for SplitClients {
    fn table(&self) -> FeatureTable {
        SplitConf::table("split_clients", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
