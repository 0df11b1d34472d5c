//! Asks the store of `shared_store`, which `-t` does not.

use crate::conf::Config;
use crate::machine_limits::examine::{Finding, FindingVerdict};
use area::shared_store::StoreState;
use std::time::{Duration, Instant};

/// Time for an answer of the store.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Reports whether the store is there. Empty without `shared_store`. Waits for its answer.
pub fn examine_store(config: &Config) -> Option<Finding> {
    config.core.shared_store.settings()?;
    let agent = config.core.shared_store.agent(&config.error_log)?;
    let until = Instant::now() + PATIENCE;
    let mut state = agent.state();
    while state.since == 0 && Instant::now() < until {
        std::thread::sleep(LOOK_PAUSE);
        state = agent.state();
    }
    Some(finding(&state))
}

fn finding(state: &StoreState) -> Finding {
    let here = match (&state.last_failure, state.is_connected) {
        (_, true) => "there".into(),
        (Some(failure), false) => failure.clone(),
        (None, false) => "no answer".into(),
    };
    let why = "limits count as \"fallback\" says, and changes of pairs and purges wait";
    let remedy = "start the store, or mend the address, the password or the rights of its user";
    Finding {
        name: "shared store",
        here,
        needed: "there".into(),
        verdict: if state.is_connected { FindingVerdict::Fine } else { FindingVerdict::Note },
        connections: None,
        why: if state.is_connected { String::new() } else { why.into() },
        remedy: if state.is_connected { String::new() } else { remedy.into() },
    }
}
