//! Groups whose servers an API changes: their lines `zone` and `state`, and their entry into the inventory.

use super::groups::GroupNames;
use super::methods::Zone;
use super::state::StateValue;
use crate::inventory::{Inventory, ListedGroup};
use area::zones;
use conf_schema::{Cx, Problem};
use std::sync::Arc;
use upstream::Roster;

/// Checks the lines beside `state`.
///
/// # Errors
/// The group has `server` lines, too, or no `zone`.
pub fn check_state(state: Option<&StateValue>, zone: Option<&Zone>, has_servers: bool) -> Result<(), Problem> {
    let problem = |words: &str| Problem::says(words.to_string()).of("state");
    match (state, zone) {
        (Some(_), _) if has_servers => Err(problem("\"server\" and \"state\" directives cannot stand in one upstream")
            .hint("move the servers to the state file, or remove the \"state\" directive")),
        (Some(_), None) => {
            Err(problem("\"state\" requires the upstream to be in shared memory").hint("add a \"zone\" directive"))
        }
        _ => Ok(()),
    }
}

/// Returns the state of a group beside its configurations: an earlier one's if area, name and file are equal.
pub fn state_roster(name: &str, stream: bool, state: Option<&StateValue>) -> Arc<Roster> {
    let file = state.map(|StateValue(file)| file.path.as_os_str().as_encoded_bytes()).unwrap_or_default();
    zones::zone_state(if stream { "servers of stream" } else { "servers" }, name, 0, file, Roster::default)
}

/// Enters a group into the inventory, and its file into the work before the first request.
pub fn list_group(cx: &mut Cx, listed: ListedGroup, names: &GroupNames) {
    if let (Some(roster), Some(file)) = (&listed.group.extras.roster, &listed.state) {
        names.restore(roster, file);
    }
    let inventory = Inventory::of(cx);
    let area = if listed.group.extras.stream { &inventory.stream } else { &inventory.http };
    area.add_group(listed);
}
