//! split_clients (nginx: `ngx_http_split_clients_module`): a variable whose values go to given shares of all clients. What it
//! does stands in `session_engine::split_clients`.

use conf_schema::{Area, Problem, Table, directives};
use http_engine::{BlockPlan, Feature, Request};
use std::any::Any;
use std::sync::Arc;

type Splits = session_engine::split_clients::Splits<Request>;

directives! {
    /// What the module is told.
    pub struct SplitConf from SplitInput {
        /// Makes a variable that divides requests by the hash of a string into shares.
        split_clients: Splits,
    }
}

/// The feature.
pub struct SplitClients;

impl Feature for SplitClients {
    fn table(&self) -> Table {
        SplitConf::table("split_clients", Area::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
