//! Steps of a change at which tests interrupt the process (debug builds): `TIDEGATE_CONFIG_STOP=STEP` stops it there as
//! SIGSTOP does.

/// Steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The configuration was read and is in order.
    Checked,
    /// Its generation is on the disk.
    Kept,
    /// The new main file is beside the old one.
    Written,
    /// The main file was replaced.
    Placed,
    /// The worker process was told.
    Sent,
    /// The worker process serves it.
    InForce,
}

#[cfg(debug_assertions)]
impl Step {
    const fn name(self) -> &'static str {
        match self {
            Step::Checked => "checked",
            Step::Kept => "kept",
            Step::Written => "written",
            Step::Placed => "placed",
            Step::Sent => "sent",
            Step::InForce => "in-force",
        }
    }
}

/// Reports a step. A process stops once; restoring the old file is a step, too.
#[cfg(debug_assertions)]
pub fn reached(step: Step) {
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::{AtomicBool, Ordering};
    static STOPPED: AtomicBool = AtomicBool::new(false);
    let is_asked = std::env::var_os("TIDEGATE_CONFIG_STOP").is_some_and(|name| name == step.name());
    if is_asked && !STOPPED.swap(true, Ordering::Relaxed) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_: Step) {}
