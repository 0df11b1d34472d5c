//! split_clients (nginx: `ngx_stream_split_clients_module`): a variable whose values go to given shares of all clients. What it
//! does stands in `session_engine::split_clients`.

use crate::build::Feature;
use crate::session::StreamSession;
use conf_schema::{Area, Table, directives};

type Splits = session_engine::split_clients::Splits<StreamSession>;

directives! {
    /// What the module is told.
    pub struct SplitConf from SplitInput {
        /// Makes a variable that divides sessions by the hash of a string into shares.
        split_clients: Splits,
    }
}

/// The feature.
pub struct SplitClients;

impl Feature for SplitClients {
    fn table(&self) -> Table {
        SplitConf::table("split_clients", Area::Stream)
    }
}
