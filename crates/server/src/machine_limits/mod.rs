//! Limits of this machine compared with the needs of a configuration, for `tidegate doctor` and `-t`.

pub mod demand;
pub mod examine;
pub mod machine;

use crate::conf::{Config, Invocation};
use crate::machine_limits::demand::Demand;
use crate::machine_limits::examine::{
    FindingVerdict, IN_MAIN_CONTEXT, OPEN_FILES, descriptors_allowed, examine_machine,
};
use crate::machine_limits::machine::DoctorMachine;

/// Returns `-t` warnings about limits that the configuration exceeds, one line each.
pub fn limit_warnings(invocation: &Invocation, config: &Config) -> Vec<String> {
    let (machine, demand) = (DoctorMachine::read(), Demand::of(invocation, config));
    // `-t` warns only if the connections themselves do not fit; the doctor also counts their further descriptors.
    let possible = descriptors_allowed(&machine, &demand).is_none_or(|allowed| allowed >= demand.connections());
    let short = examine_machine(&machine, &demand).into_iter().filter(|f| f.verdict == FindingVerdict::Short);
    let short = short.filter(|f| f.name != OPEN_FILES || !possible);
    short
        .map(|f| {
            // In the table, the place stands behind the line to write.
            let remedy = match f.remedy.strip_suffix(IN_MAIN_CONTEXT) {
                Some(line) => format!("write \"{line}\" in the main context"),
                None => f.remedy.replace("   (", " ("),
            };
            format!("{}: {} available, {} needed: {}; {remedy}", f.name, f.here, f.needed, f.why)
        })
        .collect()
}
