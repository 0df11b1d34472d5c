//! split_clients (nginx: `ngx_stream_split_clients_module`): variables by share of clients; see
//! `variables::split_clients`.

use crate::StreamArea;
use crate::build::Feature;
use conf_schema::{ContextArea, FeatureTable, directives};

type Splits = variables::split_clients::Splits<StreamArea>;

directives! {
    pub struct SplitConf from SplitInput {
        /// Defines a variable that divides sessions into shares, by the hash of a string.
        split_clients: Splits,
    }
}

pub struct SplitClients;

impl Feature for SplitClients {
    fn table(&self) -> FeatureTable {
        SplitConf::table("split_clients", ContextArea::Stream)
    }
}
